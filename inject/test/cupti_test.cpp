// libgraphsignal_cupti.so in whole processes, against the stub CUPTI.
// usage: cupti_test LIBRARY PROGRAM PROGRAM_MINIMAL PROGRAM_OLD_DRIVER PROGRAM_UNLINKED STUB_FOLDER PROBE_LIBRARY
#include <sys/resource.h>

#include "check.h"
#include "json_reader.h"

using test::metric;
using test::Value;

namespace {

std::string library, program, minimal, old_driver, unlinked, stub_folder, probe_library;

struct Fixture {
  test::Ended run(std::vector<std::string> command, std::vector<std::string> env = {}, const std::string& of = program) {
    env.push_back("GRAPHSIGNAL_SHM_PATH=" + directory.path);
    env.push_back("CUDA_INJECTION64_PATH=" + library);
    command.insert(command.begin(), of);
    return ended = test::run(command, env);
  }
  std::string text(pid_t pid = 0) { return test::read_file(directory.run_directory(pid ? pid : ended.pid) + "/cupti.json"); }
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

void check_all_kinds(const Value& d) {
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "_Z3addPf"), std::string("81200/2"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "serialized"), std::string("5/1"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "last"), std::string("7/1"));
  const char* copies[] = {"", "host_to_device", "device_to_host", "host_to_array", "array_to_host", "array_to_array",
                          "array_to_device", "device_to_array", "device_to_device", "host_to_host"};
  for (int k = 1; k <= 9; k++) {
    CHECK_EQ(frame(d, "cuda_memcpy_nanoseconds", copies[k]), std::to_string(100 + k) + "/1");
    CHECK_EQ(value(d, "cuda_memcpy_bytes", copies[k]), std::string("4096"));
  }
  CHECK_EQ(frame(d, "cuda_memcpy_nanoseconds", "peer_to_peer"), std::string("180/2"));
  CHECK_EQ(value(d, "cuda_memcpy_bytes", "peer_to_peer"), std::string("5096"));
  CHECK_EQ(frame(d, "cuda_memcpy_nanoseconds", "other"), std::to_string(100 + 111 + 112) + "/3");
  CHECK_EQ(value(d, "cuda_memcpy_bytes", "other"), std::to_string(3 * 4096));
  const char* memories[] = {"", "pageable", "pinned", "device", "array", "managed", "device_static", "managed_static"};
  for (int k = 1; k <= 7; k++) {
    CHECK_EQ(frame(d, "cuda_memset_nanoseconds", memories[k]), std::to_string(200 + k) + "/1");
    CHECK_EQ(value(d, "cuda_memset_bytes", memories[k]), std::string("64"));
  }
  CHECK_EQ(frame(d, "cuda_memset_nanoseconds", "unknown"), std::string("408/2"));
  const char* syncs[] = {"", "event", "stream_wait_event", "stream", "context"};
  for (int k = 1; k <= 4; k++) CHECK_EQ(frame(d, "cuda_sync_nanoseconds", syncs[k]), std::to_string(300 + k) + "/1");
  CHECK_EQ(frame(d, "cuda_sync_nanoseconds", "unknown"), std::string("605/2"));
  CHECK_EQ(value(d, "cuda_dropped_records_total"), std::string("0"));
  CHECK_EQ(value(d, "cuda_invalid_records"), std::string("0"));
  CHECK_EQ(value(d, "cuda_kernels_unlisted_nanoseconds"), std::string("0"));
  CHECK(!d.has("log"));
}

}  // namespace

TEST(all_kinds_in_all_releases) {
  for (const char* release : {"118", "124", "130"}) {
    Fixture f;
    CHECK(exited(f.run({"kinds"}, {std::string("STUB_RELEASE=") + release}), 42));
    Value d = f.document();
    check_all_kinds(d);
    CHECK_EQ(frame(d, "cuda_graphs_nanoseconds", "graph_5"), std::string("1500/2"));
    CHECK_EQ(value(d, "cuda_graph_trace_mode"), std::string("0"));
  }
}

TEST(modes) {
  for (const char* mode : {"node", "nodes", ""}) {
    Fixture f;
    CHECK(exited(f.run({"kinds"}, {std::string("GRAPHSIGNAL_CUDA_GRAPH_TRACE=") + mode, "GRAPHSIGNAL_DEBUG=1"}), 42));
    Value d = f.document();
    const bool node = strcmp(mode, "node") == 0;
    CHECK_EQ(value(d, "cuda_graph_trace_mode"), std::string(node ? "1" : "0"));
    CHECK_EQ(frame(d, "cuda_graphs_nanoseconds", "graph_5"), std::string(node ? "absent" : "1500/2"));
    CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "last"), std::string("7/1"));
    CHECK_EQ(f.logged(d, "not nodes"), strcmp(mode, "nodes") == 0);
  }
}

TEST(nothing_happened) {
  Fixture f;
  CHECK(exited(f.run({"nothing"}), 42));
  Value d = f.document();
  for (const char* name : {"cuda_kernels_nanoseconds", "cuda_graphs_nanoseconds", "cuda_memcpy_nanoseconds",
                           "cuda_memset_nanoseconds", "cuda_sync_nanoseconds"}) {
    CHECK(metric(d, name)["frames"].kind == Value::kObject && metric(d, name)["frames"].members.empty());
    CHECK(metric(d, name)["tags"].kind == Value::kObject);
  }
  CHECK_EQ(value(d, "cuda_memcpy_bytes"), std::string("absent"));
}

TEST(graph_names) {
  Fixture f;
  CHECK(exited(f.run({"graphs"}), 42));
  Value d = f.document();
  CHECK_EQ(frame(d, "cuda_graphs_nanoseconds", "bcbe59da48b1ff0f"), std::string("300/2"));
  CHECK_EQ(frame(d, "cuda_graphs_nanoseconds", "graph_20"), std::string("1/1"));
  CHECK_EQ(frame(d, "cuda_graphs_nanoseconds", "62944b99d3410b33"), std::string("2/1"));
  CHECK_EQ(frame(d, "cuda_graphs_nanoseconds", "graph_99"), std::string("4/1"));
}

TEST(graphs_are_numbered_where_they_cannot_be_named) {
  Fixture f;
  CHECK(exited(f.run({"graphs"}, {}, old_driver), 42));
  CHECK_EQ(frame(f.document(), "cuda_graphs_nanoseconds", "graph_11"), std::string("100/1"));
}

TEST(graphs_go_by_node_without_the_subscription) {
  static const char* const kTimed = "no subscription to CUPTI: the kernels of CUDA graphs are timed one by one";
  Fixture f;
  CHECK(exited(f.run({"kinds"}, {"GRAPHSIGNAL_CUPTI_SUBSCRIBE=0"}), 42));
  Value d = f.document();
  CHECK_EQ(value(d, "cuda_graph_trace_mode"), std::string("1"));
  CHECK_EQ(frame(d, "cuda_graphs_nanoseconds", "graph_5"), std::string("absent"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "last"), std::string("7/1"));
  CHECK(!d.has("log"));
  Fixture g;
  CHECK(exited(g.run({"kinds"}, {"GRAPHSIGNAL_CUPTI_SUBSCRIBE=0", "GRAPHSIGNAL_CUDA_GRAPH_TRACE=graph"}), 42));
  CHECK_EQ(value(g.document(), "cuda_graph_trace_mode"), std::string("1"));
  CHECK(g.logged(g.document(), kTimed));
  Fixture h;
  CHECK(exited(h.run({"kinds"}, {"STUB_OTHER_SUBSCRIBER=1"}), 42));
  d = h.document();
  CHECK_EQ(value(d, "cuda_graph_trace_mode"), std::string("1"));
  CHECK_EQ(frame(d, "cuda_graphs_nanoseconds", "graph_5"), std::string("absent"));
  CHECK(h.logged(d, "subscription is taken (39 stub result)"));
}

TEST(impossible_records_are_counted_apart) {
  Fixture f;
  CHECK(exited(f.run({"impossible"}), 42));
  Value d = f.document();
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "good"), std::string("100/2"));
  CHECK_EQ(metric(d, "cuda_kernels_nanoseconds")["frames"].members.size(), static_cast<size_t>(1));
  CHECK_EQ(value(d, "cuda_invalid_records"), std::string("12"));
  CHECK_EQ(value(d, "cuda_memcpy_bytes", "host_to_device"), std::string("absent"));
  CHECK_EQ(value(d, "cuda_dropped_records_total"), std::string("17"));
  CHECK(f.logged(d, "CUPTI dropped 17 activity records"));
  // Without CUPTI's clock nobody knows when the process began in it; how long it has lived is known all the same.
  Fixture g;
  CHECK(exited(g.run({"impossible"}, {"STUB_FAIL=GetTimestamp=999"}), 42));
  d = g.document();
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "k"), std::string("20/1"));
  CHECK_EQ(value(d, "cuda_invalid_records"), std::string("11"));
}

TEST(strange_names) {
  Fixture f;
  CHECK(exited(f.run({"names"}), 42));
  Value d = f.document();
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "gemm_\xEF\xBF\xBD\xEF\xBF\xBD_v2"), std::string("10/1"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", std::string(4095, 'k')), std::string("111/2"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "before"), std::string("1/1"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "after"), std::string("2/1"));
}

TEST(twenty_thousand_names) {
  Fixture f;
  CHECK(exited(f.run({"many-names"}), 42));
  Value d = f.document();
  const Value& frames = metric(d, "cuda_kernels_nanoseconds")["frames"];
  CHECK_EQ(frames.members.size(), static_cast<size_t>(250));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "attn_decode"), std::string("absent"));  // came after 16,384 others
  uint64_t listed = 0;
  for (const auto& m : frames.members) listed += m.second[0].u64();
  CHECK_EQ(listed + metric(d, "cuda_kernels_unlisted_nanoseconds")["value"].u64(), 40000u * 100 + 5000u * 21000);
}

TEST(many_threads) {
  Fixture f;
  CHECK(exited(f.run({"threads"}), 42));
  Value d = f.document();
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "odd"), std::string("2000000/200000"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "even"), std::string("2000000/200000"));
  CHECK_EQ(value(d, "cuda_invalid_records"), std::string("0"));
}

TEST(periodic_flushes_are_unforced) {
  Fixture f;
  CHECK(exited(f.run({"periodic"}), 42));
}

TEST(a_stream_that_is_never_idle_still_reports) {
  Fixture f;
  CHECK(exited(f.run({"never-idle"}), 42));
}

TEST(the_last_flush_is_forced) {
  Fixture f;
  CHECK(exited(f.run({"in-flight"}), 42));
  Value d = f.document();
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "finished"), std::string("5/1"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "unfinished"), std::string("absent"));
  CHECK_EQ(value(d, "cuda_invalid_records"), std::string("1"));
}

TEST(launching_goes_on_during_exit) {
  for (int i = 0; i < 5; i++) {
    Fixture f;
    CHECK(exited(f.run({"after-exit"}), 42));
    CHECK(metric(f.document(), "cuda_kernels_nanoseconds")["frames"].has("restless"));
  }
}

TEST(a_hanging_flush_does_not_hold_the_exit) {
  Fixture f;
  CHECK(exited(f.run({"hang"}), 42));
  f.document();
}

TEST(forks) {
  Fixture f;
  CHECK(exited(f.run({"fork-after"}), 42));
  Value d = f.document();
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "in_parent"), std::string("5/1"));
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "in_child"), std::string("absent"));
  CHECK_EQ(test::list(f.directory.path).size(), static_cast<size_t>(1));
  Fixture g;
  CHECK(exited(g.run({"fork-before"}), 42));
  CHECK_EQ(test::list(g.directory.path).size(), static_cast<size_t>(2));
  for (const auto& name : test::list(g.directory.path)) {
    if (g.directory.path + "/" + name == g.directory.run_directory(g.ended.pid)) continue;
    CHECK(test::read_file(g.directory.path + "/" + name + "/cupti.json").find("in_child") != std::string::npos);
  }
}

TEST(exec_starts_anew) {
  Fixture f;
  CHECK(exited(f.run({"exec"}), 42));
  Value d = f.document();
  check_all_kinds(d);
  CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "first_image"), std::string("absent"));
}

TEST(ways_to_end) {
  Fixture f;
  CHECK(exited(f.run({"_exit"}), 42));
  CHECK_EQ(frame(f.document(), "cuda_kernels_nanoseconds", "k"), std::string("5/1"));
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  test::Ended e = f.run({"signal"});
  CHECK(WIFSIGNALED(e.status) && WTERMSIG(e.status) == SIGTERM);
  e = f.run({"exception"});
  CHECK(WIFSIGNALED(e.status) && WTERMSIG(e.status) == SIGABRT);
}

TEST(only_the_required_functions) {
  Fixture f;
  CHECK(exited(f.run({"kinds"}, {}, minimal), 42));
  Value d = f.document();
  check_all_kinds(d);
}

TEST(cupti_fails_at_each_call) {
  for (const char* call : {"ActivityRegisterCallbacks", "ActivityEnable", "ActivityFlushAll", "ActivityGetNextRecord",
                           "ActivityGetNumDroppedRecords", "ActivitySetAttribute", "Subscribe", "EnableCallback", "GetGraphId",
                           "GetGraphExecId", "GetTimestamp", "GetVersion", "GetResultString"}) {
    Fixture f;
    CHECK(exited(f.run({"kinds"}, {std::string("STUB_FAIL=") + call + "=999"}), 42));
    Value d = f.document();
    CHECK_EQ(value(d, "cuda_dropped_records_total"), std::string("0"));
    const std::string name = call;
    const bool refused = name == "ActivityRegisterCallbacks" || name == "ActivityEnable";
    CHECK_EQ(f.logged(d, "cupti" + name), refused || name == "EnableCallback");
    size_t lines = 0;
    for (const Value& e : d["log"].items) lines += e["msg"].text.find("cupti" + name) != std::string::npos ? 1 : 0;
    CHECK(lines <= (name == "EnableCallback" ? 3u : 1u));
    CHECK_EQ(f.logged(d, "subscription is not to be had (999 stub result)"), name == "Subscribe");
    const bool records = !refused && name != "ActivityFlushAll" && name != "ActivityGetNextRecord";
    CHECK_EQ(frame(d, "cuda_kernels_nanoseconds", "last"), std::string(records ? "7/1" : "absent"));
  }
}

TEST(silence_is_not_idleness) {
  Fixture f;
  CHECK(exited(f.run({"silent"}), 42));
}

TEST(another_tool_takes_over) {
  Fixture f;
  CHECK(exited(f.run({"takeover"}, {"GRAPHSIGNAL_CUPTI_SUBSCRIBE=0"}), 42));
  Fixture h;
  CHECK(exited(h.run({"takeover-at-end"}, {"GRAPHSIGNAL_CUPTI_SUBSCRIBE=0"}), 42));
  CHECK_EQ(value(h.document(), "cuda_trace_suspended"), std::string("1"));
  CHECK(h.logged(h.document(), "another tool in the process has used CUPTI"));
  for (const char* program : {"kinds", "in-flight", "threads", "after-exit", "periodic"}) {
    Fixture i;
    CHECK(exited(i.run({program}, {"GRAPHSIGNAL_CUPTI_SUBSCRIBE=0"}), 42));
    CHECK_EQ(value(i.document(), "cuda_trace_suspended"), std::string("absent"));
  }
}

TEST(one_library_publishes_the_host_probes) {
  Fixture f;  // no publisher: the injected library does it
  CHECK(exited(f.run({"probes"}), 42));
  CHECK_EQ(value(f.document(), "app_total"), std::string("12"));
  Fixture g;
  CHECK(exited(g.run({"probes"}, {"GRAPHSIGNAL_PROBE_LIB=" + probe_library}), 42));
  CHECK_EQ(value(g.document(), "app_total"), std::string("absent"));
  CHECK(test::read_file(g.directory.run_directory(g.ended.pid) + "/probes.json").find("app_total") != std::string::npos);
}

TEST(finding_cupti) {
  const std::string right = stub_folder + "/libcupti.so.12";
  test::TemporaryDirectory decoys;
  std::ofstream(decoys.path + "/libcupti.so.13") << "";
  std::ofstream(decoys.path + "/libcupti.so.12") << "";
  // An empty file of the right name does not load; the next candidate does. The driver is of CUDA 12: 13 is never tried.
  for (const std::string& path : {right, stub_folder, decoys.path + ":" + decoys.path + "/libcupti.so.13:" + right, "::" + right}) {
    Fixture f;
    CHECK(exited(f.run({}, {"GRAPHSIGNAL_CUPTI_PATH=" + path, "GRAPHSIGNAL_DEBUG=1"}, unlinked), 42));
    Value d = f.document();
    CHECK(f.logged(d, "CUPTI 22 from " + right));
    CHECK_EQ(value(d, "cuda_graph_trace_mode"), std::string("0"));
  }
  Fixture f;
  CHECK(exited(f.run({}, {"GRAPHSIGNAL_CUPTI_PATH=" + decoys.path}, unlinked), 42));
  Value d = f.document();
  CHECK(f.logged(d, "no libcupti for CUDA 12 was found"));
  CHECK(metric(d, "cuda_kernels_nanoseconds").kind == Value::kNull);
  Fixture g;  // beside the CUDA runtime that the program has loaded, as Python wheels have it
  test::TemporaryDirectory wheels;
  for (const char* sub : {"/nvidia", "/nvidia/cuda_runtime", "/nvidia/cuda_runtime/lib", "/nvidia/cuda_cupti", "/nvidia/cuda_cupti/lib"}) {
    mkdir((wheels.path + sub).c_str(), 0700);
  }
  std::ofstream(wheels.path + "/nvidia/cuda_runtime/lib/libcudart.so.12", std::ios::binary) << test::read_file(stub_folder + "/libempty.so");
  std::ofstream(wheels.path + "/nvidia/cuda_cupti/lib/libcupti.so.12", std::ios::binary) << test::read_file(right);
  CHECK(exited(g.run({wheels.path + "/nvidia/cuda_runtime/lib/libcudart.so.12"}, {"GRAPHSIGNAL_DEBUG=1"}, unlinked), 42));
  CHECK(g.logged(g.document(), "CUPTI 22 from " + wheels.path));
}

TEST(unusable_run_directory) {
  const test::Ended e = test::run({program, "kinds"}, {"GRAPHSIGNAL_SHM_PATH=/nonexistent", "CUDA_INJECTION64_PATH=" + library});
  CHECK(exited(e, 42));
}

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  library = argv[1];
  program = argv[2];
  minimal = argv[3];
  old_driver = argv[4];
  unlinked = argv[5];
  stub_folder = argv[6];
  probe_library = argv[7];
  unsetenv("CUDA_HOME");
  unsetenv("CUDA_PATH");
  // Messages of the libraries under test are expected.
  if (!freopen("/dev/null", "w", stderr)) return 2;
  return test::run_all();
}
