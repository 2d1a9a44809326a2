// The few calls of the HIP runtime that copy device memory without disturbing the program: on a stream of our own that
// does not wait for others, from a thread whose calls are allowed while another one captures a graph.
#ifndef GRAPHSIGNAL_INJECT_ROCM_HIP_H
#define GRAPHSIGNAL_INJECT_ROCM_HIP_H

#include <stddef.h>

namespace graphsignal {
namespace rocm {

class Hip {
 public:
  // Finds the runtime that the process has loaded. False where there is none, or a function is missing.
  bool resolve();
  // To be called on the thread that makes all other calls.
  void relax_capture();

  // Makes a device current and gives its stream, which is made when NULL.
  bool open(int device, void** stream);
  // Host memory that copies may go to. It is never given back: a copy may be under way.
  void* staging(size_t bytes);
  bool copy(void* stream, void* to, const void* from, size_t bytes);
  enum Progress { kDone, kRunning, kFailed };
  Progress progress(void* stream);

 private:
  int (*set_device_)(int device);
  int (*create_stream_)(void** stream, unsigned flags);
  int (*copy_async_)(void* to, const void* from, size_t bytes, int kind, void* stream);
  int (*query_stream_)(void* stream);
  int (*host_malloc_)(void** memory, size_t bytes, unsigned flags);
  int (*exchange_capture_mode_)(int* mode);
};

}  // namespace rocm
}  // namespace graphsignal

#endif
