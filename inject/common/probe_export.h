// Writes the instruments of probe registries (graphsignal/probe.h) into a document.
#ifndef GRAPHSIGNAL_INJECT_PROBE_EXPORT_H
#define GRAPHSIGNAL_INJECT_PROBE_EXPORT_H

#include <graphsignal/probe.h>

#include "json.h"
#include "registry_scan.h"

namespace graphsignal {

// The registries of the process. Copies that the dynamic linker could not unify are separate ones.
class ProbeRegistries {
 public:
  static const uint32_t kMaxRegistries = 64;

  // Any thread. False when the table is full. The library that holds it stays loaded from then on.
  bool add(graphsignal_probe_registry* registry);
  // Adds the registry of the global scope, when there is one by now.
  void attach();
  // Adds those that have to be searched for. Takes up to milliseconds; one thread at a time.
  void discover();
  // Says that the destructors of libraries are about to run: the dynamic linker, asked for a library from then on, would run the
  // constructors of one that was destructed. Nothing is searched for any more.
  void leave_linker() { __atomic_store_n(&linker_left_, true, __ATOMIC_RELEASE); }

  // The registry at a position when it can be read; NULL otherwise. Positions are used from 0 without gaps.
  const graphsignal_probe_registry* get(uint32_t position) const;

  bool has_host_entries() const;
  // Writes gauges, counters, histograms and profiles in host memory. Counters, histograms and profiles that several
  // registries hold under one identity are summed; of gauges the last registry's value counts.
  void write_host(Json& out, bool* first) const;
  // Adds the counters of refused registrations and of refused lookups of profile frames, if any.
  void write_dropped(Json& out, bool* first) const;

 private:
  bool linker_left() const { return __atomic_load_n(&linker_left_, __ATOMIC_ACQUIRE); }

  graphsignal_probe_registry* registries_[kMaxRegistries] = {};
  RegistryScan scan_;
  bool linker_left_ = false;
};

// Whether the fields of a published entry are within the limits of the layout.
bool well_formed(const graphsignal_probe_entry& e);
// Whether name, tags, type and storage are the same.
bool same_identity(const graphsignal_probe_entry& a, const graphsignal_probe_entry& b);
// Writes an entry of a document up to and including its tags; a value and "}" have to follow.
void write_probe_start(Json& out, bool* first, const graphsignal_probe_entry& e);
// Adds the observations of a second block.
void merge_histogram(graphsignal_instrument_data* into, const graphsignal_instrument_data& from);

}  // namespace graphsignal

#endif
