// Reads GPU memory for probes through the HIP runtime that the process has loaded.
#ifndef GRAPHSIGNAL_INJECT_ROCM_HIP_H
#define GRAPHSIGNAL_INJECT_ROCM_HIP_H

#include "../common/device_probes.h"

namespace graphsignal {
namespace rocm {

// The few calls that copy device memory without disturbing the program: on a stream of our own that does not wait for others,
// from a thread whose calls are allowed while another one captures a graph.
class HipMemory {
 public:
  void start(Log& log) { log_ = &log; }
  DeviceMemory interface();
  // Whether a record tells of something that the reading thread did. Any thread.
  bool is_ours(uint64_t thread) const { return thread != 0 && thread == __atomic_load_n(&reader_, __ATOMIC_RELAXED); }

 private:
  bool resolve();
  bool enter(int device);
  void* staging(size_t bytes);
  bool copy(int device, void* to, uint64_t from, size_t bytes);
  DeviceMemory::State state(int device);
  bool succeeded(int result, const char* call);

  struct Runtime {
    int (*set_device)(int device);
    int (*create_stream)(void** stream, unsigned flags);
    int (*copy_async)(void* to, const void* from, size_t bytes, int kind, void* stream);
    int (*query_stream)(void* stream);
    int (*host_malloc)(void** memory, size_t bytes, unsigned flags);
    int (*exchange_capture_mode)(int* mode);
  } runtime_ = {};
  bool ready_ = false;  // the functions are resolved, and the thread's capture mode is set
  uint64_t reader_ = 0;
  void* streams_[DeviceProbes::kMaxDevices] = {};
  Log* log_ = nullptr;
  int last_error_ = 0;  // the latest failure
  int messages_ = 0;    // of failures
};

}  // namespace rocm
}  // namespace graphsignal

#endif
