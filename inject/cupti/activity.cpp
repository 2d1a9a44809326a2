#include "activity.h"

#include <stdio.h>
#include <string.h>

namespace graphsignal {
namespace cupti {
namespace {

const uint32_t kKernelNames = 16384;
const uint32_t kGraphFrames = 4096;
const uint64_t kSlackNs = 1000000000;
const uint64_t kCalibrationNs = 100000000;
// So many records without one that fits the clock, and the clock is taken for another.
const uint32_t kClockPatience = 1000;
// The least a record can be, and the alignment of all.
const size_t kLeastRecord = 8;

const char* const kCopyNames[] = {"other",           "host_to_device",  "device_to_host",   "host_to_array",
                                  "array_to_host",   "array_to_array",  "array_to_device",  "device_to_array",
                                  "device_to_device", "host_to_host",   "peer_to_peer",     "other"};
const char* const kMemoryNames[] = {"unknown", "pageable", "pinned",        "device",
                                    "array",   "managed",  "device_static", "managed_static"};
const char* const kSyncNames[] = {"unknown", "event", "stream_wait_event", "stream", "context"};

template <typename T>
T load(const uint8_t* record, size_t offset) {
  T value;
  memcpy(&value, record + offset, sizeof(value));
  return value;
}

void intern_all(Profile* p, const char* const* names, uint32_t count, uint32_t* frames) {
  for (uint32_t i = 0; i < count; i++) frames[i] = p ? p->intern(names[i], strlen(names[i])) : Profile::kNoFrame;
}

Profile* make_profile(Instruments& in, const char* name, uint32_t frames) {
  Instrument* i = in.get(name, GRAPHSIGNAL_PROFILE, nullptr, 0, frames);
  return i ? i->profile() : nullptr;
}

}  // namespace

bool Activity::start(Instruments& instruments, Log& log, const Functions& functions, const GraphNames& graphs,
                     bool node_mode) {
  instruments_ = &instruments;
  log_ = &log;
  functions_ = &functions;
  graphs_ = &graphs;
  began_ns_ = monotonic_ns();

  kernels_ = make_profile(instruments, "cuda_kernels_nanoseconds", kKernelNames);
  graph_times_ = make_profile(instruments, "cuda_graphs_nanoseconds", kGraphFrames);
  copies_ = make_profile(instruments, "cuda_memcpy_nanoseconds", 16);
  sets_ = make_profile(instruments, "cuda_memset_nanoseconds", 16);
  syncs_ = make_profile(instruments, "cuda_sync_nanoseconds", 16);
  Instrument* mode = instruments.get("cuda_graph_trace_mode", GRAPHSIGNAL_GAUGE);
  Instrument* unlisted_kernels = instruments.get("cuda_kernels_unlisted_nanoseconds", GRAPHSIGNAL_GAUGE);
  Instrument* unlisted_graphs = instruments.get("cuda_graphs_unlisted_nanoseconds", GRAPHSIGNAL_GAUGE);
  dropped_ = instruments.get("cuda_dropped_records_total", GRAPHSIGNAL_COUNTER);
  invalid_ = instruments.get("cuda_invalid_records", GRAPHSIGNAL_COUNTER);
  cache_ = static_cast<CachedName*>(map_pages(sizeof(CachedName) * kCacheSlots));
  graph_cache_ = static_cast<CachedGraph*>(map_pages(sizeof(CachedGraph) * kGraphSlots));
  if (!kernels_ || !graph_times_ || !copies_ || !sets_ || !syncs_ || !mode || !unlisted_kernels || !unlisted_graphs ||
      !dropped_ || !invalid_ || !cache_ || !graph_cache_) {
    return false;
  }
  mode->set(node_mode ? 1 : 0);
  instruments.get("cuda_kernels_nanoseconds", GRAPHSIGNAL_PROFILE)->show_unlisted(unlisted_kernels);
  instruments.get("cuda_graphs_nanoseconds", GRAPHSIGNAL_PROFILE)->show_unlisted(unlisted_graphs);
  intern_all(copies_, kCopyNames, kCopyKinds, copy_frames_);
  intern_all(sets_, kMemoryNames, kMemoryKinds, set_frames_);
  intern_all(syncs_, kSyncNames, kSyncTypes, sync_frames_);
  return true;
}

void Activity::calibrate(uint64_t now_ns) {
  const uint64_t age = now_ns - began_ns_;
  longest_ = age + kSlackNs;
  if (calibrated_ns_ != 0 && now_ns - calibrated_ns_ < kCalibrationNs) return;
  calibrated_ns_ = now_ns;
  uint64_t now = 0;
  earliest_ = 0;
  if (functions_->timestamp && functions_->timestamp(&now) == kSuccess && now > age + kSlackNs) earliest_ = now - age - kSlackNs;
}

bool Activity::duration(uint64_t start, uint64_t end, uint64_t* ns) {
  bool possible = start != 0 && end > start && end - start <= longest_;
  if (possible && earliest_ != 0 && (clock_confirmed_ || unlike_ < kClockPatience)) {
    if (start >= earliest_ && end <= earliest_ + longest_ + kSlackNs) {
      clock_confirmed_ = true;
    } else if (start < earliest_) {
      unlike_++;
      possible = false;
    }
  }
  if (!possible) invalid_->add(1);
  *ns = end - start;
  return possible;
}

uint32_t Activity::kernel_frame(const char* name) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(name);
  uint32_t slot = static_cast<uint32_t>((bits * 0x9E3779B97F4A7C15u) >> 40) & (kCacheSlots - 1);
  while (cache_[slot].pointer && cache_[slot].pointer != name) slot = (slot + 1) & (kCacheSlots - 1);
  CachedName& c = cache_[slot];
  if (c.pointer && (!__atomic_load_n(&compare_names_, __ATOMIC_RELAXED) ||
                    (c.frame != Profile::kNoFrame && kernels_->is(c.frame, name)))) {
    return c.frame;
  }
  const uint32_t frame = kernels_->intern(name, bounded_length(name, Profile::kMaxNameBytes + 4));
  if (!c.pointer) {
    if (cached_ >= kCacheSlots / 4 * 3) {
      memset(cache_, 0, sizeof(CachedName) * kCacheSlots);
      cached_ = 0;
      return frame;
    }
    cached_++;
  }
  c.pointer = name;
  c.frame = frame;
  return frame;
}

uint32_t Activity::graph_frame(uint32_t id) {
  CachedGraph& c = graph_cache_[id % kGraphSlots];
  const bool known = c.id_plus_one == static_cast<uint64_t>(id) + 1;
  if (known && c.named) return c.frame;
  uint64_t hash;
  char name[32];
  const bool named = graphs_->find(id, &hash);
  // A signature may arrive after the first replay, so a number is asked about again.
  if (known && !named) return c.frame;
  const int n = named ? snprintf(name, sizeof(name), "%016llx", static_cast<unsigned long long>(hash))
                      : snprintf(name, sizeof(name), "graph_%u", id);
  c.id_plus_one = static_cast<uint64_t>(id) + 1;
  c.named = named;
  c.frame = graph_times_->intern(name, static_cast<size_t>(n));
  return c.frame;
}

void Activity::add_bytes(const char* metric, const char* kind, Instrument** counter, uint64_t bytes) {
  if (!*counter) {
    const Tag tag = {"kind", kind};
    *counter = instruments_->get(metric, GRAPHSIGNAL_COUNTER, &tag, 1);
  }
  if (*counter) (*counter)->add(bytes);
}

void Activity::ignore_copies(uint32_t context, uint32_t stream) {
  const uint32_t n = ignored_count_;
  if (n == kIgnoredStreams) return;
  ignored_[n] = static_cast<uint64_t>(context) << 32 | stream;
  __atomic_store_n(&ignored_count_, n + 1, __ATOMIC_RELEASE);
}

bool Activity::ignored(const uint8_t* r, size_t available) const {
  const uint32_t n = __atomic_load_n(&ignored_count_, __ATOMIC_ACQUIRE);
  if (n == 0 || available < kMemcpyPrefixBytes || load<uint32_t>(r, 0) != kKindMemcpy) return false;
  const uint64_t id = static_cast<uint64_t>(load<uint32_t>(r, kMemcpyContextOffset)) << 32 | load<uint32_t>(r, kMemcpyStreamOffset);
  for (uint32_t i = 0; i < n; i++) {
    if (ignored_[i] == id) return true;
  }
  return false;
}

// Adds one record; false when it is too short for its kind.
bool Activity::add_record(const uint8_t* r, size_t available) {
  uint64_t ns;
  switch (load<uint32_t>(r, 0)) {
    case kKindKernel:
    case kKindConcurrentKernel: {
      if (available < sizeof(KernelRecord)) return false;
      const char* name = load<const char*>(r, offsetof(KernelRecord, name));
      if (!duration(load<uint64_t>(r, 16), load<uint64_t>(r, 24), &ns)) return true;
      if (!name || !name[0]) {
        invalid_->add(1);
        return true;
      }
      kernels_->add(kernel_frame(name), ns);
      return true;
    }
    case kKindMemcpy:
    case kKindMemcpyPeer: {
      if (available < sizeof(MemcpyRecord)) return false;
      if (ignored(r, available)) return true;
      if (!duration(load<uint64_t>(r, 16), load<uint64_t>(r, 24), &ns)) return true;
      const uint32_t kind = load<uint8_t>(r, 4) < kCopyKinds && load<uint8_t>(r, 4) > 0 ? load<uint8_t>(r, 4) : kCopyKinds - 1;
      copies_->add(copy_frames_[kind], ns);
      add_bytes("cuda_memcpy_bytes", kCopyNames[kind], &copy_bytes_[kind], load<uint64_t>(r, 8));
      return true;
    }
    case kKindMemset: {
      if (available < sizeof(MemsetRecord)) return false;
      if (!duration(load<uint64_t>(r, 16), load<uint64_t>(r, 24), &ns)) return true;
      const uint32_t kind = load<uint16_t>(r, 50) < kMemoryKinds ? load<uint16_t>(r, 50) : 0;
      sets_->add(set_frames_[kind], ns);
      add_bytes("cuda_memset_bytes", kMemoryNames[kind], &set_bytes_[kind], load<uint64_t>(r, 8));
      return true;
    }
    case kKindSynchronization: {
      if (available < sizeof(SynchronizationRecord)) return false;
      if (!duration(load<uint64_t>(r, 8), load<uint64_t>(r, 16), &ns)) return true;
      const uint32_t type = load<uint32_t>(r, 4);
      syncs_->add(sync_frames_[type < kSyncTypes ? type : 0], ns);
      return true;
    }
    case kKindGraphTrace: {
      if (available < sizeof(GraphTraceRecord)) return false;
      if (!duration(load<uint64_t>(r, 8), load<uint64_t>(r, 16), &ns)) return true;
      graph_times_->add(graph_frame(load<uint32_t>(r, 28)), ns);
      return true;
    }
    default: return true;  // kinds that others have enabled, or that a kind of ours brings along
  }
}

// The record after the given one (the first when it is NULL), or NULL at the end. Sizes are learned from CUPTI and
// checked against it at the start of each buffer.
uint8_t* Activity::next(uint8_t* buffer, size_t valid, uint8_t* record) {
  uint8_t* guess = nullptr;
  uint32_t kind = kKindInvalid;
  if (record) {
    kind = load<uint32_t>(record, 0);
    if (own_steps_ && kind < kKindLimit && stride_[kind] != 0) {
      guess = record + stride_[kind];
      // The last one is left to CUPTI, which knows where the content ends.
      if (record != buffer && guess + kLeastRecord <= buffer + valid) return guess;
    }
  }
  void* at = record;
  if (functions_->next_record(buffer, valid, &at) != kSuccess || !at) return nullptr;
  uint8_t* found = static_cast<uint8_t*>(at);
  if (found < buffer || found + kLeastRecord > buffer + valid) return nullptr;
  if (record) {
    if (found <= record) return nullptr;
    if (guess && guess != found) own_steps_ = false;
    if (kind < kKindLimit) stride_[kind] = static_cast<uint32_t>(found - record);
  }
  return found;
}

void Activity::process(uint8_t* buffer, size_t valid, Pace& pace) {
  if (!buffer || valid < kLeastRecord) return;
  Guard hold(lock_);
  const uint64_t now = monotonic_ns();
  calibrate(now);
  uint64_t count = 0;
  for (uint8_t* r = next(buffer, valid, nullptr); r; r = next(buffer, valid, r)) {
    if (__atomic_load_n(&closed_, __ATOMIC_ACQUIRE) || load<uint32_t>(r, 0) == kKindInvalid) break;
    if (!add_record(r, static_cast<size_t>(buffer + valid - r))) break;
    count++;
  }
  __atomic_fetch_add(&records_, count, __ATOMIC_RELAXED);
  pace.arrived(count, now);
}

void Activity::close(uint64_t wait_ns) {
  __atomic_store_n(&closed_, true, __ATOMIC_RELEASE);
  if (lock_.acquire_within(wait_ns)) lock_.release();
}

void Activity::dropped(uint64_t records) {
  if (records == 0) return;
  dropped_->add(records);
  if (!__atomic_exchange_n(&drop_logged_, true, __ATOMIC_RELAXED)) {
    log_->add(Level::kWarning, "CUPTI dropped %llu activity records; cuda_dropped_records_total counts on",
              static_cast<unsigned long long>(records));
  }
}

}  // namespace cupti
}  // namespace graphsignal
