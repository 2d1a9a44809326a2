#include "library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace graphsignal {
namespace cupti {
namespace {

const int kOldestMajor = 11;
const int kNewestMajor = 13;

template <typename Function>
bool resolve(void* library, const char* name, Function* to) {
  void* symbol = dlsym(library, name);
  memcpy(to, &symbol, sizeof(symbol));
  return symbol != nullptr;
}

// The file name of CUPTI of a CUDA major. CUDA 11 has the minor in it, and 11.8 is the only one supported.
const char* soname(int major) {
  switch (major) {
    case 11: return "libcupti.so.11.8";
    case 12: return "libcupti.so.12";
    default: return "libcupti.so.13";
  }
}

// The CUDA major in a library's file name, or 0.
int major_in_name(const char* path) {
  const char* base = strrchr(path, '/');
  const char* suffix = strstr(base ? base + 1 : path, ".so.");
  return suffix ? atoi(suffix + 4) : 0;
}

struct Search {
  int major;
  void* library;
  char* path;
  size_t capacity;
};

void remember_path(const Search& s, void* any_function) {
  Dl_info info;
  if (any_function && dladdr(any_function, &info) && info.dli_fname) snprintf(s.path, s.capacity, "%s", info.dli_fname);
}

bool try_open(Search& s, const char* file) {
  s.library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  return s.library != nullptr;
}

bool try_folder(Search& s, const char* folder, size_t length, const char* below) {
  char file[PATH_MAX];
  const int n = snprintf(file, sizeof(file), "%.*s%s/%s", static_cast<int>(length), folder, below, soname(s.major));
  return n > 0 && static_cast<size_t>(n) < sizeof(file) && access(file, R_OK) == 0 && try_open(s, file);
}

// GRAPHSIGNAL_CUPTI_PATH: files of the wanted major (or with none in their names), and folders.
bool try_list(Search& s, const char* list) {
  while (list && *list) {
    const size_t n = strcspn(list, ":");
    char item[PATH_MAX];
    if (n > 0 && n < sizeof(item)) {
      memcpy(item, list, n);
      item[n] = 0;
      if (strstr(item, ".so")) {
        const int major = major_in_name(item);
        if ((major == 0 || major == s.major) && try_open(s, item)) return true;
      } else if (try_folder(s, item, n, "")) {
        return true;
      }
    }
    list += n + (list[n] == ':' ? 1 : 0);
  }
  return false;
}

// CUPTI of a Python wheel lies in the runtime's folder or in a sibling's.
bool try_beside_runtime(Search& s, const char* runtime) {
  const size_t folder = static_cast<size_t>(strrchr(runtime, '/') - runtime);
  return try_folder(s, runtime, folder, "") || try_folder(s, runtime, folder, "/../../cuda_cupti/lib") ||
         try_folder(s, runtime, folder, "/../extras/CUPTI/lib64");
}

bool try_toolkit(Search& s) {
  const char* homes[] = {environment("CUDA_HOME"), environment("CUDA_PATH"), "/usr/local/cuda"};
  for (const char* home : homes) {
    if (!home) continue;
    const size_t n = strlen(home);
    if (try_folder(s, home, n, "/extras/CUPTI/lib64") || try_folder(s, home, n, "/extras/CUPTI/lib") ||
        try_folder(s, home, n, "/lib64")) {
      return true;
    }
  }
  return false;
}

// The loaded runtimes, collected first: opening a library from within the iteration would take its lock twice.
struct RuntimeFolders {
  static const int kMax = 4;
  char names[kMax][PATH_MAX];
  int count;
};

int collect_runtime(struct dl_phdr_info* info, size_t, void* p) {
  RuntimeFolders& found = *static_cast<RuntimeFolders*>(p);
  const char* base = info->dlpi_name ? strrchr(info->dlpi_name, '/') : nullptr;
  if (base && strncmp(base + 1, "libcudart.so", 12) == 0 && found.count < RuntimeFolders::kMax &&
      strlen(info->dlpi_name) < PATH_MAX) {
    strcpy(found.names[found.count++], info->dlpi_name);
  }
  return 0;
}

bool find(Search& s, int driver_major, Log& log) {
  static const char* const kLoaded[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"};
  for (const char* name : kLoaded) {
    s.library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (s.library) return true;
  }
  static RuntimeFolders runtimes;
  runtimes.count = 0;
  dl_iterate_phdr(collect_runtime, &runtimes);

  const int newest = driver_major >= kOldestMajor && driver_major < kNewestMajor ? driver_major : kNewestMajor;
  for (s.major = newest; s.major >= kOldestMajor; s.major--) {
    if (try_list(s, environment("GRAPHSIGNAL_CUPTI_PATH"))) return true;
    for (int i = 0; i < runtimes.count; i++) {
      if (try_beside_runtime(s, runtimes.names[i])) return true;
    }
    if (try_toolkit(s) || try_open(s, soname(s.major))) return true;
    log.add(Level::kDebug, "no usable %s", soname(s.major));
  }
  return false;
}

}  // namespace

void resolve_driver(DriverFunctions* driver) {
  memset(driver, 0, sizeof(*driver));
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!cuda) return;
  resolve(cuda, "cuDriverGetVersion", &driver->version);
  resolve(cuda, "cuGraphGetNodes", &driver->graph_nodes);
  resolve(cuda, "cuGraphNodeGetType", &driver->node_type);
  resolve(cuda, "cuGraphKernelNodeGetParams_v2", &driver->kernel_node_params);
  resolve(cuda, "cuFuncGetName", &driver->function_name);
  resolve(cuda, "cuKernelGetName", &driver->kernel_name);
}

bool open_cupti(const DriverFunctions& driver, Functions* functions, Log& log, char* path, size_t capacity) {
  memset(functions, 0, sizeof(*functions));
  path[0] = 0;
  int version = 0;
  if (driver.version) driver.version(&version);
  const int driver_major = version / 1000;
  Search s = {0, nullptr, path, capacity};
  if (!find(s, driver_major, log)) {
    log.add(Level::kError, "no libcupti for CUDA %d was found: GPU activity is not recorded; set GRAPHSIGNAL_CUPTI_PATH to its folder",
            driver_major ? driver_major : kNewestMajor);
    return false;
  }
  Functions& f = *functions;
  if (!resolve(s.library, "cuptiActivityRegisterCallbacks", &f.register_callbacks) ||
      !resolve(s.library, "cuptiActivityGetNextRecord", &f.next_record) ||
      !resolve(s.library, "cuptiActivityEnable", &f.enable) || !resolve(s.library, "cuptiActivityFlushAll", &f.flush_all)) {
    log.add(Level::kError, "libcupti lacks a function of the activity interface: GPU activity is not recorded");
    return false;
  }
  remember_path(s, dlsym(s.library, "cuptiActivityEnable"));
  resolve(s.library, "cuptiActivityGetNumDroppedRecords", &f.dropped_records);
  resolve(s.library, "cuptiActivitySetAttribute", &f.set_attribute);
  resolve(s.library, "cuptiSubscribe", &f.subscribe);
  resolve(s.library, "cuptiUnsubscribe", &f.unsubscribe);
  resolve(s.library, "cuptiEnableCallback", &f.enable_callback);
  resolve(s.library, "cuptiGetGraphId", &f.graph_id);
  resolve(s.library, "cuptiGetGraphExecId", &f.graph_exec_id);
  resolve(s.library, "cuptiGetContextId", &f.context_number);
  resolve(s.library, "cuptiGetStreamIdEx", &f.stream_number);
  resolve(s.library, "cuptiGetTimestamp", &f.timestamp);
  resolve(s.library, "cuptiGetVersion", &f.version);
  resolve(s.library, "cuptiGetResultString", &f.result_string);
  return true;
}

const char* describe(const Functions& functions, int result) {
  const char* text = nullptr;
  if (functions.result_string && functions.result_string(result, &text) == kSuccess && text) return text;
  return "no description";
}

}  // namespace cupti
}  // namespace graphsignal
