// GPU probes in whole processes: libgraphsignal_cupti.so over the fake driver.
// usage: probe_gpu_test LIBRARY PROGRAM MODULE...
#include "check.h"
#include "json_reader.h"

using test::metric;
using test::Value;

namespace {

std::string library, program;
std::vector<std::string> modules;

struct Fixture {
  bool passes(std::vector<std::string> command) {
    command.insert(command.begin(), program);
    const auto start = time(nullptr);
    ended = test::run(command, {"GRAPHSIGNAL_SHM_PATH=" + directory.path, "CUDA_INJECTION64_PATH=" + library,
                                "GRAPHSIGNAL_CUPTI_PATH=/nonexistent", "GRAPHSIGNAL_PROBE_LIB="});
    seconds = time(nullptr) - start;
    return WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 42;
  }
  Value document() { return test::Reader::parse(test::read_file(directory.run_directory(ended.pid) + "/cupti.json")); }
  test::TemporaryDirectory directory;
  test::Ended ended;
  time_t seconds = 0;
};

}  // namespace

#define PASSES(name, ...) \
  TEST(name) {            \
    Fixture f;            \
    CHECK(f.passes({__VA_ARGS__})); \
  }

PASSES(values_of_single_and_pooled_blocks_on_two_devices, "basic")
PASSES(gauges_and_counters, "other-types")
PASSES(a_device_the_program_never_used_stays_untouched, "untouched")
PASSES(readings_during_a_capture, "capture")
PASSES(what_fails_is_left_out_for_that_time, "failures")
PASSES(documents_do_not_wait_for_slow_copies, "slow")
PASSES(device_resets, "reset")
PASSES(single_blocks_are_read_with_one_wait, "many")
PASSES(without_gpu_probes_there_is_no_thread_and_no_call, "no-probes")
PASSES(a_forked_child_calls_nothing, "fork")

TEST(copies_that_never_end) {
  Fixture f;
  CHECK(f.passes({"never"}));
  // The last document shows what was read before.
  CHECK_EQ(metric(f.document(), "slow")["count"].text, std::string("1"));
}

TEST(calls_that_hang_do_not_keep_the_process) {
  for (const char* call : {"cuMemcpyDtoHAsync", "cuStreamQuery", "cuDevicePrimaryCtxGetState"}) {
    Fixture f;
    CHECK(f.passes({"hang", call}));
    CHECK_EQ(metric(f.document(), "hanging")["count"].text, std::string("1"));
  }
}

TEST(the_end_makes_no_reading) {
  Fixture f;
  CHECK(f.passes({"last-values"}));
  CHECK_EQ(metric(f.document(), "last")["count"].text, std::string("1"));
}

TEST(processes_that_end_during_a_reading) {
  for (const char* ms : {"195", "200", "205", "215", "230", "1215"}) {
    Fixture f;
    CHECK(f.passes({"leave", ms}));
  }
}

TEST(registries_of_modules_are_found_and_merged) {
  Fixture f;
  std::vector<std::string> command = {"modules"};
  command.insert(command.end(), modules.begin(), modules.end());
  CHECK(f.passes(command));
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  library = argv[1];
  program = argv[2];
  modules.assign(argv + 3, argv + argc);
  return test::run_all();
}
