// libgraphsignal_rocm.so: the entry point that rocprofiler-sdk calls, and the life of the profiler in the process.
//
// Environment: GRAPHSIGNAL_ROCM_KERNEL_TRACE=none|all (none: dispatches are not traced, which costs tens of microseconds
// each), GRAPHSIGNAL_ROCM_SYNC_TRACE=none|all (none: synchronizing calls are not traced), GRAPHSIGNAL_DEBUG,
// GRAPHSIGNAL_SHM_PATH.
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>

#include "../common/writer.h"
#include "hip.h"
#include "records.h"
#include "sdk.h"

namespace graphsignal {
namespace rocm {
namespace {

// How long the end of the process waits for the last flush. It takes milliseconds, but on a starved machine the SDK's thread
// may have to wait for its turn.
const uint64_t kExitWaitNs = 1500000000;
// How long a document waits for the blocks of GPU probes, and the end of the process for a call of the runtime.
const uint64_t kProbeWaitNs = 50000000;
const uint64_t kBusyWaitNs = 1000000000;
const long kBusyStepNs = 1000000;
const size_t kBufferBytes = 4u << 20;
const size_t kWatermarkBytes = 1u << 20;

// All of it lives as long as the process: the SDK keeps pointers into it.
struct Session {
  Writer writer;
  Sdk sdk;
  Records records;
  HipMemory memory;
  DeviceProbes probes;
  const void* caller = nullptr;
  uint32_t version = 0;
  Handle context = 0;
  Handle buffer = 0;
  bool running = false;    // callbacks may add to the records
  bool can_flush = false;  // the context has started
};

Session session;
bool entered = false;
bool initialized = false;

bool flag(const bool& f) { return __atomic_load_n(&f, __ATOMIC_ACQUIRE); }
void set_flag(bool& f, bool value) { __atomic_store_n(&f, value, __ATOMIC_RELEASE); }

// Reports a failed call; true when it succeeded.
bool succeeded(int status, const char* call) {
  if (status == kSuccess) return true;
  session.writer.log().add(Level::kError, "%s failed: %d %s", call, status, describe(session.sdk, status));
  return false;
}

void buffer_callback(Handle, Handle, const RecordHeader* const* headers, size_t count, void*, uint64_t dropped) {
  if (flag(session.running) && !forked()) session.records.process(headers, count, dropped);
}

template <typename Record>
void code_object_callback(Record record, void*, void*) {
  if (!flag(session.running) || forked() || !record.payload) return;
  if (record.kind != kCallbackCodeObject || record.operation != kKernelSymbolRegister || record.phase != kPhaseLoad) return;
  uint64_t size, id;
  const char* name;
  memcpy(&size, record.payload, sizeof(size));
  if (size < kSymbolPrefix || size > kLargestRecord) return;
  memcpy(&id, record.payload + kSymbolKernelId, sizeof(id));
  memcpy(&name, record.payload + kSymbolName, sizeof(name));
  session.records.name_kernel(id, name);
}

void before_write(void*) {
  session.probes.refresh(kProbeWaitNs);
  if (!flag(session.can_flush)) return;
  const int status = session.sdk.flush_buffer(session.buffer);
  if (status != kSuccess && status != kBufferBusy) {
    session.writer.log().add(Level::kDebug, "rocprofiler_flush_buffer failed: %d %s", status, describe(session.sdk, status));
  }
}

// Flushes while the callbacks still count. Contexts are left alone: the SDK is taking them down itself, under a lock that
// every call about contexts waits for.
void at_end(void*) {
  session.probes.close(kProbeWaitNs);
  if (flag(session.can_flush)) {
    const uint64_t start = monotonic_ns();
    while (session.sdk.flush_buffer(session.buffer) == kBufferBusy && monotonic_ns() - start < kBusyWaitNs) {
      const struct timespec step = {0, kBusyStepNs};
      nanosleep(&step, nullptr);
    }
  }
  set_flag(session.running, false);
}

void more_metrics(Json& out, bool* first, void*) { session.probes.write(out, first); }

// Whether a variable says "all"; anything but "none" and "all" is the default.
bool all_asked(const char* variable, bool by_default) {
  const char* value = environment(variable);
  if (!value) return by_default;
  if (strcmp(value, "all") == 0) return true;
  if (strcmp(value, "none") == 0) return false;
  session.writer.log().add(Level::kDebug, "%s is none or all, not %.63s: using %s", variable, value,
                           by_default ? "all" : "none");
  return by_default;
}

// The numbers of the synchronizing calls differ between versions, so they are asked for by name.
struct Operations {
  uint32_t numbers[kSyncCalls];
  uint32_t count;
};

int match_operation(uint32_t kind, uint32_t operation, void* data) {
  Operations& found = *static_cast<Operations*>(data);
  const char* name = nullptr;
  uint64_t length = 0;
  if (session.sdk.operation_name(kind, operation, &name, &length) != kSuccess || !name) return 0;
  for (uint32_t i = 0; i < kSyncCalls; i++) {
    if (strcmp(name, kSyncNames[i]) != 0 || found.count == kSyncCalls) continue;
    found.numbers[found.count++] = operation;
    session.records.set_operation(i, operation);
  }
  return 0;
}

void trace_synchronization() {
  const Sdk& sdk = session.sdk;
  Operations found = {};
  if (sdk.operation_name && sdk.each_operation) {
    succeeded(sdk.each_operation(kHipRuntimeApi, match_operation, &found), "rocprofiler_iterate_buffer_tracing_kind_operations");
  }
  if (found.count == 0) {
    // Without numbers the SDK would trace all of HIP's calls, which is far too expensive.
    session.writer.log().add(Level::kWarning, "this rocprofiler-sdk does not name HIP's calls: synchronization is not recorded");
    return;
  }
  succeeded(sdk.configure_buffer_service(session.context, kHipRuntimeApi, found.numbers, found.count, session.buffer),
            "rocprofiler_configure_buffer_tracing_service(HIP_RUNTIME_API)");
}

void name_kernels(bool new_layout) {
  if (!session.sdk.configure_callback_service) {
    session.writer.log().add(Level::kWarning, "this rocprofiler-sdk does not tell kernel names");
    return;
  }
  // The record is passed by value, so each layout has a callback of its own.
  const NewCodeObjectCallback for_new = code_object_callback<NewCallbackRecord>;
  const OldCodeObjectCallback for_old = code_object_callback<OldCallbackRecord>;
  void (*callback)() = new_layout ? reinterpret_cast<void (*)()>(for_new) : reinterpret_cast<void (*)()>(for_old);
  succeeded(session.sdk.configure_callback_service(session.context, kCallbackCodeObject, nullptr, 0, callback, nullptr),
            "rocprofiler_configure_callback_tracing_service(CODE_OBJECT)");
}

void start_tracing() {
  Log& log = session.writer.log();
  if (session.version < kOldestVersion || session.version >= kUnknownVersion) {
    log.add(Level::kError, "rocprofiler-sdk %u.%u is not supported: GPU activity is not recorded", session.version / 10000,
            session.version / 100 % 100);
    return;
  }
  char path[512];
  const Sdk& sdk = session.sdk;
  if (!open_sdk(session.caller, &session.sdk, log, path, sizeof(path))) return;
  Records::Options options;
  options.new_layout = session.version >= kNewLayoutVersion;
  options.kernels = all_asked("GRAPHSIGNAL_ROCM_KERNEL_TRACE", false);
  options.synchronization = all_asked("GRAPHSIGNAL_ROCM_SYNC_TRACE", true);
  log.add(Level::kDebug, "rocprofiler-sdk %u from %s, kernels %s, synchronization %s", session.version, path,
          options.kernels ? "all" : "none", options.synchronization ? "all" : "none");
  if (!session.records.start(session.writer.instruments(), log, session.memory, options)) {
    log.add(Level::kError, "no memory for GPU activity");
    return;
  }
  if (!succeeded(sdk.create_context(&session.context), "rocprofiler_create_context")) return;
  // Lossless also because the SDK's discarding buffers lose everything after their first flush.
  if (!succeeded(sdk.create_buffer(session.context, kBufferBytes, kWatermarkBytes, kPolicyLossless, buffer_callback, nullptr,
                                   &session.buffer),
                 "rocprofiler_create_buffer")) {
    return;
  }
  set_flag(session.running, true);
  if (options.kernels) {
    succeeded(sdk.configure_buffer_service(session.context, kKernelDispatch, nullptr, 0, session.buffer),
              "rocprofiler_configure_buffer_tracing_service(KERNEL_DISPATCH)");
    name_kernels(options.new_layout);
  }
  succeeded(sdk.configure_buffer_service(session.context, kMemoryCopy, nullptr, 0, session.buffer),
            "rocprofiler_configure_buffer_tracing_service(MEMORY_COPY)");
  if (options.synchronization) trace_synchronization();
  Handle thread = 0;
  if (sdk.create_callback_thread && sdk.assign_callback_thread &&
      succeeded(sdk.create_callback_thread(&thread), "rocprofiler_create_callback_thread")) {
    succeeded(sdk.assign_callback_thread(session.buffer, thread), "rocprofiler_assign_callback_thread");
  }
  // Not before: a flush would meet a buffer that is still being set up.
  if (succeeded(sdk.start_context(session.context), "rocprofiler_start_context")) set_flag(session.can_flush, true);
}

void start_probes() {
  session.memory.start(session.writer.log());
  DeviceProbes::Options options;
  options.memory = session.memory.interface();
  options.registries = &session.writer.probes();
  options.instruments = &session.writer.instruments();
  options.log = &session.writer.log();
  session.probes.start(options);
}

// The SDK may end us from a destructor of its own, when those of other libraries have run.
void before_destructors() { session.writer.leave_linker(); }

// Always succeeds: whatever is wrong with us, the program and its other tools go on.
int initialize(void (*)(uint32_t), void*) {
  if (__atomic_exchange_n(&initialized, true, __ATOMIC_ACQ_REL)) return 0;
  WriterOptions options;
  options.library = "rocm";
  options.probes = WriterOptions::kUnclaimed;
  options.before_write = before_write;
  options.at_end = at_end;
  options.more_metrics = more_metrics;
  start_probes();
  if (session.writer.start(options)) {
    atexit(before_destructors);
    start_tracing();
  }
  return 0;
}

void finalize(void*) { session.writer.stop(kExitWaitNs); }

ConfigureResult result = {sizeof(ConfigureResult), initialize, finalize, nullptr};

}  // namespace
}  // namespace rocm
}  // namespace graphsignal

// Called by rocprofiler-sdk with its version and a client id to put a name into. A second SDK in the process gets NULL,
// which tells it that this tool does not want to take part.
extern "C" __attribute__((visibility("default"))) void* rocprofiler_configure(uint32_t version, const char*, uint32_t,
                                                                              void* client_id) {
  using namespace graphsignal::rocm;
  if (getauxval(AT_SECURE) != 0 || __atomic_exchange_n(&entered, true, __ATOMIC_ACQ_REL)) return nullptr;
  session.caller = __builtin_return_address(0);
  session.version = version;
  static const char* const kName = "graphsignal";
  if (client_id && version < kUnknownVersion) {
    memcpy(static_cast<char*>(client_id) + (version >= kNewLayoutVersion ? kNewClientName : kOldClientName), &kName, sizeof(kName));
  }
  return &result;
}
