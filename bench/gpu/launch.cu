// Launch loops: how much does an injected library slow a CUDA program?
// usage: launch MODE     MODE: eager, eager_sync, gpu_bound, graph, memcpy
// Prints "ready" after a warm-up; then for each line "SECONDS" on standard input runs that long and prints one JSON line
// {"ops":N,"ns_per_op":X}; ends at the end of input.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

#define CHECK_CUDA(call)                                                                             \
  do {                                                                                               \
    const cudaError_t e_ = (call);                                                                   \
    if (e_ != cudaSuccess) {                                                                         \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));                    \
      exit(2);                                                                                       \
    }                                                                                                \
  } while (0)

template <int I>
__global__ void tiny(float* p) {
  if (p && threadIdx.x == 1000) p[0] = I;
}

__global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

using Kernel = void (*)(float*);
template <int... I>
std::vector<Kernel> kernels(std::integer_sequence<int, I...>) {
  return {tiny<I>...};
}

constexpr int kKernels = 64;
constexpr int kGraphNodes = 400;
using Clock = std::chrono::steady_clock;

struct Bench {
  std::string mode;
  float* device = nullptr;
  void* host = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraphExec_t graph = nullptr;
  std::vector<Kernel> all = kernels(std::make_integer_sequence<int, kKernels>{});

  void prepare() {
    CHECK_CUDA(cudaMalloc(&device, 1 << 20));
    CHECK_CUDA(cudaMallocHost(&host, 1 << 20));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (Kernel k : all) k<<<1, 32, 0, stream>>>(device);
    spin<<<1, 32, 0, stream>>>(1000);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    if (mode != "graph") return;
    cudaGraph_t captured;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < kGraphNodes; i++) all[i % kKernels]<<<1, 32, 0, stream>>>(device);
    CHECK_CUDA(cudaStreamEndCapture(stream, &captured));
    CHECK_CUDA(cudaGraphInstantiate(&graph, captured, 0));
  }

  // One batch of operations, ended by a synchronization; returns their number.
  long batch() {
    long n = 0;
    if (mode == "eager") {
      for (; n < 1000; n++) all[n % kKernels]<<<1, 32, 0, stream>>>(device);
    } else if (mode == "eager_sync") {
      for (; n < 200; n++) {
        all[n % kKernels]<<<1, 32, 0, stream>>>(device);
        CHECK_CUDA(cudaStreamSynchronize(stream));
      }
    } else if (mode == "gpu_bound") {
      for (; n < 1000; n++) spin<<<1, 32, 0, stream>>>(20000);
    } else if (mode == "graph") {
      for (; n < 10; n++) CHECK_CUDA(cudaGraphLaunch(graph, stream));
    } else if (mode == "memcpy") {
      for (; n < 500; n++) CHECK_CUDA(cudaMemcpyAsync(device, host, 4096, cudaMemcpyHostToDevice, stream));
    } else {
      fprintf(stderr, "launch: no mode %s\n", mode.c_str());
      exit(3);
    }
    CHECK_CUDA(cudaStreamSynchronize(stream));
    return n;
  }

  std::pair<long, double> run(double seconds) {
    const Clock::time_point start = Clock::now();
    long n = 0;
    double elapsed = 0;
    while (elapsed < seconds) {
      n += batch();
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    }
    return {n, elapsed};
  }
};

}  // namespace

int main(int argc, char** argv) {
  Bench bench;
  bench.mode = argc > 1 ? argv[1] : "eager";
  bench.prepare();
  bench.run(1.0);
  printf("ready\n");
  fflush(stdout);
  double seconds;
  while (scanf("%lf", &seconds) == 1) {
    bench.run(0.2);
    const std::pair<long, double> r = bench.run(seconds);
    printf("{\"ops\":%ld,\"ns_per_op\":%.1f}\n", r.first, r.second * 1e9 / static_cast<double>(r.first));
    fflush(stdout);
  }
  return 0;
}
