// CUDA programs with known activity, for the GPU tests: what it does is the first argument. Ends with 0 unless said.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define CHECK_CUDA(call)                                                                             \
  do {                                                                                               \
    const cudaError_t e_ = (call);                                                                   \
    if (e_ != cudaSuccess) {                                                                         \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));                    \
      exit(2);                                                                                       \
    }                                                                                                \
  } while (0)

extern "C" __global__ void kernel_a(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
extern "C" __global__ void kernel_b(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
__global__ void tiny(float* p) {
  if (p && threadIdx.x == 1000) p[0] = 1;
}

namespace {

constexpr long long kCycles = 20000;  // some 10 us
constexpr size_t kPage = 4096;

void wait_seconds(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

// 2 x 4096 B to the device, 1 x 4096 back, 3 x 1 MiB inside it; 4 sets of 64 KiB there, 1 of 4096 B in managed memory is
// left out: its kind depends on where the pages are.
void copies() {
  char *device, *other, *host;
  CHECK_CUDA(cudaMalloc(&device, 1 << 20));
  CHECK_CUDA(cudaMalloc(&other, 1 << 20));
  CHECK_CUDA(cudaMallocHost(&host, kPage));
  CHECK_CUDA(cudaMemcpy(device, host, kPage, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(device, host, kPage, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(host, device, kPage, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 3; i++) CHECK_CUDA(cudaMemcpy(other, device, 1 << 20, cudaMemcpyDeviceToDevice));
  for (int i = 0; i < 4; i++) CHECK_CUDA(cudaMemset(device, i, 65536));
  CHECK_CUDA(cudaDeviceSynchronize());
}

// Every way to wait: each takes some time because a kernel runs.
void syncs() {
  cudaStream_t s, t;
  cudaEvent_t e;
  CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  for (int i = 0; i < 3; i++) {
    kernel_a<<<1, 32, 0, s>>>(kCycles * 10);
    CHECK_CUDA(cudaStreamSynchronize(s));
    kernel_a<<<1, 32, 0, s>>>(kCycles * 10);
    CHECK_CUDA(cudaEventRecord(e, s));
    CHECK_CUDA(cudaStreamWaitEvent(t, e, 0));
    kernel_b<<<1, 32, 0, t>>>(kCycles);
    CHECK_CUDA(cudaEventSynchronize(e));
    CHECK_CUDA(cudaDeviceSynchronize());
  }
}

// 8 threads with a stream each: 8 x 100 of kernel_a, 8 x 50 of kernel_b.
void threads() {
  std::vector<std::thread> all;
  for (int t = 0; t < 8; t++) {
    all.emplace_back([] {
      cudaStream_t s;
      CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
      for (int i = 0; i < 100; i++) {
        kernel_a<<<1, 32, 0, s>>>(kCycles);
        if (i % 2 == 0) kernel_b<<<1, 32, 0, s>>>(kCycles);
      }
      CHECK_CUDA(cudaStreamSynchronize(s));
    });
  }
  for (auto& t : all) t.join();
}

// Two devices: 3 of kernel_a on the first and 5 of kernel_b on the second, 4 copies of 1 MiB from one to the other directly,
// and 2 of 64 KiB that go through the host. Prints "no peer access" where the first are not possible.
void devices() {
  char *first, *second;
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaMalloc(&first, 1 << 20));
  for (int i = 0; i < 3; i++) kernel_a<<<1, 32>>>(kCycles);
  CHECK_CUDA(cudaSetDevice(1));
  CHECK_CUDA(cudaMalloc(&second, 1 << 20));
  for (int i = 0; i < 5; i++) kernel_b<<<1, 32>>>(kCycles);
  for (int i = 0; i < 2; i++) CHECK_CUDA(cudaMemcpyPeer(second, 1, first, 0, 65536));
  int possible = 0;
  CHECK_CUDA(cudaDeviceCanAccessPeer(&possible, 1, 0));
  if (possible) {
    CHECK_CUDA(cudaDeviceEnablePeerAccess(0, 0));
    for (int i = 0; i < 4; i++) CHECK_CUDA(cudaMemcpyPeer(second, 1, first, 0, 1 << 20));
  } else {
    puts("no peer access");
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaSetDevice(0));
  CHECK_CUDA(cudaDeviceSynchronize());
}

// A second context of the driver beside the primary one: 3 kernels in each.
void contexts() {
  for (int i = 0; i < 3; i++) kernel_a<<<1, 32>>>(kCycles);
  CHECK_CUDA(cudaDeviceSynchronize());
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  using Create = int (*)(CUcontext*, unsigned, CUdevice);
  const Create create = reinterpret_cast<Create>(dlsym(driver, "cuCtxCreate_v2"));
  CUcontext context;
  if (!create || create(&context, 0, 0) != 0) exit(4);
  for (int i = 0; i < 3; i++) kernel_b<<<1, 32>>>(kCycles);
  CHECK_CUDA(cudaDeviceSynchronize());
}

// One captured graph {A, B} launched 5 times, and one eager A.
void graph() {
  cudaStream_t s;
  cudaGraph_t captured;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  kernel_a<<<1, 32, 0, s>>>(kCycles);
  kernel_b<<<1, 32, 0, s>>>(kCycles);
  CHECK_CUDA(cudaStreamEndCapture(s, &captured));
  CHECK_CUDA(cudaGraphInstantiate(&exec, captured, 0));
  for (int i = 0; i < 5; i++) CHECK_CUDA(cudaGraphLaunch(exec, s));
  kernel_a<<<1, 32, 0, s>>>(kCycles);
  CHECK_CUDA(cudaStreamSynchronize(s));
}

void short_life() {
  for (int i = 0; i < 3; i++) kernel_a<<<1, 32>>>(kCycles);
  CHECK_CUDA(cudaDeviceSynchronize());
}

// Kernels kept 256 deep; kernel_b every now and then. Prints the number of kernel_a.
void never_idle(double seconds, long long cycles, int depth) {
  std::vector<cudaEvent_t> events(static_cast<size_t>(depth) * 2);
  cudaStream_t s;
  CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (auto& e : events) CHECK_CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  const auto start = std::chrono::steady_clock::now();
  long n = 0;
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    kernel_a<<<1, 32, 0, s>>>(cycles);
    CHECK_CUDA(cudaEventRecord(events[static_cast<size_t>(n) % events.size()], s));
    n++;
    if (n > depth) CHECK_CUDA(cudaEventSynchronize(events[static_cast<size_t>(n - depth) % events.size()]));
  }
  CHECK_CUDA(cudaStreamSynchronize(s));
  printf("%ld\n", n);
}

// Replays a graph of 400 tiny kernels until so many kernels ran; prints the device memory in use early and at the end.
void many(long long kernels) {
  cudaStream_t s;
  cudaGraph_t captured;
  cudaGraphExec_t exec;
  CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 400; i++) tiny<<<1, 32, 0, s>>>(nullptr);
  CHECK_CUDA(cudaStreamEndCapture(s, &captured));
  CHECK_CUDA(cudaGraphInstantiate(&exec, captured, 0));
  size_t free_early = 0, free_late = 0, total;
  for (long long i = 0; i < kernels / 400; i++) {
    CHECK_CUDA(cudaGraphLaunch(exec, s));
    if (i % 20 == 0) CHECK_CUDA(cudaStreamSynchronize(s));
    if (i == kernels / 400 / 5) CHECK_CUDA(cudaMemGetInfo(&free_early, &total));
  }
  CHECK_CUDA(cudaStreamSynchronize(s));
  CHECK_CUDA(cudaMemGetInfo(&free_late, &total));
  printf("%zu %zu\n", (total - free_early) >> 20, (total - free_late) >> 20);
}

// Says where a crash happened; the signal then does its work.
void report_crashes() {
  struct sigaction action = {};
  action.sa_handler = [](int) {
    void* frames[32];
    backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGABRT, &action, nullptr);
}

// Two threads go on launching while the process ends.
void restless() {
  report_crashes();
  for (int t = 0; t < 2; t++) {
    std::thread([] {
      cudaStream_t s;
      if (cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) != cudaSuccess) return;
      while (cudaPeekAtLastError() == cudaSuccess) kernel_b<<<1, 32, 0, s>>>(1000);
    }).detach();
  }
  wait_seconds(0.05);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const double number = argc > 2 ? atof(argv[2]) : 0;
  if (what == "fork_before") {
    const pid_t child = fork();
    if (child == 0) {
      short_life();
      exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 5;
  }
  if (what == "copies") copies();
  if (what == "syncs") syncs();
  if (what == "threads") threads();
  if (what == "contexts") contexts();
  if (what == "devices") devices();
  if (what == "graph") graph();
  if (what == "short" || what == "fork_before" || what == "fork_after" || what == "exec" || what == "_exit" || what == "signal" ||
      what == "exception" || what == "status") {
    short_life();
  }
  if (what == "never_idle") never_idle(number, 36000, 256);
  if (what == "slow_kernels") never_idle(number, 360000000, 8);  // some 0.2 s each
  if (what == "many") many(static_cast<long long>(number));
  if (what == "restless") {
    short_life();
    restless();
    exit(9);
  }
  if (what == "fork_after") {
    const pid_t child = fork();
    if (child == 0) exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 5;
  }
  if (what == "exec") {
    wait_seconds(1.5);
    execl(argv[0], argv[0], "copies", static_cast<char*>(nullptr));
    return 6;
  }
  if (what == "_exit") {
    wait_seconds(1.5);
    _exit(7);
  }
  if (what == "signal") kill(getpid(), SIGTERM);
  if (what == "exception") throw 1;
  if (what == "status") return 7;
  return 0;
}
