// A shared object with GPU probes, as a Python extension would be.
#include <graphsignal/probe_cuda.h>

extern "C" __attribute__((visibility("default"))) void use_gpu_probes(const char* own_name, uint64_t value) {
  const char* const names[] = {own_name, "in_all"};
  for (const char* name : names) {
    const graphsignal_probe_entry* e = graphsignal_probe_register_cuda(name, nullptr, nullptr, 0);
    if (e) GRAPHSIGNAL_RECORD(static_cast<graphsignal_instrument_data*>(fake_view(graphsignal_probe_device_data(e))), value);
  }
}
