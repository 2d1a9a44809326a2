// libgraphsignal_probe.so: publishes the host probes of a process that need not have a GPU. probe.h loads it at the first
// registration when GRAPHSIGNAL_PROBE_LIB names it. It publishes <run directory>/probes.json once a second, unless
// another library of this process has claimed the probes before.
#include <stdlib.h>
#include <sys/auxv.h>

#include "../common/writer.h"

namespace graphsignal {
namespace {

const uint64_t kExitWaitNs = 100000000;

// Never destroyed: probes may be recorded and registered until the last instruction of the process.
Writer writer;

enum State : uint32_t { kUntried, kStarting, kStarted, kOff };
uint32_t state = kUntried;

void finish() { writer.stop(kExitWaitNs); }

void before_destructors() { writer.leave_linker(); }

// Nobody waits for a start that another thread is making: that one needs the dynamic linker's lock, which a thread that registers in a
// library's constructor holds.
bool start() {
  if (forked()) return false;
  uint32_t found = kUntried;
  if (!__atomic_compare_exchange_n(&state, &found, kStarting, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    return found == kStarting || (found == kStarted && writer.running());
  }
  WriterOptions options;
  options.library = "probes";
  options.probes = WriterOptions::kOnly;
  const bool started = getauxval(AT_SECURE) == 0 && writer.start(options);
  __atomic_store_n(&state, started ? kStarted : kOff, __ATOMIC_RELEASE);
  if (started) atexit(before_destructors);
  return started;
}

__attribute__((destructor)) void at_unload() { finish(); }

}  // namespace
}  // namespace graphsignal

// Publishes a registry from now on. Returns 1, or 0 when nothing is published in this process (a forked child, an
// unusable run directory, too many registries).
extern "C" __attribute__((visibility("default"))) int graphsignal_probe_publish(graphsignal_probe_registry* registry) {
  if (!graphsignal::start()) return 0;
  return graphsignal::writer.probes().add(registry) ? 1 : 0;
}
