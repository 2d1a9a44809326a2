#include "writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace graphsignal {
namespace {

const uint64_t kSecond = 1000000000u;
const uint64_t kLeastFree = 16u << 20;
const char kFull[] = "shared memory is nearly full";
// On a crowded machine our thread may get no time for long; more than this it is not waited for.
const uint64_t kLongestStop = 2 * kSecond;
const uint64_t kStopStep = 10000000;

bool file_system_space(int directory, uint64_t* free_bytes, uint64_t* total_bytes) {
  struct statvfs st;
  if (fstatvfs(directory, &st) != 0 || st.f_blocks == 0) return false;
  *free_bytes = static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  *total_bytes = static_cast<uint64_t>(st.f_blocks) * st.f_frsize;
  return true;
}

}  // namespace

bool debug_asked() {
  const char* value = environment("GRAPHSIGNAL_DEBUG");
  return value && (strcmp(value, "1") == 0 || strcmp(value, "true") == 0);
}

bool Writer::start(const WriterOptions& options) {
  if (__atomic_exchange_n(&running_, true, __ATOMIC_ACQ_REL)) return true;
  options_ = options;
  if (options_.interval_ns == 0) options_.interval_ns = kSecond;
  if (!options_.space) options_.space = file_system_space;
  log_.set_debug(debug_asked());
  pid_ = getpid();
  start_ts_ = realtime_ns();
  context_.capture();
  watch_forks();

  const char* failure = nullptr;
  const int named = snprintf(file_, sizeof(file_), "%s.json", options_.library);
  if (named <= 0 || static_cast<size_t>(named) >= sizeof(file_) || !directory_.set(options_.base)) {
    failure = "has too long a path";
  } else {
    const int fd = directory_.open_checked();
    if (fd >= 0) {
      close(fd);
    } else {
      failure = directory_.reason();
    }
  }
  if (!failure && !instruments_.allocate()) failure = "cannot be served: no memory";
  if (!failure) claim_probes();
  if (!failure && !start_thread(&thread_, "graphsignal", thread_main, this)) failure = "cannot be served: no thread";
  if (failure) {
    char line[512];
    const int n = snprintf(line, sizeof(line), "graphsignal: %s is off: run directory %.300s %s\n", options_.library,
                           directory_.path(), failure);
    if (n > 0) write_stderr(line, static_cast<size_t>(n) < sizeof(line) ? static_cast<size_t>(n) : sizeof(line) - 1);
    __atomic_store_n(&running_, false, __ATOMIC_RELEASE);
    return false;
  }
  return true;
}

void* Writer::thread_main(void* self) {
  static_cast<Writer*>(self)->loop();
  return nullptr;
}

void Writer::loop() {
  uint64_t pause = options_.first_ns;
  while (!wake_.wait(pause)) {
    find_probes();
    run_hook(options_.before_write);
    if (wake_.is_set()) break;
    write_once();
    log_.print();
    pause = options_.interval_ns;
  }
  run_hook(options_.at_end);
  ended_.set();
}

void Writer::run_hook(void (*hook)(void*)) {
  if (!hook) return;
  __atomic_store_n(&hook_since_, monotonic_ns(), __ATOMIC_RELEASE);
  hook(options_.argument);
  __atomic_store_n(&hook_since_, static_cast<uint64_t>(0), __ATOMIC_RELEASE);
}

void Writer::hook_progress() {
  if (__atomic_load_n(&hook_since_, __ATOMIC_RELAXED) != 0) __atomic_store_n(&hook_since_, monotonic_ns(), __ATOMIC_RELEASE);
}

bool Writer::await_thread(uint64_t hook_ns) {
  const uint64_t start = monotonic_ns();
  while (!ended_.wait(kStopStep)) {
    const uint64_t now = monotonic_ns();
    uint64_t since = __atomic_load_n(&hook_since_, __ATOMIC_ACQUIRE);
    if (since != 0 && since < start) since = start;
    if (now - start > kLongestStop || (since != 0 && now > since && now - since > hook_ns)) return false;
  }
  return true;
}

void Writer::stop(uint64_t hook_ns) {
  if (forked() || getpid() != pid_ || !__atomic_exchange_n(&running_, false, __ATOMIC_ACQ_REL)) return;
  wake_.set();
  if (await_thread(hook_ns)) {
    pthread_join(thread_, nullptr);
  } else {
    pthread_detach(thread_);
    if (options_.abandoned) options_.abandoned(options_.argument);
  }
  if (find_probes()) write_once();
  log_.print();
}

// Before the hook, so that it reads what is found here. False when a write that goes on does not end.
bool Writer::find_probes() {
  if (options_.probes == WriterOptions::kNone) return true;
  if (forked() || !writing_.acquire_within(kSecond)) return false;
  probes_.attach();
  probes_.discover();
  writing_.release();
  return true;
}

void Writer::leave_linker() {
  if (forked() || getpid() != pid_) return;
  const bool alone = writing_.acquire_within(kSecond);
  if (alone && running() && options_.probes != WriterOptions::kNone) {
    probes_.attach();
    probes_.discover();
  }
  probes_.leave_linker();
  if (alone) writing_.release();
}

bool Writer::enough_space(int directory, uint64_t size) {
  uint64_t free_bytes, total_bytes;
  if (!options_.space(directory, &free_bytes, &total_bytes)) return true;
  const uint64_t quarter = total_bytes / 4;
  const uint64_t keep = quarter > kLeastFree ? quarter : kLeastFree;
  return free_bytes >= size && free_bytes - size >= keep;
}

void Writer::skip(const char* why) {
  if (__atomic_fetch_add(&skipped_, static_cast<uint64_t>(1), __ATOMIC_RELAXED) == 0) {
    log_.add(Level::kWarning, "%s: %s is not updated for now", why, file_);
  }
}

bool Writer::write_once() {
  if (forked() || !writing_.acquire_within(kSecond)) return false;
  bool ok = false;
  const int directory = directory_.open_checked();
  if (directory < 0) {
    if (!directory_complained_) log_.add(Level::kError, "run directory %s %s", directory_.path(), directory_.reason());
    directory_complained_ = true;
  } else {
    directory_complained_ = false;
    claim_probes();
    // A claim that found no room is a write that found none.
    if (options_.probes == WriterOptions::kOnly && !owns_probes_ && !enough_space(directory, 0)) skip(kFull);
    if (options_.probes == WriterOptions::kOnly && !owns_probes_) {
      close(directory);
      writing_.release();
      return false;
    }
    build();
    if (!document_.complete()) {
      skip("no memory");
    } else if (!enough_space(directory, document_.size())) {
      skip(kFull);
    } else {
      ok = RunDirectory::replace_file(directory, file_, document_.data(), document_.size());
      if (!ok) skip(strerror(errno));
    }
    close(directory);
  }
  writing_.release();
  return ok;
}

void Writer::claim_probes() {
  if (options_.probes == WriterOptions::kNone || owns_probes_) return;
  // A publisher that is just starting gets the time of some writes to make its claim.
  if (options_.probes == WriterOptions::kUnclaimed && (!probes_.has_host_entries() || ++probe_sightings_ <= 2)) return;
  owns_probes_ = directory_.claim_probes(options_.library);
}

void Writer::build() {
  Json& out = document_;
  out.reset();
  out.raw("{\"version\":1,\"pid\":");
  out.number(static_cast<uint64_t>(getpid()));
  out.raw(",\"start_ts\":");
  out.number(start_ts_);
  out.raw(",\"write_ts\":");
  const uint64_t now = realtime_ns();
  out.number(now > start_ts_ ? now : start_ts_);
  out.raw(",");
  context_.write(out);
  out.raw("\"metrics\":[");
  bool first = true;
  instruments_.write(out, &first);
  if (options_.more_metrics) options_.more_metrics(out, &first, options_.argument);
  if (instruments_.dropped()) write_counter(out, &first, "graphsignal_writer_dropped_instruments", instruments_.dropped());
  if (skipped_writes()) write_counter(out, &first, "graphsignal_writer_skipped_writes", skipped_writes());
  if (owns_probes_) {
    probes_.write_host(out, &first);
    probes_.write_dropped(out, &first);
  }
  out.raw("]");
  log_.write(out);
  out.raw("}\n");
}

}  // namespace graphsignal
