// libgraphsignal_rocm.so in whole processes, against the fake rocprofiler-sdk, in both layouts.
// usage: rocm_test LIBRARY PROGRAM PROGRAM_MINIMAL MODULE
#include "../../test/check.h"
#include "../../test/json_reader.h"

using test::metric;
using test::Value;

namespace {

std::string library, program, minimal, module;
const char* const kVersions[] = {"400", "500", "600", "10000", "10100"};

struct Fixture {
  test::Ended run(std::vector<std::string> command, std::vector<std::string> env = {}, const std::string& of = program) {
    env.push_back("GRAPHSIGNAL_SHM_PATH=" + directory.path);
    env.insert(env.begin(), "ROCP_TOOL_LIBRARIES=" + library);
    command.insert(command.begin(), of);
    return ended = test::run(command, env);
  }
  std::string text() { return test::read_file(directory.run_directory(ended.pid) + "/rocm.json"); }
  Value document() {
    const std::string all = text();
    CHECK(!all.empty());
    return all.empty() ? Value() : test::Reader::parse(all);
  }
  bool logged(const Value& d, const std::string& part) {
    for (const Value& e : d["log"].items) {
      if (e["msg"].text.find(part) != std::string::npos) return true;
    }
    return false;
  }
  test::TemporaryDirectory directory;
  test::Ended ended;
};

bool exited(const test::Ended& e, int code) { return WIFEXITED(e.status) && WEXITSTATUS(e.status) == code; }

std::string frame(const Value& d, const std::string& profile, const std::string& name) {
  const Value& f = metric(d, profile)["frames"][name];
  return f.kind == Value::kArray ? f[0].text + "/" + f[1].text : "absent";
}
std::string value(const Value& d, const std::string& name, const std::string& kind = "") {
  const Value& m = kind.empty() ? metric(d, name) : metric(d, name, "kind", kind);
  return m.kind == Value::kObject ? m["value"].text : "absent";
}

const std::string kAll = "GRAPHSIGNAL_ROCM_KERNEL_TRACE=all";

void check_copies_and_calls(const Value& d) {
  CHECK_EQ(frame(d, "rocm_memcpy_nanoseconds", "host_to_device"), std::string("300/3"));
  CHECK_EQ(frame(d, "rocm_memcpy_nanoseconds", "device_to_host"), std::string("77/2"));
  CHECK_EQ(frame(d, "rocm_memcpy_nanoseconds", "device_to_device"), std::string("11/1"));
  CHECK_EQ(frame(d, "rocm_memcpy_nanoseconds", "host_to_host"), std::string("13/1"));
  CHECK_EQ(frame(d, "rocm_memcpy_nanoseconds", "other"), std::string("2/2"));
  CHECK_EQ(value(d, "rocm_memcpy_bytes", "host_to_device"), std::string("12288"));
  CHECK_EQ(value(d, "rocm_memcpy_bytes", "device_to_host"), std::string("2049"));
  CHECK_EQ(value(d, "rocm_memcpy_bytes", "device_to_device"), std::string("10"));
  CHECK_EQ(value(d, "rocm_memcpy_bytes", "host_to_host"), std::string("20"));
  CHECK_EQ(value(d, "rocm_memcpy_bytes", "other"), std::string("2"));
  CHECK_EQ(value(d, "rocm_invalid_records"), std::string("0"));
  CHECK_EQ(value(d, "rocm_dropped_records_total"), std::string("0"));
}

}  // namespace

TEST(all_kinds_in_all_releases) {
  for (const char* version : kVersions) {
    Fixture f;
    CHECK(exited(f.run({"kinds", version}, {kAll}), 42));
    Value d = f.document();
    check_copies_and_calls(d);
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "_Z3addPf.kd"), std::string("81200/2"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "gemm"), std::string("5/1"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "kernel_7"), std::string("9/1"));
    const char* calls[] = {"hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize", "hipStreamWaitEvent", "hipEventRecord"};
    for (int i = 0; i < 5; i++) CHECK_EQ(frame(d, "rocm_sync_nanoseconds", calls[i]), std::to_string(1000 + i) + "/1");
    CHECK_EQ(metric(d, "rocm_sync_nanoseconds")["frames"].members.size(), static_cast<size_t>(5));
    CHECK_EQ(value(d, "rocm_kernel_trace_mode"), std::string("1"));
    CHECK_EQ(value(d, "rocm_kernels_unlisted_nanoseconds"), std::string("0"));
    CHECK(!d.has("log"));
  }
}

TEST(dispatches_are_traced_only_when_asked) {
  for (const char* mode : {"", "none", "ALL", "yes"}) {
    Fixture f;
    CHECK(exited(f.run({"kinds"}, {std::string("GRAPHSIGNAL_ROCM_KERNEL_TRACE=") + mode, "GRAPHSIGNAL_DEBUG=1"}), 42));
    Value d = f.document();
    check_copies_and_calls(d);
    CHECK(metric(d, "rocm_kernels_nanoseconds")["frames"].kind == Value::kObject);
    CHECK(metric(d, "rocm_kernels_nanoseconds")["frames"].members.empty());
    CHECK_EQ(value(d, "rocm_kernel_trace_mode"), std::string("0"));
    CHECK_EQ(f.logged(d, "is none or all, not"), strcmp(mode, "ALL") == 0 || strcmp(mode, "yes") == 0);
  }
}

TEST(synchronization_can_be_left_out) {
  Fixture f;
  CHECK(exited(f.run({"kinds"}, {"GRAPHSIGNAL_ROCM_SYNC_TRACE=none"}), 42));
  Value d = f.document();
  check_copies_and_calls(d);
  CHECK(metric(d, "rocm_sync_nanoseconds").kind == Value::kNull);
  // What is not asked for is not configured, so that it costs nothing.
  const std::string out = f.directory.path + "/out";
  const auto services = [&](const std::string& env) {
    CHECK(exited(test::run({"/bin/sh", "-c", "exec " + program + " services >" + out},
                           {"ROCP_TOOL_LIBRARIES=" + library, "GRAPHSIGNAL_SHM_PATH=" + f.directory.path, env}), 42));
    return test::read_file(out);
  };
  CHECK_EQ(services("X=1"), std::string("services 420 operations 5 names 0\n"));
  CHECK_EQ(services(kAll), std::string("services c20 operations 5 names 1\n"));
  CHECK_EQ(services("GRAPHSIGNAL_ROCM_SYNC_TRACE=none"), std::string("services 400 operations 0 names 0\n"));
}

TEST(nothing_happened) {
  Fixture f;
  CHECK(exited(f.run({"nothing"}), 42));
  Value d = f.document();
  for (const char* name : {"rocm_kernels_nanoseconds", "rocm_memcpy_nanoseconds", "rocm_sync_nanoseconds"}) {
    CHECK(metric(d, name)["frames"].kind == Value::kObject && metric(d, name)["frames"].members.empty());
    CHECK(metric(d, name)["tags"].kind == Value::kObject);
  }
  CHECK_EQ(value(d, "rocm_memcpy_bytes"), std::string("absent"));
}

TEST(copies_without_sizes) {
  Fixture f;
  CHECK(exited(f.run({"old-copies", "400"}), 42));
  Value d = f.document();
  CHECK_EQ(frame(d, "rocm_memcpy_nanoseconds", "host_to_device"), std::string("100/1"));
  CHECK_EQ(value(d, "rocm_memcpy_bytes", "host_to_device"), std::string("0"));
}

TEST(impossible_records_are_counted_apart) {
  for (const char* version : {"600", "10000"}) {
    Fixture f;
    CHECK(exited(f.run({"impossible", version}, {kAll}), 42));
    Value d = f.document();
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "k"), std::string("100/2"));
    CHECK_EQ(value(d, "rocm_invalid_records"), std::string("9"));
    CHECK_EQ(value(d, "rocm_memcpy_bytes", "host_to_device"), std::string("absent"));
    CHECK(metric(d, "rocm_sync_nanoseconds")["frames"].members.empty());
  }
}

TEST(names_that_come_late_or_go_early) {
  for (const char* version : {"600", "10000"}) {
    Fixture f;
    CHECK(exited(f.run({"names", version}, {kAll}), 42));
    Value d = f.document();
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "kernel_3"), std::string("10/1"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "late"), std::string("1011/2"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "unloaded"), std::string("absent"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "kernel_4"), std::string("112/2"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "takes the place"), std::string("15/1"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "kernel_5"), std::string("13/1"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "gemm_\xEF\xBF\xBD\xEF\xBF\xBD_v2"), std::string("14/1"));
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", std::string(4096, 'k')), std::string("16/1"));
    CHECK(f.logged(d, "a kernel has no name"));
  }
}

TEST(more_kernels_than_are_remembered) {
  Fixture f;
  CHECK(exited(f.run({"many-names"}, {kAll}), 42));
  Value d = f.document();
  const Value& frames = metric(d, "rocm_kernels_nanoseconds")["frames"];
  CHECK_EQ(frames.members.size(), static_cast<size_t>(250));
  CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "tensile_260000"), std::string("105000000/5000"));
  CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "kernel_1"), std::string("3000000/1"));
  CHECK(f.logged(d, "too many have been loaded"));
  uint64_t listed = 0;
  for (const auto& m : frames.members) listed += m.second[0].u64();
  CHECK_EQ(listed + metric(d, "rocm_kernels_unlisted_nanoseconds")["value"].u64(), 40000u * 100 + 5000u * 21000 + 3000000 + 4000000);
}

TEST(many_threads) {
  Fixture f;
  CHECK(exited(f.run({"threads"}, {kAll}), 42));
  Value d = f.document();
  CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "odd"), std::string("800000/80000"));
  CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "even"), std::string("800000/80000"));
}

TEST(the_drop_count_is_a_running_total) {
  Fixture f;
  CHECK(exited(f.run({"drops"}), 42));
  Value d = f.document();
  CHECK_EQ(value(d, "rocm_dropped_records_total"), std::string("17"));
  CHECK(f.logged(d, "rocprofiler-sdk dropped 5 records"));
}

TEST(documents_are_fresh) {
  Fixture f;
  CHECK(exited(f.run({"periodic", "600"}), 42));
}

TEST(the_finalizer_flushes_and_never_deadlocks) {
  for (const char* version : {"600", "10000"}) {
    Fixture f;
    CHECK(exited(f.run({"exit", version}, {kAll}), 42));
    Value d = f.document();
    CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "k1"), std::string("300/1"));
    CHECK_EQ(value(d, "rocm_memcpy_bytes", "host_to_device"), std::string("4096"));
  }
}

TEST(a_busy_buffer_is_flushed_all_the_same) {
  Fixture f;
  CHECK(exited(f.run({"busy"}), 42));
  CHECK_EQ(frame(f.document(), "rocm_memcpy_nanoseconds", "host_to_device"), std::string("5/1"));
}

TEST(a_hanging_flush_does_not_hold_the_exit) {
  Fixture f;
  CHECK(exited(f.run({"hang"}), 42));
  CHECK_EQ(frame(f.document(), "rocm_memcpy_nanoseconds", "host_to_device"), std::string("5/1"));
}

TEST(copying_goes_on_during_exit) {
  for (int i = 0; i < 5; i++) {
    Fixture f;
    CHECK(exited(f.run({"after-exit"}), 42));
    CHECK(metric(f.document(), "rocm_memcpy_nanoseconds")["frames"].has("host_to_device"));
  }
}

TEST(a_forked_child_stays_silent) {
  Fixture f;
  CHECK(exited(f.run({"fork"}), 42));
  CHECK_EQ(test::list(f.directory.path).size(), static_cast<size_t>(1));
  CHECK_EQ(frame(f.document(), "rocm_memcpy_nanoseconds", "host_to_device"), std::string("5/1"));
}

TEST(only_the_required_functions) {
  Fixture f;
  CHECK(exited(f.run({"kinds"}, {kAll}, minimal), 42));
  Value d = f.document();
  check_copies_and_calls(d);
  CHECK_EQ(frame(d, "rocm_kernels_nanoseconds", "kernel_1"), std::string("81200/2"));
  CHECK(f.logged(d, "does not tell kernel names"));
  CHECK(f.logged(d, "does not name HIP's calls"));
}

TEST(the_sdk_fails_at_each_call) {
  const struct {
    const char* call;
    const char* message;
    bool copies;
  } all[] = {{"create_context", "rocprofiler_create_context failed: 9 fake status", false},
             {"create_buffer", "rocprofiler_create_buffer failed: 9", false},
             {"buffer_service_11", "(KERNEL_DISPATCH) failed: 9", true},
             {"buffer_service_10", "(MEMORY_COPY) failed: 9", false},
             {"buffer_service_5", "(HIP_RUNTIME_API) failed: 9", true},
             {"callback_service", "(CODE_OBJECT) failed: 9", true},
             {"create_callback_thread", "rocprofiler_create_callback_thread failed: 9", true},
             {"assign_callback_thread", "rocprofiler_assign_callback_thread failed: 9", true},
             {"each_operation", "does not name HIP's calls", true},
             {"operation_name", "does not name HIP's calls", true},
             {"start_context", "rocprofiler_start_context failed: 9", false},
             {"flush_buffer", "rocprofiler_flush_buffer failed: 9", false}};
  for (const auto& c : all) {
    Fixture f;
    CHECK(exited(f.run({"kinds"}, {kAll, std::string("FAKE_FAIL=") + c.call + "=9", "GRAPHSIGNAL_DEBUG=1"}), 42));
    Value d = f.document();
    if (std::string(c.call) != "flush_buffer") CHECK(f.logged(d, c.message));
    const bool copied = frame(d, "rocm_memcpy_nanoseconds", "host_to_device") == "300/3";
    if (copied != c.copies) test::fail(__FILE__, __LINE__, std::string(c.call) + (copied ? ": copies" : ": no copies"));
  }
}

TEST(versions_with_unknown_layouts_are_left_alone) {
  for (const char* version : {"300", "20000"}) {
    Fixture f;
    CHECK(exited(f.run({"kinds", version}, {kAll}), 42));
    Value d = f.document();
    CHECK(f.logged(d, "is not supported"));
    CHECK(metric(d, "rocm_memcpy_nanoseconds").kind == Value::kNull);
  }
}

TEST(probes_in_device_memory) {
  for (const char* version : {"600", "10000"}) {
    Fixture f;
    CHECK(exited(f.run({"device-probes", version, module}), 42));
    Value d = f.document();
    CHECK_EQ(metric(d, "tile_ticks", "block", "0")["sum"].text, std::string("5100"));
    CHECK_EQ(metric(d, "tile_ticks", "block", "1")["count"].text, std::string("3"));
    CHECK_EQ(metric(d, "tile_ticks", "block", "2")["value"].text, std::string("12"));
    CHECK_EQ(metric(d, "tile_ticks", "block", "2")["type"].text, std::string("counter"));
    CHECK_EQ(metric(d, "tile_ticks", "block", "3")["value"].text, std::string("2.5"));
    CHECK_EQ(metric(d, "tile_ticks", "block", "4")["sum"].text, std::string("44"));
    CHECK_EQ(metric(d, "tile_ticks", "block", "5")["sum"].text, std::string("55"));
    CHECK_EQ(value(d, "host_total"), std::string("5"));
    CHECK(metric(d, "nowhere").kind == Value::kNull);
    CHECK(metric(d, "bad_device").kind == Value::kNull);
    CHECK(f.logged(d, "reading GPU probes: hipMemcpyAsync failed with HIP error 1"));
    // Our own copies are not the program's.
    CHECK_EQ(value(d, "rocm_memcpy_bytes", "device_to_host"), std::string("absent"));
    CHECK_EQ(frame(d, "rocm_memcpy_nanoseconds", "device_to_host"), std::string("absent"));
  }
}

TEST(blocks_side_by_side_are_one_copy) {
  Fixture f;
  const std::string out = f.directory.path + "/out";
  CHECK(exited(f.run({"-c", "exec " + program + " many-device-probes 10000 " + module + " >" + out}, {}, "/bin/sh"), 42));
  CHECK_EQ(test::read_file(out), std::string("0\n"));
}

TEST(no_calls_of_hip_after_the_end) {
  for (int i = 0; i < 3; i++) {
    Fixture f;
    CHECK(exited(f.run({"device-exit", "10000", module}), 42));
    CHECK_EQ(metric(f.document(), "tile_ticks", "block", "0")["sum"].text, std::string("100"));
  }
}

TEST(a_hanging_copy_keeps_no_document_waiting) {
  Fixture f;
  CHECK(exited(f.run({"device-hang", "10000", module}), 42));
  CHECK_EQ(metric(f.document(), "tile_ticks", "block", "0")["sum"].text, std::string("100"));
}

TEST(unusable_run_directory) {
  const test::Ended e = test::run({program, "kinds"}, {"GRAPHSIGNAL_SHM_PATH=/nonexistent", "ROCP_TOOL_LIBRARIES=" + library});
  CHECK(exited(e, 42));
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  library = argv[1];
  program = argv[2];
  minimal = argv[3];
  module = argv[4];
  // Messages of the libraries under test are expected.
  if (!freopen("/dev/null", "w", stderr)) return 2;
  return test::run_all();
}
