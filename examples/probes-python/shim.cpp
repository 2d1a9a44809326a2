// The functions of probe.h under C names, for ctypes and other foreign function interfaces.
#include <graphsignal/probe.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

// type: 0 gauge, 1 counter, 2 histogram, 3 profile. Returns NULL when nothing was registered; all functions accept that.
EXPORT graphsignal_probe_entry* probe_register(const char* name, int type, const char* const* keys, const char* const* values, size_t tags) {
  if (type < GRAPHSIGNAL_GAUGE || type > GRAPHSIGNAL_PROFILE) return nullptr;
  return graphsignal_probe_register(name, static_cast<graphsignal_instrument_type>(type), keys, values, tags);
}

EXPORT void probe_record(graphsignal_probe_entry* e, uint64_t value) { graphsignal_record(e, value); }

EXPORT void probe_add(graphsignal_probe_entry* e, uint64_t delta) { graphsignal_add(e, delta); }

EXPORT void probe_set(graphsignal_probe_entry* e, double value) { graphsignal_set(e, value); }

EXPORT graphsignal_profile_frame* probe_frame(graphsignal_probe_entry* e, const char* frame) {
  return graphsignal_profile_frame_get(e, frame);
}

EXPORT void probe_frame_add(graphsignal_profile_frame* f, uint64_t delta) { graphsignal_profile_add(f, delta); }
