// Stands for a CUDA program: loads the injection library as the driver does and reports activity through the stubs. What it
// does is its first argument; it exits with 42 where it gets to its end.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "../../cupti/testdata/stub_cuda.h"
#include "../../cupti/testdata/stub_cupti.h"
#ifdef WITH_PROBES
#include <graphsignal/probe.h>
#endif

namespace {

void initialize() {
  const char* path = getenv("CUDA_INJECTION64_PATH");
  if (!path) return;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(98);
  }
  void* symbol = dlsym(library, "InitializeInjection");
  int (*entry)();
  memcpy(&entry, &symbol, sizeof(entry));
  entry();
  entry();  // a second call must do nothing
  dlclose(library);  // as a driver may
}

// A record that took so many ns and ended just now.
void* add(uint32_t kind, uint64_t ns, const char* name = nullptr, uint32_t number = 0, uint64_t bytes = 0) {
  const uint64_t now = stub_now();
  const stub_record r = {kind, now - ns, now, name, number, bytes};
  return stub_add(&r);
}

void sleep_ms(long ms) {
  const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&t, nullptr);
}

std::string run_directory() {
  const char* base = getenv("GRAPHSIGNAL_SHM_PATH");
  return std::string(base ? base : "") + "/graphsignal_" + std::to_string(getpid());
}

// Waits until the document contains the text, at most 20 s.
bool published(const std::string& text) {
  for (int i = 0; i < 2000; i++) {
    if (FILE* f = fopen((run_directory() + "/cupti.json").c_str(), "r")) {
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
  static const char kName[] = "_Z3addPf";
  add(10, 81200 - 100, kName);
  add(10, 100, kName);
  add(3, 5, "serialized");
  for (uint32_t kind = 0; kind <= 12; kind++) add(1, 100 + kind, nullptr, kind, 4096);
  add(22, 70, nullptr, 10, 1000);
  for (uint32_t kind = 0; kind <= 8; kind++) add(2, 200 + kind, nullptr, kind, 64);
  for (uint32_t type = 0; type <= 5; type++) add(38, 300 + type, nullptr, type);
  add(51, 1000, nullptr, 5);
  add(51, 500, nullptr, 5);
  add(60, 9);  // a kind nobody knows yet
  add(10, 7, "last");
}

stub_node kernel(const char* name) { return {0, name, nullptr, 0}; }

void graphs() {
  stub_node nodes[] = {kernel("foo"), {2, nullptr, nullptr, 0}, kernel("foo"), kernel("foo")};
  stub_graph g = {nodes, 4};
  stub_graph_exec_created(&g, &g, 3, 11);
  add(51, 100, nullptr, 11);
  add(51, 200, nullptr, 3);
  // The record comes before the name does.
  add(51, 1, nullptr, 20);
  const bool fallback = published("graph_20");
  stub_node other[] = {{1, nullptr, nullptr, 0}, {1, nullptr, nullptr, 0}};
  stub_graph h = {other, 2};
  stub_graph_exec_created(&h, &h, 20, 21);
  add(51, 2, nullptr, 20);
  add(51, 4, nullptr, 99);  // instantiated before we were there
  if (!fallback) exit(1);
}

void impossible() {
  const uint64_t now = stub_now();
  const stub_record bad[] = {
      {10, now, now, "k", 0, 0},                       // no time at all
      {10, now, now - 1, "k", 0, 0},                   // backwards
      {10, 0, now, "k", 0, 0},                         // no start
      {10, 0, 0, "k", 0, 0},                           // neither
      {10, now - 3600000000000ull, now, "k", 0, 0},    // longer than the process is there
      {10, 5, 25, "k", 0, 0},                          // before the process
      {10, now - 100, now, nullptr, 0, 0},             // no name
      {10, now - 100, now, "", 0, 0},
      {1, now, now, nullptr, 1, 4096},
      {2, now, now - 5, nullptr, 3, 4096},
      {38, 0, 0, nullptr, 3, 0},
      {51, 0, now, nullptr, 3, 0},
  };
  add(10, 50, "good");
  for (const stub_record& r : bad) stub_add(&r);
  add(10, 50, "good");
  stub_drop(17);
}

void names() {
  add(10, 10, "gemm_\x9f\xfe_v2");
  static std::string kilobytes(6000, 'k');
  kilobytes.replace(4095, 3, "\xE2\x82\xAC");
  add(10, 11, kilobytes.c_str());
  static std::string as_long = kilobytes.substr(0, 4095);
  add(10, 100, as_long.c_str());
  // The same pointer comes to mean another name once a module was unloaded.
  static char reused[16];
  strcpy(reused, "before");
  add(10, 1, reused);
  stub_resource(7, nullptr);
  if (!published("\"before\"")) exit(1);
  strcpy(reused, "after");
  add(10, 2, reused);
}

void many_names() {
  static std::vector<std::string> all;
  for (int i = 0; i < 20000; i++) all.push_back("triton_kernel_" + std::to_string(i));
  for (int round = 0; round < 2; round++) {
    for (const auto& n : all) add(10, 100, n.c_str());
  }
  for (int i = 0; i < 5000; i++) add(10, 21000, "attn_decode");
}

void threads() {
  std::vector<std::thread> all;
  for (int t = 0; t < 8; t++) {
    all.emplace_back([] {
      for (int i = 0; i < 50000; i++) add(10, 10, i % 2 ? "odd" : "even");
    });
  }
  for (auto& t : all) t.join();
}

// Always two kernels in flight, so that no buffer is ever all finished but by its bound.
bool never_idle() {
  void* running = nullptr;
  uint64_t done = 0, seen_at = 0;
  for (int i = 0; i < 20000 && seen_at == 0; i++) {
    const stub_record r = {10, stub_now(), 0, "busy", 0, 0};
    void* next = stub_add(&r);
    sleep_ms(1);
    if (running) stub_finish(running, stub_now()), done++;
    running = next;
    if (i % 100 == 99 && access((run_directory() + "/cupti.json").c_str(), R_OK) == 0) {
      FILE* f = fopen((run_directory() + "/cupti.json").c_str(), "r");
      char part[8192];
      const size_t n = fread(part, 1, sizeof(part) - 1, f);
      fclose(f);
      part[n] = 0;
      if (strstr(part, "\"busy\"")) seen_at = done;
    }
  }
  return seen_at != 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const char* fail = getenv("STUB_FAIL");
  if (fail) {
    static char name[64];
    int result = 0;
    if (sscanf(fail, "%63[^=]=%d", name, &result) == 2) stub_fail(name, result);
  }
  if (const char* release = getenv("STUB_RELEASE")) stub_release(atoi(release));
  if (getenv("STUB_OTHER_SUBSCRIBER")) stub_other_subscribes(1);
  if (what == "fork-before") {
    const pid_t child = fork();
    if (child == 0) {
      initialize();
      add(10, 5, "in_child");
      exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  initialize();

  if (what == "kinds") all_kinds();
  if (what == "graphs") graphs();
  if (what == "impossible") impossible();
  if (what == "names") names();
  if (what == "many-names") many_names();
  if (what == "threads") threads();
  if (what == "never-idle") return never_idle() ? 42 : 1;
  if (what == "periodic") {
    add(10, 5, "early");
    if (!published("early")) return 1;
    add(10, 5, "later");
    if (!published("later")) return 1;
    const stub_counts c = stub_read_counts();
    if (c.forced != 0 || c.unforced == 0 || c.finalize_calls != 0) return 2;
  }
  if (what == "in-flight") {
    const stub_record r = {10, stub_now(), 0, "unfinished", 0, 0};
    stub_add(&r);
    add(10, 5, "finished");
  }
  if (what == "after-exit") {
    // Another thread goes on launching while the process exits.
    std::thread([] {
      for (;;) add(10, 1, "restless");
    }).detach();
    if (!published("restless")) return 1;
  }
  if (what == "hang") {
    add(10, 5, "seen");
    stub_hang_flush();
  }
  if (what == "fork-after") {
    add(10, 5, "in_parent");
    const pid_t child = fork();
    if (child == 0) {
      add(10, 5, "in_child");
      exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  if (what == "exec") {
    add(10, 5, "first_image");
    if (!published("first_image")) return 1;
    execl(argv[0], argv[0], "kinds", static_cast<char*>(nullptr));
    return 1;
  }
  if (what == "_exit") {
    add(10, 5, "k");
    if (!published("\"k\"")) return 1;
    _exit(42);
  }
  if (what == "signal") {
    add(10, 5, "k");
    kill(getpid(), SIGTERM);
  }
  if (what == "exception") {
    add(10, 5, "k");
    throw 1;
  }
  if (what == "silent") {
    stub_resource(6, nullptr);
    if (!published("has reported no activity")) return 1;
  }
  if (what == "takeover") {
    // torch.profiler comes, and goes again. Its callbacks stay.
    add(10, 5, "before");
    if (!published("\"before\"")) return 1;
    add(10, 5, "lost_to_the_other");
    stub_other_subscribes(1);
    stub_other_registers();
    if (!published("\"cuda_trace_suspended\",\"type\":\"gauge\",\"tags\":{},\"value\":1")) return 2;
    stub_other_subscribes(0);
    add(10, 5, "lost_to_the_other");
    if (stub_read_counts().register_calls != 1) return 3;
  }
  if (what == "takeover-at-end") {
    // It comes and goes between two documents, and the process ends.
    add(10, 5, "before");
    if (!published("\"before\"")) return 1;
    add(10, 5, "lost_to_the_other");
    stub_other_registers();
  }
#ifdef WITH_PROBES
  if (what == "probes") {
    graphsignal_add(graphsignal_probe_register("app_total", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 12);
    if (!getenv("GRAPHSIGNAL_PROBE_LIB")) {
      if (!published("\"app_total\"")) return 1;
    } else {
      sleep_ms(3500);  // past the writes after which the CUPTI library would claim the probes
    }
  }
#endif
  if (what == "stamps") {
    // A kernel every 97 ms for some seconds; the time of each one's end, epoch nanoseconds, is printed.
    for (int i = 0; i < atoi(argv[2]) * 1000 / 97; i++) {
      add(10, 1000, "stamped");
      printf("%llu\n", static_cast<unsigned long long>(stub_now()));
      fflush(stdout);
      sleep_ms(97);
    }
  }
  if (what == "soak") {
    const uint64_t records = strtoull(argv[2], nullptr, 10);
    const auto rss = [] {
      long pages = 0, resident = 0;
      FILE* f = fopen("/proc/self/statm", "r");
      if (fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
      fclose(f);
      return resident * 4;
    };
    static const char* const kKernels[] = {"gemm", "attn", "norm", "rope", "silu", "sample"};
    long early = 0;
    for (uint64_t i = 0; i < records; i++) {
      add(10, 100, kKernels[i % 6]);
      if (i % 1000 == 0) add(51, 100, nullptr, static_cast<uint32_t>(i / 1000 % 50));
      if (i == records / 5) early = rss();
    }
    const long late = rss();
    printf("%llu records, resident %ld kB after a fifth, %ld kB at the end\n", static_cast<unsigned long long>(records), early, late);
    if (late > early + 4096) return 1;
  }
  return 42;
}
