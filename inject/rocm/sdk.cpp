#include "sdk.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

namespace graphsignal {
namespace rocm {
namespace {

template <typename Function>
bool resolve(void* library, const char* name, Function* to) {
  void* symbol = dlsym(library, name);
  memcpy(to, &symbol, sizeof(symbol));
  return symbol != nullptr;
}

// The library that contains an address, when it is an SDK.
void* library_of(const void* address) {
  Dl_info info;
  if (!address || !dladdr(address, &info) || !info.dli_fname || !info.dli_fname[0]) return nullptr;
  void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return library && dlsym(library, "rocprofiler_create_context") ? library : nullptr;
}

void* find_sdk(const void* caller) {
  if (void* library = library_of(caller)) return library;
  static const char* const kNames[] = {"librocprofiler-sdk.so.1", "librocprofiler-sdk.so.0", "librocprofiler-sdk.so"};
  for (const char* name : kNames) {
    if (void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) return library;
  }
  return nullptr;
}

}  // namespace

bool open_sdk(const void* caller, Sdk* sdk, Log& log, char* path, size_t capacity) {
  memset(sdk, 0, sizeof(*sdk));
  path[0] = 0;
  void* library = find_sdk(caller);
  if (!library) {
    log.add(Level::kError, "rocprofiler-sdk called, but is not found in the process: GPU activity is not recorded");
    return false;
  }
  Dl_info info;
  if (dladdr(dlsym(library, "rocprofiler_create_context"), &info) && info.dli_fname) snprintf(path, capacity, "%s", info.dli_fname);
  if (!resolve(library, "rocprofiler_create_context", &sdk->create_context) ||
      !resolve(library, "rocprofiler_create_buffer", &sdk->create_buffer) ||
      !resolve(library, "rocprofiler_configure_buffer_tracing_service", &sdk->configure_buffer_service) ||
      !resolve(library, "rocprofiler_start_context", &sdk->start_context) ||
      !resolve(library, "rocprofiler_flush_buffer", &sdk->flush_buffer)) {
    log.add(Level::kError, "%s lacks a function of the tracing interface: GPU activity is not recorded", path);
    return false;
  }
  resolve(library, "rocprofiler_configure_callback_tracing_service", &sdk->configure_callback_service);
  resolve(library, "rocprofiler_create_callback_thread", &sdk->create_callback_thread);
  resolve(library, "rocprofiler_assign_callback_thread", &sdk->assign_callback_thread);
  resolve(library, "rocprofiler_query_buffer_tracing_kind_operation_name", &sdk->operation_name);
  resolve(library, "rocprofiler_iterate_buffer_tracing_kind_operations", &sdk->each_operation);
  resolve(library, "rocprofiler_get_status_string", &sdk->status_string);
  return true;
}

const char* describe(const Sdk& sdk, int status) {
  const char* text = sdk.status_string ? sdk.status_string(status) : nullptr;
  return text ? text : "no description";
}

}  // namespace rocm
}  // namespace graphsignal
