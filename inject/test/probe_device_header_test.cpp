// graphsignal/probe_cuda.h, and with TEST_HIP graphsignal/probe_rocm.h, over the fake runtime. The build defines __CUDACC__ or
// __HIPCC__, so that the device part is tested as well.
#ifdef TEST_HIP
#include <graphsignal/probe_rocm.h>
#define POOL graphsignal_probe_rocm_pool
#define POOL_INIT graphsignal_probe_rocm_pool_init
#define REGISTER graphsignal_probe_register_rocm
#define REGISTER_POOLED graphsignal_probe_register_rocm_pooled
#define DEVICE_DATA graphsignal_probe_device_data_rocm
static_assert(GRAPHSIGNAL_PROBE_ROCM_POOL == 1, "feature");
#else
#include <graphsignal/probe_cuda.h>
#define POOL graphsignal_probe_cuda_pool
#define POOL_INIT graphsignal_probe_cuda_pool_init
#define REGISTER graphsignal_probe_register_cuda
#define REGISTER_POOLED graphsignal_probe_register_cuda_pooled
#define DEVICE_DATA graphsignal_probe_device_data
static_assert(GRAPHSIGNAL_PROBE_CUDA_POOL == 1, "feature");
#endif

#include <thread>

#include "check.h"

static_assert(sizeof(POOL) == 40 && offsetof(POOL, base) == 0 && offsetof(POOL, capacity) == 8 && offsetof(POOL, used) == 16 &&
              offsetof(POOL, dropped) == 24 && offsetof(POOL, device_id) == 32, "pool layout");

namespace {

graphsignal_probe_registry& registry() { return __graphsignal_probe_registry_v1; }

graphsignal_probe_entry* reg(const char* name) { return REGISTER(name, nullptr, nullptr, 0); }
graphsignal_probe_entry* pooled(POOL* pool, const std::string& name) { return REGISTER_POOLED(pool, name.c_str(), nullptr, nullptr, 0); }

// The block as a kernel sees it.
graphsignal_instrument_data* view(const graphsignal_probe_entry* e) { return static_cast<graphsignal_instrument_data*>(fake_view(DEVICE_DATA(e))); }

bool is_fresh(const graphsignal_instrument_data* d) {
  graphsignal_instrument_data want = {};
  want.min = UINT64_MAX;
  return d && memcmp(d, &want, sizeof(want)) == 0;
}

int calls() { return fake_read_counts().calls; }
int mode_of_thread() {
  int mode = 0;
  cuThreadExchangeStreamCaptureMode(&mode);
  int old = mode;
  cuThreadExchangeStreamCaptureMode(&old);
  return mode;
}

}  // namespace

TEST(block_is_made_on_the_current_device) {
  cudaSetDevice(1);
  graphsignal_probe_entry* e = reg("on_device_1");
  cudaSetDevice(0);
  CHECK(e && e->device_id == 1 && e->storage == GRAPHSIGNAL_STORAGE_DEVICE && e->type == GRAPHSIGNAL_HISTOGRAM);
  CHECK(is_fresh(view(e)));
  CHECK(DEVICE_DATA(nullptr) == nullptr);
  CHECK(DEVICE_DATA(graphsignal_probe_register("host", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0)) == nullptr);
  CHECK_EQ(fake_read_counts().legacy, 0);
}

TEST(repeat_makes_no_call) {
  const char* keys[] = {"gpu"};
  const char* values[] = {"0"};
  const char* nulls[] = {nullptr};
  graphsignal_probe_entry* e = REGISTER("again", keys, values, 1);
  graphsignal_probe_entry* with_null = REGISTER("with_null", keys, nulls, 1);
  const int before = calls();
  CHECK(e && with_null && REGISTER("again", keys, values, 1) == e && REGISTER("with_null", keys, nulls, 1) == with_null);
  CHECK(reg("") == nullptr && reg(nullptr) == nullptr);
  CHECK_EQ(calls(), before);
  CHECK(REGISTER("again", nullptr, values, 1) != e);
}

TEST(capture_of_another_thread_goes_on) {
  fake_begin_capture();
  graphsignal_probe_entry* e = reg("during_capture");
  POOL pool;
  const int made = POOL_INIT(&pool, 8);
  CHECK_EQ(fake_end_capture(), 0);
  CHECK(e && is_fresh(view(e)) && made == 0);
  CHECK_EQ(mode_of_thread(), 0);
}

TEST(failures_are_counted_and_leave_no_error) {
  for (const char* call : {"fake_alloc", "fake_write", "fake_stream_create", "fake_stream_synchronize"}) {
    const uint64_t dropped = registry().dropped;
    const uint64_t count = registry().count;
    fake_fail(call, 2, 1);
    CHECK(reg((std::string("fails_in_") + call).c_str()) == nullptr);
    CHECK_EQ(registry().dropped, dropped + 1);
    CHECK_EQ(registry().count, count);
    CHECK_EQ(static_cast<int>(cudaPeekAtLastError()), 0);
    CHECK_EQ(mode_of_thread(), 0);
    fake_fail(call, 2, 1);
    POOL pool;
    CHECK_EQ(POOL_INIT(&pool, 4), -1);
    CHECK(pool.base == nullptr && pool.capacity == 0 && pooled(&pool, "from_nothing") == nullptr);
  }
  // An error of the program's own stays.
  fake_last_error = 77;
  fake_fail("fake_alloc", 2, 1);
  CHECK(reg("fails_again") == nullptr);
  CHECK(static_cast<int>(cudaPeekAtLastError()) != 0);
  cudaGetLastError();
}

TEST(pool) {
  POOL p;
  CHECK_EQ(POOL_INIT(nullptr, 4), -1);
  CHECK_EQ(POOL_INIT(&p, 0), -1);
  CHECK_EQ(POOL_INIT(&p, SIZE_MAX / 2), -1);
  CHECK_EQ(POOL_INIT(&p, 4), 0);
  CHECK(p.capacity == 4 && p.used == 0 && p.dropped == 0 && p.device_id == 0);
  graphsignal_probe_entry* first = pooled(&p, "pool_0");
  for (int i = 1; i < 4; i++) {
    graphsignal_probe_entry* e = pooled(&p, "pool_" + std::to_string(i));
    CHECK(e && e->data == p.base + i && is_fresh(view(e)));
  }
  CHECK(pooled(&p, "pool_0") == first);
  CHECK(p.used == 4 && p.dropped == 0);
  CHECK(pooled(&p, "pool_4") == nullptr);
  CHECK_EQ(p.dropped, 1u);
  // Also a full pool gives what exists, and refuses what has no name.
  CHECK(pooled(&p, "pool_0") == first && pooled(&p, "") == nullptr && pooled(nullptr, "pool_0") == nullptr);
  CHECK_EQ(p.dropped, 1u);
}

TEST(pool_used_by_threads) {
  POOL p;
  CHECK_EQ(POOL_INIT(&p, 200), 0);
  std::vector<std::thread> all;
  for (int t = 0; t < 8; t++) {
    all.emplace_back([&p, t] {
      for (int i = 0; i < 25; i++) {
        pooled(&p, "own_" + std::to_string(t) + "_" + std::to_string(i));
        pooled(&p, "own_" + std::to_string((t + 1) % 8) + "_" + std::to_string(i));
      }
    });
  }
  for (auto& t : all) t.join();
  std::vector<bool> taken(200);
  int found = 0;
  for (uint64_t i = 0; i < registry().count; i++) {
    const graphsignal_probe_entry& e = registry().entries[i];
    if (strncmp(e.name, "own_", 4) != 0) continue;
    const size_t slot = static_cast<size_t>(e.data - p.base);
    CHECK(slot < 200 && !taken[slot]);
    taken[slot] = true;
    found++;
  }
  // A race may waste a slot, so a few of the last may have been refused.
  CHECK(found + static_cast<int>(p.dropped) >= 200 && p.used <= 200);
}

TEST(recording) {
  graphsignal_probe_entry* host = graphsignal_probe_register("twin", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0);
  graphsignal_probe_entry* e = reg("recorded");
  graphsignal_instrument_data* d = view(e);
  for (uint32_t i = 0; i <= 252; i++) {
    for (uint64_t v : {graphsignal_probe_bin_lower(i) - 1, graphsignal_probe_bin_lower(i), graphsignal_probe_bin_lower(i) + 1}) {
      GRAPHSIGNAL_RECORD(d, v);
      graphsignal_record(host, v);
    }
  }
  GRAPHSIGNAL_RECORD(nullptr, 5);
  CHECK(memcmp(d, host->data, sizeof(*d)) == 0);
  const uint64_t before = d->count;
  graphsignal_record(e, 1);  // the host must not touch the block
  CHECK_EQ(d->count, before);
#ifdef TEST_HIP
  CHECK_EQ(graphsignal_gtimer(), 12345u);
  CHECK_EQ(graphsignal_probe_rocm_clock_khz(0), 100000);
  CHECK_EQ(graphsignal_probe_rocm_clock_khz(5), 0);
  CHECK_EQ(static_cast<int>(cudaPeekAtLastError()), 0);
#else
  CHECK_EQ(graphsignal_gtimer(), 0u);  // there is no such clock outside a kernel
#endif
}

// Runs last: it fills the registry.
TEST(full_registry) {
  POOL p;
  CHECK_EQ(POOL_INIT(&p, 4), 0);
  graphsignal_probe_entry* known = pooled(&p, "known");
  while (graphsignal_probe_register(("fill_" + std::to_string(registry().count)).c_str(), GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0)) {
  }
  const uint64_t dropped = registry().dropped;
  const int before = calls();
  CHECK(reg("one_more") == nullptr && pooled(&p, "another") == nullptr);
  CHECK_EQ(registry().dropped, dropped + 2);
  CHECK(p.used == 1 && p.dropped == 0 && pooled(&p, "known") == known);
  CHECK_EQ(calls(), before);
}

int main() { return test::run_all(); }
