// What recording costs in a kernel: nanoseconds that one record adds, for one thread alone and for a full grid, into one block
// of memory and into one per thread block. Prints "what | ns" lines; the least of several rounds counts.
#include <graphsignal/probe_cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define CHECK_CUDA(call)                                                          \
  do {                                                                            \
    const cudaError_t e_ = (call);                                                \
    if (e_ != cudaSuccess) {                                                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

namespace {

constexpr int kRounds = 5;

// Some arithmetic between records, as in real code; a record every `work` steps, or none with a NULL block.
__global__ void steps(graphsignal_instrument_data* data, bool shared, int records, int work, float* out) {
  graphsignal_instrument_data* mine = data && !shared ? data + blockIdx.x : data;
  float x = static_cast<float>(threadIdx.x);
  for (int i = 0; i < records; i++) {
    const unsigned long long start = graphsignal_gtimer();
    for (int w = 0; w < work; w++) x = x * 1.0001f + 0.5f;
    if (threadIdx.x == 0) GRAPHSIGNAL_RECORD(mine, graphsignal_gtimer() - start);
  }
  if (x == 0.25f) *out = x;
}

double milliseconds(int grid, graphsignal_instrument_data* data, bool shared, int records, int work, float* out) {
  cudaEvent_t a, b;
  CHECK_CUDA(cudaEventCreate(&a));
  CHECK_CUDA(cudaEventCreate(&b));
  float least = 1e9f;
  for (int round = 0; round < kRounds; round++) {
    CHECK_CUDA(cudaEventRecord(a));
    steps<<<grid, 128>>>(data, shared, records, work, out);
    CHECK_CUDA(cudaEventRecord(b));
    CHECK_CUDA(cudaEventSynchronize(b));
    float ms;
    CHECK_CUDA(cudaEventElapsedTime(&ms, a, b));
    least = std::min(least, ms);
  }
  return least;
}

}  // namespace

int main() {
  cudaDeviceProp properties;
  CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  const int full = properties.multiProcessorCount * 8;
  graphsignal_probe_cuda_pool pool = {};
  if (graphsignal_probe_cuda_pool_init(&pool, static_cast<size_t>(full)) != 0) return 1;
  for (int i = 0; i < full; i++) {
    if (!graphsignal_probe_register_cuda_pooled(&pool, ("bench_" + std::to_string(i)).c_str(), nullptr, nullptr, 0)) return 1;
  }
  float* out;
  CHECK_CUDA(cudaMalloc(&out, sizeof(*out)));
  constexpr int kRecords = 2000;
  for (int work : {100, 1000}) {
    for (const auto& [grid, shared] : {std::pair<int, bool>{1, true}, {full, true}, {full, false}}) {
      const double without = milliseconds(grid, nullptr, shared, kRecords, work, out);
      const double with = milliseconds(grid, pool.base, shared, kRecords, work, out);
      printf("device record, %d thread block%s, %s, every %.0f ns | %.1f ns (%.3f x)\n", grid, grid == 1 ? "" : "s",
             shared ? "one instrument" : "one instrument each", without * 1e6 / kRecords, (with - without) * 1e6 / kRecords, with / without);
    }
  }
  return 0;
}
