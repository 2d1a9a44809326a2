#include "hip.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

const int kMostMessages = 8;

template <typename Function>
bool resolve_one(void* library, const char* name, Function* to) {
  void* symbol = dlsym(library, name);
  memcpy(to, &symbol, sizeof(symbol));
  return symbol != nullptr;
}

}  // namespace

DeviceMemory HipMemory::interface() {
  DeviceMemory m;
  m.self = this;
  m.enter = [](void* self, int device) { return static_cast<HipMemory*>(self)->enter(device); };
  m.leave = [](void*, int) {};  // the current device is the thread's own
  m.staging = [](void* self, int, size_t bytes) { return static_cast<HipMemory*>(self)->staging(bytes); };
  m.copy = [](void* self, int device, void* to, uint64_t from, size_t bytes) {
    return static_cast<HipMemory*>(self)->copy(device, to, from, bytes);
  };
  m.state = [](void* self, int device) { return static_cast<HipMemory*>(self)->state(device); };
  return m;
}

// False where there is no runtime, or a function is missing.
bool HipMemory::resolve() {
  static const char* const kNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  Runtime& f = runtime_;
  for (const char* name : kNames) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    return resolve_one(library, "hipSetDevice", &f.set_device) && resolve_one(library, "hipStreamCreateWithFlags", &f.create_stream) &&
           resolve_one(library, "hipMemcpyAsync", &f.copy_async) && resolve_one(library, "hipStreamQuery", &f.query_stream) &&
           resolve_one(library, "hipHostMalloc", &f.host_malloc) &&
           resolve_one(library, "hipThreadExchangeStreamCaptureMode", &f.exchange_capture_mode);
  }
  return false;
}

// Reports the first of a series of equal failures; true when the call succeeded.
bool HipMemory::succeeded(int result, const char* call) {
  if (result == kSuccess) return true;
  if (result != last_error_ && messages_++ < kMostMessages) {
    log_->add(Level::kWarning, "reading GPU probes: %s failed with HIP error %d", call, result);
  }
  last_error_ = result;
  return false;
}

bool HipMemory::enter(int device) {
  if (!ready_) {
    if (!resolve()) return false;
    __atomic_store_n(&reader_, static_cast<uint64_t>(syscall(SYS_gettid)), __ATOMIC_RELAXED);
    int mode = kCaptureModeRelaxed;
    ready_ = succeeded(runtime_.exchange_capture_mode(&mode), "hipThreadExchangeStreamCaptureMode");
    if (!ready_) return false;
  }
  if (!succeeded(runtime_.set_device(device), "hipSetDevice")) return false;
  void** stream = &streams_[device];
  return *stream || (succeeded(runtime_.create_stream(stream, kStreamNonBlocking), "hipStreamCreateWithFlags") && *stream);
}

void* HipMemory::staging(size_t bytes) {
  void* memory = nullptr;
  return succeeded(runtime_.host_malloc(&memory, bytes, kHostMallocDefault), "hipHostMalloc") ? memory : nullptr;
}

bool HipMemory::copy(int device, void* to, uint64_t from, size_t bytes) {
  return succeeded(runtime_.copy_async(to, reinterpret_cast<const void*>(from), bytes, kDeviceToHost, streams_[device]),
                   "hipMemcpyAsync");
}

DeviceMemory::State HipMemory::state(int device) {
  const int result = runtime_.query_stream(streams_[device]);
  if (result == kNotReady) return DeviceMemory::kBusy;
  return succeeded(result, "hipStreamQuery") ? DeviceMemory::kDone : DeviceMemory::kFailed;
}

}  // namespace rocm
}  // namespace graphsignal
