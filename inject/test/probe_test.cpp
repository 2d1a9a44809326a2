// The binary interface and the host API of graphsignal/probe.h.
#include <graphsignal/probe.h>

#include <thread>

#include "check.h"

#define OFFSET(type, field, want) static_assert(offsetof(type, field) == want, #type "." #field)
OFFSET(graphsignal_instrument_data, count, 0);
OFFSET(graphsignal_instrument_data, sum, 8);
OFFSET(graphsignal_instrument_data, min, 16);
OFFSET(graphsignal_instrument_data, max, 24);
OFFSET(graphsignal_instrument_data, value_bits, 32);
OFFSET(graphsignal_instrument_data, bins, 40);
OFFSET(graphsignal_profile_frame, name, 0);
OFFSET(graphsignal_profile_frame, value, 128);
OFFSET(graphsignal_profile_frame, samples, 136);
OFFSET(graphsignal_profile_data, frame_count, 0);
OFFSET(graphsignal_profile_data, dropped, 8);
OFFSET(graphsignal_profile_data, frames, 16);
OFFSET(graphsignal_probe_entry, type, 0);
OFFSET(graphsignal_probe_entry, storage, 4);
OFFSET(graphsignal_probe_entry, device_id, 8);
OFFSET(graphsignal_probe_entry, ntags, 12);
OFFSET(graphsignal_probe_entry, name, 16);
OFFSET(graphsignal_probe_entry, tag_keys, 144);
OFFSET(graphsignal_probe_entry, tag_values, 272);
OFFSET(graphsignal_probe_entry, data, 784);
OFFSET(graphsignal_probe_registry, magic, 0);
OFFSET(graphsignal_probe_registry, abi_version, 4);
OFFSET(graphsignal_probe_registry, start_ts, 8);
OFFSET(graphsignal_probe_registry, dropped, 16);
OFFSET(graphsignal_probe_registry, reg_lock, 24);
OFFSET(graphsignal_probe_registry, count, 32);
OFFSET(graphsignal_probe_registry, entries, 40);
static_assert(sizeof(graphsignal_instrument_data) == 2088, "block");
static_assert(sizeof(graphsignal_profile_frame) == 144, "frame");
static_assert(sizeof(graphsignal_profile_data) == 36016, "profile");
static_assert(sizeof(graphsignal_probe_entry) == 792, "entry");
static_assert(sizeof(graphsignal_probe_registry) == 3244072, "registry");
static_assert(alignof(graphsignal_probe_registry) == 8, "registry alignment");
static_assert(GRAPHSIGNAL_GAUGE == 0 && GRAPHSIGNAL_COUNTER == 1 && GRAPHSIGNAL_HISTOGRAM == 2 && GRAPHSIGNAL_PROFILE == 3, "types");
static_assert(GRAPHSIGNAL_STORAGE_HOST == 0 && GRAPHSIGNAL_STORAGE_DEVICE == 1, "storage");

namespace {

graphsignal_probe_registry& registry() { return __graphsignal_probe_registry_v1; }

graphsignal_probe_entry* reg(const char* name, graphsignal_instrument_type type) {
  return graphsignal_probe_register(name, type, nullptr, nullptr, 0);
}

}  // namespace

// Runs first: later cases register.
TEST(nothing_registered) {
  CHECK(graphsignal_probe_reader_attach() == nullptr);
  CHECK_EQ(registry().magic, 0u);
  const uint64_t before = graphsignal_now_ns();
  CHECK(reg("first", GRAPHSIGNAL_GAUGE) != nullptr);
  CHECK_EQ(registry().magic, 0x47535052u);
  CHECK(memcmp(&registry().magic, "RPSG", 4) == 0);
  CHECK_EQ(registry().abi_version, 2u);
  CHECK(registry().start_ts >= before && registry().start_ts <= graphsignal_now_ns());
  CHECK(graphsignal_probe_reader_attach() == &registry());
}

TEST(bins) {
  const struct { uint64_t v; uint32_t index; uint64_t lower, next; } vectors[] = {
      {0, 0, 0, 1}, {1, 1, 1, 2}, {3, 3, 3, 4}, {4, 4, 4, 5}, {5, 5, 5, 6}, {7, 7, 7, 8}, {8, 8, 8, 10}, {9, 8, 8, 10},
      {16, 12, 16, 20}, {42, 17, 40, 48}, {99, 22, 96, 112}, {100, 22, 96, 112}, {200, 26, 192, 224}, {300, 28, 256, 320},
      {1000, 35, 896, 1024}, {5000, 44, 4096, 5120}, {1000000, 75, 917504, 1048576},
      {1000000000, 115, 939524096, 1073741824}, {1ull << 40, 156, 1ull << 40, 1374389534720ull},
      {1ull << 62, 244, 1ull << 62, 5764607523034234880ull},
      {1ull << 63, 248, 9223372036854775808ull, 11529215046068469760ull}, {UINT64_MAX, 251, 16140901064495857664ull, UINT64_MAX}};
  for (const auto& x : vectors) {
    CHECK_EQ(graphsignal_probe_bin_index(x.v), x.index);
    CHECK_EQ(graphsignal_probe_bin_lower(x.index), x.lower);
    CHECK_EQ(graphsignal_probe_bin_lower(x.index + 1), x.next);
  }
  for (uint32_t i = 0; i <= 251; i++) {
    const uint64_t low = graphsignal_probe_bin_lower(i), next = graphsignal_probe_bin_lower(i + 1);
    CHECK(low < next);
    CHECK_EQ(graphsignal_probe_bin_index(low), i);
    CHECK_EQ(graphsignal_probe_bin_index(next - 1), i == 251 ? 251u : i);
  }
  CHECK_EQ(graphsignal_probe_bin_lower(255), UINT64_MAX);
  CHECK_EQ(graphsignal_probe_bin_lower(UINT32_MAX), UINT64_MAX);
}

TEST(identity) {
  const char* k1[] = {"a", "b"};
  const char* v1[] = {"1", "2"};
  const char* k2[] = {"b", "a"};
  const char* v2[] = {"2", "1"};
  auto* e = graphsignal_probe_register("id", GRAPHSIGNAL_COUNTER, k1, v1, 2);
  CHECK(e != nullptr);
  CHECK(graphsignal_probe_register("id", GRAPHSIGNAL_GAUGE, k1, v1, 2) == e);
  CHECK_EQ(e->type, static_cast<uint32_t>(GRAPHSIGNAL_COUNTER));
  CHECK(graphsignal_probe_register("id", GRAPHSIGNAL_COUNTER, k2, v2, 2) != e);
  CHECK(graphsignal_probe_register("id", GRAPHSIGNAL_COUNTER, k1, v1, 1) != e);
  CHECK(graphsignal_probe_register("id", GRAPHSIGNAL_COUNTER, nullptr, v1, 2) == graphsignal_probe_register("id", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0));

  const char* six[] = {"1", "2", "3", "4", "5", "6"};
  auto* clamped = graphsignal_probe_register("six", GRAPHSIGNAL_COUNTER, six, six, 6);
  CHECK_EQ(clamped->ntags, 4u);
  CHECK(graphsignal_probe_register("six", GRAPHSIGNAL_COUNTER, six, six, 5) == clamped);

  const char* holes[] = {nullptr};
  const char* empty[] = {""};
  auto* hole = graphsignal_probe_register("hole", GRAPHSIGNAL_COUNTER, holes, holes, 1);
  CHECK(hole != nullptr && graphsignal_probe_register("hole", GRAPHSIGNAL_COUNTER, empty, empty, 1) == hole);

  const std::string long_a(127, 'x'), long_b = long_a + "1", long_c = long_a + "2";
  auto* cut = reg(long_b.c_str(), GRAPHSIGNAL_COUNTER);
  CHECK(reg(long_c.c_str(), GRAPHSIGNAL_COUNTER) == cut && reg(long_a.c_str(), GRAPHSIGNAL_COUNTER) == cut);
  CHECK_EQ(strlen(cut->name), static_cast<size_t>(127));

  const uint64_t dropped = registry().dropped;
  CHECK(reg(nullptr, GRAPHSIGNAL_GAUGE) == nullptr && reg("", GRAPHSIGNAL_GAUGE) == nullptr);
  CHECK_EQ(registry().dropped, dropped);
}

TEST(recording) {
  auto* h = reg("h", GRAPHSIGNAL_HISTOGRAM);
  CHECK_EQ(h->data->min, UINT64_MAX);
  for (uint64_t v : {100, 5000, 3}) graphsignal_record(h, v);
  graphsignal_instrument_data d = {};
  CHECK_EQ(graphsignal_probe_snapshot(h, &d), 1);
  CHECK_EQ(d.count, 3u);
  CHECK_EQ(d.sum, 5103u);
  CHECK_EQ(d.min, 3u);
  CHECK_EQ(d.max, 5000u);
  CHECK_EQ(d.bins[22] + d.bins[44] + d.bins[3], 3u);
  auto* c = reg("c", GRAPHSIGNAL_COUNTER);
  graphsignal_add(c, 40);
  graphsignal_add(c, 2);
  CHECK_EQ(c->data->value_bits, 42u);
  auto* g = reg("g", GRAPHSIGNAL_GAUGE);
  graphsignal_set(g, -2.5);
  graphsignal_probe_snapshot(g, &d);
  CHECK_EQ(graphsignal_probe_gauge_value(&d), -2.5);

  graphsignal_record(nullptr, 1);
  graphsignal_add(nullptr, 1);
  graphsignal_set(nullptr, 1);
  graphsignal_profile_add(nullptr, 1);
  CHECK_EQ(graphsignal_probe_snapshot(nullptr, &d), 0);
}

TEST(profiles) {
  auto* p = reg("p", GRAPHSIGNAL_PROFILE);
  CHECK_EQ(graphsignal_probe_snapshot(p, nullptr), 0);
  graphsignal_record(p, 1);
  graphsignal_add(p, 1);
  graphsignal_set(p, 1);
  auto* d = graphsignal_probe_profile_data(p);
  CHECK_EQ(d->frame_count + d->dropped, 0u);
  graphsignal_profile_add_by_name(p, "f0", 100);
  graphsignal_profile_add_by_name(p, "f0", 150);
  CHECK(graphsignal_profile_frame_get(p, "") == nullptr && graphsignal_profile_frame_get(p, nullptr) == nullptr);
  for (int i = 1; i < 260; i++) graphsignal_profile_add_by_name(p, ("f" + std::to_string(i)).c_str(), 1);
  CHECK_EQ(d->frame_count, 250u);
  CHECK_EQ(d->dropped, 10u);
  auto* f = graphsignal_profile_frame_get(p, "f0");
  CHECK(f == &d->frames[0] && f->value == 250 && f->samples == 2);
  CHECK(graphsignal_profile_frame_get(reg("g", GRAPHSIGNAL_GAUGE), "f0") == nullptr);
}

TEST(device_storage) {
  static graphsignal_instrument_data block;  // stands for device memory, which the host must not touch
  auto* e = graphsignal_probe_register_storage("dev", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, &block, 3);
  CHECK(e && e->data == &block && e->device_id == 3 && e->storage == GRAPHSIGNAL_STORAGE_DEVICE);
  graphsignal_record(e, 5);
  graphsignal_instrument_data d = {};
  CHECK_EQ(graphsignal_probe_snapshot(e, &d), 0);
  CHECK_EQ(block.count, 0u);
  CHECK(reg("dev", GRAPHSIGNAL_HISTOGRAM) == e);
  CHECK(graphsignal_probe_register_storage("dev2", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0, nullptr, 0) == nullptr);
  CHECK(graphsignal_probe_register_storage("dev2", GRAPHSIGNAL_PROFILE, nullptr, nullptr, 0, &block, 0) == nullptr);
  CHECK_EQ(reg("host", GRAPHSIGNAL_GAUGE)->device_id, -1);
}

TEST(threads) {
  auto* h = reg("mt", GRAPHSIGNAL_HISTOGRAM);
  auto* p = reg("mtp", GRAPHSIGNAL_PROFILE);
  std::vector<std::thread> all;
  for (int t = 0; t < 8; t++) {
    all.emplace_back([=] {
      for (uint64_t i = 0; i < 20000; i++) graphsignal_record(h, i);
      for (int i = 0; i < 100; i++) {
        graphsignal_profile_add_by_name(p, ("n" + std::to_string(i)).c_str(), 2);
        reg(("same" + std::to_string(i)).c_str(), GRAPHSIGNAL_COUNTER);
      }
    });
  }
  for (auto& t : all) t.join();
  graphsignal_instrument_data d = {};
  graphsignal_probe_snapshot(h, &d);
  uint64_t bins = 0;
  for (uint64_t b : d.bins) bins += b;
  CHECK_EQ(d.count, 160000u);
  CHECK_EQ(bins, 160000u);
  CHECK_EQ(d.sum, 8u * (20000u * 19999u / 2));
  CHECK(d.min == 0 && d.max == 19999);
  auto* data = graphsignal_probe_profile_data(p);
  CHECK_EQ(data->frame_count, 100u);
  for (int i = 0; i < 100; i++) CHECK(data->frames[i].value == 16 && data->frames[i].samples == 8);
}

TEST(other_layout_is_refused) {
  CHECK_EQ(test::in_child([] {
    registry().abi_version = 3;
    CHECK(reg("first", GRAPHSIGNAL_GAUGE) == nullptr);
    CHECK(graphsignal_probe_reader_attach() == nullptr);
  }), 0);
}

// Fills the registry: last.
TEST(capacity) {
  for (int i = 0; registry().count < GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS; i++) reg(("fill" + std::to_string(i)).c_str(), GRAPHSIGNAL_GAUGE);
  const uint64_t dropped = registry().dropped;
  for (int i = 0; i < 4; i++) CHECK(reg(("more" + std::to_string(i)).c_str(), GRAPHSIGNAL_GAUGE) == nullptr);
  CHECK_EQ(registry().dropped, dropped + 4);
  CHECK(reg("first", GRAPHSIGNAL_GAUGE) != nullptr);
  CHECK_EQ(registry().dropped, dropped + 4);
}

int main() { return test::run_all(); }
