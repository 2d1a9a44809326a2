// A module with a registry that nobody exports, whose memory comes into use long before it is filled, as with a huge page.
#include <graphsignal/probe.h>

namespace {
graphsignal_probe_registry registry;
graphsignal_instrument_data block;
}  // namespace

extern "C" __attribute__((visibility("default"))) void touch() {
  volatile char* bytes = reinterpret_cast<volatile char*>(&registry);
  for (size_t i = 0; i < sizeof(registry); i += 1024) bytes[i] = 0;
}

extern "C" __attribute__((visibility("default"))) graphsignal_probe_registry* fill() {
  registry.abi_version = GRAPHSIGNAL_PROBE_ABI_VERSION;
  registry.start_ts = graphsignal_now_ns();
  strcpy(registry.entries[0].name, "late_total");
  registry.entries[0].type = GRAPHSIGNAL_COUNTER;
  registry.entries[0].device_id = -1;
  registry.entries[0].data = &block;
  registry.count = 1;
  registry.magic = GRAPHSIGNAL_PROBE_ABI_MAGIC;
  return &registry;
}
