#include "hip.h"

#include <dlfcn.h>
#include <string.h>

namespace graphsignal {
namespace rocm {
namespace {

// Numbers of HIP's public headers, unchanged since ROCm 5.
const int kSuccess = 0;
const int kNotReady = 600;
const unsigned kStreamNonBlocking = 1;
const int kDeviceToHost = 2;
const unsigned kHostMallocDefault = 0;
const int kCaptureModeRelaxed = 2;

template <typename Function>
bool resolve_one(void* library, const char* name, Function* to) {
  void* symbol = dlsym(library, name);
  memcpy(to, &symbol, sizeof(symbol));
  return symbol != nullptr;
}

}  // namespace

bool Hip::resolve() {
  static const char* const kNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  for (const char* name : kNames) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    return resolve_one(library, "hipSetDevice", &set_device_) && resolve_one(library, "hipStreamCreateWithFlags", &create_stream_) &&
           resolve_one(library, "hipMemcpyAsync", &copy_async_) && resolve_one(library, "hipStreamQuery", &query_stream_) &&
           resolve_one(library, "hipHostMalloc", &host_malloc_) &&
           resolve_one(library, "hipThreadExchangeStreamCaptureMode", &exchange_capture_mode_);
  }
  return false;
}

void Hip::relax_capture() {
  int mode = kCaptureModeRelaxed;
  exchange_capture_mode_(&mode);
}

bool Hip::open(int device, void** stream) {
  if (set_device_(device) != kSuccess) return false;
  return *stream || (create_stream_(stream, kStreamNonBlocking) == kSuccess && *stream);
}

void* Hip::staging(size_t bytes) {
  void* memory = nullptr;
  return host_malloc_(&memory, bytes, kHostMallocDefault) == kSuccess ? memory : nullptr;
}

bool Hip::copy(void* stream, void* to, const void* from, size_t bytes) {
  return copy_async_(to, from, bytes, kDeviceToHost, stream) == kSuccess;
}

Hip::Progress Hip::progress(void* stream) {
  switch (query_stream_(stream)) {
    case kSuccess: return kDone;
    case kNotReady: return kRunning;
    default: return kFailed;
  }
}

}  // namespace rocm
}  // namespace graphsignal
