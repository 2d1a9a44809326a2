// The registration half of probe_cuda.h compiles without nvcc. It is compiled only.
#include <graphsignal/probe_cuda.h>

graphsignal_instrument_data* use(graphsignal_probe_cuda_pool* pool) {
  if (graphsignal_probe_cuda_pool_init(pool, 4) != 0) return nullptr;
  graphsignal_probe_register_cuda("a", nullptr, nullptr, 0);
  return graphsignal_probe_device_data(graphsignal_probe_register_cuda_pooled(pool, "b", nullptr, nullptr, 0));
}
