// Reads and publishes probe blocks that lie in GPU memory.
#ifndef GRAPHSIGNAL_INJECT_ROCM_DEVICE_PROBES_H
#define GRAPHSIGNAL_INJECT_ROCM_DEVICE_PROBES_H

#include "../common/json.h"
#include "../common/log.h"
#include "../common/probe_export.h"
#include "../common/system.h"
#include "hip.h"
#include "registries.h"

namespace graphsignal {
namespace rocm {

// All calls of the runtime are made by a thread that is started when the first such probe is seen, so that one that hangs
// keeps no document waiting. What could not be read this time keeps its last value.
class DeviceProbes {
 public:
  static const uint32_t kMaxProbes = 8192;
  static const int kMaxDevices = 64;
  static const uint64_t kPatienceNs = 200000000;

  // The writer, which publishes probes on the host, gets to know all registries that are found.
  void start(Log& log, ProbeRegistries& host) {
    log_ = &log;
    host_ = &host;
  }
  // Reads all blocks. Waits a bounded time; called by the writer's thread before it makes a document.
  void refresh();
  // No more calls of the runtime, which is about to go. Waits a bounded time for those under way.
  void stop();
  // Adds what was read. Any thread.
  void write(Json& out, bool* first);
  // Whether a record tells of something our thread did.
  bool is_ours(uint64_t thread) const { return thread != 0 && thread == __atomic_load_n(&reader_id_, __ATOMIC_RELAXED); }

 private:
  struct Probe {
    const graphsignal_probe_entry* entry;
    graphsignal_instrument_data block;
    bool read;  // at least once
    bool arrived;  // the copy of this round, which lies at `staged`, was made
    uint32_t staged;
  };
  struct Device {
    void* stream;
    graphsignal_instrument_data* staging;
    uint32_t capacity;  // blocks
    bool pending;       // an earlier round's copies have not ended
  };

  static void* thread_main(void* self);
  void read_loop();
  void collect();
  void read_all();
  void read_device(int device, const uint32_t* order, uint32_t count);
  bool make_room(Device& d, uint32_t blocks);
  Hip::Progress await(Device& d);
  void complain(int device, const char* what);

  Log* log_ = nullptr;
  ProbeRegistries* host_ = nullptr;
  Hip hip_;
  Registries registries_;
  // Entries that were looked at, by registry.
  uint64_t seen_[Registries::kMax] = {};

  Lock lock_;  // the blocks and the number of probes
  Probe* probes_ = nullptr;
  uint32_t* order_ = nullptr;
  uint32_t count_ = 0;
  uint32_t left_out_ = 0;
  Device devices_[kMaxDevices] = {};

  Event ask_, done_;
  pthread_t thread_;
  uint64_t reader_id_ = 0;
  bool started_ = false;
  bool failed_ = false;  // the thread could not be started
  bool busy_ = false;    // the writer's own
  bool stopped_ = false;
  static const int kTroubles = 8;
  const char* told_[kTroubles] = {};  // each kind of trouble once
};

}  // namespace rocm
}  // namespace graphsignal

#endif
