// A shared object that vendors probe.h, as a Python extension or an engine's plugin would.
#include <graphsignal/probe.h>

extern "C" __attribute__((visibility("default"))) void use_probes(const char* own_name) {
  graphsignal_add(graphsignal_probe_register(own_name, GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 5);
  graphsignal_add(graphsignal_probe_register("shared_total", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 10);
  graphsignal_record(graphsignal_probe_register("shared_sizes", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0), 6);
  graphsignal_probe_entry* p = graphsignal_probe_register("shared_profile", GRAPHSIGNAL_PROFILE, nullptr, nullptr, 0);
  graphsignal_profile_add_by_name(p, "both", 7);
  graphsignal_profile_add_by_name(p, own_name, 1);
}
