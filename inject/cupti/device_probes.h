// Reads GPU memory for probes through the CUDA driver.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_DEVICE_PROBES_H
#define GRAPHSIGNAL_INJECT_CUPTI_DEVICE_PROBES_H

#include "../common/device_probes.h"

namespace graphsignal {
namespace cupti {

// Only primary contexts that the program has activated are used, each through a non-blocking stream of our own. Our thread is
// in relaxed capture mode, so that it never breaks a capture of another.
class CudaMemory {
 public:
  // Called with each stream that is created, on the reading thread, while its context is current.
  typedef void (*StreamCreated)(void* context, void* stream);

  // Resolves the driver's functions. False, with the reason in the log, when one is missing.
  bool start(Log& log, StreamCreated stream_created);
  DeviceMemory interface();

 private:
  struct Device {
    int handle;
    bool known;     // handle is valid
    bool retained;  // context is ours until the end of the process
    void* context;
    uint64_t context_id;
    void* stream;
    void* staging;
    size_t staging_bytes;
  };

  bool enter(int ordinal);
  void leave();
  bool open(Device& d);
  void lock_pages(const Device& d);
  void* staging(int ordinal, size_t bytes);
  bool copy(int ordinal, void* to, uint64_t from, size_t bytes);
  DeviceMemory::State state(int ordinal);
  bool succeeded(int result, const char* call);

  struct Driver {
    int (*device)(int* handle, int ordinal);
    int (*primary_state)(int handle, unsigned* flags, int* active);
    int (*retain_primary)(void** context, int handle);
    int (*push)(void* context);
    int (*pop)(void** context);
    int (*create_stream)(void** stream, unsigned flags);
    int (*query)(void* stream);
    int (*register_host)(void* memory, size_t bytes, unsigned flags);
    int (*copy)(void* to, uint64_t from, size_t bytes, void* stream);
    int (*pointer_attribute)(void* value, int attribute, uint64_t pointer);
    int (*exchange_capture_mode)(int* mode);                      // optional, CUDA 10.1
    int (*context_id)(void* context, unsigned long long* id);     // optional, CUDA 12.0
  } driver_ = {};
  StreamCreated stream_created_ = nullptr;
  Log* log_ = nullptr;
  Device devices_[DeviceProbes::kMaxDevices] = {};
  bool relaxed_ = false;   // this thread's capture mode is set
  bool shut_down_ = false;
  int last_error_ = 0;     // the latest failure
  int messages_ = 0;       // of failures
};

}  // namespace cupti
}  // namespace graphsignal

#endif
