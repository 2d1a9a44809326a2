// Stands for the HIP runtime in tests: the fake CUDA runtime under HIP's names.
#ifndef GRAPHSIGNAL_TEST_FAKE_HIP_RUNTIME_API_H
#define GRAPHSIGNAL_TEST_FAKE_HIP_RUNTIME_API_H

#include "../cuda_runtime.h"

typedef cudaStream_t hipStream_t;
typedef cudaStreamCaptureMode hipStreamCaptureMode;
static const hipStreamCaptureMode hipStreamCaptureModeRelaxed = cudaStreamCaptureModeRelaxed;
static const cudaError_t hipSuccess = cudaSuccess;
static const cudaMemcpyKind hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
static const unsigned hipStreamNonBlocking = cudaStreamNonBlocking;
enum hipDeviceAttribute_t { hipDeviceAttributeWallClockRate = 10017 };

#define hipPeekAtLastError cudaPeekAtLastError
#define hipGetLastError cudaGetLastError
#define hipGetDevice cudaGetDevice
#define hipMalloc cudaMalloc
#define hipMemcpyAsync cudaMemcpyAsync
#define hipStreamCreateWithFlags cudaStreamCreateWithFlags
#define hipStreamDestroy cudaStreamDestroy
#define hipStreamSynchronize cudaStreamSynchronize
#define hipThreadExchangeStreamCaptureMode cudaThreadExchangeStreamCaptureMode

static inline cudaError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  if (attribute != hipDeviceAttributeWallClockRate || device != 0) return fake_result(1);
  *value = 100000;
  return cudaSuccess;
}

#endif
