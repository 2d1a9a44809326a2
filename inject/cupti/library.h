// Finds and opens CUPTI and the CUDA driver at run time.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_LIBRARY_H
#define GRAPHSIGNAL_INJECT_CUPTI_LIBRARY_H

#include "../common/log.h"
#include "cupti_abi.h"

namespace graphsignal {
namespace cupti {

// CUPTI's functions. Those marked optional may be NULL.
struct Functions {
  int (*register_callbacks)(BufferRequested, BufferCompleted);
  int (*next_record)(uint8_t* buffer, size_t valid, void** record);
  int (*enable)(uint32_t kind);
  int (*flush_all)(uint32_t flags);
  int (*dropped_records)(void* context, uint32_t stream, size_t* dropped);  // optional, as all below
  int (*set_attribute)(int attribute, size_t* size, void* value);
  int (*subscribe)(void** subscriber, Callback callback, void* user);
  int (*unsubscribe)(void* subscriber);
  int (*enable_callback)(uint32_t enable, void* subscriber, int domain, uint32_t callback);
  int (*graph_id)(void* graph, uint32_t* id);
  int (*graph_exec_id)(void* exec, uint32_t* id);
  int (*context_number)(void* context, uint32_t* number);
  int (*stream_number)(void* context, void* stream, uint8_t per_thread, uint32_t* number);
  int (*timestamp)(uint64_t* ns);
  int (*version)(uint32_t* version);
  int (*result_string)(int result, const char** text);
};

// The driver's functions, all optional.
struct DriverFunctions {
  int (*version)(int* version);
  int (*graph_nodes)(void* graph, void** nodes, size_t* count);
  int (*node_type)(void* node, int* type);
  int (*kernel_node_params)(void* node, KernelNodeParams* params);
  int (*function_name)(const char** name, void* function);
  int (*kernel_name)(const char** name, void* kernel);
};

// Resolves the driver that the process has loaded; fields stay NULL where there is none.
void resolve_driver(DriverFunctions* driver);

// Opens CUPTI: the copy that the process already has, else one whose major version is the driver's or, failing that, an
// older one, from GRAPHSIGNAL_CUPTI_PATH (files or folders, separated by colons), from beside the CUDA runtime that the
// process has loaded, from the toolkit's folders, and by the loader's own search. Returns false, with the reason in the
// log, when there is none. path receives the file's name.
bool open_cupti(const DriverFunctions& driver, Functions* functions, Log& log, char* path, size_t capacity);

// Text of a result, never NULL.
const char* describe(const Functions& functions, int result);

}  // namespace cupti
}  // namespace graphsignal

#endif
