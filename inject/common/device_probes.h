// Reads the blocks of probes that lie in GPU memory, on a thread of its own, so that a driver that waits or hangs delays
// neither the program nor the document. What is special to a GPU runtime is behind DeviceMemory.
#ifndef GRAPHSIGNAL_INJECT_DEVICE_PROBES_H
#define GRAPHSIGNAL_INJECT_DEVICE_PROBES_H

#include <pthread.h>

#include "instruments.h"
#include "json.h"
#include "log.h"
#include "probe_export.h"
#include "system.h"

namespace graphsignal {

// A GPU runtime, as far as reading needs it. Its functions are called on one thread of ours; all but enter() between
// enter() and leave(). None may wait for the program's work.
struct DeviceMemory {
  enum State { kDone, kBusy, kFailed };

  void* self;
  // Readies a device for this thread. False when that cannot be now, above all when the program has not used it yet.
  bool (*enter)(void* self, int device);
  void (*leave)(void* self, int device);
  // Host memory for copies, page-locked where possible, kept for ever; NULL on failure.
  void* (*staging)(void* self, int device, size_t bytes);
  // Queues a copy from the device behind the earlier ones; false when it is refused.
  bool (*copy)(void* self, int device, void* to, uint64_t from, size_t bytes);
  // How the queued copies are doing.
  State (*state)(void* self, int device);
};

class DeviceProbes {
 public:
  static const uint32_t kMaxProbes = 16384;  // of all registries
  static const int kMaxDevices = 64;

  struct Options {
    DeviceMemory memory;
    const ProbeRegistries* registries;
    Instruments* instruments;  // gets graphsignal_probe_read_nanoseconds once there are device probes
    Log* log;
    uint64_t deadline_ns = 500000000;  // for the copies of one device
  };
  void start(const Options& options);

  // Reads all blocks once and waits for that at most so long. A reading that takes longer goes on, and what it gets is
  // published the next time; if it has not ended by then, nothing is. The thread starts with the first device probe.
  void refresh(uint64_t wait_ns);

  // No call of the driver begins from now on; waits at most so long for one that goes on. What was read stays published.
  void close(uint64_t wait_ns);

  // Writes the entries of the blocks that the last reading got. Copies of one identity in several registries are summed.
  void write(Json& out, bool* first);

  // Blocks that the last reading could not get.
  uint32_t unread() const { return __atomic_load_n(&unread_, __ATOMIC_RELAXED); }

 private:
  static const uint32_t kNone = ~0u;
  struct Slot {
    const graphsignal_probe_entry* entry;
    uint64_t hash;      // of the identity
    uint32_t next;      // another slot of the same identity, or kNone
    uint32_t registry;
    bool first;         // of its identity
    bool queued;        // the reading that goes on has asked for it
    bool fresh;         // the last reading got it
    bool known;         // an earlier one did
    graphsignal_instrument_data value;
  };
  struct Device {
    uint8_t* staging;
    size_t staging_bytes;
    bool outstanding;  // copies into staging are still queued
    bool complained;
  };

  static void* thread_main(void* self);
  static int by_address(const void* a, const void* b);
  void loop();
  bool collect();
  void join_identity(uint32_t slot);
  void read_all();
  bool read_device(int device, Slot** slots, uint32_t n);
  void forget(Slot** slots, uint32_t n);
  bool closing() const { return __atomic_load_n(&closed_, __ATOMIC_ACQUIRE) || forked(); }
  bool await_copies(int device);
  void complain(int device, const char* what);

  Options options_;
  Slot* slots_ = nullptr;
  Slot** order_ = nullptr;   // by device and address
  uint32_t count_ = 0;
  uint64_t taken_[ProbeRegistries::kMaxRegistries] = {};  // entries of each registry that were looked at
  Device devices_[kMaxDevices] = {};
  Instrument* read_time_ = nullptr;
  Lock values_;  // fresh and value of the slots
  Lock driver_;  // held while the driver may be in use
  Event asked_;
  Event answered_;
  pthread_t thread_;
  uint32_t unread_ = 0;
  bool ever_unread_ = false;
  bool enabled_ = false;
  bool running_ = false;
  bool current_ = false;  // what was read last is recent
  bool overflow_logged_ = false;
  bool closed_ = false;
};

}  // namespace graphsignal

#endif
