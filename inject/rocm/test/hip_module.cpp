// A module of a HIP program, loaded in a scope of its own as Python loads extensions, that has probes in device memory.
// Test programs set what a kernel would have recorded.
#include <graphsignal/probe.h>

#include "../testdata/fake_hip.h"

namespace {

graphsignal_instrument_data* blocks[6];

graphsignal_instrument_data* content(int i) { return static_cast<graphsignal_instrument_data*>(fake_hip_content(blocks[i])); }

}  // namespace

extern "C" __attribute__((visibility("default"))) void module_register() {
  // A pool of three on device 0, one apart from it, and two side by side on device 1.
  graphsignal_instrument_data* pool = static_cast<graphsignal_instrument_data*>(fake_hip_malloc(0, 3 * sizeof(*pool)));
  for (int i = 0; i < 3; i++) blocks[i] = pool + i;
  blocks[3] = static_cast<graphsignal_instrument_data*>(fake_hip_malloc(0, 2 * sizeof(*pool)));
  graphsignal_instrument_data* other = static_cast<graphsignal_instrument_data*>(fake_hip_malloc(1, 2 * sizeof(*pool)));
  blocks[4] = other + 1;
  blocks[5] = other;
  const char* keys[] = {"block"};
  const graphsignal_instrument_type types[] = {GRAPHSIGNAL_HISTOGRAM, GRAPHSIGNAL_HISTOGRAM, GRAPHSIGNAL_COUNTER,
                                               GRAPHSIGNAL_GAUGE,     GRAPHSIGNAL_HISTOGRAM, GRAPHSIGNAL_HISTOGRAM};
  for (int i = 0; i < 6; i++) {
    content(i)->min = UINT64_MAX;
    const char number[] = {static_cast<char>('0' + i), 0};
    const char* values[] = {number};
    graphsignal_probe_register_storage("tile_ticks", types[i], keys, values, 1, blocks[i], i < 4 ? 0 : 1);
  }
  // What cannot be read is left out.
  graphsignal_probe_register_storage("nowhere", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, blocks[0] + 1000, 3);
  graphsignal_probe_register_storage("bad_device", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, blocks[0], 99);
  graphsignal_add(graphsignal_probe_register("host_total", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 5);
}

extern "C" __attribute__((visibility("default"))) void module_record(int i, uint64_t value) {
  graphsignal_probe_entry entry = {};
  entry.type = GRAPHSIGNAL_HISTOGRAM;
  entry.storage = GRAPHSIGNAL_STORAGE_HOST;
  entry.data = content(i);
  graphsignal_record(&entry, value);
}

extern "C" __attribute__((visibility("default"))) void module_set(int i, double gauge, uint64_t counter) {
  uint64_t bits;
  static_assert(sizeof(bits) == sizeof(gauge), "a gauge is a double");
  __builtin_memcpy(&bits, &gauge, sizeof(bits));
  __atomic_store_n(&content(i)->value_bits, counter ? counter : bits, __ATOMIC_RELAXED);
}
