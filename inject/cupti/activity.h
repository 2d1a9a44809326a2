// Turns CUPTI's records into the cuda_* instruments.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_ACTIVITY_H
#define GRAPHSIGNAL_INJECT_CUPTI_ACTIVITY_H

#include "../common/instruments.h"
#include "../common/log.h"
#include "graphs.h"
#include "pace.h"

namespace graphsignal {
namespace cupti {

class Activity {
 public:
  // Registers the instruments; node_mode sets the gauge cuda_graph_trace_mode. False when memory is short.
  bool start(Instruments& instruments, Log& log, const Functions& functions, const GraphNames& graphs, bool node_mode);

  // Adds up all records of a buffer. Any thread; buffers take turns.
  void process(uint8_t* buffer, size_t valid, Pace& pace);
  // Ends the reading of records: a buffer that is being processed is left at once, at most wait_ns is waited for that.
  // From then on the names that records point at may go.
  void close(uint64_t wait_ns);
  // Adds records that CUPTI had to drop.
  void dropped(uint64_t records);

  // From now on a kernel's name pointer may come to mean another name: compare the text, too.
  void distrust_name_pointers() { __atomic_store_n(&compare_names_, true, __ATOMIC_RELAXED); }
  // Leaves out the copies of a stream, given CUPTI's numbers of its context and itself. At most kIgnoredStreams streams.
  void ignore_copies(uint32_t context, uint32_t stream);
  uint64_t records() const { return __atomic_load_n(&records_, __ATOMIC_RELAXED); }

 private:
  static const uint32_t kCacheSlots = 32768;
  static const uint32_t kCopyKinds = 12;    // 11 is "other"
  static const uint32_t kMemoryKinds = 8;   // 0 is "unknown"
  static const uint32_t kSyncTypes = 5;     // 0 is "unknown"
  static const uint32_t kGraphSlots = 8192;
  static const uint32_t kIgnoredStreams = 64;

  struct CachedName {
    const char* pointer;
    uint32_t frame;
  };
  struct CachedGraph {
    uint64_t id_plus_one;
    uint32_t frame;
    bool named;
  };

  uint8_t* next(uint8_t* buffer, size_t valid, uint8_t* record);
  bool add_record(const uint8_t* record, size_t available);
  bool ignored(const uint8_t* copy_record, size_t available) const;
  bool duration(uint64_t start, uint64_t end, uint64_t* ns);
  uint32_t kernel_frame(const char* name);
  uint32_t graph_frame(uint32_t id);
  void add_bytes(const char* metric, const char* kind, Instrument** counter, uint64_t bytes);
  void calibrate(uint64_t now_ns);

  Lock lock_;
  Instruments* instruments_ = nullptr;
  Log* log_ = nullptr;
  const Functions* functions_ = nullptr;
  const GraphNames* graphs_ = nullptr;

  Profile* kernels_ = nullptr;
  Profile* graph_times_ = nullptr;
  Profile* copies_ = nullptr;
  Profile* sets_ = nullptr;
  Profile* syncs_ = nullptr;
  Instrument* invalid_ = nullptr;
  Instrument* dropped_ = nullptr;
  Instrument* copy_bytes_[kCopyKinds] = {};
  Instrument* set_bytes_[kMemoryKinds] = {};
  uint32_t copy_frames_[kCopyKinds];
  uint32_t set_frames_[kMemoryKinds];
  uint32_t sync_frames_[kSyncTypes];

  CachedName* cache_ = nullptr;
  uint32_t cached_ = 0;
  CachedGraph* graph_cache_ = nullptr;
  bool compare_names_ = false;
  bool drop_logged_ = false;
  bool closed_ = false;
  uint64_t records_ = 0;
  uint64_t ignored_[kIgnoredStreams] = {};  // context << 32 | stream
  uint32_t ignored_count_ = 0;

  uint32_t stride_[kKindLimit] = {};
  bool own_steps_ = true;

  // Records cannot begin before the process did. The two clocks are compared now and then; the check counts only once a
  // record has shown that CUPTI's clock and the records' are the same.
  uint64_t began_ns_ = 0;       // monotonic
  uint64_t calibrated_ns_ = 0;  // monotonic, 0 never
  uint64_t earliest_ = 0;       // in the records' clock, 0 unknown
  uint64_t longest_ = 0;
  uint32_t unlike_ = 0;
  bool clock_confirmed_ = false;
};

}  // namespace cupti
}  // namespace graphsignal

#endif
