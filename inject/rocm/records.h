// Turns rocprofiler-sdk's records into the rocm_* instruments.
#ifndef GRAPHSIGNAL_INJECT_ROCM_RECORDS_H
#define GRAPHSIGNAL_INJECT_ROCM_RECORDS_H

#include "../common/instruments.h"
#include "../common/log.h"
#include "hip.h"
#include "kernels.h"
#include "rocprofiler_abi.h"

namespace graphsignal {
namespace rocm {

// The synchronizing calls of the HIP runtime that are traced. Tracing others is what makes HIP tracing expensive.
const uint32_t kSyncCalls = 5;
extern const char* const kSyncNames[kSyncCalls];

class Records {
 public:
  struct Options {
    bool new_layout;
    bool kernels;       // dispatches are traced
    bool synchronization;  // the five calls are traced
  };

  // Registers the instruments. What the reader of device probes does is not counted. False when memory is short.
  bool start(Instruments& instruments, Log& log, const HipMemory& memory, const Options& options);

  // Says which number a synchronizing call has in this SDK. Before any record arrives.
  void set_operation(uint32_t call, uint32_t operation) { operations_[call] = static_cast<int64_t>(operation); }

  // Adds up the records of one callback; dropped is the SDK's running total. Any thread; callbacks take turns.
  void process(const RecordHeader* const* headers, size_t count, uint64_t dropped);

  // A kernel got a name. Any thread.
  void name_kernel(uint64_t id, const char* name);

 private:
  static const uint32_t kCopyKinds = 5;  // 0 is "other"

  bool duration(const uint8_t* record, size_t start, size_t end, uint64_t* ns);
  void add_dispatch(const uint8_t* record, uint64_t size);
  void add_copy(const uint8_t* record, uint64_t size);
  void add_call(const uint8_t* record, uint64_t size);

  Lock lock_;
  Instruments* instruments_ = nullptr;
  Log* log_ = nullptr;
  const HipMemory* memory_ = nullptr;
  ApiLayout api_ = kOldApi;
  KernelNames names_;

  Profile* kernels_ = nullptr;
  Profile* copies_ = nullptr;
  Profile* syncs_ = nullptr;
  Instrument* invalid_ = nullptr;
  Instrument* dropped_ = nullptr;
  Instrument* copy_bytes_[kCopyKinds] = {};
  uint32_t copy_frames_[kCopyKinds];
  uint32_t sync_frames_[kSyncCalls];
  int64_t operations_[kSyncCalls];  // -1: this SDK does not have it

  uint64_t began_ns_ = 0;    // monotonic
  uint64_t longest_ns_ = 0;  // no record can take longer
  uint64_t dropped_before_ = 0;
  bool names_lost_ = false;
};

}  // namespace rocm
}  // namespace graphsignal

#endif
