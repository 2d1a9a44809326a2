#include "device_probes.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

namespace graphsignal {
namespace {

const size_t kBlock = sizeof(graphsignal_instrument_data);
const uint64_t kSecond = 1000000000u;
const uint64_t kFirstPauseNs = 20000;
const uint64_t kLongestPauseNs = 1000000;
const uint64_t kWriteWaitNs = 100000000;
const size_t kLeastStaging = 64 << 10;

uint64_t address_of(const graphsignal_probe_entry& e) { return reinterpret_cast<uintptr_t>(e.data); }

void pause_ns(uint64_t ns) {
  const struct timespec t = {0, static_cast<long>(ns)};
  nanosleep(&t, nullptr);
}

// FNV-1a over name and tags, each with its terminator.
uint64_t identity_hash(const graphsignal_probe_entry& e) {
  uint64_t h = 0xCBF29CE484222325u;
  const auto mix = [&h](const char* s) {
    do {
      h = (h ^ static_cast<uint8_t>(*s)) * 0x100000001B3u;
    } while (*s++);
  };
  mix(e.name);
  for (uint32_t t = 0; t < e.ntags; t++) {
    mix(e.tag_keys[t]);
    mix(e.tag_values[t]);
  }
  return h;
}

}  // namespace

void DeviceProbes::start(const Options& options) {
  options_ = options;
  __atomic_store_n(&enabled_, true, __ATOMIC_RELEASE);
}

void DeviceProbes::join_identity(uint32_t slot) {
  Slot& s = slots_[slot];
  s.next = kNone;
  s.first = true;
  for (uint32_t i = 0; i < slot; i++) {
    Slot& other = slots_[i];
    if (!other.first || other.hash != s.hash || other.registry == s.registry || !same_identity(*other.entry, *s.entry)) continue;
    s.first = false;
    s.next = other.next;
    other.next = slot;
    return;
  }
}

// Takes in the entries that are new. The reading thread is idle. Returns whether there is anything to read.
bool DeviceProbes::collect() {
  const uint32_t before = count_;
  for (uint32_t r = 0; r < ProbeRegistries::kMaxRegistries; r++) {
    const graphsignal_probe_registry* registry = options_.registries->get(r);
    if (!registry) continue;
    const uint64_t n = graphsignal_probe_reader_count(registry);
    for (; taken_[r] < n; taken_[r]++) {
      const graphsignal_probe_entry& e = registry->entries[taken_[r]];
      if (e.storage != GRAPHSIGNAL_STORAGE_DEVICE || e.type == GRAPHSIGNAL_PROFILE || !well_formed(e)) continue;
      if (!slots_) {
        slots_ = static_cast<Slot*>(map_pages(sizeof(Slot) * kMaxProbes));
        order_ = static_cast<Slot**>(map_pages(sizeof(Slot*) * kMaxProbes));
        if (!slots_ || !order_) {
          options_.log->add(Level::kError, "no memory for GPU probes");
          __atomic_store_n(&enabled_, false, __ATOMIC_RELEASE);
          return false;
        }
        read_time_ = options_.instruments->get("graphsignal_probe_read_nanoseconds", GRAPHSIGNAL_HISTOGRAM);
      }
      if (e.device_id < 0 || e.device_id >= kMaxDevices || count_ == kMaxProbes) {
        if (!overflow_logged_) {
          options_.log->add(Level::kWarning, "GPU probe %.127s and maybe others are not read: device %d, %u probes", e.name,
                            e.device_id, count_);
        }
        overflow_logged_ = true;
        continue;
      }
      Slot& s = slots_[count_];
      s.entry = &e;
      s.hash = identity_hash(e);
      s.registry = r;
      join_identity(count_);
      order_[count_] = &s;
      __atomic_store_n(&count_, count_ + 1, __ATOMIC_RELEASE);
    }
  }
  if (count_ != before) qsort(order_, count_, sizeof(*order_), by_address);
  return count_ != 0;
}

int DeviceProbes::by_address(const void* a, const void* b) {
  const graphsignal_probe_entry& x = *(*static_cast<Slot* const*>(a))->entry;
  const graphsignal_probe_entry& y = *(*static_cast<Slot* const*>(b))->entry;
  if (x.device_id != y.device_id) return x.device_id < y.device_id ? -1 : 1;
  if (x.data != y.data) return address_of(x) < address_of(y) ? -1 : 1;
  return 0;
}

void DeviceProbes::refresh(uint64_t wait_ns) {
  if (!__atomic_load_n(&enabled_, __ATOMIC_ACQUIRE) || closing()) return;
  // While a reading goes on, the slots are its own.
  const bool idle = !running_ || answered_.is_set();
  if (idle) {
    if (!collect()) return;
    answered_.clear();
    if (!running_) {
      const bool started = start_thread(&thread_, "graphsignal-gpu", thread_main, this);
      __atomic_store_n(&running_, started, __ATOMIC_RELEASE);
      if (!started) {
        options_.log->add(Level::kError, "GPU probes are not read: no thread");
        __atomic_store_n(&enabled_, false, __ATOMIC_RELEASE);
        return;
      }
      pthread_detach(thread_);
    }
    asked_.set();
  }
  // A reading that takes longer than this document waits is for the next one; one that takes longer than that is too old.
  const bool current = answered_.wait(wait_ns) || idle;
  if (!current && current_) options_.log->add(Level::kWarning, "reading GPU probes takes long; they are left out until it has ended");
  __atomic_store_n(&current_, current, __ATOMIC_RELEASE);
}

void DeviceProbes::close(uint64_t wait_ns) {
  __atomic_store_n(&closed_, true, __ATOMIC_RELEASE);
  if (forked() || !__atomic_load_n(&running_, __ATOMIC_ACQUIRE)) return;
  asked_.set();
  // In a driver that hangs the lock is never given back; the end of the process does not wait for that.
  if (driver_.acquire_within(wait_ns)) driver_.release();
}

void* DeviceProbes::thread_main(void* self) {
  static_cast<DeviceProbes*>(self)->loop();
  return nullptr;
}

void DeviceProbes::loop() {
  while (!closing()) {
    if (!asked_.wait(kSecond)) continue;
    asked_.clear();
    if (closing()) break;
    read_all();
    answered_.set();
  }
  answered_.set();
}

// Leaves values alone when the process comes to its end meanwhile: they are then the last ones.
void DeviceProbes::read_all() {
  const uint64_t start = monotonic_ns();
  for (uint32_t i = 0; i < count_;) {
    uint32_t end = i + 1;
    const int device = order_[i]->entry->device_id;
    while (end < count_ && order_[end]->entry->device_id == device) end++;
    Guard hold(driver_);
    if (closing()) return;
    bool read = false;
    if (options_.memory.enter(options_.memory.self, device)) {
      read = read_device(device, order_ + i, end - i);
      options_.memory.leave(options_.memory.self, device);
    }
    if (closing()) return;
    if (!read) forget(order_ + i, end - i);
    i = end;
  }
  uint32_t unread = 0;
  for (uint32_t i = 0; i < count_; i++) unread += slots_[i].fresh ? 0 : 1;
  __atomic_store_n(&unread_, unread, __ATOMIC_RELAXED);
  if (read_time_) read_time_->record(monotonic_ns() - start);
}

void DeviceProbes::forget(Slot** slots, uint32_t n) {
  Guard hold(values_);
  for (uint32_t i = 0; i < n; i++) slots[i]->fresh = false;
}

void DeviceProbes::complain(int device, const char* what) {
  if (devices_[device].complained) return;
  devices_[device].complained = true;
  options_.log->add(Level::kWarning, "GPU probes of device %d: %s", device, what);
}

// Waits for the queued copies; false when they failed or are not there in time, or the process ends.
bool DeviceProbes::await_copies(int device) {
  const DeviceMemory& m = options_.memory;
  Device& d = devices_[device];
  const uint64_t start = monotonic_ns();
  for (uint64_t pause = kFirstPauseNs;; pause = pause * 2 < kLongestPauseNs ? pause * 2 : kLongestPauseNs) {
    const DeviceMemory::State state = m.state(m.self, device);
    d.outstanding = state == DeviceMemory::kBusy;
    if (!d.outstanding) {
      if (state == DeviceMemory::kFailed) complain(device, "copies failed");
      return state == DeviceMemory::kDone;
    }
    if (closing()) return false;
    if (monotonic_ns() - start > options_.deadline_ns) {
      complain(device, "copies are not done in time");
      return false;
    }
    pause_ns(pause);
  }
}

// Reads n blocks of one device, sorted by address: one copy per run of adjacent blocks, all queued, then one wait. False when
// nothing was read.
bool DeviceProbes::read_device(int device, Slot** slots, uint32_t n) {
  const DeviceMemory& m = options_.memory;
  Device& d = devices_[device];
  // Copies of an earlier reading may still write into the staging memory.
  if (d.outstanding && !await_copies(device) && d.outstanding) return false;
  if (d.staging_bytes < n * kBlock) {
    size_t bytes = kLeastStaging;
    while (bytes < n * kBlock) bytes *= 2;
    d.staging = static_cast<uint8_t*>(m.staging(m.self, device, bytes));
    d.staging_bytes = d.staging ? bytes : 0;
    if (!d.staging) {
      complain(device, "no page-locked memory");
      return false;
    }
  }
  bool refused = false, any = false;
  for (uint32_t i = 0; i < n && !closing();) {
    uint32_t end = i + 1;
    while (end < n && address_of(*slots[end]->entry) == address_of(*slots[end - 1]->entry) + kBlock) end++;
    const bool queued = m.copy(m.self, device, d.staging + i * kBlock, address_of(*slots[i]->entry), (end - i) * kBlock);
    refused = refused || !queued;
    any = any || queued;
    for (; i < end; i++) slots[i]->queued = queued;
  }
  if (refused) complain(device, "some blocks cannot be read");
  if (!any || !await_copies(device)) return false;
  Guard hold(values_);
  for (uint32_t i = 0; i < n; i++) {
    slots[i]->fresh = slots[i]->queued;
    if (!slots[i]->fresh) continue;
    memcpy(&slots[i]->value, d.staging + i * kBlock, kBlock);
    slots[i]->known = true;
  }
  return true;
}

void DeviceProbes::write(Json& out, bool* first) {
  // The last document shows what was read last, however long ago that was.
  const bool last = __atomic_load_n(&closed_, __ATOMIC_ACQUIRE);
  if (!__atomic_load_n(&current_, __ATOMIC_ACQUIRE) && !last) return;
  if (!values_.acquire_within(kWriteWaitNs)) return;
  const uint32_t n = __atomic_load_n(&count_, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < n; i++) {
    const Slot& s = slots_[i];
    if (!s.first || !(s.fresh || (last && s.known))) continue;
    graphsignal_instrument_data value = s.value;
    bool complete = true;
    for (uint32_t j = s.next; j != kNone && complete; j = slots_[j].next) {
      complete = slots_[j].fresh || (last && slots_[j].known);
      if (s.entry->type == GRAPHSIGNAL_HISTOGRAM) {
        merge_histogram(&value, slots_[j].value);
      } else if (s.entry->type == GRAPHSIGNAL_COUNTER) {
        value.value_bits += slots_[j].value.value_bits;
      }
    }
    // Without one of its parts a sum would go backwards.
    if (!complete) continue;
    const double gauge = graphsignal_probe_gauge_value(&value);
    if (s.entry->type == GRAPHSIGNAL_GAUGE && !__builtin_isfinite(gauge)) continue;
    write_probe_start(out, first, *s.entry);
    if (s.entry->type == GRAPHSIGNAL_HISTOGRAM) {
      write_histogram(out, value);
    } else {
      out.raw(",\"value\":");
      if (s.entry->type == GRAPHSIGNAL_GAUGE) {
        out.number(gauge);
      } else {
        out.number(value.value_bits);
      }
    }
    out.raw("}");
  }
  values_.release();
  const uint32_t lacking = unread();
  if (lacking == 0 && !ever_unread_) return;
  ever_unread_ = true;
  static const char kUnread[] = "graphsignal_probe_unread_instruments";
  write_entry_start(out, first, kUnread, sizeof(kUnread) - 1, "gauge");
  out.raw("},\"value\":");
  out.number(static_cast<uint64_t>(lacking));
  out.raw("}");
}

}  // namespace graphsignal
