// Stands for a HIP program: starts the fake rocprofiler-sdk and reports activity through it. What it does is its first
// argument, the SDK's version its second; it exits with 42 where it gets to its end.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "../testdata/fake_hip.h"
#include "../testdata/fake_rocprofiler.h"

namespace {

void sleep_ms(long ms) {
  const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, nullptr);
}

void dispatch(uint64_t kernel, uint64_t ns) {
  const uint64_t now = fake_now();
  fake_dispatch(kernel, now - ns, now);
}
void copy(uint32_t operation, uint64_t bytes, uint64_t ns) {
  const uint64_t now = fake_now();
  fake_copy(operation, bytes, now - ns, now);
}
void call(const char* name, uint64_t ns) {
  const uint64_t now = fake_now();
  fake_call(name, now - ns, now);
}

// Waits until the document contains the text, at most 20 s.
bool published(const std::string& text) {
  const char* base = getenv("GRAPHSIGNAL_SHM_PATH");
  const std::string path = std::string(base ? base : "/dev/shm") + "/graphsignal_" + std::to_string(getpid()) + "/rocm.json";
  for (int i = 0; i < 2000; i++) {
    if (FILE* f = fopen(path.c_str(), "r")) {
      std::string all;
      char part[65536];
      for (size_t n; (n = fread(part, 1, sizeof(part), f)) > 0;) all.append(part, n);
      fclose(f);
      if (all.find(text) != std::string::npos) return true;
    }
    sleep_ms(10);
  }
  fprintf(stderr, "never published: %s\n", text.c_str());
  return false;
}

void all_kinds() {
  fake_register(1, "_Z3addPf.kd");
  fake_register(2, "gemm");
  dispatch(1, 81100);
  dispatch(1, 100);
  dispatch(2, 5);
  dispatch(7, 9);  // nobody told its name
  for (int i = 0; i < 3; i++) copy(2, 4096, 100);
  copy(3, 2048, 70);
  copy(3, 1, 7);
  copy(4, 10, 11);
  copy(1, 20, 13);
  copy(0, 1, 1);
  copy(5, 1, 1);
  const char* calls[] = {"hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize", "hipStreamWaitEvent", "hipEventRecord",
                         "hipMemcpy", "hipLaunchKernel"};
  for (int i = 0; i < 7; i++) call(calls[i], static_cast<uint64_t>(1000 + i));
  uint8_t unknown[64] = {};
  fake_record(1, 12, unknown, sizeof(unknown), sizeof(unknown));
  fake_record(1, 40, unknown, sizeof(unknown), sizeof(unknown));
  fake_record(2, FAKE_DISPATCH, unknown, sizeof(unknown), sizeof(unknown));
}

void impossible() {
  const uint64_t now = fake_now();
  fake_register(1, "k");
  dispatch(1, 50);
  fake_dispatch(1, now, now);
  fake_dispatch(1, now, now - 1);
  fake_dispatch(1, 0, now + 3600000000000ull);
  fake_copy(2, 4096, now, now);
  fake_call("hipDeviceSynchronize", now, now - 5);
  uint8_t raw[96] = {};
  fake_record(1, FAKE_DISPATCH, raw, 56, 56);  // too short for a kernel
  fake_record(1, FAKE_COPY, raw, 40, 40);
  fake_record(1, FAKE_HIP_API, raw, 32, 32);
  fake_record(1, FAKE_DISPATCH, raw, sizeof(raw), 0xEEEEEEEEEEEEEEEEull);  // no size at all
  dispatch(1, 50);
}

void names() {
  dispatch(3, 10);  // the record comes first
  if (!published("kernel_3")) exit(1);
  fake_register(3, "late");
  dispatch(3, 11);
  fake_register(4, "unloaded");
  fake_unload(4, "unloaded");
  dispatch(4, 12);  // records of a code object that is gone
  fake_register(5, nullptr);
  dispatch(5, 13);
  fake_register(6, "gemm_\x9f\xfe_v2");
  dispatch(6, 14);
  fake_register(4 + 262144, "takes the place");
  dispatch(4, 100);
  dispatch(4 + 262144, 15);
  std::string kilobytes(6000, 'k');
  fake_register(8, kilobytes.c_str());
  dispatch(8, 16);
  // The same name on another device.
  fake_register(9, "late");
  dispatch(9, 1000);
}

// Programs load far more kernels than they launch.
void many_names() {
  for (uint64_t i = 1; i <= 270000; i++) fake_register(i, ("tensile_" + std::to_string(i)).c_str());
  dispatch(1, 3000000);                                       // long ago
  for (int i = 0; i < 5000; i++) dispatch(260000, 21000);
  for (int round = 0; round < 2; round++) {
    for (uint64_t i = 200001; i <= 220000; i++) dispatch(i, 100);
  }
  dispatch(269999, 4000000);  // no room for its name any more
}

void threads() {
  fake_inline();
  fake_register(1, "odd");
  fake_register(2, "even");
  std::vector<std::thread> all;
  for (int t = 0; t < 8; t++) {
    all.emplace_back([t] {
      for (int i = 0; i < 20000; i++) {
        dispatch(static_cast<uint64_t>(i % 2 ? 1 : 2), 10);
        if (i % 100 == 0) fake_register(static_cast<uint64_t>(100 + t * 1000 + i / 100), "another");
      }
    });
  }
  for (auto& t : all) t.join();
}

// A module with probes in device memory, whose folder is given.
struct Module {
  explicit Module(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      exit(98);
    }
    find(library, "module_register", &add);
    find(library, "module_record", &record);
    find(library, "module_set", &set);
  }
  template <typename Function>
  void find(void* library, const char* name, Function* to) {
    void* symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof(symbol));
  }
  void (*add)();
  void (*record)(int, uint64_t);
  void (*set)(int, double, uint64_t);
};

// What the SDK would tell of the copies of the reader of probes.
void tell_copy(size_t bytes) { copy(3, bytes, 10); }

bool device_probes(const char* path) {
  Module m(path);
  fake_hip_on_copy(tell_copy);
  m.add();
  m.record(0, 100);
  m.record(0, 5000);
  m.record(1, 7);
  m.set(2, 0, 12);
  m.set(3, 2.5, 0);
  m.record(4, 44);
  m.record(5, 55);
  if (!published("\"block\":\"0\"},\"bins\":[96,4096],\"counts\":[1,1],\"count\":2,\"sum\":5100,\"min\":100,\"max\":5000}")) return false;
  // Copies that fail once, and that take long: the rest goes on.
  fake_hip_fail(3);
  m.record(1, 9);
  if (!published("\"sum\":16,\"min\":7,\"max\":9")) return false;
  fake_hip_hold(1);
  m.record(1, 11);
  copy(2, 1, 5);
  if (!published("\"host_to_device\":[5,1]")) return false;
  // What cannot be read is left out, and counted: all six, and the one that is nowhere.
  if (!published("\"name\":\"graphsignal_probe_unread_instruments\",\"type\":\"gauge\",\"tags\":{},\"value\":7}")) return false;
  fake_hip_hold(0);
  return published("\"sum\":27,\"min\":7,\"max\":11");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const uint32_t version = argc > 2 ? static_cast<uint32_t>(atoi(argv[2])) : 10000;
  const int tools = fake_start(version);
  if (what == "tools") {
    printf("%d tools\n", tools);
    return 42;
  }
  if (what == "kinds") all_kinds();
  if (what == "old-copies") {
    fake_old_copies();
    copy(2, 4096, 100);
  }
  if (what == "impossible") impossible();
  if (what == "names") names();
  if (what == "many-names") many_names();
  if (what == "threads") threads();
  if (what == "drops") {
    copy(2, 1, 1);
    fake_drop(5);
    if (!published("\"host_to_device\":[1,1]")) return 1;
    copy(2, 1, 1);
    if (!published("\"host_to_device\":[2,2]")) return 1;
    copy(2, 1, 1);
    if (!published("\"host_to_device\":[3,3]")) return 1;
    fake_drop(17);
    copy(2, 1, 1);
  }
  if (what == "services") {
    const fake_counts c = fake_read_counts();
    printf("services %llx operations %llu names %llu\n", static_cast<unsigned long long>(c.services),
           static_cast<unsigned long long>(c.operations), static_cast<unsigned long long>(c.code_objects));
  }
  if (what == "periodic") {
    copy(2, 1, 5);
    if (!published("\"host_to_device\":[5,1]")) return 1;
    copy(2, 1, 6);
    if (!published("\"host_to_device\":[11,2]")) return 1;
  }
  if (what == "exit") {  // the tool's finalizer runs under the SDK's registration lock
    fake_register(1, "k1");
    fake_dispatch(1, 100, 400);
    fake_copy(2, 4096, 500, 600);
    fake_finalize();
    fake_finalize();
    if (fake_start(version) != tools) return 1;  // another SDK asks again
  }
  if (what == "busy") {
    copy(2, 1, 5);
    fake_busy(20);
  }
  if (what == "hang") {
    copy(2, 1, 5);
    if (!published("\"host_to_device\":[5,1]")) return 1;
    fake_hang_flush();
  }
  if (what == "after-exit") {
    std::thread([] {
      for (;;) copy(2, 1, 1);
    }).detach();
    sleep_ms(300);
  }
  if (what == "fork") {
    copy(2, 1, 5);
    const pid_t child = fork();
    if (child == 0) {
      exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  if (what == "device-probes") {
    if (!device_probes(argv[3])) return 1;
    fake_finalize();
    fake_hip_gone();
  }
  if (what == "device-exit") {
    // The end comes while blocks are being read, and HIP goes right after it.
    Module m(argv[3]);
    m.add();
    m.record(0, 100);
    if (!published("\"sum\":100")) return 1;
    fake_hip_hold(1);
    const uint64_t before = fake_hip_copies();
    while (fake_hip_copies() == before) sleep_ms(1);
    fake_finalize();
    fake_hip_gone();
    sleep_ms(300);  // a reader that has not noticed would have asked again by then
  }
  if (what == "device-hang") {
    Module m(argv[3]);
    m.add();
    m.record(0, 100);
    if (!published("\"sum\":100")) return 1;
    fake_hip_hang();
    copy(2, 1, 5);
    if (!published("\"host_to_device\":[5,1]")) return 1;
    copy(2, 1, 6);
    if (!published("\"host_to_device\":[11,2]")) return 1;
  }
  if (what == "many-device-probes") {
    Module m(argv[3]);
    m.add();
    for (int i = 0; i < 100; i++) m.record(i % 2, static_cast<uint64_t>(i));
    if (!published("\"count\":50")) return 1;
    const uint64_t before = fake_hip_copies();
    copy(2, 1, 5);
    if (!published("\"host_to_device\":[5,1]")) return 1;
    copy(2, 1, 5);
    if (!published("\"host_to_device\":[10,2]")) return 1;
    printf("%llu\n", static_cast<unsigned long long>((fake_hip_copies() - before) % 3));
  }
  if (what == "wait") {  // for the end-to-end test: all kinds, then until a file is there
    all_kinds();
    while (access(argv[3], F_OK) != 0) sleep_ms(10);
  }
  return 42;
}
