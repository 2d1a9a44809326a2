// libgraphsignal_probe.so as real programs load it: through probe.h and GRAPHSIGNAL_PROBE_LIB.
// usage: publisher_test LIBRARY PROGRAM MODULE_A MODULE_B MODULE_C MODULE_D (C and D built without unique symbols)
#include <sys/stat.h>

#include "check.h"
#include "json_reader.h"

using test::metric;
using test::Value;

namespace {

std::string library, program;
std::vector<std::string> modules;

struct Fixture {
  test::Ended run(std::vector<std::string> command, bool with_library = true) {
    std::vector<std::string> env = {"GRAPHSIGNAL_SHM_PATH=" + directory.path};
    if (with_library) env.push_back("GRAPHSIGNAL_PROBE_LIB=" + library);
    command.insert(command.begin(), program);
    return ended = test::run(command, env);
  }
  Value document() {
    const std::string text = test::read_file(directory.run_directory(ended.pid) + "/probes.json");
    CHECK(!text.empty());
    return text.empty() ? Value() : test::Reader::parse(text);
  }
  test::TemporaryDirectory directory;
  test::Ended ended;
};

bool exited(const test::Ended& e, int code) { return WIFEXITED(e.status) && WEXITSTATUS(e.status) == code; }

}  // namespace

TEST(all_kinds_at_exit) {
  Fixture f;
  CHECK(exited(f.run({"all"}), 3));
  Value d = f.document();
  CHECK_EQ(d["pid"].u64(), static_cast<uint64_t>(f.ended.pid));
  const Value& h = metric(d, "app_step_ns");
  CHECK_EQ(h["tags"]["op"].text, std::string("a\"b\xEF\xBF\xBD"));
  CHECK_EQ(h["sum"].text, std::string("5103"));
  CHECK_EQ(h["bins"].items.size(), static_cast<size_t>(3));
  CHECK_EQ(metric(d, "app_level")["value"].text, std::string("2.5"));
  CHECK_EQ(metric(d, "app_total")["value"].text, std::string("42"));
  CHECK(metric(d, "app_not_a_number").kind == Value::kNull);
  const Value& frames = metric(d, "app_phases_nanoseconds")["frames"];
  CHECK_EQ(frames["gemm_\xEF\xBF\xBD\xEF\xBF\xBD_v2"][0].text, std::string("5000"));
  CHECK_EQ(frames[std::string(126, 'n')][0].text, std::string("9"));
  CHECK(metric(d, "app_unused_ns").kind == Value::kObject && !metric(d, "app_unused_ns").has("bins"));
  CHECK(metric(d, "graphsignal_probe_dropped_instruments").kind == Value::kNull);
  CHECK(test::exists(f.directory.run_directory(f.ended.pid) + "/.owner"));
}

TEST(without_the_variable_nothing_happens) {
  Fixture f;
  CHECK(exited(f.run({"all"}, false), 3));
  CHECK(test::list(f.directory.path).empty());
}

TEST(forked_child_publishes_nothing) {
  Fixture f;
  CHECK(exited(f.run({"fork"}), 0));
  Value d = f.document();
  CHECK_EQ(metric(d, "app_total")["value"].text, std::string("42"));
  CHECK(metric(d, "child_only").kind == Value::kNull);
  CHECK_EQ(test::list(f.directory.path).size(), static_cast<size_t>(1));
}

TEST(exec_keeps_the_pid_and_starts_anew) {
  Fixture f;
  CHECK(exited(f.run({"exec"}), 3));
  Value d = f.document();
  CHECK(metric(d, "first_image").kind == Value::kNull);
  CHECK_EQ(metric(d, "app_total")["value"].text, std::string("42"));
}

TEST(signals_stay_with_the_program) {
  Fixture f;
  CHECK(exited(f.run({"blocked"}), 0));
}

TEST(two_shared_objects_share_one_registry) {
  for (size_t pair = 0; pair < 2; pair++) {
    Fixture f;
    CHECK(exited(f.run({"modules", modules[2 * pair], modules[2 * pair + 1]}), 0));
    Value d = f.document();
    CHECK_EQ(metric(d, "module_one")["value"].text, std::string("5"));
    CHECK_EQ(metric(d, "module_two")["value"].text, std::string("5"));
    CHECK_EQ(metric(d, "shared_total")["value"].text, std::string("20"));
    CHECK_EQ(metric(d, "shared_sizes")["count"].text, std::string("2"));
    CHECK_EQ(metric(d, "shared_sizes")["min"].text, std::string("6"));
    CHECK_EQ(metric(d, "shared_profile")["frames"]["both"][0].text, std::string("14"));
    CHECK_EQ(metric(d, "shared_profile")["frames"]["both"][1].text, std::string("2"));
    CHECK_EQ(metric(d, "shared_profile")["frames"]["module_two"][0].text, std::string("1"));
    size_t entries = 0;
    for (const Value& m : d["metrics"].items) entries += m["name"].text == "shared_total" ? 1 : 0;
    CHECK_EQ(entries, static_cast<size_t>(1));
  }
}

TEST(refused_registrations_are_counted) {
  Fixture f;
  CHECK(exited(f.run({"full"}), 0));
  Value d = f.document();
  CHECK_EQ(metric(d, "graphsignal_probe_dropped_instruments")["value"].text, std::string("4"));
  CHECK_EQ(d["metrics"].items.size(), static_cast<size_t>(4097));
}

TEST(the_lock_names_the_publisher) {
  Fixture f;
  CHECK(exited(f.run({"all"}), 3));
  const std::string lock = test::read_file(f.directory.run_directory(f.ended.pid) + "/probes.lock");
  CHECK_EQ(lock.size(), static_cast<size_t>(24));
  CHECK_EQ(lock.substr(16), std::string(" probes\n"));
}

TEST(set_user_id_programs_are_left_alone) {
  if (geteuid() != 0) {
    printf("     (needs root: not run)\n");
    return;
  }
  Fixture f;
  const std::string copy = f.directory.path + "/privileged";
  std::ofstream(copy, std::ios::binary) << test::read_file(program);
  CHECK_EQ(chown(copy.c_str(), 65534, 65534), 0);
  CHECK_EQ(chmod(copy.c_str(), 04755), 0);
  CHECK_EQ(chmod(f.directory.path.c_str(), 0777), 0);
  const test::Ended e = test::run({copy, "all"}, {"GRAPHSIGNAL_SHM_PATH=" + f.directory.path, "GRAPHSIGNAL_PROBE_LIB=" + library});
  CHECK(exited(e, 3));
  CHECK_EQ(test::list(f.directory.path).size(), static_cast<size_t>(1));
}

TEST(statically_linked_programs_are_left_alone) {
  const std::string without_loader = program + "_static";
  if (!test::exists(without_loader)) {
    printf("     (needs the static libc: not run)\n");
    return;
  }
  Fixture f;
  const std::string env = "GRAPHSIGNAL_SHM_PATH=" + f.directory.path;
  CHECK(exited(test::run({without_loader, "all"}, {env, "GRAPHSIGNAL_PROBE_LIB=" + library}), 3));
  CHECK(test::list(f.directory.path).empty());
}

// To the dynamic linker a library whose destructors have run is one whose constructors have not. Asked for a library, it runs them: a
// second time, or in another thread before their turn.
TEST(constructors_run_once_and_where_they_belong) {
  for (const char* kind : {"_large", "_slow"}) {
    Fixture f;
    f.ended = test::run({program + kind, "all"}, {"GRAPHSIGNAL_SHM_PATH=" + f.directory.path, "GRAPHSIGNAL_PROBE_LIB=" + library});
    CHECK(exited(f.ended, 3));
    CHECK_EQ(metric(f.document(), "app_total")["value"].text, std::string("42"));
    CHECK(kind == std::string("_large") || metric(f.document(), "slow_total")["value"].text == "7");
  }
}

TEST(nobody_waits_for_the_start) {
  Fixture f;
  f.ended = test::run({program + "_threads"}, {"GRAPHSIGNAL_SHM_PATH=" + f.directory.path, "GRAPHSIGNAL_PROBE_LIB=" + library});
  CHECK(exited(f.ended, 42));
  CHECK_EQ(metric(f.document(), "first_total")["value"].text, std::string("1"));
  CHECK_EQ(metric(f.document(), "second_total")["value"].text, std::string("7"));
  f.ended = test::run({program + "_threads", "own"}, {"GRAPHSIGNAL_SHM_PATH=" + f.directory.path, "GRAPHSIGNAL_PROBE_LIB=" + library});
  CHECK(exited(f.ended, 42));
  CHECK_EQ(metric(f.document(), "first_total")["value"].text, std::string("1"));
}

TEST(unusable_places_do_no_harm) {
  test::TemporaryDirectory none;
  const std::string env = "GRAPHSIGNAL_SHM_PATH=/nonexistent/place";
  CHECK(exited(test::run({program, "all"}, {env, "GRAPHSIGNAL_PROBE_LIB=" + library}), 3));
  CHECK(exited(test::run({program, "all"}, {env, "GRAPHSIGNAL_PROBE_LIB=/nonexistent/lib.so"}), 3));
  CHECK(exited(test::run({program, "all"}, {env, "GRAPHSIGNAL_PROBE_LIB=" + program}), 3));
  CHECK(exited(test::run({program, "all"}, {env, "GRAPHSIGNAL_PROBE_LIB=relative.so"}), 3));
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  library = argv[1];
  program = argv[2];
  modules.assign(argv + 3, argv + 7);
  return test::run_all();
}
