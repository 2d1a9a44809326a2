// Writes the instruments of probe registries (graphsignal/probe.h) into a document.
#ifndef GRAPHSIGNAL_INJECT_PROBE_EXPORT_H
#define GRAPHSIGNAL_INJECT_PROBE_EXPORT_H

#include <graphsignal/probe.h>

#include "json.h"

namespace graphsignal {

// The registries of the process. Copies that the dynamic linker could not unify are separate ones.
class ProbeRegistries {
 public:
  static const uint32_t kMaxRegistries = 64;

  // Any thread. False when the table is full.
  bool add(graphsignal_probe_registry* registry);
  // Adds the registry of the global scope, when there is one by now.
  void attach();

  bool has_host_entries() const;
  // Writes gauges, counters, histograms and profiles in host memory. Counters, histograms and profiles that several
  // registries hold under one identity are summed; of gauges the last registry's value counts.
  void write_host(Json& out, bool* first) const;
  // Adds the counter of refused registrations, if any.
  void write_dropped(Json& out, bool* first) const;

 private:
  graphsignal_probe_registry* registries_[kMaxRegistries] = {};
};

}  // namespace graphsignal

#endif
