#include "device_probes.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../common/instruments.h"

namespace graphsignal {
namespace rocm {
namespace {

const long kPollNs = 200000;
const uint64_t kForEver = 3600ull * 1000000000u;

bool flag(const bool& f) { return __atomic_load_n(&f, __ATOMIC_ACQUIRE); }

bool well_formed(const graphsignal_probe_entry& e) {
  if (e.type >= GRAPHSIGNAL_PROFILE || e.ntags > GRAPHSIGNAL_PROBE_MAX_TAGS || !e.data || !e.name[0]) return false;
  if (e.device_id < 0 || e.device_id >= DeviceProbes::kMaxDevices || !memchr(e.name, 0, sizeof(e.name))) return false;
  for (uint32_t t = 0; t < e.ntags; t++) {
    if (!memchr(e.tag_keys[t], 0, sizeof(e.tag_keys[t])) || !memchr(e.tag_values[t], 0, sizeof(e.tag_values[t]))) return false;
  }
  return true;
}

bool same_identity(const graphsignal_probe_entry& a, const graphsignal_probe_entry& b) {
  if (a.type != b.type || a.ntags != b.ntags || strcmp(a.name, b.name) != 0) return false;
  for (uint32_t t = 0; t < a.ntags; t++) {
    if (strcmp(a.tag_keys[t], b.tag_keys[t]) != 0 || strcmp(a.tag_values[t], b.tag_values[t]) != 0) return false;
  }
  return true;
}

// Adds a block of the same probe; of gauges the later one counts.
void merge(uint32_t type, graphsignal_instrument_data* into, const graphsignal_instrument_data& from) {
  if (type == GRAPHSIGNAL_GAUGE) {
    into->value_bits = from.value_bits;
    return;
  }
  into->value_bits += from.value_bits;
  into->count += from.count;
  into->sum += from.sum;
  if (from.min < into->min) into->min = from.min;
  if (from.max > into->max) into->max = from.max;
  for (uint32_t i = 0; i < GRAPHSIGNAL_PROBE_HIST_BINS; i++) into->bins[i] += from.bins[i];
}

void write_text(Json& out, const char* text, size_t capacity) {
  const size_t n = strlen(text);
  out.string(text, n, n == capacity - 1);
}

}  // namespace

// Takes entries that are new in the registries.
void DeviceProbes::collect() {
  registries_.refresh();
  for (uint32_t r = 0; r < registries_.count(); r++) {
    host_->add(registries_.at(r));
    const graphsignal_probe_registry& registry = *registries_.at(r);
    const uint64_t n = graphsignal_probe_reader_count(&registry);
    for (; seen_[r] < n && seen_[r] < GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS; seen_[r]++) {
      const graphsignal_probe_entry& e = registry.entries[seen_[r]];
      if (e.storage != GRAPHSIGNAL_STORAGE_DEVICE || !well_formed(e)) continue;
      if (!probes_) {
        probes_ = static_cast<Probe*>(map_pages(sizeof(Probe) * kMaxProbes));
        order_ = static_cast<uint32_t*>(map_pages(sizeof(uint32_t) * kMaxProbes));
      }
      Guard hold(lock_);
      if (!probes_ || !order_ || count_ == kMaxProbes) {
        if (left_out_++ == 0) log_->add(Level::kWarning, "too many probes on devices: some are not published");
        continue;
      }
      probes_[count_++].entry = &e;
    }
  }
}

void DeviceProbes::refresh() {
  if (flag(stopped_) || failed_) return;
  if (busy_) {
    if (!done_.is_set()) return;  // the last round has not ended yet
    busy_ = false;
  }
  collect();
  if (count_ == 0) return;
  if (!started_) {
    started_ = start_thread(&thread_, "graphsignal-hip", thread_main, this);
    if (!started_) {
      failed_ = true;
      log_->add(Level::kWarning, "no thread for probes on devices: they are not published");
      return;
    }
  }
  done_.clear();
  busy_ = true;
  ask_.set();
  if (done_.wait(kPatienceNs)) busy_ = false;
}

void DeviceProbes::stop() {
  __atomic_store_n(&stopped_, true, __ATOMIC_RELEASE);
  if (busy_) done_.wait(kPatienceNs);
}

void* DeviceProbes::thread_main(void* self) {
  static_cast<DeviceProbes*>(self)->read_loop();
  return nullptr;
}

void DeviceProbes::read_loop() {
  __atomic_store_n(&reader_id_, static_cast<uint64_t>(syscall(SYS_gettid)), __ATOMIC_RELAXED);
  bool found = false;
  for (;;) {
    if (!ask_.wait(kForEver)) continue;
    ask_.clear();
    if (!flag(stopped_)) {
      if (!found && hip_.resolve()) {
        hip_.relax_capture();
        found = true;
      }
      if (found) read_all();
    }
    done_.set();
  }
}

// In place, since the library has no sorting functions: heap sort by device and address.
void DeviceProbes::read_all() {
  const auto before = [this](uint32_t a, uint32_t b) {
    const graphsignal_probe_entry &x = *probes_[a].entry, &y = *probes_[b].entry;
    return x.device_id != y.device_id ? x.device_id < y.device_id : x.data < y.data;
  };
  uint32_t n = count_;  // does not change while a round is under way
  uint32_t* v = order_;
  for (uint32_t i = 0; i < n; i++) v[i] = i;
  const auto sift = [&](uint32_t from, uint32_t end) {
    for (uint32_t child = 2 * from + 1; child < end; child = 2 * from + 1) {
      if (child + 1 < end && before(v[child], v[child + 1])) child++;
      if (!before(v[from], v[child])) break;
      const uint32_t t = v[from];
      v[from] = v[child];
      v[child] = t;
      from = child;
    }
  };
  for (uint32_t i = n / 2; i-- > 0;) sift(i, n);
  for (uint32_t end = n; end-- > 1;) {
    const uint32_t t = v[0];
    v[0] = v[end];
    v[end] = t;
    sift(0, end);
  }
  for (uint32_t from = 0; from < n && !flag(stopped_);) {
    const int device = probes_[v[from]].entry->device_id;
    uint32_t to = from + 1;
    while (to < n && probes_[v[to]].entry->device_id == device) to++;
    read_device(device, v + from, to - from);
    from = to;
  }
}

bool DeviceProbes::make_room(Device& d, uint32_t blocks) {
  if (blocks <= d.capacity) return true;
  uint32_t capacity = d.capacity ? d.capacity : 16;
  while (capacity < blocks) capacity *= 2;
  void* fresh = hip_.staging(capacity * sizeof(graphsignal_instrument_data));
  if (!fresh) return false;
  d.staging = static_cast<graphsignal_instrument_data*>(fresh);
  d.capacity = capacity;
  return true;
}

Hip::Progress DeviceProbes::await(Device& d) {
  const uint64_t start = monotonic_ns();
  for (;;) {
    const Hip::Progress p = hip_.progress(d.stream);
    if (p != Hip::kRunning || flag(stopped_) || monotonic_ns() - start >= kPatienceNs) return p;
    const struct timespec pause = {0, kPollNs};
    nanosleep(&pause, nullptr);
  }
}

void DeviceProbes::complain(int device, const char* what) {
  int i = 0;
  while (i < kTroubles && told_[i] && strcmp(told_[i], what) != 0) i++;
  if (i == kTroubles || told_[i]) return;
  told_[i] = what;
  log_->add(Level::kWarning, "probes on device %d are not up to date: %s", device, what);
}

// Copies the blocks of one device, those side by side at once; then waits for all of them together.
void DeviceProbes::read_device(int device, const uint32_t* order, uint32_t count) {
  Device& d = devices_[device];
  if (!hip_.open(device, &d.stream)) return complain(device, "it cannot be opened");
  if (d.pending) {
    // Until they have ended, earlier copies may still be written to.
    if (hip_.progress(d.stream) == Hip::kRunning) return complain(device, "copies take too long");
    d.pending = false;
  }
  if (!make_room(d, count)) return complain(device, "no memory for copies");
  bool any = false;
  for (uint32_t from = 0; from < count;) {
    uint32_t to = from + 1;
    while (to < count && probes_[order[to]].entry->data == probes_[order[to - 1]].entry->data + 1) to++;
    const bool made = hip_.copy(d.stream, d.staging + from, probes_[order[from]].entry->data,
                                (to - from) * sizeof(graphsignal_instrument_data));
    if (!made) complain(device, "a copy failed");
    any = any || made;
    for (; from < to; from++) {
      probes_[order[from]].arrived = made;
      probes_[order[from]].staged = from;
    }
  }
  if (!any) return;
  switch (await(d)) {
    case Hip::kRunning:
      d.pending = true;
      return complain(device, "copies take too long");
    case Hip::kFailed: return complain(device, "copies failed");
    case Hip::kDone: break;
  }
  Guard hold(lock_);
  for (uint32_t i = 0; i < count; i++) {
    Probe& p = probes_[order[i]];
    if (!p.arrived) continue;
    p.block = d.staging[p.staged];
    p.read = true;
  }
}

void DeviceProbes::write(Json& out, bool* first) {
  Guard hold(lock_);
  // Only registries that the dynamic linker could not unify hold one identity twice.
  const bool several = registries_.count() > 1;
  for (uint32_t i = 0; i < count_; i++) {
    if (!probes_[i].read) continue;
    const graphsignal_probe_entry& e = *probes_[i].entry;
    graphsignal_instrument_data block = probes_[i].block;
    bool earlier = false;
    for (uint32_t j = 0; several && j < count_ && !earlier; j++) {
      if (j == i || !probes_[j].read || !same_identity(e, *probes_[j].entry)) continue;
      earlier = j < i;
      merge(e.type, &block, probes_[j].block);
    }
    if (earlier) continue;
    static const char* const kTypes[] = {"gauge", "counter", "histogram"};
    const double gauge = graphsignal_probe_gauge_value(&block);
    if (e.type == GRAPHSIGNAL_GAUGE && !__builtin_isfinite(gauge)) continue;
    write_entry_start(out, first, e.name, strlen(e.name), kTypes[e.type]);
    for (uint32_t t = 0; t < e.ntags; t++) {
      if (t) out.raw(",");
      write_text(out, e.tag_keys[t], sizeof(e.tag_keys[t]));
      out.raw(":");
      write_text(out, e.tag_values[t], sizeof(e.tag_values[t]));
    }
    out.raw("}");
    if (e.type == GRAPHSIGNAL_HISTOGRAM) {
      write_histogram(out, block);
    } else {
      out.raw(",\"value\":");
      if (e.type == GRAPHSIGNAL_GAUGE) {
        out.number(gauge);
      } else {
        out.number(block.value_bits);
      }
    }
    out.raw("}");
  }
}

}  // namespace rocm
}  // namespace graphsignal
