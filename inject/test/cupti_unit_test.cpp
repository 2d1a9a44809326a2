// Parts of the CUPTI library by themselves: graph signatures, buffers, pace, and the walk over hand-made buffers, also with
// the record sizes of real CUPTI libraries (their paths are the arguments).
#include "../cupti/activity.h"
#include "../cupti/buffers.h"
#include "../cupti/graphs.h"
#include "../cupti/pace.h"
#include "../cupti/takeover.h"
#include "../cupti/testdata/stub_cuda.h"

#include <dlfcn.h>

#include <algorithm>
#include <set>
#include <thread>

#include "check.h"
#include "json_reader.h"

using namespace graphsignal;
using namespace graphsignal::cupti;

namespace {

std::vector<std::string> real_cupti;

DriverFunctions stub_driver() {
  DriverFunctions d = {};
  d.graph_nodes = [](void* graph, void** nodes, size_t* count) {
    stub_graph* g = static_cast<stub_graph*>(graph);
    for (size_t i = 0; i < *count; i++) nodes[i] = i < g->count ? &g->nodes[i] : nullptr;
    *count = std::min(*count, g->count);
    return 0;
  };
  d.node_type = [](void* node, int* type) {
    *type = static_cast<stub_node*>(node)->type;
    return static_cast<stub_node*>(node)->unreadable;
  };
  d.kernel_node_params = [](void* node, KernelNodeParams* p) {
    p->function = const_cast<char*>(static_cast<stub_node*>(node)->function);
    p->kernel = const_cast<char*>(static_cast<stub_node*>(node)->kernel);
    return 0;
  };
  d.function_name = [](const char** name, void* function) {
    *name = static_cast<const char*>(function);
    return 0;
  };
  d.kernel_name = d.function_name;
  return d;
}

std::string signature(std::vector<stub_node> nodes) {
  const DriverFunctions d = stub_driver();
  stub_graph g = {nodes.data(), nodes.size()};
  uint64_t hash;
  if (!graph_signature(d, &g, &hash)) return "none";
  char text[32];
  snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string text_hash(const std::string& text) {
  char hex[32];
  snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(hash_signature(text.data(), text.size())));
  return hex;
}

stub_node kernel(const char* name) { return {0, name, nullptr, 0}; }
stub_node node(int type) { return {type, nullptr, nullptr, 0}; }

}  // namespace

TEST(signature_vectors) {
  CHECK_EQ(text_hash("kernel[name=foo,calls=3];memset[calls=1];"), std::string("bcbe59da48b1ff0f"));
  CHECK_EQ(text_hash("kernel[name=_Z3fooPf,calls=1];"), std::string("594c7cdc15c509c8"));
  CHECK_EQ(text_hash("memcpy[calls=2];"), std::string("62944b99d3410b33"));
  CHECK_EQ(signature({node(2), kernel("foo"), kernel("foo"), kernel("foo")}), std::string("bcbe59da48b1ff0f"));
  CHECK_EQ(signature({kernel("_Z3fooPf")}), std::string("594c7cdc15c509c8"));
  CHECK_EQ(signature({node(1), node(1)}), std::string("62944b99d3410b33"));
}

TEST(signatures_of_all_nodes) {
  std::vector<stub_node> all;
  for (int t = 1; t <= 14; t++) all.push_back(node(t));
  all.push_back({0, nullptr, "library_kernel", 0});
  all.push_back({0, nullptr, nullptr, 0});
  all.push_back({0, "unreadable", nullptr, 1});
  CHECK_EQ(signature(all),
           text_hash("child[calls=1];empty[calls=1];event[calls=1];host[calls=1];kernel[name=,calls=1];"
                     "kernel[name=library_kernel,calls=1];memalloc[calls=1];memcpy[calls=1];memfree[calls=1];memset[calls=1];"
                     "other[calls=3];semsignal[calls=1];semwait[calls=1];wait[calls=1];"));
  std::reverse(all.begin(), all.end());
  CHECK(signature(all) != "none");
  CHECK_EQ(signature({}), std::string("none"));
  CHECK_EQ(signature({{0, "x", nullptr, 1}}), std::string("none"));
}

// The keys are ordered as whole texts: what follows the symbol takes part.
TEST(signature_order) {
  CHECK_EQ(signature({kernel("A$1"), kernel("A"), kernel("A.b"), kernel("AB")}),
           text_hash("kernel[name=A$1,calls=1];kernel[name=A,calls=1];kernel[name=A.b,calls=1];kernel[name=AB,calls=1];"));
  std::vector<stub_node> nodes;
  std::vector<std::string> names;
  for (int i = 0; i < 3000; i++) names.push_back("k" + std::to_string(i * 7919 % 3000));
  for (const auto& n : names) nodes.push_back(kernel(n.c_str()));
  std::vector<std::string> keys;
  for (const auto& n : names) keys.push_back("kernel[name=" + n + ",calls=");
  std::sort(keys.begin(), keys.end());
  std::string text;
  for (const auto& k : keys) text += k + "1];";
  CHECK_EQ(signature(nodes), text_hash(text));
}

TEST(a_graph_of_more_nodes_than_are_read) {
  std::vector<stub_node> nodes(10000, kernel("k"));
  CHECK_EQ(signature(nodes), text_hash("kernel[name=k,calls=8192];"));
}

TEST(graph_names) {
  GraphNames names;
  uint64_t hash = 0;
  CHECK(!names.find(1, &hash));
  CHECK(names.allocate());
  names.remember(0, 5);
  names.remember(7, 6);
  CHECK(names.find(0, &hash) && hash == 5);
  CHECK(names.find(7, &hash) && hash == 6);
  CHECK(!names.find(8, &hash));
  names.remember(7 + 65536, 9);
  CHECK(!names.find(7, &hash));
  CHECK(names.find(7 + 65536, &hash) && hash == 9);
}

TEST(buffers) {
  BufferPool& pool = *test::keep(new BufferPool);
  CHECK(pool.start(false));
  std::set<uint8_t*> out;
  size_t size = 0;
  for (uint32_t i = 0; i < BufferPool::kMaxBuffers; i++) {
    uint8_t* b = pool.take(0, true, &size);
    CHECK(b && size == BufferPool::kBufferBytes && out.insert(b).second && b[0] == 0);
    b[0] = b[size - 1] = 1;
  }
  CHECK_EQ(pool.small(), 0u);
  CHECK(pool.cold() > 0);
  for (uint32_t i = 0; i < BufferPool::kMaxSmall; i++) {
    uint8_t* b = pool.take(0, true, &size);
    CHECK(b && size == BufferPool::kSmallBytes && out.insert(b).second);
  }
  CHECK_EQ(pool.small(), static_cast<uint64_t>(BufferPool::kMaxSmall));
  CHECK(pool.take(0, true, &size) == nullptr && size == 0);
  CHECK_EQ(pool.refused(), 1u);
  uint8_t* last = pool.take(0, false, &size);
  CHECK(last && size == BufferPool::kSmallBytes && out.count(last) == 0);
  CHECK(!pool.give_back(last, size));
  uint8_t foreign[8];
  CHECK(!pool.give_back(foreign, 8));
  for (uint8_t* b : out) CHECK(pool.give_back(b, BufferPool::kBufferBytes));
  CHECK_EQ(pool.returned(), static_cast<uint64_t>(out.size()));
  CHECK_EQ(pool.requested(), pool.returned());  // what was refused, or is never used again, does not count
  uint8_t* again = pool.take(16, true, &size);
  CHECK(again && size == 4096 && again[0] == 0);
  pool.maintain();
}

// Buffers that another tool may get: it frees some, and what malloc makes of their memory comes here.
TEST(buffers_that_are_lent) {
  BufferPool& pool = *test::keep(new BufferPool);
  CHECK(pool.start(true));
  std::set<uint8_t*> out;
  size_t size = 0;
  for (uint32_t i = 0; i < BufferPool::kMaxBuffers; i++) {
    uint8_t* b = pool.take(0, true, &size);
    CHECK(b && size == BufferPool::kBufferBytes && out.insert(b).second && b[0] == 0 && b[size - 1] == 0);
    b[0] = b[size - 1] = 1;
  }
  CHECK(pool.take(0, true, &size) == nullptr && size == 0);
  uint8_t* last = pool.take(0, false, &size);
  CHECK(last && size == BufferPool::kSmallBytes && !pool.give_back(last, size));
  free(last);
  uint32_t n = 0;
  for (uint8_t* b : out) {
    if (n++ % 2) {
      free(b);
    } else {
      CHECK(pool.give_back(b, BufferPool::kBufferBytes));
    }
  }
  pool.maintain();
  for (uint32_t i = 0; i < BufferPool::kMaxBuffers / 2; i++) {
    uint8_t* b = pool.take(16, true, &size);
    CHECK(b && size == 4096 && out.count(b) && b[0] == 0 && b[BufferPool::kBufferBytes - 1] == 0);
  }
  CHECK(pool.take(0, true, &size) == nullptr);
}

namespace {
void contend(bool lent) {
  BufferPool& pool = *test::keep(new BufferPool);
  CHECK(pool.start(lent));
  std::vector<std::thread> all;
  std::vector<int> faults(8, 0);
  for (int t = 0; t < 8; t++) {
    all.emplace_back([&, t] {
      std::vector<uint8_t*> mine;
      for (int i = 0; i < 20000; i++) {
        size_t size;
        uint8_t* b = pool.take(16, true, &size);
        if (!b) continue;
        if (__atomic_exchange_n(b, static_cast<uint8_t>(1), __ATOMIC_RELAXED) != 0) faults[t]++;  // somebody else has it
        mine.push_back(b);
        if (mine.size() > 5) {
          pool.give_back(mine.front(), size);
          mine.erase(mine.begin());
        }
      }
      for (uint8_t* b : mine) pool.give_back(b, 4096);
    });
  }
  for (int i = 0; i < 50; i++) pool.maintain();
  for (auto& t : all) t.join();
  for (int f : faults) CHECK_EQ(f, 0);
  CHECK_EQ(pool.requested(), pool.returned());
}
}  // namespace

TEST(buffers_under_contention) {
  contend(false);
  contend(true);
}

// Takeover with a subscription that another tool holds, or nobody.
namespace {
bool other_holds = false;

struct Watch {
  Instruments& instruments = *test::keep(new Instruments);
  Log& log = *test::keep(new Log);
  Functions functions = {};
  Takeover takeover;

  explicit Watch(bool subscribed = false) {
    other_holds = false;
    functions.subscribe = [](void**, Callback, void*) -> int { return other_holds ? kMultipleSubscribers : kSuccess; };
    functions.unsubscribe = [](void*) -> int { return kSuccess; };
    CHECK(instruments.allocate());
    takeover.start(instruments, log, functions, subscribed);
  }
  void ticks(int count, uint64_t requested, uint64_t returned) {
    for (int i = 0; i < count; i++) takeover.tick(requested, returned);
  }
  std::string suspended() {
    Json out;
    bool first = true;
    instruments.write(out, &first);
    const std::string text(out.data(), out.size());
    const char* key = "cuda_trace_suspended\",\"type\":\"gauge\",\"tags\":{},\"value\":";
    const size_t at = text.find(key);
    return at == std::string::npos ? "absent" : text.substr(at + strlen(key), 1);
  }
};
}  // namespace

TEST(a_tool_that_is_seen) {
  Watch w;
  w.ticks(1, 5, 5);
  other_holds = true;
  w.ticks(1, 5, 5);
  CHECK_EQ(w.suspended(), std::string("1"));
  CHECK(w.takeover.taken_over(5));
  CHECK(!w.takeover.taken_over(6));  // the last flush is due, also when the next look is not
  other_holds = false;
  w.ticks(10, 5, 5);
  CHECK_EQ(w.suspended(), std::string("1"));
  // Whatever the tool did, activity shows that it comes to us.
  w.ticks(1, 6, 6);
  CHECK_EQ(w.suspended(), std::string("0"));
  CHECK(!w.takeover.taken_over(6));
  other_holds = true;
  w.ticks(1, 7, 7);
  CHECK_EQ(w.suspended(), std::string("0"));
  w.ticks(1, 7, 7);
  CHECK_EQ(w.suspended(), std::string("1"));
}

TEST(a_tool_that_came_before_any_activity) {
  Watch w;
  w.ticks(100, 0, 0);
  CHECK_EQ(w.suspended(), std::string("absent"));
  other_holds = true;
  w.ticks(1, 0, 0);
  CHECK_EQ(w.suspended(), std::string("1"));
  Watch v;
  other_holds = true;
  v.takeover.end(0, 0);
  CHECK_EQ(v.suspended(), std::string("1"));
  Watch unused;
  unused.takeover.end(0, 0);
  CHECK_EQ(unused.suspended(), std::string("absent"));
}

TEST(nothing_is_watched_with_the_subscription) {
  Watch w(true);
  other_holds = true;
  w.ticks(100, 6, 5);
  w.takeover.end(6, 5);
  CHECK_EQ(w.suspended(), std::string("absent"));
}

TEST(buffers_that_stay_out) {
  Watch idle;
  idle.ticks(100, 5, 5);
  CHECK_EQ(idle.suspended(), std::string("absent"));
  Watch w;
  w.ticks(30, 6, 5);
  CHECK_EQ(w.suspended(), std::string("absent"));
  w.ticks(1, 6, 5);
  CHECK_EQ(w.suspended(), std::string("1"));
  CHECK(!w.takeover.taken_over(6));
  w.takeover.end(6, 6);  // it was a kernel
  CHECK_EQ(w.suspended(), std::string("0"));
}

TEST(activity_after_the_last_look) {
  Watch w;
  other_holds = true;  // it only has callbacks
  w.ticks(1, 0, 0);
  CHECK_EQ(w.suspended(), std::string("1"));
  w.takeover.end(2, 2);
  CHECK_EQ(w.suspended(), std::string("0"));
}

TEST(a_tool_that_came_at_the_end) {
  Watch fine;
  fine.ticks(1, 5, 5);
  fine.takeover.end(9, 9);
  other_holds = true;  // it only has callbacks, activity comes to us
  fine.takeover.end(9, 9);
  CHECK_EQ(fine.suspended(), std::string("absent"));
  fine.takeover.end(5, 5);
  CHECK_EQ(fine.suspended(), std::string("1"));
  Watch gone;
  gone.ticks(1, 5, 5);
  gone.takeover.end(9, 8);
  CHECK_EQ(gone.suspended(), std::string("1"));
}

TEST(pace_follows_the_rate) {
  Pace& pace = *test::keep(new Pace);
  const uint64_t second = 1000000000;
  uint64_t now = 100 * second;
  CHECK_EQ(pace.bound(0), 1u);
  // A burst gets larger buffers the more are out.
  CHECK_EQ(pace.bound(16), 16u);
  CHECK_EQ(pace.bound(32), 64u);
  CHECK_EQ(pace.bound(200), 256u);
  for (int i = 0; i < 20; i++) pace.arrived(2500, now += second / 20);
  CHECK(pace.rate() > 45000 && pace.rate() < 55000);
  CHECK(pace.bound(0) > 5600 && pace.bound(200) < 6900);
  std::thread([&] { pace.bound(0); }).join();
  CHECK(pace.bound(0) < 3500);  // two threads share the rate
  // Then long kernels: five a second.
  for (int s = 0; s < 12; s++) {
    pace.tick();
    for (int i = 0; i < 5; i++) pace.arrived(1, now += second / 5);
  }
  CHECK_EQ(pace.bound(0), 1u);
  // And nothing at all.
  for (int i = 0; i < 20; i++) pace.arrived(2500, now += second / 20);
  for (int s = 0; s < 10; s++) pace.tick();
  CHECK_EQ(pace.bound(0), 1u);
}

namespace {

// Writes records as CUPTI of the given sizes would.
struct Content {
  std::vector<uint8_t> bytes;
  uint8_t* add(size_t size, uint32_t kind) {
    bytes.resize(bytes.size() + size, 0xEE);
    uint8_t* r = &bytes[bytes.size() - size];
    memcpy(r, &kind, 4);
    return r;
  }
  static void put64(uint8_t* at, uint64_t v) { memcpy(at, &v, 8); }
};

struct Sizes {
  size_t kernel, copy, set, sync, graph;
};

Content sample(const Sizes& z, int rounds) {
  static const char kName[] = "walked";
  Content c;
  c.bytes.reserve(1 << 20);
  const uint64_t now = realtime_ns();
  for (int i = 0; i < rounds; i++) {
    uint8_t* k = c.add(z.kernel, 10);
    Content::put64(k + 16, now - 10);
    Content::put64(k + 24, now);
    Content::put64(k + 104, reinterpret_cast<uintptr_t>(kName));
    memset(k + 156, 0, 4);
    uint8_t* m = c.add(z.copy, 1);
    m[4] = 2;
    Content::put64(m + 8, 100);
    Content::put64(m + 16, now - 20);
    Content::put64(m + 24, now);
    uint8_t* s = c.add(z.set, 2);
    Content::put64(s + 8, 7);
    Content::put64(s + 16, now - 30);
    Content::put64(s + 24, now);
    s[50] = 3;
    s[51] = 0;
    uint8_t* y = c.add(z.sync, 38);
    y[4] = 3;
    y[5] = y[6] = y[7] = 0;
    Content::put64(y + 8, now - 40);
    Content::put64(y + 16, now);
    uint8_t* g = c.add(z.graph, 51);
    Content::put64(g + 8, now - 50);
    Content::put64(g + 16, now);
    memset(g + 28, 0, 4);
  }
  return c;
}

void walk(const Functions& f, const Sizes& z, const char* what) {
  static int number = 0;
  Instruments& instruments = *test::keep(new Instruments);
  CHECK(instruments.allocate());
  Activity& activity = *test::keep(new Activity);
  Log& log = *test::keep(new Log);
  GraphNames& names = *test::keep(new GraphNames);
  Pace pace;
  CHECK(activity.start(instruments, log, f, names, false));
  Content c = sample(z, 500);
  for (int buffers = 0; buffers < 2; buffers++) activity.process(c.bytes.data(), c.bytes.size(), pace);
  Json out;
  bool first = true;
  out.raw("{\"metrics\":[");
  instruments.write(out, &first);
  out.raw("]}");
  CHECK(out.complete());
  const std::string text(out.data(), out.size());
  for (const char* part : {"\"walked\":[10000,1000]", "\"device_to_host\":[20000,1000]", "\"device\":[30000,1000]",
                           "\"stream\":[40000,1000]", "\"graph_0\":[50000,1000]", "\"kind\":\"device_to_host\"},\"value\":100000",
                           "\"kind\":\"device\"},\"value\":7000", "\"cuda_invalid_records\",\"type\":\"counter\",\"tags\":{},\"value\":0"}) {
    if (text.find(part) == std::string::npos) test::fail(what, ++number, std::string("not there: ") + part + " in " + text);
  }
  CHECK_EQ(activity.records(), 5000u);
}

Sizes current;

}  // namespace

TEST(walk_with_learned_steps) {
  for (const Sizes& z : {Sizes{200, 88, 88, 40, 48}, Sizes{208, 88, 88, 40, 56}, Sizes{216, 96, 88, 56, 56}, Sizes{240, 96, 88, 56, 56}}) {
    current = z;
    Functions f = {};
    f.next_record = [](uint8_t* data, size_t valid, void** record) {
      uint8_t* at = data;
      if (*record) {
        uint32_t kind;
        memcpy(&kind, *record, 4);
        const size_t size = kind == 10 ? current.kernel : kind == 1 ? current.copy : kind == 2 ? current.set : kind == 38 ? current.sync : current.graph;
        at = static_cast<uint8_t*>(*record) + size;
      }
      if (at >= data + valid) return 12;
      *record = at;
      return 0;
    };
    walk(f, z, "learned steps");
  }
}

TEST(walk_of_damaged_buffers) {
  current = {208, 88, 88, 40, 56};
  Functions f = {};
  f.next_record = [](uint8_t* data, size_t valid, void** record) {
    uint8_t* at = *record ? static_cast<uint8_t*>(*record) + 8 : data;  // nonsense, but moving
    if (at >= data + valid) return 12;
    *record = at;
    return 0;
  };
  Instruments& instruments = *test::keep(new Instruments);
  instruments.allocate();
  Activity& activity = *test::keep(new Activity);
  Log& log = *test::keep(new Log);
  GraphNames& names = *test::keep(new GraphNames);
  names.allocate();
  Pace pace;
  CHECK(activity.start(instruments, log, f, names, true));
  Content c = sample(current, 3);
  for (size_t cut = 0; cut < c.bytes.size(); cut++) activity.process(c.bytes.data(), cut, pace);
  std::vector<uint8_t> zero(4096, 0);
  activity.process(zero.data(), zero.size(), pace);
  f.next_record = [](uint8_t*, size_t, void** record) {
    return *record ? 0 : (*record = nullptr, 0);  // success without a record
  };
  activity.process(zero.data(), zero.size(), pace);
  f.next_record = [](uint8_t* data, size_t, void** record) {
    *record = data;  // stands still
    return 0;
  };
  activity.process(c.bytes.data(), c.bytes.size(), pace);
}

namespace {

void walk_with(const std::string& path) {
  void* lib = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!lib) printf("%s\n", dlerror());
  CHECK(lib != nullptr);
  if (!lib) return;
  Functions f = {};
  void* symbol = dlsym(lib, "cuptiActivityGetNextRecord");
  memcpy(&f.next_record, &symbol, sizeof(symbol));
  // The sizes are CUPTI's own.
  Sizes z = {};
  const struct { uint32_t kind; size_t* size; } kinds[] = {{10, &z.kernel}, {1, &z.copy}, {2, &z.set}, {38, &z.sync}, {51, &z.graph}};
  for (const auto& k : kinds) {
    std::vector<uint32_t> data(256, k.kind);  // wherever the next record begins, its kind is a valid one
    uint8_t* bytes = reinterpret_cast<uint8_t*>(data.data());
    void* record = bytes;
    CHECK_EQ(f.next_record(bytes, 1024, &record), 0);
    *k.size = static_cast<size_t>(static_cast<uint8_t*>(record) - bytes);
  }
  printf("     %s: kernel %zu, memcpy %zu, memset %zu, synchronization %zu, graph %zu bytes\n", strrchr(path.c_str(), '/') + 1, z.kernel, z.copy, z.set,
         z.sync, z.graph);
  CHECK(z.kernel >= 160 && z.copy >= 80 && z.set >= 80 && z.sync >= 40 && z.graph >= 48);
  walk(f, z, "real CUPTI");
  // Without a GPU every other call fails; that is no reason to fall over.
  int (*enable)(uint32_t);
  symbol = dlsym(lib, "cuptiActivityEnable");
  memcpy(&enable, &symbol, sizeof(symbol));
  CHECK(enable(10) != 0);
}

}  // namespace

TEST(walk_with_a_real_cupti) {
  if (real_cupti.empty()) printf("     (no libcupti package: not run)\n");
  for (const std::string& path : real_cupti) walk_with(path);
}

int main(int argc, char** argv) {
  real_cupti.assign(argv + 1, argv + argc);
  return test::run_all();
}
