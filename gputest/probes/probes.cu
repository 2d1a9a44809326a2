// Programs with GPU probes whose values are known, for the GPU tests: what it does is the first argument. Ends with 0, or
// with 1 and a message when something it can see itself is wrong. The last line on standard output is a JSON object.
#include <dlfcn.h>
#include <graphsignal/probe_cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#define CHECK_CUDA(call)                                                          \
  do {                                                                            \
    const cudaError_t e_ = (call);                                                \
    if (e_ != cudaSuccess) {                                                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)
#define REQUIRE(condition)                                                  \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

namespace {

using Clock = std::chrono::steady_clock;

__host__ __device__ unsigned long long value_of(unsigned block, unsigned launch) {
  return (block * 2654435761ull + launch * 40503ull) % 1000003ull;
}

__global__ void record_blocks(graphsignal_instrument_data* data, unsigned launch) {
  if (threadIdx.x == 0) GRAPHSIGNAL_RECORD(data, value_of(blockIdx.x, launch));
}

__global__ void record_each(graphsignal_instrument_data* const* data, unsigned count) {
  if (threadIdx.x == 0 && blockIdx.x < count) GRAPHSIGNAL_RECORD(data[blockIdx.x], blockIdx.x + 1);
}

// One stamp at the beginning and one at the end of each kernel.
__global__ void stamped(unsigned long long* stamps, unsigned i, long long cycles, graphsignal_instrument_data* data) {
  const unsigned long long begin = graphsignal_gtimer();
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  GRAPHSIGNAL_RECORD(data, 1);
  stamps[2 * i] = begin;
  stamps[2 * i + 1] = graphsignal_gtimer();
}

__global__ void bins_of(const unsigned long long* values, unsigned* bins, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) bins[i] = graphsignal_probe__device_bin(values[i]);
}

void wait_seconds(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

graphsignal_instrument_data read_back(const graphsignal_probe_entry* e) {
  graphsignal_instrument_data d;
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMemcpy(&d, graphsignal_probe_device_data(e), sizeof(d), cudaMemcpyDeviceToHost));
  return d;
}

graphsignal_instrument_data expected(unsigned blocks, unsigned launches) {
  graphsignal_instrument_data d = {};
  d.min = UINT64_MAX;
  for (unsigned l = 0; l < launches; l++) {
    for (unsigned b = 0; b < blocks; b++) {
      const uint64_t v = value_of(b, l);
      d.count++;
      d.sum += v;
      d.min = std::min(d.min, v);
      d.max = std::max(d.max, v);
      d.bins[graphsignal_probe_bin_index(v)]++;
    }
  }
  return d;
}

void print_block(const graphsignal_instrument_data& d) {
  printf("{\"count\":%llu,\"sum\":%llu,\"min\":%llu,\"max\":%llu,\"bins\":[", (unsigned long long)d.count, (unsigned long long)d.sum,
         (unsigned long long)d.min, (unsigned long long)d.max);
  const char* comma = "";
  for (unsigned i = 0; i < GRAPHSIGNAL_PROBE_HIST_BINS; i++) {
    if (d.bins[i]) printf("%s[%llu,%llu]", comma, (unsigned long long)graphsignal_probe_bin_lower(i), (unsigned long long)d.bins[i]), comma = ",";
  }
  printf("]}\n");
}

// Every block of 4,096 records, 25 times.
void record(double seconds) {
  graphsignal_probe_entry* e = graphsignal_probe_register_cuda("test_blocks_nanoseconds", nullptr, nullptr, 0);
  REQUIRE(e && e->storage == GRAPHSIGNAL_STORAGE_DEVICE && e->device_id == 0);
  const graphsignal_instrument_data fresh = read_back(e);
  REQUIRE(fresh.count == 0 && fresh.min == UINT64_MAX && fresh.max == 0 && fresh.bins[0] == 0 && fresh.bins[255] == 0);
  REQUIRE(graphsignal_probe_register_cuda("test_blocks_nanoseconds", nullptr, nullptr, 0) == e);
  REQUIRE(graphsignal_probe_device_data(nullptr) == nullptr);
  for (unsigned l = 0; l < 25; l++) record_blocks<<<4096, 128>>>(graphsignal_probe_device_data(e), l);
  record_blocks<<<16, 128>>>(nullptr, 0);
  CHECK_CUDA(cudaGetLastError());
  const graphsignal_instrument_data want = expected(4096, 25), got = read_back(e);
  REQUIRE(memcmp(&want, &got, sizeof(want)) == 0);
  wait_seconds(seconds);
  print_block(want);
}

void bins() {
  std::vector<unsigned long long> values;
  for (unsigned i = 0; i <= 252; i++) {
    const unsigned long long low = graphsignal_probe_bin_lower(i);
    values.insert(values.end(), {low - 1, low, low + 1});
  }
  unsigned long long x = 88172645463325252ull;
  for (unsigned i = 0; i < 4000000; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    values.push_back(x >> (i % 64));
  }
  unsigned long long* in;
  unsigned* out;
  const unsigned n = static_cast<unsigned>(values.size());
  CHECK_CUDA(cudaMalloc(&in, n * sizeof(*in)));
  CHECK_CUDA(cudaMalloc(&out, n * sizeof(*out)));
  CHECK_CUDA(cudaMemcpy(in, values.data(), n * sizeof(*in), cudaMemcpyHostToDevice));
  bins_of<<<(n + 255) / 256, 256>>>(in, out, n);
  std::vector<unsigned> got(n);
  CHECK_CUDA(cudaMemcpy(got.data(), out, n * sizeof(*out), cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < n; i++) REQUIRE(got[i] == graphsignal_probe_bin_index(values[i]));
  printf("{\"values\":%u}\n", n);
}

// n instruments in a pool, or each with a block of its own; block i records i + 1 twice.
void many(unsigned n, bool pooled, double seconds) {
  graphsignal_probe_cuda_pool pool = {};
  if (pooled) REQUIRE(graphsignal_probe_cuda_pool_init(&pool, n) == 0 && pool.capacity == n);
  std::vector<graphsignal_instrument_data*> blocks;
  for (unsigned i = 0; i < n; i++) {
    const std::string number = std::to_string(i);
    const char* keys[] = {"i"};
    const char* values[] = {number.c_str()};
    graphsignal_probe_entry* e = pooled ? graphsignal_probe_register_cuda_pooled(&pool, "test_many", keys, values, 1)
                                        : graphsignal_probe_register_cuda("test_many", keys, values, 1);
    REQUIRE(e);
    blocks.push_back(graphsignal_probe_device_data(e));
    REQUIRE(!pooled || blocks.back() == pool.base + i);
  }
  if (pooled) {
    // One too many is refused by the pool, or, before the pool is asked, by a registry that is full as well.
    const bool registry_full = n >= GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS;
    const uint64_t of_pool = registry_full ? 0u : 1u, of_registry = registry_full ? 1u : 0u;
    const uint64_t before = __graphsignal_probe_registry_v1.dropped;
    REQUIRE(graphsignal_probe_register_cuda_pooled(&pool, "test_more", nullptr, nullptr, 0) == nullptr);
    REQUIRE(pool.dropped == of_pool && __graphsignal_probe_registry_v1.dropped == before + of_registry);
    // What is there already is found, however full both are.
    const char* keys[] = {"i"};
    const char* values[] = {"0"};
    graphsignal_probe_entry* again = graphsignal_probe_register_cuda_pooled(&pool, "test_many", keys, values, 1);
    REQUIRE(again && again->data == pool.base && pool.used == n);
    REQUIRE(pool.dropped == of_pool && __graphsignal_probe_registry_v1.dropped == before + of_registry);
  }
  graphsignal_instrument_data** device;
  CHECK_CUDA(cudaMalloc(&device, n * sizeof(*device)));
  CHECK_CUDA(cudaMemcpy(device, blocks.data(), n * sizeof(*device), cudaMemcpyHostToDevice));
  for (int twice = 0; twice < 2; twice++) record_each<<<n, 32>>>(device, n);
  CHECK_CUDA(cudaDeviceSynchronize());
  wait_seconds(seconds);
  printf("{\"probes\":%u,\"device_to_host\":0}\n", n);
}

// Short kernels without a pause on the default stream, and the gaps between them.
void gaps(unsigned probes, double seconds) {
  constexpr unsigned kMost = 600000;
  graphsignal_instrument_data* data = nullptr;
  if (probes) {
    graphsignal_probe_cuda_pool pool = {};
    REQUIRE(graphsignal_probe_cuda_pool_init(&pool, probes) == 0);
    for (unsigned i = 0; i < probes; i++) {
      graphsignal_probe_entry* e = graphsignal_probe_register_cuda_pooled(&pool, ("test_gap_" + std::to_string(i)).c_str(), nullptr, nullptr, 0);
      REQUIRE(e);
      data = graphsignal_probe_device_data(e);
    }
  }
  unsigned long long* stamps;
  CHECK_CUDA(cudaMalloc(&stamps, 2ull * kMost * sizeof(*stamps)));
  stamped<<<1, 1>>>(stamps, 0, 1000, data);
  CHECK_CUDA(cudaDeviceSynchronize());
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(static_cast<long>(seconds * 1000));
  unsigned n = 0;
  while (n < kMost && (n % 64 != 0 || Clock::now() < end)) stamped<<<1, 1>>>(stamps, n++, 30000, data);
  CHECK_CUDA(cudaDeviceSynchronize());
  std::vector<unsigned long long> t(2ull * n);
  CHECK_CUDA(cudaMemcpy(t.data(), stamps, t.size() * sizeof(t[0]), cudaMemcpyDeviceToHost));
  std::vector<long long> gap;
  unsigned long long over20 = 0, over100 = 0, total = 0;
  for (unsigned i = 1024; i + 1 < n; i++) {
    gap.push_back(static_cast<long long>(t[2 * i + 2]) - static_cast<long long>(t[2 * i + 1]));
    over20 += gap.back() > 20000;
    over100 += gap.back() > 100000;
    total += static_cast<unsigned long long>(std::max(0ll, gap.back()));
  }
  std::sort(gap.begin(), gap.end());
  REQUIRE(!gap.empty());
  const auto at = [&](double q) { return gap[static_cast<size_t>(q * static_cast<double>(gap.size() - 1))]; };
  printf("{\"kernels\":%u,\"median\":%lld,\"mean\":%llu,\"p999\":%lld,\"p9999\":%lld,\"max\":%lld,\"over20us\":%llu,\"over100us\":%llu}\n", n,
         at(0.5), total / gap.size(), at(0.999), at(0.9999), gap.back(), over20, over100);
}

// Registration by another thread and by the capturing one during a capture, readings during a long capture; the graph then
// replays and its records are counted.
void capture(double seconds) {
  graphsignal_probe_entry* before = graphsignal_probe_register_cuda("test_before", nullptr, nullptr, 0);
  REQUIRE(before);
  CHECK_CUDA(cudaDeviceSynchronize());
  cudaStream_t s;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  record_blocks<<<64, 32, 0, s>>>(graphsignal_probe_device_data(before), 0);
  graphsignal_probe_entry *other = nullptr, *again = nullptr;
  graphsignal_probe_cuda_pool pool = {};
  int pooled = -1;
  cudaError_t left = cudaErrorUnknown;
  std::thread([&] {
    other = graphsignal_probe_register_cuda("test_other_thread", nullptr, nullptr, 0);
    pooled = graphsignal_probe_cuda_pool_init(&pool, 100);
    again = graphsignal_probe_register_cuda("test_before", nullptr, nullptr, 0);
    left = cudaGetLastError();
  }).join();
  REQUIRE(other && pooled == 0 && again == before && left == cudaSuccess);
  graphsignal_probe_entry* same = graphsignal_probe_register_cuda("test_same_thread", nullptr, nullptr, 0);
  REQUIRE(same);
  record_blocks<<<64, 32, 0, s>>>(graphsignal_probe_device_data(other), 1);
  record_blocks<<<64, 32, 0, s>>>(graphsignal_probe_device_data(same), 2);
  wait_seconds(seconds);  // some readings fall into the capture
  cudaStreamCaptureStatus status;
  CHECK_CUDA(cudaStreamIsCapturing(s, &status));
  REQUIRE(status == cudaStreamCaptureStatusActive);
  CHECK_CUDA(cudaStreamEndCapture(s, &graph));
  size_t nodes = 0;
  CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  REQUIRE(nodes == 3);
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  constexpr unsigned kReplays = 1000;
  for (unsigned i = 0; i < kReplays; i++) CHECK_CUDA(cudaGraphLaunch(exec, s));
  CHECK_CUDA(cudaStreamSynchronize(s));
  for (graphsignal_probe_entry* e : {before, other, same}) REQUIRE(read_back(e).count == 64ull * kReplays);
  // Without the relaxed mode the same calls break a capture: what registration has to avoid.
  cudaError_t plain = cudaSuccess;
  CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  std::thread([&] {
    void* p;
    plain = cudaMalloc(&p, 4096);
    cudaGetLastError();
  }).join();
  cudaGraph_t broken = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(s, &broken);
  cudaGetLastError();
  wait_seconds(seconds);
  printf("{\"count\":%u,\"plain_malloc_error\":%d,\"plain_capture_error\":%d}\n", 64 * kReplays, static_cast<int>(plain), static_cast<int>(ended));
}

// The program resets the device, after which its blocks are gone; then it goes on.
void reset(double seconds) {
  graphsignal_probe_entry* e = graphsignal_probe_register_cuda("test_reset", nullptr, nullptr, 0);
  REQUIRE(e);
  record_blocks<<<64, 32>>>(graphsignal_probe_device_data(e), 0);
  CHECK_CUDA(cudaDeviceSynchronize());
  wait_seconds(seconds);
  CHECK_CUDA(cudaDeviceReset());
  wait_seconds(seconds);
  graphsignal_probe_entry* after = graphsignal_probe_register_cuda("test_after_reset", nullptr, nullptr, 0);
  REQUIRE(after);
  record_blocks<<<64, 32>>>(graphsignal_probe_device_data(after), 0);
  CHECK_CUDA(cudaDeviceSynchronize());
  wait_seconds(seconds);
  REQUIRE(read_back(after).count == 64);
  printf("{\"count\":64}\n");
}

// Ends in the middle of things.
void leave(unsigned ms) {
  graphsignal_probe_cuda_pool pool = {};
  REQUIRE(graphsignal_probe_cuda_pool_init(&pool, 1440) == 0);
  graphsignal_instrument_data* data = nullptr;
  for (unsigned i = 0; i < 1440; i++) {
    data = graphsignal_probe_device_data(graphsignal_probe_register_cuda_pooled(&pool, ("test_" + std::to_string(i)).c_str(), nullptr, nullptr, 0));
  }
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(ms);
  for (unsigned l = 0; Clock::now() < end; l++) record_blocks<<<64, 32>>>(data, l);
  printf("{}\n");
}

using PrimaryState = int (*)(int, unsigned*, int*);

PrimaryState primary_state() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const PrimaryState found = reinterpret_cast<PrimaryState>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  REQUIRE(found);
  return found;
}

// The device is there but never used: reading must not create a context.
void untouched(double seconds) {
  static graphsignal_instrument_data host;
  REQUIRE(graphsignal_probe_register_storage("test_untouched", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, &host, 0));
  int count = 0;
  CHECK_CUDA(cudaGetDeviceCount(&count));  // initializes the driver
  wait_seconds(seconds);
  unsigned flags;
  int active = 1;
  REQUIRE(primary_state()(0, &flags, &active) == 0 && active == 0);
  printf("{}\n");
}

// A probe on the second device, and with `both` one on the first too. Reading a probe must not create a context elsewhere.
void devices(bool both, double seconds) {
  int count = 0;
  CHECK_CUDA(cudaGetDeviceCount(&count));
  REQUIRE(count >= 2);
  for (int device = both ? 0 : 1; device < 2; device++) {
    CHECK_CUDA(cudaSetDevice(device));
    graphsignal_probe_cuda_pool pool = {};
    REQUIRE(graphsignal_probe_cuda_pool_init(&pool, 16) == 0);
    const char* keys[] = {"i"};
    const char* values[] = {device ? "1" : "0"};
    graphsignal_probe_entry* e = graphsignal_probe_register_cuda("test_devices", keys, values, 1);
    REQUIRE(e && e->device_id == device);
    graphsignal_probe_entry* pooled = graphsignal_probe_register_cuda_pooled(&pool, "test_devices_pooled", keys, values, 1);
    REQUIRE(pooled && pooled->device_id == device);
    record_blocks<<<100 + device, 128>>>(graphsignal_probe_device_data(e), 7);
    record_blocks<<<200 + device, 128>>>(graphsignal_probe_device_data(pooled), 7);
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  wait_seconds(seconds);
  unsigned flags;
  int active = 1;
  REQUIRE(primary_state()(0, &flags, &active) == 0 && active == (both ? 1 : 0));
  printf("{}\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const double number = argc > 2 ? atof(argv[2]) : 2.5;
  const double seconds = argc > 3 ? atof(argv[3]) : 3.5;
  if (what == "record") record(number);
  else if (what == "bins") bins();
  else if (what == "pooled") many(static_cast<unsigned>(number), true, seconds);
  else if (what == "separate") many(static_cast<unsigned>(number), false, seconds);
  else if (what == "gaps") gaps(static_cast<unsigned>(number), seconds);
  else if (what == "capture") capture(number);
  else if (what == "reset") reset(number);
  else if (what == "leave") leave(static_cast<unsigned>(number));
  else if (what == "untouched") untouched(number);
  else if (what == "devices") devices(true, number);
  else if (what == "second_device") devices(false, number);
  else return 2;
  fflush(stdout);
  return 0;
}
