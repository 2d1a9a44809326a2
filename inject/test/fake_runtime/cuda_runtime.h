// Stands for the CUDA runtime in tests: what graphsignal/probe_cuda.h uses, over the fake driver. Kernels are host functions
// that see device memory through fake_view; with __CUDACC__ defined by the build the device part compiles for the host.
#ifndef GRAPHSIGNAL_TEST_FAKE_CUDA_RUNTIME_H
#define GRAPHSIGNAL_TEST_FAKE_CUDA_RUNTIME_H

#include <stddef.h>

#include "../../cupti/testdata/fake_cuda_memory.h"

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorStreamCaptureUnsupported = 900 };
typedef void* cudaStream_t;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1, cudaStreamCaptureModeRelaxed = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
static const unsigned cudaStreamNonBlocking = 1;

extern "C" int cuThreadExchangeStreamCaptureMode(int* mode);

inline thread_local int fake_last_error = 0;
inline thread_local int fake_device = 0;

static inline cudaError_t fake_result(int error) {
  if (error) fake_last_error = error;
  return static_cast<cudaError_t>(error);
}
static inline cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(fake_last_error); }
static inline cudaError_t cudaGetLastError() {
  const int error = fake_last_error;
  fake_last_error = 0;
  return static_cast<cudaError_t>(error);
}
static inline cudaError_t cudaGetDevice(int* device) {
  *device = fake_device;
  return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int device) {
  fake_device = device;
  return cudaSuccess;
}
static inline cudaError_t cudaMalloc(void** memory, size_t bytes) { return fake_result(fake_alloc(fake_device, bytes, memory)); }
static inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t s) {
  return fake_result(fake_write(fake_device, s, to, from, bytes));
}
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  return fake_result(flags == cudaStreamNonBlocking ? fake_stream_create(fake_device, s) : 1);
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t s) { return fake_result(fake_stream_destroy(s)); }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t s) { return fake_result(fake_stream_synchronize(s)); }
static inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  int m = *mode;
  const int error = cuThreadExchangeStreamCaptureMode(&m);
  *mode = static_cast<cudaStreamCaptureMode>(m);
  return fake_result(error);
}

#if defined(__CUDACC__) || defined(__HIPCC__)
#define __device__
static inline int __clzll(long long v) { return v ? __builtin_clzll(static_cast<unsigned long long>(v)) : 64; }
static inline unsigned long long atomicAdd(unsigned long long* p, unsigned long long v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static inline unsigned long long atomicMin(unsigned long long* p, unsigned long long v) {
  unsigned long long old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v < old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
static inline unsigned long long atomicMax(unsigned long long* p, unsigned long long v) {
  unsigned long long old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v > old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
#endif

#endif
