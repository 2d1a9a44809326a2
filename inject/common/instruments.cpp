#include "instruments.h"

#include <string.h>

namespace graphsignal {
namespace {

const size_t kChunkBytes = 256 * 1024;

uint32_t hash_name(const char* name, size_t length) {
  uint64_t h = 0x9E3779B97F4A7C15u ^ length;
  while (length >= 8) {
    uint64_t word;
    memcpy(&word, name, 8);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
    name += 8;
    length -= 8;
  }
  uint64_t word = 0;
  memcpy(&word, name, length);
  h = (h ^ word) * 0xff51afd7ed558ccdu;
  return static_cast<uint32_t>(h ^ (h >> 32));
}

const char* type_name(graphsignal_instrument_type type) {
  switch (type) {
    case GRAPHSIGNAL_GAUGE: return "gauge";
    case GRAPHSIGNAL_COUNTER: return "counter";
    case GRAPHSIGNAL_HISTOGRAM: return "histogram";
    case GRAPHSIGNAL_PROFILE: return "profile";
  }
  return "gauge";
}

// The k-th greatest (from 1) of n values, which are reordered.
uint64_t greatest(uint64_t* v, uint32_t n, uint32_t k) {
  int64_t low = 0, high = static_cast<int64_t>(n) - 1;
  const int64_t want = static_cast<int64_t>(k) - 1;
  while (low < high) {
    const uint64_t pivot = v[low + (high - low) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (v[i] > pivot) i++;
      while (v[j] < pivot) j--;
      if (i > j) break;
      const uint64_t t = v[i];
      v[i++] = v[j];
      v[j--] = t;
    }
    if (want <= j) {
      high = j;
    } else if (want >= i) {
      low = i;
    } else {
      break;
    }
  }
  return v[want];
}

// Copies text cut at limit on a character boundary, and terminates it.
void copy_text(char* to, const char* from, size_t limit) {
  if (!from) from = "";
  const size_t n = utf8_cut(from, bounded_length(from, limit + 4), limit);
  memcpy(to, from, n);
  to[n] = 0;
}

// Whether stored text equals text cut the same way.
bool same_text(const char* stored, const char* given, size_t limit) {
  if (!given) given = "";
  const size_t n = utf8_cut(given, bounded_length(given, limit + 4), limit);
  return strlen(stored) == n && memcmp(stored, given, n) == 0;
}

}  // namespace

Profile* Profile::create(uint32_t capacity) {
  uint32_t rounded = 16;
  while (rounded < capacity) rounded *= 2;
  Profile* p = static_cast<Profile*>(map_pages(sizeof(Profile)));
  if (!p) return nullptr;
  const size_t frame_bytes = rounded * sizeof(Frame);
  const size_t slot_bytes = 2 * rounded * sizeof(uint32_t);
  char* tables = static_cast<char*>(map_pages(frame_bytes + slot_bytes + 2 * rounded * sizeof(uint64_t)));
  if (!tables) {
    unmap_pages(p, sizeof(Profile));
    return nullptr;
  }
  p->capacity_ = rounded;
  p->slots_mask_ = 2 * rounded - 1;
  p->frames_ = reinterpret_cast<Frame*>(tables);
  p->slots_ = reinterpret_cast<uint32_t*>(tables + frame_bytes);
  p->scratch_ = reinterpret_cast<uint64_t*>(tables + frame_bytes + slot_bytes);
  return p;
}

uint32_t Profile::find(const char* name, uint32_t length, uint32_t hash, uint32_t* slot) const {
  uint32_t s = hash & slots_mask_;
  for (;; s = (s + 1) & slots_mask_) {
    const uint32_t held = __atomic_load_n(&slots_[s], __ATOMIC_ACQUIRE);
    if (held == 0) break;
    const Frame& f = frames_[held - 1];
    if (f.hash == hash && f.length == length && memcmp(f.name, name, length) == 0) return held - 1;
  }
  *slot = s;
  return kNoFrame;
}

char* Profile::store(const char* name, size_t length) {
  if (length + 1 > chunk_left_) {
    char* fresh = static_cast<char*>(map_pages(kChunkBytes));
    if (!fresh) return nullptr;
    chunk_ = fresh;
    chunk_left_ = kChunkBytes;
  }
  char* at = chunk_;
  memcpy(at, name, length);
  at[length] = 0;
  chunk_ += length + 1;
  chunk_left_ -= length + 1;
  return at;
}

uint32_t Profile::intern(const char* name, size_t length) {
  if (!name || length == 0) return kNoFrame;
  length = utf8_cut(name, length, kMaxNameBytes);
  const uint32_t hash = hash_name(name, length);
  const uint32_t n = static_cast<uint32_t>(length);
  uint32_t slot;
  uint32_t frame = find(name, n, hash, &slot);
  if (frame != kNoFrame) return frame;

  Guard hold(lock_);
  frame = find(name, n, hash, &slot);
  if (frame != kNoFrame) return frame;
  const uint32_t count = __atomic_load_n(&count_, __ATOMIC_RELAXED);
  if (count >= capacity_) return kNoFrame;
  const char* kept = store(name, length);
  if (!kept) return kNoFrame;
  Frame& f = frames_[count];
  f.name = kept;
  f.length = n;
  f.hash = hash;
  __atomic_store_n(&slots_[slot], count + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&count_, count + 1, __ATOMIC_RELEASE);
  return count;
}

bool Profile::is(uint32_t frame, const char* name) const {
  const Frame& f = frames_[frame];
  return strncmp(f.name, name, f.length) == 0 && (name[f.length] == 0 || f.length > kMaxNameBytes - 4);
}

void Profile::add(uint32_t frame, uint64_t value, uint64_t samples) {
  if (frame == kNoFrame) {
    __atomic_fetch_add(&overflow_value_, value, __ATOMIC_RELAXED);
    return;
  }
  __atomic_fetch_add(&frames_[frame].value, value, __ATOMIC_RELAXED);
  __atomic_fetch_add(&frames_[frame].samples, samples, __ATOMIC_RELAXED);
}

// Takes a copy of the first n values; finds the least one that is listed, and how many frames that have just it.
void Profile::select(uint32_t n, uint64_t* threshold, uint32_t* at_threshold) const {
  for (uint32_t i = 0; i < n; i++) scratch_[i] = value(i);
  *threshold = 0;
  *at_threshold = n;
  if (n <= kListedFrames) return;
  uint64_t* sorted = scratch_ + capacity_;
  memcpy(sorted, scratch_, n * sizeof(uint64_t));
  *threshold = greatest(sorted, n, kListedFrames);
  uint32_t above = 0;
  for (uint32_t i = 0; i < n; i++) above += scratch_[i] > *threshold ? 1 : 0;
  *at_threshold = kListedFrames - above;
}

uint64_t Profile::write(Json& out) const {
  uint64_t threshold;
  uint32_t at_threshold;
  const uint32_t n = frames();
  select(n, &threshold, &at_threshold);
  uint64_t left_out = __atomic_load_n(&overflow_value_, __ATOMIC_RELAXED);
  bool first = true;
  out.raw("\"frames\":{");
  for (uint32_t i = 0; i < n; i++) {
    const uint64_t v = scratch_[i], n_samples = samples(i);
    if (n_samples == 0) continue;
    if (v < threshold || (v == threshold && at_threshold == 0)) {
      left_out += v;
      continue;
    }
    if (v == threshold) at_threshold--;
    if (!first) out.raw(",");
    first = false;
    out.string(frames_[i].name, frames_[i].length);
    out.raw(":[");
    out.number(v);
    out.raw(",");
    out.number(n_samples);
    out.raw("]");
  }
  out.raw("}");
  return left_out;
}

void Instrument::set(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  __atomic_store_n(&bits_, bits, __ATOMIC_RELAXED);
}

void Instrument::add(uint64_t delta) { __atomic_fetch_add(&bits_, delta, __ATOMIC_RELAXED); }

void Instrument::record(uint64_t value) {
  graphsignal_probe_entry entry;
  entry.type = GRAPHSIGNAL_HISTOGRAM;
  entry.storage = GRAPHSIGNAL_STORAGE_HOST;
  entry.data = histogram_;
  graphsignal_record(&entry, value);
}

bool Instruments::allocate() {
  if (!table_) table_ = static_cast<Instrument*>(map_pages(sizeof(Instrument) * kMaxInstruments));
  return table_ != nullptr;
}

Instrument* Instruments::get(const char* name, graphsignal_instrument_type type, const Tag* tags, uint32_t ntags,
                             uint32_t frames) {
  if (!table_ || !name || !name[0]) return nullptr;
  if (ntags > GRAPHSIGNAL_PROBE_MAX_TAGS) ntags = GRAPHSIGNAL_PROBE_MAX_TAGS;
  Guard hold(lock_);
  const uint32_t n = __atomic_load_n(&count_, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < n; i++) {
    Instrument& known = table_[i];
    if (known.ntags_ != ntags || !same_text(known.name_, name, Instrument::kMaxName)) continue;
    uint32_t t = 0;
    while (t < ntags && same_text(known.keys_[t], tags[t].key, Instrument::kMaxTagKey) &&
           same_text(known.values_[t], tags[t].value, Instrument::kMaxTagValue)) {
      t++;
    }
    if (t == ntags) return &known;
  }
  Instrument* fresh = n < kMaxInstruments ? &table_[n] : nullptr;
  if (fresh && type == GRAPHSIGNAL_HISTOGRAM) {
    fresh->histogram_ = static_cast<graphsignal_instrument_data*>(map_pages(sizeof(graphsignal_instrument_data)));
    if (fresh->histogram_) {
      fresh->histogram_->min = UINT64_MAX;
    } else {
      fresh = nullptr;
    }
  } else if (fresh && type == GRAPHSIGNAL_PROFILE) {
    fresh->profile_ = Profile::create(frames);
    if (!fresh->profile_) fresh = nullptr;
  }
  if (!fresh) {
    __atomic_fetch_add(&dropped_, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
    return nullptr;
  }
  fresh->type_ = type;
  fresh->ntags_ = ntags;
  copy_text(fresh->name_, name, Instrument::kMaxName);
  for (uint32_t t = 0; t < ntags; t++) {
    copy_text(fresh->keys_[t], tags[t].key, Instrument::kMaxTagKey);
    copy_text(fresh->values_[t], tags[t].value, Instrument::kMaxTagValue);
  }
  __atomic_store_n(&count_, n + 1, __ATOMIC_RELEASE);
  return fresh;
}

void Instruments::write(Json& out, bool* first) const {
  const uint32_t n = __atomic_load_n(&count_, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < n; i++) {
    const Instrument& in = table_[i];
    const uint64_t bits = __atomic_load_n(&in.bits_, __ATOMIC_RELAXED);
    double gauge = 0;
    if (in.type_ == GRAPHSIGNAL_GAUGE) {
      memcpy(&gauge, &bits, sizeof(gauge));
      if (!__builtin_isfinite(gauge)) continue;
    }
    write_entry_start(out, first, in.name_, strlen(in.name_), type_name(in.type_));
    for (uint32_t t = 0; t < in.ntags_; t++) {
      if (t) out.raw(",");
      out.string(in.keys_[t], strlen(in.keys_[t]));
      out.raw(":");
      out.string(in.values_[t], strlen(in.values_[t]));
    }
    out.raw("}");
    switch (in.type_) {
      case GRAPHSIGNAL_GAUGE:
        out.raw(",\"value\":");
        out.number(gauge);
        break;
      case GRAPHSIGNAL_COUNTER:
        out.raw(",\"value\":");
        out.number(bits);
        break;
      case GRAPHSIGNAL_HISTOGRAM: {
        graphsignal_probe_entry entry;
        entry.type = GRAPHSIGNAL_HISTOGRAM;
        entry.storage = GRAPHSIGNAL_STORAGE_HOST;
        entry.data = in.histogram_;
        graphsignal_instrument_data copy;
        if (graphsignal_probe_snapshot(&entry, &copy)) write_histogram(out, copy);
        break;
      }
      case GRAPHSIGNAL_PROFILE: {
        out.raw(",");
        const uint64_t left_out = in.profile_->write(out);
        Instrument* unlisted = __atomic_load_n(&in.unlisted_, __ATOMIC_ACQUIRE);
        if (unlisted) unlisted->set(static_cast<double>(left_out));
        break;
      }
    }
    out.raw("}");
  }
}

void write_entry_start(Json& out, bool* first, const char* name, size_t name_length, const char* type) {
  out.raw(*first ? "{\"name\":" : ",{\"name\":");
  *first = false;
  out.string(name, name_length, true);
  out.raw(",\"type\":\"");
  out.raw(type);
  out.raw("\",\"tags\":{");
}

void write_histogram(Json& out, const graphsignal_instrument_data& d) {
  uint32_t lowest = GRAPHSIGNAL_PROBE_HIST_BINS, highest = 0;
  for (uint32_t i = 0; i < GRAPHSIGNAL_PROBE_HIST_BINS; i++) {
    if (d.bins[i] == 0) continue;
    if (lowest == GRAPHSIGNAL_PROBE_HIST_BINS) lowest = i;
    highest = i;
  }
  for (int half = 0; half < 2 && lowest < GRAPHSIGNAL_PROBE_HIST_BINS; half++) {
    out.raw(half == 0 ? ",\"bins\":[" : "],\"counts\":[");
    for (uint32_t i = lowest; i <= highest; i++) {
      if (d.bins[i] == 0) continue;
      if (i != lowest) out.raw(",");
      out.number(half == 0 ? graphsignal_probe_bin_lower(i) : d.bins[i]);
    }
  }
  if (lowest < GRAPHSIGNAL_PROBE_HIST_BINS) out.raw("]");
  if (d.count == 0) return;
  // Between the steps of the very first record the extremes may not be there yet.
  const bool torn = d.min > d.max;
  out.raw(",\"count\":");
  out.number(d.count);
  out.raw(",\"sum\":");
  out.number(d.sum);
  out.raw(",\"min\":");
  out.number(torn ? d.sum / d.count : d.min);
  out.raw(",\"max\":");
  out.number(torn ? d.sum / d.count : d.max);
}

void write_counter(Json& out, bool* first, const char* name, uint64_t value) {
  write_entry_start(out, first, name, strlen(name), "counter");
  out.raw("},\"value\":");
  out.number(value);
  out.raw("}");
}

}  // namespace graphsignal
