// A program with GPU probes over the fake driver and runtime, under libgraphsignal_cupti.so. What it does is its first
// argument; it ends with 42 when all was as it should be. It exports no symbol: its registry has to be found.
#include <dlfcn.h>
#include <graphsignal/probe_cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../json_reader.h"

namespace {

using test::Value;

void sleep_ms(long ms) { usleep(static_cast<useconds_t>(ms) * 1000); }

std::string document_path() { return std::string(getenv("GRAPHSIGNAL_SHM_PATH")) + "/graphsignal_" + std::to_string(getpid()) + "/cupti.json"; }

Value document() {
  std::ifstream in(document_path());
  std::stringstream all;
  all << in.rdbuf();
  return all.str().empty() ? Value() : test::Reader::parse(all.str());
}

// Polls until the document is as wanted, at most 20 s.
template <typename Condition>
bool eventually(const char* what, const Condition& condition) {
  for (int i = 0; i < 2000; i++) {
    if (condition(document())) return true;
    sleep_ms(10);
  }
  fprintf(stderr, "never: %s\n", what);
  return false;
}

#define REQUIRE(condition)                                                     \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

std::string count_of(const Value& d, const std::string& name) { return metric(d, name)["count"].text; }
std::string value_of(const Value& d, const std::string& name) { return metric(d, name)["value"].text; }

void initialize() {
  void* library = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? dlsym(library, "InitializeInjection") : nullptr;
  if (!symbol) {
    fprintf(stderr, "%s\n", dlerror());
    exit(98);
  }
  int (*entry)();
  memcpy(&entry, &symbol, sizeof(entry));
  entry();
}

graphsignal_probe_entry* reg(const std::string& name) { return graphsignal_probe_register_cuda(name.c_str(), nullptr, nullptr, 0); }

// A kernel.
void record(const graphsignal_probe_entry* e, uint64_t value) {
  GRAPHSIGNAL_RECORD(static_cast<graphsignal_instrument_data*>(fake_view(graphsignal_probe_device_data(e))), value);
}

// Another.
void store(uint64_t* word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

void basic() {
  graphsignal_probe_entry* alone[] = {reg("alone_0"), reg("alone_1"), reg("alone_2")};
  cudaSetDevice(1);
  graphsignal_probe_cuda_pool pool;
  REQUIRE(graphsignal_probe_cuda_pool_init(&pool, 100) == 0);
  std::vector<graphsignal_probe_entry*> pooled;
  for (int i = 0; i < 100; i++) {
    const std::string number = std::to_string(i);
    const char* keys[] = {"block"};
    const char* values[] = {number.c_str()};
    pooled.push_back(graphsignal_probe_register_cuda_pooled(&pool, "pooled", keys, values, 1));
    for (int k = 0; k <= i; k++) record(pooled.back(), static_cast<uint64_t>(i));
  }
  for (int i = 0; i < 3; i++) record(alone[i], 1000);
  record(alone[1], 7);
  REQUIRE(eventually("all values", [](const Value& d) { return count_of(d, "alone_1") == "2" && count_of(d, "alone_2") == "1"; }));
  Value d = document();
  REQUIRE(metric(d, "alone_1")["sum"].text == "1007" && metric(d, "alone_1")["min"].text == "7" && metric(d, "alone_1")["max"].text == "1000");
  REQUIRE(metric(d, "alone_1")["bins"].items.size() == 2 && metric(d, "alone_1")["bins"][1].text == "896");
  for (int i = 0; i < 100; i++) {
    const Value& m = metric(d, "pooled", "block", std::to_string(i));
    REQUIRE(m["count"].u64() == static_cast<uint64_t>(i + 1) && m["sum"].u64() == static_cast<uint64_t>(i * (i + 1)));
  }
  REQUIRE(metric(d, "graphsignal_probe_unread_instruments").kind == Value::kNull);
  REQUIRE(metric(d, "graphsignal_probe_read_nanoseconds")["count"].u64() >= 1);
  record(alone[0], 1);
  REQUIRE(eventually("a second value", [](const Value& now) { return count_of(now, "alone_0") == "2"; }));
  const fake_counts c = fake_read_counts();
  // Three blocks of their own and one run of a hundred; the last reading may have been under way.
  REQUIRE(c.copies >= 8 && c.copies % 4 == 0 && c.copied == static_cast<size_t>(c.copies / 4) * 103 * 2088);
  REQUIRE(c.largest_copies == 3 && c.reading_threads == 1 && c.streams == 2 && c.retains == 2 && c.activations == 0);
  REQUIRE(c.legacy == 0 && c.stale == 0);
}

void other_types() {
  static graphsignal_instrument_data init = {};
  init.min = UINT64_MAX;
  void* memory;
  REQUIRE(fake_alloc(0, 4096, &memory) == 0);
  graphsignal_instrument_data* blocks = static_cast<graphsignal_instrument_data*>(memory);
  auto* view = static_cast<graphsignal_instrument_data*>(fake_view(memory));
  view[0] = init;
  graphsignal_probe_entry* gauge = graphsignal_probe_register_storage("gauge", GRAPHSIGNAL_GAUGE, nullptr, nullptr, 0, blocks, 0);
  REQUIRE(gauge);
  store(&view[0].value_bits, 0x4004000000000000u);  // 2.5
  REQUIRE(eventually("the gauge", [](const Value& d) { return value_of(d, "gauge") == "2.5"; }));
  store(&view[0].value_bits, 0x7FF8000000000000u);  // not a number
  REQUIRE(eventually("no gauge", [](const Value& d) { return metric(d, "gauge").kind == Value::kNull; }));
  void* more;
  REQUIRE(fake_alloc(0, 4096, &more) == 0);
  auto* counter = static_cast<graphsignal_instrument_data*>(fake_view(more));
  *counter = init;
  counter->value_bits = 12345678901234567890u;
  REQUIRE(graphsignal_probe_register_storage("counter", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0, static_cast<graphsignal_instrument_data*>(more), 0));
  REQUIRE(eventually("the counter", [](const Value& d) { return value_of(d, "counter") == "12345678901234567890"; }));
}

void untouched() {
  graphsignal_instrument_data* nowhere = reinterpret_cast<graphsignal_instrument_data*>(0x7f0000000000);
  REQUIRE(graphsignal_probe_register_storage("untouched", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, nowhere, 1));
  REQUIRE(graphsignal_probe_register_storage("no_device", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, nowhere, 9));
  REQUIRE(graphsignal_probe_register_storage("no_number", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, nowhere, 64));
  REQUIRE(eventually("unread", [](const Value& d) { return value_of(d, "graphsignal_probe_unread_instruments") == "2"; }));
  REQUIRE(metric(document(), "untouched").kind == Value::kNull);
  const fake_counts c = fake_read_counts();
  REQUIRE(c.activations == 0 && c.retains == 0 && c.streams == 0 && c.copies == 0);
}

void capture() {
  graphsignal_probe_entry* e = reg("captured");
  record(e, 5);
  fake_begin_capture();
  REQUIRE(eventually("a reading during the capture", [](const Value& d) { return count_of(d, "captured") == "1"; }));
  record(e, 5);
  REQUIRE(eventually("another", [](const Value& d) { return count_of(d, "captured") == "2"; }));
  REQUIRE(fake_end_capture() == 0 && fake_read_counts().unrelaxed == 0);
}

void failures() {
  graphsignal_probe_entry* good = reg("good");
  graphsignal_instrument_data* nowhere = reinterpret_cast<graphsignal_instrument_data*>(0x7f0000000000);
  REQUIRE(graphsignal_probe_register_storage("freed", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, nowhere, 0));
  record(good, 1);
  REQUIRE(eventually("the good one", [](const Value& d) { return count_of(d, "good") == "1"; }));
  REQUIRE(value_of(document(), "graphsignal_probe_unread_instruments") == "1" && metric(document(), "freed").kind == Value::kNull);
  for (const char* call : {"cuMemcpyDtoHAsync", "cuStreamQuery", "cuCtxPushCurrent", "cuDevicePrimaryCtxGetState", "cuPointerGetAttribute"}) {
    fake_fail(call, 719, -1);
    REQUIRE(eventually(call, [](const Value& d) { return value_of(d, "graphsignal_probe_unread_instruments") == "2" && metric(d, "good").kind == Value::kNull; }));
    fake_fail(call, 0, 0);
    record(good, 1);
    REQUIRE(eventually("back again", [&](const Value& d) {
      return value_of(d, "graphsignal_probe_unread_instruments") == "1" && metric(d, "good")["count"].u64() >= 2;
    }));
  }
  REQUIRE(eventually("a message", [](const Value& d) {
    for (const Value& m : d["log"].items) {
      if (m["msg"].text.find("CUDA error 719") != std::string::npos) return true;
    }
    return false;
  }));
  // The pages of the staging memory need not be locked.
  fake_fail("cuMemHostRegister", 1, -1);
  graphsignal_probe_cuda_pool pool;
  REQUIRE(graphsignal_probe_cuda_pool_init(&pool, 100) == 0);
  for (int i = 0; i < 100; i++) record(graphsignal_probe_register_cuda_pooled(&pool, ("more_" + std::to_string(i)).c_str(), nullptr, nullptr, 0), 3);
  REQUIRE(eventually("more", [](const Value& d) { return count_of(d, "more_99") == "1"; }));
  REQUIRE(fake_read_counts().pushed <= 1);
}

// Copies that take longer than a document waits are published by the next one.
void slow() {
  graphsignal_probe_entry* e = reg("slow");
  record(e, 1);
  REQUIRE(eventually("a first value", [](const Value& d) { return count_of(d, "slow") == "1"; }));
  fake_copy_time(300000000);
  for (const char* count : {"2", "3"}) {
    record(e, 1);
    REQUIRE(eventually("another value", [count](const Value& d) { return count_of(d, "slow") == count; }));
  }
}

// Copies that never end: documents go on without GPU probes.
void never() {
  graphsignal_probe_entry* e = reg("slow");
  record(e, 1);
  REQUIRE(eventually("a first value", [](const Value& d) { return count_of(d, "slow") == "1"; }));
  fake_copy_time(-1);
  REQUIRE(eventually("no value", [](const Value& d) { return d.kind == Value::kObject && metric(d, "slow").kind == Value::kNull; }));
  const uint64_t at = document()["write_ts"].u64();
  REQUIRE(eventually("the next document", [at](const Value& d) { return d["write_ts"].u64() > at; }));
}

void hang(const char* call) {
  graphsignal_probe_entry* e = reg("hanging");
  record(e, 1);
  REQUIRE(eventually("a first value", [](const Value& d) { return count_of(d, "hanging") == "1"; }));
  fake_hang(call);
  REQUIRE(eventually("no value", [](const Value& d) { return d.kind == Value::kObject && metric(d, "hanging").kind == Value::kNull; }));
}

void reset() {
  record(reg("before"), 1);
  REQUIRE(eventually("a first value", [](const Value& d) { return count_of(d, "before") == "1"; }));
  fake_reset(0);
  REQUIRE(eventually("nothing while there is no context", [](const Value& d) { return value_of(d, "graphsignal_probe_unread_instruments") == "1"; }));
  record(reg("after"), 1);
  REQUIRE(eventually("a value after", [](const Value& d) { return count_of(d, "after") == "1"; }));
  fake_reset(0);
  record(reg("at_once"), 1);  // with a new context before anybody looks
  REQUIRE(eventually("a value at once", [](const Value& d) { return count_of(d, "at_once") == "1"; }));
  const fake_counts c = fake_read_counts();
  REQUIRE(c.stale == 0 && c.activations == 0 && c.streams == 3);
}

using UseProbes = void (*)(const char*, uint64_t);

// Modules with registries of their own, opened out of the global scope. Nobody tells the library of them.
void modules(int n, char** paths) {
  std::vector<void*> opened;
  for (int i = 0; i < n; i++) {
    void* module = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    void* symbol = module ? dlsym(module, "use_gpu_probes") : nullptr;
    if (!symbol) {
      fprintf(stderr, "%s\n", dlerror());
      exit(97);
    }
    UseProbes use;
    memcpy(&use, &symbol, sizeof(use));
    use(("module_" + std::to_string(i)).c_str(), 10);
    opened.push_back(module);
  }
  record(reg("own"), 1);
  REQUIRE(eventually("all modules", [n](const Value& d) {
    bool all = count_of(d, "own") == "1" && count_of(d, "in_all") == std::to_string(n) && metric(d, "in_all")["sum"].text == std::to_string(10 * n);
    for (int i = 0; i < n; i++) all = all && count_of(d, "module_" + std::to_string(i)) == "1";
    return all;
  }));
  // What is published stays where it is, though the program gives it up.
  for (void* module : opened) dlclose(module);
  record(reg("own"), 1);
  REQUIRE(eventually("a later document", [n](const Value& d) { return count_of(d, "own") == "2" && count_of(d, "in_all") == std::to_string(n); }));
}

void many() {
  for (int i = 0; i < 1440; i++) record(reg("many_" + std::to_string(i)), static_cast<uint64_t>(i));
  REQUIRE(eventually("the last", [](const Value& d) { return metric(d, "many_1439")["sum"].text == "1439"; }));
  REQUIRE(fake_read_counts().largest_copies == 1440);
}

void no_probes() {
  graphsignal_add(graphsignal_probe_register("host", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 1);
  REQUIRE(eventually("a document", [](const Value& d) { return d.kind == Value::kObject; }));
  const uint64_t at = document()["write_ts"].u64();
  REQUIRE(eventually("the next document", [at](const Value& d) { return d["write_ts"].u64() > at; }));
  REQUIRE(metric(document(), "graphsignal_probe_read_nanoseconds").kind == Value::kNull);
  // The program's own thread and the writer.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) REQUIRE(std::stoi(line.substr(8)) == 2);
  }
  REQUIRE(fake_read_counts().calls == 0);
}

// Runs after the library's handler, as the driver's own would.
void driver_ends() {
  const fake_counts before = fake_read_counts();
  fake_teardown();
  sleep_ms(1300);
  if (fake_read_counts().after_teardown != 0 || before.pushed != 0) {
    fprintf(stderr, "%d calls after the driver's end, %d contexts left\n", fake_read_counts().after_teardown, before.pushed);
    _exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what.rfind("hang", 0) != 0) atexit(driver_ends);
  initialize();
  if (what == "basic") basic();
  if (what == "other-types") other_types();
  if (what == "untouched") untouched();
  if (what == "capture") capture();
  if (what == "failures") failures();
  if (what == "slow") slow();
  if (what == "never") never();
  if (what == "hang") hang(argv[2]);
  if (what == "reset") reset();
  if (what == "modules") modules(argc - 2, argv + 2);
  if (what == "many") many();
  if (what == "no-probes") no_probes();
  if (what == "last-values") {
    graphsignal_probe_entry* e = reg("last");
    record(e, 1);
    REQUIRE(eventually("a value", [](const Value& d) { return count_of(d, "last") == "1"; }));
    record(e, 1);  // after the last reading: the end of the process makes none
    exit(42);
  }
  if (what == "fork") {
    record(reg("parent"), 1);
    REQUIRE(eventually("a value", [](const Value& d) { return count_of(d, "parent") == "1"; }));
    const pid_t child = fork();
    if (child == 0) {
      const int calls = fake_read_counts().calls;
      sleep_ms(1500);
      _exit(fake_read_counts().calls == calls ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    REQUIRE(status == 0);
  }
  if (what == "leave") {
    fake_copy_time(30000000);
    for (int i = 0; i < 100; i++) reg("leaving_" + std::to_string(i));
    sleep_ms(atol(argv[2]));
  }
  return 42;
}
