// A tiled matrix product whose thread blocks tell how long they load, compute and store: three histograms that answer what a
// kernel's total time cannot.
// usage: probes-cuda [SECONDS] [SIZE]     SIZE is a multiple of 32
#include <graphsignal/probe_cuda.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
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

constexpr int kTile = 32;

// Where a kernel records; NULL pointers record nothing. Passed by value, so that nothing has to be looked up.
struct Phases {
  graphsignal_instrument_data* load;
  graphsignal_instrument_data* compute;
  graphsignal_instrument_data* store;
};

// c = a * b for square matrices of n rows. One thread of a block keeps the time; a block makes one record per phase, of the
// phase's sum over all tiles: a record per tile would cost more and say little more.
__global__ void gemm(const float* a, const float* b, float* c, int n, Phases phases) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  const bool clock = x == 0 && y == 0;
  unsigned long long loading = 0, computing = 0, mark = clock ? graphsignal_gtimer() : 0;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    tile_a[y][x] = a[row * n + k + x];
    tile_b[y][x] = b[(k + y) * n + column];
    __syncthreads();
    if (clock) {
      const unsigned long long now = graphsignal_gtimer();
      loading += now - mark;
      mark = now;
    }
#pragma unroll
    for (int i = 0; i < kTile; i++) sum += tile_a[y][i] * tile_b[i][x];
    __syncthreads();
    if (clock) {
      const unsigned long long now = graphsignal_gtimer();
      computing += now - mark;
      mark = now;
    }
  }
  c[row * n + column] = sum;
  if (clock) {
    GRAPHSIGNAL_RECORD(phases.load, loading);
    GRAPHSIGNAL_RECORD(phases.compute, computing);
    GRAPHSIGNAL_RECORD(phases.store, graphsignal_gtimer() - mark);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? atof(argv[1]) : 10;
  const int n = argc > 2 ? atoi(argv[2]) : 1024;
  if (n <= 0 || n % kTile != 0) {
    fprintf(stderr, "the size has to be a multiple of %d\n", kTile);
    return 2;
  }

  // The blocks of instruments that belong together come from one pool: a profiler reads them by one copy.
  graphsignal_probe_cuda_pool pool = {};
  graphsignal_probe_cuda_pool_init(&pool, 3);
  const auto phase = [&](const char* name) {
    const char* keys[] = {"phase"};
    return graphsignal_probe_device_data(graphsignal_probe_register_cuda_pooled(&pool, "gemm_phase_nanoseconds", keys, &name, 1));
  };
  const Phases phases = {phase("load"), phase("compute"), phase("store")};

  const size_t elements = static_cast<size_t>(n) * n;
  std::vector<float> a(elements), b(elements), c(elements);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1, 1);
  for (float& v : a) v = values(random);
  for (float& v : b) v = values(random);
  float *da, *db, *dc;
  CHECK_CUDA(cudaMalloc(&da, elements * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&db, elements * sizeof(float)));
  CHECK_CUDA(cudaMalloc(&dc, elements * sizeof(float)));
  CHECK_CUDA(cudaMemcpy(da, a.data(), elements * sizeof(float), cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(db, b.data(), elements * sizeof(float), cudaMemcpyHostToDevice));

  const dim3 grid(n / kTile, n / kTile), block(kTile, kTile);
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  unsigned long long launches = 0;
  do {
    for (int i = 0; i < 20; i++, launches++) gemm<<<grid, block>>>(da, db, dc, n, phases);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
  } while (passed() < seconds);
  const double took = passed();

  CHECK_CUDA(cudaMemcpy(c.data(), dc, elements * sizeof(float), cudaMemcpyDeviceToHost));
  for (const size_t at : {static_cast<size_t>(0), elements / 3, elements - 1}) {
    double want = 0;
    for (int k = 0; k < n; k++) want += static_cast<double>(a[at / n * n + k]) * b[static_cast<size_t>(k) * n + at % n];
    if (std::fabs(want - c[at]) > 1e-3 * n) {
      fprintf(stderr, "element %zu is %g, want %g\n", at, static_cast<double>(c[at]), want);
      return 1;
    }
  }
  printf("%llu launches of %u blocks, %.0f GFLOP/s\n", launches, grid.x * grid.y, 2.0 * n * n * n * static_cast<double>(launches) / took / 1e9);
  return 0;
}
