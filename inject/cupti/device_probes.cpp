#include "device_probes.h"

#include <dlfcn.h>
#include <string.h>

namespace graphsignal {
namespace cupti {
namespace {

// Numbers of the CUDA driver API.
const int kSuccess = 0;
const int kNotInitialized = 3;
const int kDeinitialized = 4;
const int kNotReady = 600;
const int kContextIsDestroyed = 709;
const int kAlreadyRegistered = 712;
const unsigned kStreamNonBlocking = 1;
const unsigned kRegisterPortable = 1;
const int kCaptureModeRelaxed = 2;
const int kPointerMemoryType = 2;

const int kMostMessages = 8;

template <typename Function>
bool resolve(void* library, const char* name, Function* to) {
  void* symbol = dlsym(library, name);
  memcpy(to, &symbol, sizeof(symbol));
  return symbol != nullptr;
}

}  // namespace

bool CudaMemory::start(Log& log, StreamCreated stream_created) {
  log_ = &log;
  stream_created_ = stream_created;
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!cuda) return false;
  Driver& f = driver_;
  if (!resolve(cuda, "cuDeviceGet", &f.device) || !resolve(cuda, "cuDevicePrimaryCtxGetState", &f.primary_state) ||
      !resolve(cuda, "cuDevicePrimaryCtxRetain", &f.retain_primary) || !resolve(cuda, "cuCtxPushCurrent_v2", &f.push) ||
      !resolve(cuda, "cuCtxPopCurrent_v2", &f.pop) || !resolve(cuda, "cuStreamCreate", &f.create_stream) ||
      !resolve(cuda, "cuStreamQuery", &f.query) || !resolve(cuda, "cuMemHostRegister_v2", &f.register_host) ||
      !resolve(cuda, "cuMemcpyDtoHAsync_v2", &f.copy) || !resolve(cuda, "cuPointerGetAttribute", &f.pointer_attribute)) {
    log.add(Level::kWarning, "this CUDA driver lacks a function that reading GPU probes needs: %s", dlerror());
    return false;
  }
  resolve(cuda, "cuThreadExchangeStreamCaptureMode", &f.exchange_capture_mode);
  resolve(cuda, "cuCtxGetId", &f.context_id);
  return true;
}

DeviceMemory CudaMemory::interface() {
  DeviceMemory m;
  m.self = this;
  m.enter = [](void* self, int device) { return static_cast<CudaMemory*>(self)->enter(device); };
  m.leave = [](void* self, int) { static_cast<CudaMemory*>(self)->leave(); };
  m.staging = [](void* self, int device, size_t bytes) { return static_cast<CudaMemory*>(self)->staging(device, bytes); };
  m.copy = [](void* self, int device, void* to, uint64_t from, size_t bytes) {
    return static_cast<CudaMemory*>(self)->copy(device, to, from, bytes);
  };
  m.state = [](void* self, int device) { return static_cast<CudaMemory*>(self)->state(device); };
  return m;
}

// Reports the first of a series of equal failures; true when the call succeeded.
bool CudaMemory::succeeded(int result, const char* call) {
  if (result == kSuccess) return true;
  if (result == kDeinitialized) shut_down_ = true;
  if (result != last_error_ && result != kDeinitialized && result != kNotInitialized && messages_++ < kMostMessages) {
    log_->add(Level::kWarning, "reading GPU probes: %s failed with CUDA error %d", call, result);
  }
  last_error_ = result;
  return false;
}

bool CudaMemory::enter(int ordinal) {
  if (shut_down_) return false;
  if (!relaxed_) {
    int mode = kCaptureModeRelaxed;
    relaxed_ = !driver_.exchange_capture_mode ||
               succeeded(driver_.exchange_capture_mode(&mode), "cuThreadExchangeStreamCaptureMode");
    if (!relaxed_) return false;
  }
  Device& d = devices_[ordinal];
  if (!d.known) d.known = succeeded(driver_.device(&d.handle, ordinal), "cuDeviceGet");
  if (!d.known) return false;
  // An inactive context is left alone: to touch it would create one where the program has none, or has reset it.
  unsigned flags;
  int active = 0;
  if (!succeeded(driver_.primary_state(d.handle, &flags, &active), "cuDevicePrimaryCtxGetState")) return false;
  if (!active) {
    d.stream = nullptr;
    return false;
  }
  if (!d.retained) {
    d.retained = succeeded(driver_.retain_primary(&d.context, d.handle), "cuDevicePrimaryCtxRetain");
    if (!d.retained) return false;
  }
  if (!succeeded(driver_.push(d.context), "cuCtxPushCurrent")) return false;
  if (open(d)) return true;
  leave();
  return false;
}

// Makes the stream, again after the program has reset the device: a reset destroys all streams.
bool CudaMemory::open(Device& d) {
  unsigned long long id = 0;
  if (driver_.context_id && driver_.context_id(d.context, &id) != kSuccess) id = 0;
  if (d.stream && d.context_id == id) return true;
  d.stream = nullptr;
  if (!succeeded(driver_.create_stream(&d.stream, kStreamNonBlocking), "cuStreamCreate")) {
    d.stream = nullptr;
    return false;
  }
  d.context_id = id;
  lock_pages(d);
  if (stream_created_) stream_created_(d.context, d.stream);
  return true;
}

void CudaMemory::leave() {
  void* context;
  succeeded(driver_.pop(&context), "cuCtxPopCurrent");
}

// The memory is ours and only registered with the driver: what a driver allocates is gone when the program resets the
// device. Copies into pages that are not locked work as well, only slower.
void CudaMemory::lock_pages(const Device& d) {
  if (!d.staging) return;
  const int result = driver_.register_host(d.staging, d.staging_bytes, kRegisterPortable);
  if (result != kAlreadyRegistered) succeeded(result, "cuMemHostRegister");
}

void* CudaMemory::staging(int ordinal, size_t bytes) {
  void* memory = map_pages(bytes);
  if (!memory) return nullptr;
  Device& d = devices_[ordinal];
  d.staging = memory;
  d.staging_bytes = bytes;
  lock_pages(d);
  return memory;
}

bool CudaMemory::copy(int ordinal, void* to, uint64_t from, size_t bytes) {
  // The program may have freed the block; the driver then no longer knows the address.
  unsigned type = 0;
  return succeeded(driver_.pointer_attribute(&type, kPointerMemoryType, from), "cuPointerGetAttribute") &&
         succeeded(driver_.copy(to, from, bytes, devices_[ordinal].stream), "cuMemcpyDtoHAsync");
}

DeviceMemory::State CudaMemory::state(int ordinal) {
  Device& d = devices_[ordinal];
  if (!d.stream) return DeviceMemory::kFailed;
  const int result = driver_.query(d.stream);
  if (result == kNotReady) return DeviceMemory::kBusy;
  if (succeeded(result, "cuStreamQuery")) return DeviceMemory::kDone;
  if (result == kContextIsDestroyed) d.stream = nullptr;
  return DeviceMemory::kFailed;
}

}  // namespace cupti
}  // namespace graphsignal
