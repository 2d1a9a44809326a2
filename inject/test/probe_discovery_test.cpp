// Registries that nobody exports: what is believed to be one, and whole processes with the host publisher.
// usage: probe_discovery_test LIBRARY FOLDER
#include <dlfcn.h>
#include <sys/mman.h>

#include <set>

#include "../common/registry_scan.h"
#include "check.h"
#include "json_reader.h"

using graphsignal::plausible_registry;
using test::metric;
using test::Value;

namespace {

std::string library, folder;

struct Fixture {
  bool passes(const std::string& what, const std::vector<std::string>& modules = {}, const std::string& probe_library = "") {
    std::vector<std::string> command = {"/bin/sh", "-c", "exec \"$0\" \"$@\" >\"$OUT\"", folder + "/probe_discovery_program", what, library};
    for (const auto& m : modules) command.push_back(folder + "/" + m);
    ended = test::run(command, {"GRAPHSIGNAL_SHM_PATH=" + directory.path, "GRAPHSIGNAL_PROBE_LIB=" + probe_library, "OUT=" + directory.path + "/out"});
    return WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 42;
  }
  Value document() {
    const std::string text = test::read_file(directory.run_directory(ended.pid) + "/probes.json");
    CHECK(!text.empty());
    return text.empty() ? Value() : test::Reader::parse(text);
  }
  size_t registries() {
    std::istringstream in(test::read_file(directory.path + "/out"));
    std::set<std::string> all;
    for (std::string line; std::getline(in, line);) all.insert(line);
    return all.size();
  }
  test::TemporaryDirectory directory;
  test::Ended ended;
};

std::string value(const Value& d, const std::string& name) { return metric(d, name)["value"].text; }

graphsignal_probe_registry* filled() {
  auto* r = static_cast<graphsignal_probe_registry*>(calloc(1, sizeof(graphsignal_probe_registry)));
  r->magic = GRAPHSIGNAL_PROBE_ABI_MAGIC;
  r->abi_version = GRAPHSIGNAL_PROBE_ABI_VERSION;
  r->start_ts = graphsignal_now_ns();
  r->count = 3;
  static graphsignal_instrument_data block;
  static graphsignal_profile_data profile;
  for (int i = 0; i < 3; i++) {
    strcpy(r->entries[i].name, "name");
    r->entries[i].device_id = -1;
    r->entries[i].data = &block;
  }
  r->entries[1].type = GRAPHSIGNAL_PROFILE;
  r->entries[1].data = reinterpret_cast<graphsignal_instrument_data*>(&profile);
  r->entries[2].type = GRAPHSIGNAL_HISTOGRAM;
  r->entries[2].storage = GRAPHSIGNAL_STORAGE_DEVICE;
  r->entries[2].device_id = 1;
  r->entries[2].ntags = 4;
  r->entries[2].data = reinterpret_cast<graphsignal_instrument_data*>(0x7f0012345600);
  return r;
}

// Whether a registry is still believed after a change.
bool believed(const std::function<void(graphsignal_probe_registry*)>& change) {
  graphsignal_probe_registry* r = filled();
  change(r);
  const bool result = plausible_registry(reinterpret_cast<uintptr_t>(r));
  free(r);
  return result;
}

}  // namespace

TEST(what_is_believed) {
  CHECK(believed([](auto*) {}));
  CHECK(believed([](auto* r) { r->reg_lock = 1; }));
  CHECK(!believed([](auto* r) { r->magic = 0; }));
  CHECK(!believed([](auto* r) { r->abi_version = 1; }));
  CHECK(!believed([](auto* r) { r->reg_lock = 2; }));
  CHECK(!believed([](auto* r) { r->count = 0; }));
  CHECK(!believed([](auto* r) { r->count = 4; }));
  CHECK(!believed([](auto* r) { r->count = GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS + 1; }));
  CHECK(!believed([](auto* r) { r->start_ts = 0; }));
  CHECK(!believed([](auto* r) { r->start_ts += 86400000000000; }));
  CHECK(!believed([](auto* r) { r->entries[1].name[0] = 0; }));
  CHECK(!believed([](auto* r) { memset(r->entries[1].name, 'x', 128); }));
  CHECK(!believed([](auto* r) { r->entries[1].type = 4; }));
  CHECK(!believed([](auto* r) { r->entries[1].storage = 2; }));
  CHECK(!believed([](auto* r) { r->entries[1].storage = GRAPHSIGNAL_STORAGE_DEVICE; }));
  CHECK(!believed([](auto* r) { r->entries[2].device_id = -1; }));
  CHECK(!believed([](auto* r) { r->entries[2].ntags = 5; }));
  CHECK(!believed([](auto* r) { memset(r->entries[2].tag_keys[3], 'x', 32); }));
  CHECK(!believed([](auto* r) { memset(r->entries[2].tag_values[0], 'x', 128); }));
  CHECK(!believed([](auto* r) { r->entries[0].data = nullptr; }));
  CHECK(!believed([](auto* r) { r->entries[0].data = reinterpret_cast<graphsignal_instrument_data*>(64); }));
  CHECK(!believed([](auto* r) { r->entries[0].data = reinterpret_cast<graphsignal_instrument_data*>(reinterpret_cast<char*>(r) + 4); }));
}

TEST(memory_that_cannot_be_read) {
  CHECK(!plausible_registry(0));
  CHECK(!plausible_registry(8));
  // The end of the registry is missing.
  const size_t size = 4 << 20;
  char* p = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK_EQ(mprotect(p + 4096, size - 4096, PROT_NONE), 0);
  graphsignal_probe_registry* r = filled();
  memcpy(p, r, 4096);
  free(r);
  CHECK(!plausible_registry(reinterpret_cast<uintptr_t>(p)));
  munmap(p, size);
}

TEST(memory_that_was_in_use_before) {
  void* module = dlopen((folder + "/late_registry.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  CHECK(module);
  if (!module) return;
  reinterpret_cast<void (*)()>(dlsym(module, "touch"))();
  graphsignal::RegistryScan scan;
  graphsignal_probe_registry* found = nullptr;
  const auto look = [&] {
    scan.run([](void* to, graphsignal_probe_registry* r) { *static_cast<graphsignal_probe_registry**>(to) = r; }, &found);
    return found;
  };
  for (int i = 0; i < 3; i++) CHECK(!look());
  graphsignal_probe_registry* registry = reinterpret_cast<graphsignal_probe_registry* (*)()>(dlsym(module, "fill"))();
  CHECK_EQ(look(), registry);
}

TEST(program_without_export) {
  for (const char* when : {"own", "at-once"}) {
    Fixture f;
    CHECK(f.passes(when));
    CHECK_EQ(value(f.document(), "hidden_total"), std::string("12"));
  }
}

TEST(decoys_are_ignored) {
  Fixture f;
  CHECK(f.passes("decoys"));
  Value d = f.document();
  CHECK_EQ(value(d, "hidden_total"), std::string("12"));
  CHECK_EQ(d["metrics"].items.size(), static_cast<size_t>(1));
}

TEST(refused_frames_are_counted) {
  Fixture f;
  CHECK(f.passes("frames"));
  Value d = f.document();
  CHECK_EQ(metric(d, "frames_nanoseconds")["frames"].members.size(), static_cast<size_t>(250));
  CHECK_EQ(value(d, "graphsignal_probe_dropped_frames"), std::string("10"));
}

TEST(other_implementations_share_the_registry) {
  Fixture f;
  CHECK(f.passes("modules", {"module_a.so", "foreign_probes.so", "module_b.so"}));
  CHECK_EQ(f.registries(), static_cast<size_t>(1));
  Value d = f.document();
  CHECK_EQ(value(d, "shared_total"), std::string("30"));
  for (const char* own : {"module_0", "module_1", "module_2"}) CHECK_EQ(value(d, own), std::string("5"));
}

TEST(registries_that_are_not_one_are_merged) {
  Fixture f;
  CHECK(f.passes("modules", {"module_a.so", "module_c.so", "module_clang.so"}));
  CHECK(f.registries() >= 2);
  Value d = f.document();
  CHECK_EQ(value(d, "shared_total"), std::string("30"));
  CHECK_EQ(metric(d, "shared_sizes")["count"].text, std::string("3"));
  for (const char* own : {"module_0", "module_1", "module_2"}) CHECK_EQ(value(d, own), std::string("5"));
}

TEST(modules_that_are_given_up_stay) {
  Fixture f;
  CHECK(f.passes("told", {"module_c.so"}, library));
  CHECK_EQ(value(f.document(), "shared_total"), std::string("10"));
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  library = argv[1];
  folder = argv[2];
  return test::run_all();
}
