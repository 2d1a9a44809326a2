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
Lock starting;
bool tried = false;

void finish() { writer.stop(kExitWaitNs); }

void before_destructors() { writer.leave_linker(); }

bool start() {
  if (forked()) return false;
  Guard hold(starting);
  if (tried) return writer.running();
  tried = true;
  if (getauxval(AT_SECURE) != 0) return false;
  WriterOptions options;
  options.library = "probes";
  options.probes = WriterOptions::kOnly;
  if (!writer.start(options)) return false;
  atexit(before_destructors);
  return true;
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
