// Finds rocprofiler-sdk: the very copy that has called us.
#ifndef GRAPHSIGNAL_INJECT_ROCM_SDK_H
#define GRAPHSIGNAL_INJECT_ROCM_SDK_H

#include "../common/log.h"
#include "rocprofiler_abi.h"

namespace graphsignal {
namespace rocm {

// The SDK's functions. Those marked optional may be NULL.
struct Sdk {
  int (*create_context)(Handle* context);
  int (*create_buffer)(Handle context, size_t size, size_t watermark, int policy, BufferCallback callback, void* data,
                       Handle* buffer);
  int (*configure_buffer_service)(Handle context, uint32_t kind, const uint32_t* operations, size_t count, Handle buffer);
  int (*start_context)(Handle context);
  int (*flush_buffer)(Handle buffer);
  int (*configure_callback_service)(Handle context, uint32_t kind, const uint32_t* operations, size_t count, void (*callback)(),
                                    void* data);  // optional, as all below
  int (*create_callback_thread)(Handle* thread);
  int (*assign_callback_thread)(Handle buffer, Handle thread);
  int (*operation_name)(uint32_t kind, uint32_t operation, const char** name, uint64_t* length);
  int (*each_operation)(uint32_t kind, int (*callback)(uint32_t kind, uint32_t operation, void* data), void* data);
  const char* (*status_string)(int status);
};

// Resolves the functions of the library that contains the address, or else of the SDK that the process has loaded. The
// file's name is left in path. False, with the reason in the log, when a function is missing that is not optional.
bool open_sdk(const void* caller, Sdk* sdk, Log& log, char* path, size_t capacity);

// Text of a status, never NULL.
const char* describe(const Sdk& sdk, int status);

}  // namespace rocm
}  // namespace graphsignal

#endif
