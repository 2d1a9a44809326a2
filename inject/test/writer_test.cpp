// The writer and its document, after the interchange contract of the run directory.
#include "../common/writer.h"

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "json_reader.h"

using graphsignal::Instrument;
using graphsignal::Json;
using graphsignal::Level;
using graphsignal::Tag;
using graphsignal::Writer;
using graphsignal::WriterOptions;
using test::metric;
using test::Value;

namespace {

// A writer that only writes when told, in a directory of its own. Writers live for ever, as in the libraries.
struct Fixture {
  explicit Fixture(const char* library = "cupti") : writer(*test::keep(new Writer)) {
    options.library = library;
    options.base = directory.path.c_str();
    options.first_ns = options.interval_ns = 3600ull * 1000000000;
  }
  ~Fixture() { writer.stop(1000000000); }
  bool start() { return writer.start(options); }
  std::string file() const { return directory.run_directory() + "/" + options.library + ".json"; }
  Value document() {
    CHECK(writer.write_once());
    return Value(test::Reader::parse(text = test::read_file(file())));
  }
  test::TemporaryDirectory directory;
  WriterOptions options;
  Writer& writer;
  std::string text;
};

std::string quoted(const std::string& s, bool cut = false) {
  static Json j;
  j.reset();
  j.string(s.data(), s.size(), cut);
  return std::string(j.data(), j.size());
}

std::string number(double v) {
  static Json j;
  j.reset();
  j.number(v);
  return std::string(j.data(), j.size());
}

void unset_context() {
  for (const char* v : {"RANK", "NCCL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "SLURM_JOB_ID", "SLURM_JOBID", "WORLD_SIZE",
                        "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "SLURM_LOCALID"}) {
    unsetenv(v);
  }
}

}  // namespace

TEST(text_is_always_utf8) {
  CHECK_EQ(quoted("plain"), std::string("\"plain\""));
  CHECK_EQ(quoted("a\"b\\c\n\r\t\x01\x7f"), std::string("\"a\\\"b\\\\c\\n\\r\\t\\u0001\x7f\""));
  CHECK_EQ(quoted("h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"), std::string("\"h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\""));
  const std::string bad = "\xEF\xBF\xBD";
  CHECK_EQ(quoted("gemm_\x9f\xfe_v2"), "\"gemm_" + bad + bad + "_v2\"");
  CHECK_EQ(quoted("\xC3"), "\"" + bad + "\"");
  CHECK_EQ(quoted("\xC0\x80"), "\"" + bad + bad + "\"");          // overlong
  CHECK_EQ(quoted("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"");  // surrogate
  CHECK_EQ(quoted("\xF4\x90\x80\x80x"), "\"" + bad + bad + bad + bad + "x\"");
  CHECK_EQ(quoted("ab\xE2\x82", true), std::string("\"ab\""));
  CHECK_EQ(quoted("ab\xE2\x82", false), "\"ab" + bad + bad + "\"");
  CHECK_EQ(graphsignal::utf8_cut("a\xE2\x82\xAC", 4, 3), static_cast<size_t>(1));
  CHECK_EQ(graphsignal::utf8_cut("a\xE2\x82\xAC", 4, 4), static_cast<size_t>(4));
  // Whatever the bytes, the reader must accept what comes out.
  unsigned state = 1;
  for (int i = 0; i < 20000; i++) {
    std::string s;
    for (int n = 0; n < 12; n++) {
      state = state * 1103515245u + 12345u;
      s += static_cast<char>(state >> 16);
    }
    test::Reader::parse(quoted(s));
    test::Reader::parse(quoted(s, true));
  }
}

TEST(numbers) {
  CHECK_EQ(number(42), std::string("42"));
  CHECK_EQ(number(-3), std::string("-3"));
  CHECK_EQ(number(2.5), std::string("2.5"));
  CHECK_EQ(number(0.1), std::string("0.10000000000000001"));
  CHECK_EQ(number(9007199254740992.0), std::string("9007199254740992"));
  CHECK_EQ(number(1e300), std::string("1.0000000000000001e+300"));
  CHECK_EQ(number(-0.0), std::string("0"));
  Json j;
  j.number(UINT64_MAX);
  CHECK_EQ(std::string(j.data(), j.size()), std::string("18446744073709551615"));
  // A decimal comma is the program's business, not the document's.
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"}) {
    if (setlocale(LC_NUMERIC, name)) {
      CHECK_EQ(number(0.25), std::string("0.25"));
      setlocale(LC_NUMERIC, "C");
      break;
    }
  }
}

TEST(path_and_modes) {
  Fixture f, g("rocm");
  const mode_t mask = umask(0);
  g.options.base = f.directory.path.c_str();
  CHECK(f.start());
  CHECK(g.start());
  f.document();
  CHECK(g.writer.write_once());
  umask(mask);
  struct stat st;
  CHECK_EQ(lstat(f.directory.run_directory().c_str(), &st), 0);
  CHECK_EQ(st.st_mode & 07777, static_cast<mode_t>(0700));
  CHECK_EQ(lstat(f.file().c_str(), &st), 0);
  CHECK_EQ(st.st_mode & 07777, static_cast<mode_t>(0600));
  CHECK(test::exists(f.directory.run_directory() + "/rocm.json"));
  for (const auto& name : test::list(f.directory.run_directory())) CHECK(name.find(".tmp") == std::string::npos);
  g.writer.stop(1000000000);
}

TEST(document_shape) {
  unset_context();
  Fixture f;
  const uint64_t before = graphsignal::realtime_ns();
  CHECK(f.start());
  Value d = f.document();
  CHECK_EQ(d["version"].text, std::string("1"));
  CHECK_EQ(d["pid"].u64(), static_cast<uint64_t>(getpid()));
  CHECK(d["start_ts"].u64() >= before && d["write_ts"].u64() >= d["start_ts"].u64());
  CHECK(d["metrics"].kind == Value::kArray && d["metrics"].items.empty());
  CHECK(!d.has("context") && !d.has("log"));
  CHECK(f.text.find(' ') == std::string::npos);
  CHECK(f.text.compare(0, 12, "{\"version\":1") == 0);
  const std::vector<std::string> order = {"version", "pid", "start_ts", "write_ts", "metrics"};
  CHECK(d.order == order);
}

TEST(histogram) {
  Fixture f;
  CHECK(f.start());
  auto& in = f.writer.instruments();
  Instrument* h = in.get("app_step_ns", GRAPHSIGNAL_HISTOGRAM);
  in.get("never", GRAPHSIGNAL_HISTOGRAM);
  for (uint64_t v : {100, 5000, 3}) h->record(v);
  Value d = f.document();
  CHECK(f.text.find("\"bins\":[3,96,4096],\"counts\":[1,1,1],\"count\":3,\"sum\":5103,\"min\":3,\"max\":5000}") != std::string::npos);
  const Value& never = metric(d, "never");
  CHECK(never.kind == Value::kObject && !never.has("bins") && !never.has("count") && never.has("tags"));
  h->record(UINT64_MAX);
  h->record(0);
  d = f.document();
  CHECK_EQ(metric(d, "app_step_ns")["bins"][4].text, std::string("16140901064495857664"));
  CHECK_EQ(metric(d, "app_step_ns")["max"].text, std::string("18446744073709551615"));
  CHECK_EQ(metric(d, "app_step_ns")["min"].text, std::string("0"));
}

TEST(gauges_and_counters) {
  Fixture f;
  CHECK(f.start());
  auto& in = f.writer.instruments();
  const Tag tag = {"kind\"", "host\\to\n"};
  Instrument* c = in.get("bytes", GRAPHSIGNAL_COUNTER, &tag, 1);
  c->add(8192);
  CHECK(in.get("bytes", GRAPHSIGNAL_GAUGE, &tag, 1) == c);
  CHECK(in.get("bytes", GRAPHSIGNAL_COUNTER) != c);
  in.get("g1", GRAPHSIGNAL_GAUGE)->set(2.5);
  in.get("g2", GRAPHSIGNAL_GAUGE)->set(NAN);
  in.get("g3", GRAPHSIGNAL_GAUGE)->set(INFINITY);
  in.get("g4", GRAPHSIGNAL_GAUGE)->set(7);
  Value d = f.document();
  CHECK_EQ(metric(d, "bytes", "kind\"", "host\\to\n")["value"].text, std::string("8192"));
  CHECK_EQ(metric(d, "g1")["value"].text, std::string("2.5"));
  CHECK_EQ(metric(d, "g4")["value"].text, std::string("7"));
  CHECK(metric(d, "g2").kind == Value::kNull && metric(d, "g3").kind == Value::kNull);
}

TEST(names_are_cut_between_characters) {
  Fixture f;
  CHECK(f.start());
  auto& in = f.writer.instruments();
  const std::string name = std::string(126, 'n') + "\xE2\x82\xAC";
  in.get(name.c_str(), GRAPHSIGNAL_COUNTER);
  CHECK(in.get(name.c_str(), GRAPHSIGNAL_COUNTER) == in.get(std::string(126, 'n').c_str(), GRAPHSIGNAL_COUNTER));
  in.get("bad_\x9f\xfe", GRAPHSIGNAL_COUNTER);
  auto* p = in.get("kernels", GRAPHSIGNAL_PROFILE)->profile();
  const std::string kernel = std::string(4095, 'k') + "\xE2\x82\xAC";
  p->add(p->intern(kernel.data(), kernel.size()), 5);
  CHECK(p->is(0, kernel.c_str()));
  CHECK(!p->is(0, "other"));
  Value d = f.document();
  CHECK(metric(d, std::string(126, 'n')).kind == Value::kObject);
  CHECK(metric(d, "bad_\xEF\xBF\xBD\xEF\xBF\xBD").kind == Value::kObject);
  CHECK(metric(d, "kernels")["frames"].has(std::string(4095, 'k')));
}

TEST(profile_keeps_the_greatest) {
  Fixture f;
  CHECK(f.start());
  Instrument* in = f.writer.instruments().get("k", GRAPHSIGNAL_PROFILE, nullptr, 0, 512);
  in->show_unlisted(f.writer.instruments().get("k_unlisted", GRAPHSIGNAL_GAUGE));
  graphsignal::Profile* p = in->profile();
  auto add = [&](const std::string& name, uint64_t value) { p->add(p->intern(name.data(), name.size()), value); };
  Value d = f.document();
  CHECK(metric(d, "k")["frames"].kind == Value::kObject && metric(d, "k")["frames"].members.empty());
  CHECK_EQ(metric(d, "k_unlisted")["value"].text, std::string("0"));
  // 400 candidates that are tried once, then three that do the work.
  uint64_t total = 0;
  for (int i = 0; i < 400; i++) add("triton_mm_" + std::to_string(i), 800000), total += 800000;
  for (int i = 0; i < 100000; i++) {
    add("attn_decode", 21000);
    add("mm_best_107", 34000);
    add("norm_rope", 4000);
    total += 59000;
  }
  d = f.document();
  const Value& frames = metric(d, "k")["frames"];
  CHECK_EQ(frames.members.size(), static_cast<size_t>(250));
  CHECK_EQ(frames["attn_decode"][0].u64(), 2100000000u);
  CHECK_EQ(frames["mm_best_107"][0].u64(), 3400000000u);
  CHECK_EQ(frames["norm_rope"][0].u64(), 400000000u);
  CHECK_EQ(frames["norm_rope"][1].u64(), 100000u);
  uint64_t listed = 0;
  for (const auto& m : frames.members) listed += m.second[0].u64();
  CHECK_EQ(listed + metric(d, "k_unlisted")["value"].u64(), total);
  // Past the capacity the time still counts.
  for (int i = 0; i < 600; i++) add("late_" + std::to_string(i), 10), total += 10;
  CHECK_EQ(p->frames(), 512u);
  d = f.document();
  listed = 0;
  for (const auto& m : metric(d, "k")["frames"].members) listed += m.second[0].u64();
  CHECK_EQ(listed + metric(d, "k_unlisted")["value"].u64(), total);
}

TEST(profile_of_260_names) {
  Fixture f;
  CHECK(f.start());
  auto* p = f.writer.instruments().get("p", GRAPHSIGNAL_PROFILE)->profile();
  auto add = [&](const std::string& name, uint64_t value) { p->add(p->intern(name.data(), name.size()), value); };
  add("frame\"0\\", 100);
  add("frame\"0\\", 150);
  CHECK_EQ(p->intern("", 0), graphsignal::Profile::kNoFrame);
  for (int i = 1; i < 260; i++) add("f" + std::to_string(i), 1);
  Value d = f.document();
  CHECK_EQ(metric(d, "p")["frames"].members.size(), static_cast<size_t>(250));
  CHECK_EQ(metric(d, "p")["frames"]["frame\"0\\"][0].u64(), 250u);
  CHECK_EQ(metric(d, "p")["frames"]["frame\"0\\"][1].u64(), 2u);
  add("frame\"0\\", 50);
  d = f.document();
  CHECK_EQ(metric(d, "p")["frames"]["frame\"0\\"][0].u64(), 300u);
}

TEST(instrument_cap) {
  Fixture f;
  CHECK(f.start());
  auto& in = f.writer.instruments();
  for (int i = 0; i < 4096; i++) CHECK(in.get(("i" + std::to_string(i)).c_str(), GRAPHSIGNAL_COUNTER) != nullptr);
  for (int i = 0; i < 4; i++) CHECK(in.get(("x" + std::to_string(i)).c_str(), GRAPHSIGNAL_COUNTER) == nullptr);
  CHECK(in.get("i0", GRAPHSIGNAL_COUNTER) != nullptr);
  CHECK(in.get("", GRAPHSIGNAL_COUNTER) == nullptr);
  Value d = f.document();
  CHECK_EQ(metric(d, "graphsignal_writer_dropped_instruments")["value"].text, std::string("4"));
  CHECK(metric(d, "graphsignal_writer_dropped_instruments")["tags"].kind == Value::kObject);
}

TEST(log_ring) {
  Fixture f;
  CHECK(f.start());
  f.writer.log().add(Level::kDebug, "hidden");
  CHECK(!f.document().has("log"));
  for (int i = 0; i < 300; i++) f.writer.log().add(Level::kError, "entry %d", i);
  for (int round = 0; round < 2; round++) {
    Value d = f.document();
    CHECK_EQ(d["log"].items.size(), static_cast<size_t>(256));
    uint64_t last = 0;
    for (size_t i = 0; i < 256; i++) {
      CHECK_EQ(d["log"][i]["msg"].text, "entry " + std::to_string(i + 44));
      CHECK_EQ(d["log"][i]["level"].text, std::string("error"));
      CHECK(d["log"][i]["ts"].u64() > last);
      last = d["log"][i]["ts"].u64();
    }
  }
  f.writer.log().set_debug(true);
  f.writer.log().add(Level::kDebug, "shown \xFF");
  f.writer.log().add(Level::kWarning, "%s\xE2\x82\xAC", std::string(2046, 'm').c_str());
  Value d = f.document();
  CHECK_EQ(d["log"][254]["msg"].text, std::string("shown \xEF\xBF\xBD"));
  CHECK_EQ(d["log"][254]["level"].text, std::string("debug"));
  CHECK_EQ(d["log"][255]["msg"].text, std::string(2046, 'm'));
  CHECK_EQ(d["log"][255]["level"].text, std::string("warning"));
}

TEST(context) {
  unset_context();
  setenv("RANK", "7", 1);
  setenv("SLURM_JOB_ID", "abc123", 1);
  setenv("MASTER_ADDR", "\"\\\x01", 1);          // nothing left after cleaning
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("SLURM_NTASKS", "8", 1);
  setenv("LOCAL_RANK", "\"", 1);
  setenv("SLURM_LOCALID", "h\xC3\xA9" "3", 1);
  setenv("MASTER_PORT", std::string(300, 'p').c_str(), 1);
  Fixture f;
  CHECK(f.start());
  unset_context();
  Value d = f.document();
  CHECK_EQ(d["context"]["rank"].text, std::string("7"));
  CHECK_EQ(d["context"]["slurm_job_id"].text, std::string("abc123"));
  CHECK_EQ(d["context"]["world_size"].text, std::string("4"));
  CHECK_EQ(d["context"]["local_rank"].text, std::string("h3"));
  CHECK_EQ(d["context"]["master_port"].text, std::string(256, 'p'));
  CHECK_EQ(d["context"].members.size(), static_cast<size_t>(5));
  const std::vector<std::string> order = {"rank", "local_rank", "world_size", "master_port", "slurm_job_id"};
  CHECK(d["context"].order == order);
}

namespace {
uint64_t fake_free, fake_total;
bool fake_space(int, uint64_t* free_bytes, uint64_t* total_bytes) {
  *free_bytes = fake_free;
  *total_bytes = fake_total;
  return true;
}
}  // namespace

TEST(nearly_full_shared_memory) {
  Fixture f;
  f.options.space = fake_space;
  fake_total = 64u << 20;
  fake_free = 32u << 20;
  CHECK(f.start());
  f.document();
  const std::string before = f.text;
  fake_free = (16u << 20) + 10;  // a quarter of 64 MiB, but not with the document on top
  CHECK(!f.writer.write_once());
  CHECK(!f.writer.write_once());
  CHECK_EQ(test::read_file(f.file()), before);
  fake_free = 16u << 20;
  fake_total = 1u << 20;
  CHECK(!f.writer.write_once());
  fake_free = 32u << 20;
  Value d = f.document();
  CHECK_EQ(metric(d, "graphsignal_writer_skipped_writes")["value"].text, std::string("3"));
  CHECK_EQ(d["log"].items.size(), static_cast<size_t>(1));
  CHECK_EQ(d["log"][0]["level"].text, std::string("warning"));
}

// A process may not write files above a size: it must not die of a document of ours, and the last one that fitted stays.
TEST(file_size_limit) {
  Fixture f;
  CHECK(f.start());
  f.document();
  const std::string before = f.text;
  struct rlimit limit, low;
  CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  low = limit;
  low.rlim_cur = before.size() / 2;
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  CHECK(!f.writer.write_once());
  CHECK(!f.writer.write_once());
  sigset_t pending;
  sigpending(&pending);
  CHECK_EQ(sigismember(&pending, SIGXFSZ), 0);
  {
    Fixture g;  // from the start, where the file that names the owner does not fit either
    low.rlim_cur = 0;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    CHECK(g.start());
    CHECK(!g.writer.write_once());
  }
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  CHECK_EQ(test::read_file(f.file()), before);
  for (const auto& name : test::list(f.directory.run_directory())) CHECK(name.find(".tmp") == std::string::npos);
  Value d = f.document();
  CHECK_EQ(metric(d, "graphsignal_writer_skipped_writes")["value"].text, std::string("2"));
  CHECK_EQ(d["log"].items.size(), static_cast<size_t>(1));
}

TEST(hostile_directories) {
  {
    Fixture f;  // a symbolic link in place of the directory
    test::TemporaryDirectory elsewhere;
    CHECK_EQ(symlink(elsewhere.path.c_str(), f.directory.run_directory().c_str()), 0);
    CHECK(!f.start());
    CHECK(test::list(elsewhere.path).empty());
  }
  {
    Fixture f;  // others may write
    mkdir(f.directory.run_directory().c_str(), 0700);
    chmod(f.directory.run_directory().c_str(), 0777);
    CHECK(!f.start());
  }
  {
    Fixture f;  // a file
    std::ofstream(f.directory.run_directory()) << "x";
    CHECK(!f.start());
  }
  {
    Fixture f;
    f.options.base = "/nonexistent/base";
    CHECK(!f.start());
    CHECK(!f.writer.running());
    f.writer.stop(1);
  }
  if (geteuid() == 0) {
    Fixture f;  // another user's
    mkdir(f.directory.run_directory().c_str(), 0700);
    CHECK_EQ(chown(f.directory.run_directory().c_str(), 12345, 12345), 0);
    CHECK(!f.start());
  }
  {
    Fixture f;  // a symbolic link in place of the temporary file
    const std::string victim = f.directory.path + "/victim";
    std::ofstream(victim) << "untouched";
    CHECK(f.start());
    CHECK_EQ(symlink(victim.c_str(), (f.file() + ".tmp").c_str()), 0);
    CHECK(!f.writer.write_once());
    CHECK_EQ(test::read_file(victim), std::string("untouched"));
  }
}

TEST(removed_directory_comes_back) {
  Fixture f;
  CHECK(f.start());
  f.document();
  CHECK_EQ(rename(f.directory.run_directory().c_str(), (f.directory.path + "/gone").c_str()), 0);
  f.document();
  CHECK(test::exists(f.directory.run_directory() + "/.owner"));
}

TEST(leftovers_of_an_earlier_process) {
  Fixture f;
  const std::string dir = f.directory.run_directory();
  mkdir(dir.c_str(), 0700);
  std::ofstream(dir + "/.owner") << "{\"pid\":" << getpid() << ",\"start_time\":1,\"boot_id\":\"0\",\"pid_ns\":1}\n";
  std::ofstream(dir + "/rocm.json") << "old";
  // Just written by a process of another pid namespace: not ours to take.
  CHECK(!f.start());
  CHECK_EQ(test::read_file(dir + "/rocm.json"), std::string("old"));
  const struct timespec old[2] = {{1000, 0}, {1000, 0}};
  utimensat(AT_FDCWD, (dir + "/rocm.json").c_str(), old, 0);
  Fixture g;
  g.options.base = f.directory.path.c_str();
  CHECK(g.start());
  CHECK(!test::exists(dir + "/rocm.json"));
  Value owner = test::Reader::parse(test::read_file(dir + "/.owner"));
  CHECK_EQ(owner["pid"].u64(), static_cast<uint64_t>(getpid()));
  CHECK(owner["start_time"].u64() > 1 && owner["pid_ns"].u64() > 1);
  CHECK_EQ(owner["boot_id"].text.size(), static_cast<size_t>(36));
  g.writer.stop(1000000000);
}

namespace {
int flushes, ends;
}  // namespace

TEST(periodic_and_last_writes) {
  flushes = ends = 0;
  Fixture f;
  f.options.first_ns = 1000000;
  f.options.interval_ns = 1000000;
  f.options.before_write = [](void*) { __atomic_fetch_add(&flushes, 1, __ATOMIC_SEQ_CST); };
  f.options.at_end = [](void*) { ends++; };
  CHECK(f.start());
  CHECK(f.start());  // a second start is the first one's
  CHECK(test::eventually(10, [&] { return __atomic_load_n(&flushes, __ATOMIC_SEQ_CST) > 3; }));
  f.writer.instruments().get("late", GRAPHSIGNAL_COUNTER)->add(3);
  f.writer.stop(5000000000);
  const int after = flushes;
  CHECK_EQ(ends, 1);
  Value d = test::Reader::parse(test::read_file(f.file()));
  CHECK_EQ(metric(d, "late")["value"].text, std::string("3"));
  f.writer.stop(5000000000);
  CHECK_EQ(ends, 1);
  CHECK_EQ(flushes, after);
}

// What is found in a round is there for that round's hook, which reads GPU probes.
TEST(probes_are_found_before_the_hook) {
  static Writer* writer;
  static int calls, found;  // found in the first call, or not
  Fixture f;
  writer = &f.writer;
  f.options.probes = WriterOptions::kUnclaimed;
  f.options.first_ns = 1000000;
  f.options.interval_ns = 1000000;
  f.options.before_write = [](void*) {
    if (__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) == 0) found = writer->probes().get(0) != nullptr;
  };
  graphsignal_add(graphsignal_probe_register("found_total", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 1);
  CHECK(f.start());
  CHECK(test::eventually(10, [&] { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST) > 1; }));
  CHECK(found);
}

TEST(a_hanging_end_is_not_waited_for) {
  static graphsignal::Event never;
  static bool given_up;
  Fixture f;
  f.options.at_end = [](void*) { never.wait(20000000000ull); };
  f.options.abandoned = [](void*) { given_up = true; };
  CHECK(f.start());
  f.writer.instruments().get("c", GRAPHSIGNAL_COUNTER)->add(1);
  f.writer.stop(1000000);
  CHECK(given_up);
  Value d = test::Reader::parse(test::read_file(f.file()));
  CHECK_EQ(metric(d, "c")["value"].text, std::string("1"));
  never.set();
}

TEST(forked_child_stays_silent) {
  Fixture f;
  CHECK(f.start());
  f.document();
  const std::string before = test::read_file(f.file());
  CHECK_EQ(test::in_child([&] {
    CHECK(!f.writer.running());
    CHECK(!f.writer.write_once());
    f.writer.log().add(Level::kError, "from a child");
    f.writer.stop(1000000000);
  }), 0);
  CHECK_EQ(test::read_file(f.file()), before);
  CHECK(!test::exists(f.directory.path + "/graphsignal_" + std::to_string(getpid() + 1)));
  CHECK(f.writer.running());
}

TEST(threads_and_serialization_do_not_disturb_each_other) {
  Fixture f;
  f.options.first_ns = f.options.interval_ns = 1000;
  CHECK(f.start());
  auto& in = f.writer.instruments();
  auto* p = in.get("p", GRAPHSIGNAL_PROFILE)->profile();
  auto* h = in.get("h", GRAPHSIGNAL_HISTOGRAM);
  struct Shared { graphsignal::Profile* p; Instrument* h; Writer* w; } shared = {p, h, &f.writer};
  pthread_t threads[4];
  for (auto& t : threads) {
    pthread_create(&t, nullptr, [](void* a) -> void* {
      Shared* s = static_cast<Shared*>(a);
      for (int i = 0; i < 20000; i++) {
        const std::string name = "n" + std::to_string(i % 700);
        s->p->add(s->p->intern(name.data(), name.size()), 3);
        s->h->record(static_cast<uint64_t>(i));
        if (i % 1000 == 0) s->w->log().add(Level::kWarning, "at %d", i);
        if (i % 500 == 0) s->w->instruments().get(name.c_str(), GRAPHSIGNAL_COUNTER)->add(1);
      }
      return nullptr;
    }, &shared);
  }
  for (auto& t : threads) pthread_join(t, nullptr);
  uint64_t value = 0, samples = 0;
  for (uint32_t i = 0; i < p->frames(); i++) value += p->value(i), samples += p->samples(i);
  CHECK_EQ(samples, 80000u);
  CHECK_EQ(value, 240000u);
  CHECK_EQ(metric(f.document(), "h")["count"].text, std::string("80000"));
}

// A program may close its standard descriptors and write to their numbers all the same: ours are none of them.
TEST(descriptors_are_above_the_standard_ones) {
  const test::TemporaryDirectory base;
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = 0; fd <= 2; fd++) close(fd);
    graphsignal::RunDirectory directory;
    if (!directory.set(base.path.c_str())) _exit(1);
    const int held = directory.open_checked();
    if (held <= 2 || !directory.claim_probes("probe")) _exit(2);
    if (!graphsignal::RunDirectory::replace_file(held, "probes.json", "{}", 2)) _exit(3);
    for (int fd = 0; fd <= 2; fd++) {
      if (fcntl(fd, F_GETFD) != -1) _exit(4 + fd);
    }
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

int main() {
  // The writer's own messages are expected here.
  if (!freopen("/dev/null", "w", stderr)) return 2;
  return test::run_all();
}
