// libgraphsignal_cupti.so: the entry point that the CUDA driver calls, and the life of the profiler in the process.
//
// Environment: GRAPHSIGNAL_CUDA_GRAPH_TRACE=graph|node, GRAPHSIGNAL_CUPTI_SUBSCRIBE=0 leaves CUPTI's only subscription to
// the program (implies node), GRAPHSIGNAL_CUPTI_PATH, GRAPHSIGNAL_DEBUG, GRAPHSIGNAL_SHM_PATH.
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "../common/writer.h"
#include "activity.h"
#include "buffers.h"
#include "device_probes.h"
#include "takeover.h"

namespace graphsignal {
namespace cupti {
namespace {

const uint64_t kExitWaitNs = 100000000;
// How long a document waits for the blocks of GPU probes, and the end of the process for a call of the driver.
const uint64_t kProbeWaitNs = 50000000;
// CUPTI's interface version from which a refused buffer is safe (CUDA 12.9).
const uint32_t kRefusalVersion = 27;
// Pauses between the last flushes while buffers stay out.
const uint64_t kMoment = 1000000;
const uint64_t kLongestMoment = 32000000;
// Seconds after the first module was loaded in which some activity should have been reported.
const uint32_t kSilenceTicks = 5;

// All of it lives as long as the process: CUPTI keeps pointers into it.
struct Session {
  Writer writer;
  Functions functions;
  DriverFunctions driver;
  BufferPool pool;
  Pace pace;
  GraphNames graphs;
  Activity activity;
  Takeover takeover;
  CudaMemory memory;
  DeviceProbes probes;
  char cupti_path[512];
  bool node_mode = false;
  bool may_refuse = false;
  bool subscribed = false;
  bool exit_hooked_late = false;
  bool ready = false;   // CUPTI runs with our callbacks
  bool ending = false;  // the process exits: buffers are not used again
  bool closed = false;  // the last document is being made: records are not read any more
  uint32_t modules = 0;
  uint32_t silent_ticks = 0;
  bool silence_logged = false;
};

Session session;
bool entered = false;

bool flag(const bool& f) { return __atomic_load_n(&f, __ATOMIC_ACQUIRE); }
void raise_flag(bool& f) { __atomic_store_n(&f, true, __ATOMIC_RELEASE); }

// Nothing that records point at is touched after this: the exit goes on and takes it down.
void close_activity() {
  raise_flag(session.closed);
  session.activity.close(kExitWaitNs);
}

void at_exit() {
  session.probes.close(kProbeWaitNs);
  session.writer.stop(kExitWaitNs);
}

// Reports a failed call; true when it succeeded.
bool succeeded(int result, const char* call, Level level = Level::kError) {
  if (result == kSuccess) return true;
  session.writer.log().add(level, "%s failed: %d %s", call, result, describe(session.functions, result));
  return false;
}

void buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  // The driver registers exit handlers of its own while it starts; ours has to run before them, so it is registered again
  // when all that is over. It does its work once.
  if (!flag(session.exit_hooked_late) && !__atomic_exchange_n(&session.exit_hooked_late, true, __ATOMIC_ACQ_REL)) {
    atexit(at_exit);
  }
  uint32_t bound = session.pace.bound(session.pool.requested() - session.pool.returned());
  if (bound >= BufferPool::kBufferBytes / BufferPool::kRecordBytes) bound = 0;
  *buffer = session.pool.take(bound, session.may_refuse, size);
  *max_records = bound;
}

void buffer_completed(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid) {
  if (forked() || !buffer) return;
  if (!flag(session.closed)) {
    session.activity.process(buffer, valid, session.pace);
    size_t dropped = 0;
    if (session.functions.dropped_records &&
        session.functions.dropped_records(context, stream, &dropped) == kSuccess) {
      session.activity.dropped(dropped);
    }
  }
  // After a forced flush CUPTI may still write to a buffer that it has handed back.
  if (flag(session.ending)) {
    session.pool.retire(buffer);
    return session.writer.hook_progress();
  }
  session.pool.give_back(buffer, size);
}

void graph_created(const GraphData* data) {
  uint64_t hash;
  uint32_t id;
  if (!data || !data->graph || !graph_signature(session.driver, data->graph, &hash)) return;
  const Functions& f = session.functions;
  // Which of the two ids a trace record carries differs between CUDA releases.
  if (f.graph_id && f.graph_id(data->graph, &id) == kSuccess) session.graphs.remember(id, hash);
  if (f.graph_exec_id && data->exec && f.graph_exec_id(data->exec, &id) == kSuccess) session.graphs.remember(id, hash);
}

void resource_callback(void*, int domain, uint32_t callback, const void* data) {
  if (forked() || domain != kDomainResource || flag(session.closed)) return;
  switch (callback) {
    case kModuleLoaded: __atomic_fetch_add(&session.modules, 1u, __ATOMIC_RELAXED); break;
    case kModuleUnloadStarting: session.activity.distrust_name_pointers(); break;
    case kGraphExecCreated:
      if (data) graph_created(static_cast<const GraphData*>(static_cast<const ResourceData*>(data)->descriptor));
      break;
    default: break;
  }
}

// A process that loads code onto the GPU but reports nothing must not look idle.
void watch_silence() {
  if (session.silence_logged || session.pool.requested() != 0 || __atomic_load_n(&session.modules, __ATOMIC_RELAXED) == 0) return;
  if (++session.silent_ticks < kSilenceTicks) return;
  session.silence_logged = true;
  session.writer.log().add(Level::kWarning,
                           "GPU code was loaded %u s ago and CUPTI has reported no activity: nothing of it has run yet, or the CUDA driver "
                           "and %s do not fit together",
                           kSilenceTicks, session.cupti_path[0] ? session.cupti_path : "libcupti");
}

void before_write(void*) {
  session.probes.refresh(kProbeWaitNs);
  if (!flag(session.ready)) return;
  // Unforced: a forced flush would lose the records of work in flight.
  if (session.pool.requested() != session.pool.returned()) {
    const int result = session.functions.flush_all(0);
    if (result != kSuccess) session.writer.log().add(Level::kDebug, "cuptiActivityFlushAll failed: %d", result);
  }
  session.pool.maintain();
  session.pace.tick();
  watch_silence();
  session.takeover.tick(session.pool.requested(), session.pool.returned());
}

void at_end(void*) {
  raise_flag(session.ending);
  const uint64_t requested = session.pool.requested();
  if (flag(session.ready) && !session.takeover.taken_over(requested)) {
    int result = session.functions.flush_all(1);
    // A buffer that a thread is just being given is known to CUPTI only a moment later.
    for (uint64_t ns = kMoment; session.takeover.watching() && result == kSuccess && session.pool.returned() < requested && ns <= kLongestMoment;
         ns *= 2) {
      Event never;
      never.wait(ns);
      session.writer.hook_progress();
      result = session.functions.flush_all(1);
    }
    if (result == kSuccess) session.takeover.end(requested, session.pool.returned());
  }
  close_activity();
}

// CUPTI does not come back from a flush, and the process will not wait for it any longer.
void abandoned(void*) {
  raise_flag(session.ending);
  close_activity();
}

void more_metrics(Json& out, bool* first, void*) {
  session.probes.write(out, first);
  if (session.pool.cold()) write_counter(out, first, "cuda_buffer_growths", session.pool.cold());
  if (session.pool.small()) write_counter(out, first, "cuda_buffer_shortages", session.pool.small() + session.pool.refused());
}

// The copies that read probes are no activity of the program.
void ignore_own_copies(void* context, void* stream) {
  const Functions& f = session.functions;
  uint32_t context_number, stream_number;
  if (!flag(session.ready) || !f.context_number || !f.stream_number || f.context_number(context, &context_number) != kSuccess ||
      f.stream_number(context, stream, 0, &stream_number) != kSuccess) {
    return;
  }
  session.activity.ignore_copies(context_number, stream_number);
}

void start_probes() {
  Log& log = session.writer.log();
  if (!session.memory.start(log, ignore_own_copies)) return;
  DeviceProbes::Options options;
  options.memory = session.memory.interface();
  options.registries = &session.writer.probes();
  options.instruments = &session.writer.instruments();
  options.log = &log;
  session.probes.start(options);
}

// Decides the mode, once subscribed or not: a tool that takes the callbacks over while graphs are traced as a whole makes
// the GPU write where it must not (seen with jax.profiler), so without the subscription the nodes are.
bool choose_node_mode() {
  Log& log = session.writer.log();
  const char* mode = environment("GRAPHSIGNAL_CUDA_GRAPH_TRACE");
  if (mode && strcmp(mode, "node") == 0) return true;
  if (!session.subscribed) {
    log.add(mode ? Level::kWarning : Level::kDebug, "no subscription to CUPTI: the kernels of CUDA graphs are timed one by one");
    return true;
  }
  if (mode && strcmp(mode, "graph") != 0) {
    log.add(Level::kDebug, "GRAPHSIGNAL_CUDA_GRAPH_TRACE is graph or node, not %.63s: using graph", mode);
  }
  return false;
}

void subscribe() {
  const Functions& f = session.functions;
  const char* wanted = environment("GRAPHSIGNAL_CUPTI_SUBSCRIBE");
  if ((wanted && strcmp(wanted, "0") == 0) || !f.subscribe || !f.enable_callback) {
    session.activity.distrust_name_pointers();
    return;
  }
  void* subscriber = nullptr;
  const int result = f.subscribe(&subscriber, resource_callback, nullptr);
  if (result != kSuccess) {
    session.activity.distrust_name_pointers();
    session.writer.log().add(Level::kWarning, "CUPTI's subscription is %s (%d %s)",
                             result == kMultipleSubscribers ? "taken" : "not to be had", result, describe(f, result));
    return;
  }
  session.subscribed = true;
  static const uint32_t kCallbacks[] = {kModuleLoaded, kModuleUnloadStarting, kGraphExecCreated};
  for (uint32_t callback : kCallbacks) {
    succeeded(f.enable_callback(1, subscriber, kDomainResource, callback), "cuptiEnableCallback", Level::kWarning);
  }
}

void set_attribute(int attribute, const char* name) {
  if (!session.functions.set_attribute) return;
  uint8_t on = 1;
  size_t size = sizeof(on);
  const int result = session.functions.set_attribute(attribute, &size, &on);
  if (result != kSuccess) session.writer.log().add(Level::kDebug, "no %s here: %d", name, result);
}

// Registers the buffer callbacks and enables the kinds of the chosen mode.
bool enable_activity() {
  const Functions& f = session.functions;
  if (!succeeded(f.register_callbacks(buffer_requested, buffer_completed), "cuptiActivityRegisterCallbacks")) return false;
  static const struct { uint32_t kind; const char* name; } kKinds[] = {
      {kKindConcurrentKernel, "CONCURRENT_KERNEL"}, {kKindMemcpy, "MEMCPY"}, {kKindMemset, "MEMSET"},
      {kKindSynchronization, "SYNCHRONIZATION"}, {kKindGraphTrace, "GRAPH_TRACE"}};
  int told = kSuccess;
  for (const auto& k : kKinds) {
    if (k.kind == kKindGraphTrace && session.node_mode) continue;
    const int result = f.enable(k.kind);
    if (result == kSuccess) continue;
    // A reason that all share is told once.
    const Level level = result == told ? Level::kDebug : k.kind == kKindGraphTrace ? Level::kWarning : Level::kError;
    session.writer.log().add(level, "cuptiActivityEnable(%s) failed: %d %s", k.name, result, describe(f, result));
    told = result;
  }
  return true;
}

void start_cupti() {
  Log& log = session.writer.log();
  resolve_driver(&session.driver);
  if (!open_cupti(session.driver, &session.functions, log, session.cupti_path, sizeof(session.cupti_path))) return;
  uint32_t version = 0;
  if (session.functions.version) session.functions.version(&version);
  session.may_refuse = version >= kRefusalVersion;
  bool memory = session.graphs.allocate();
  if (memory) {
    subscribe();
    session.node_mode = choose_node_mode();
    log.add(Level::kDebug, "CUPTI %u from %s, %s mode", version, session.cupti_path, session.node_mode ? "node" : "graph");
    memory = session.activity.start(session.writer.instruments(), log, session.functions, session.graphs, session.node_mode) &&
             session.pool.start(!session.subscribed);
  }
  if (!memory) {
    log.add(Level::kError, "no memory for GPU activity");
    return;
  }
  set_attribute(kAttributeZeroedBuffers, "zeroed buffers");
  set_attribute(kAttributePerThreadBuffers, "buffers per thread");
  session.takeover.start(session.writer.instruments(), log, session.functions, session.subscribed);
  if (enable_activity()) raise_flag(session.ready);
}

}  // namespace
}  // namespace cupti
}  // namespace graphsignal

// Called by the CUDA driver while it initializes. Returns 1; the driver does not care.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using namespace graphsignal;
  using namespace graphsignal::cupti;
  if (__atomic_exchange_n(&entered, true, __ATOMIC_ACQ_REL)) return 1;
  if (getauxval(AT_SECURE) != 0) return 1;
  WriterOptions options;
  options.library = "cupti";
  options.probes = WriterOptions::kUnclaimed;
  options.before_write = before_write;
  options.at_end = at_end;
  options.abandoned = abandoned;
  options.more_metrics = more_metrics;
  if (!session.writer.start(options)) return 1;
  start_cupti();
  start_probes();
  atexit(at_exit);
  return 1;
}

// Switches debug messages at run time; returns the previous state.
extern "C" __attribute__((visibility("default"))) int graphsignal_cupti_set_debug(int on) {
  graphsignal::Log& log = graphsignal::cupti::session.writer.log();
  const bool before = log.debug();
  log.set_debug(on != 0);
  return before ? 1 : 0;
}
