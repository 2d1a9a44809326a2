#include "probe_export.h"

#include <string.h>

#include "instruments.h"

namespace graphsignal {

bool well_formed(const graphsignal_probe_entry& e) {
  if (e.type > GRAPHSIGNAL_PROFILE || e.ntags > GRAPHSIGNAL_PROBE_MAX_TAGS || !e.data || !e.name[0]) return false;
  if (!memchr(e.name, 0, sizeof(e.name))) return false;
  for (uint32_t t = 0; t < e.ntags; t++) {
    if (!memchr(e.tag_keys[t], 0, sizeof(e.tag_keys[t])) || !memchr(e.tag_values[t], 0, sizeof(e.tag_values[t]))) return false;
  }
  return true;
}

bool same_identity(const graphsignal_probe_entry& a, const graphsignal_probe_entry& b) {
  if (a.type != b.type || a.storage != b.storage || a.ntags != b.ntags || strcmp(a.name, b.name) != 0) return false;
  for (uint32_t t = 0; t < a.ntags; t++) {
    if (strcmp(a.tag_keys[t], b.tag_keys[t]) != 0 || strcmp(a.tag_values[t], b.tag_values[t]) != 0) return false;
  }
  return true;
}

namespace {

// The entry with the identity of e, or NULL.
const graphsignal_probe_entry* lookup(const graphsignal_probe_registry& r, const graphsignal_probe_entry& e) {
  const uint64_t n = graphsignal_probe_reader_count(&r);
  for (uint64_t i = 0; i < n; i++) {
    if (same_identity(r.entries[i], e)) return &r.entries[i];
  }
  return nullptr;
}

bool ready(const graphsignal_probe_registry* r) {
  return __atomic_load_n(&r->magic, __ATOMIC_ACQUIRE) == GRAPHSIGNAL_PROBE_ABI_MAGIC &&
         r->abi_version == GRAPHSIGNAL_PROBE_ABI_VERSION &&
         graphsignal_probe_reader_count(r) <= GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS;
}

void write_text(Json& out, const char* text, size_t capacity) {
  const size_t n = strlen(text);
  out.string(text, n, n == capacity - 1);
}

const char* type_word(uint32_t type) {
  static const char* const kWords[] = {"gauge", "counter", "histogram", "profile"};
  return kWords[type];
}

// Totals of one frame name over the blocks of one identity.
void frame_totals(const graphsignal_profile_data* const* blocks, uint32_t n, const char* name, uint64_t* value,
                  uint64_t* samples) {
  *value = *samples = 0;
  for (uint32_t b = 0; b < n; b++) {
    const uint64_t frames = __atomic_load_n(&blocks[b]->frame_count, __ATOMIC_ACQUIRE);
    for (uint64_t i = 0; i < frames && i < GRAPHSIGNAL_PROBE_MAX_PROFILE_FRAMES; i++) {
      const graphsignal_profile_frame& f = blocks[b]->frames[i];
      if (strncmp(f.name, name, GRAPHSIGNAL_PROBE_MAX_FRAME_NAME) != 0) continue;
      *value += __atomic_load_n(&f.value, __ATOMIC_RELAXED);
      *samples += __atomic_load_n(&f.samples, __ATOMIC_RELAXED);
      break;
    }
  }
}

void write_frames(Json& out, const graphsignal_profile_data* const* blocks, uint32_t n) {
  bool first = true;
  out.raw(",\"frames\":{");
  for (uint32_t b = 0; b < n; b++) {
    const uint64_t frames = __atomic_load_n(&blocks[b]->frame_count, __ATOMIC_ACQUIRE);
    for (uint64_t i = 0; i < frames && i < GRAPHSIGNAL_PROBE_MAX_PROFILE_FRAMES; i++) {
      const graphsignal_profile_frame& f = blocks[b]->frames[i];
      const size_t length = bounded_length(f.name, sizeof(f.name));
      bool earlier = false;
      for (uint32_t a = 0; a < b && !earlier; a++) {
        const uint64_t listed = __atomic_load_n(&blocks[a]->frame_count, __ATOMIC_ACQUIRE);
        for (uint64_t j = 0; j < listed && j < GRAPHSIGNAL_PROBE_MAX_PROFILE_FRAMES && !earlier; j++) {
          earlier = strncmp(blocks[a]->frames[j].name, f.name, sizeof(f.name)) == 0;
        }
      }
      if (earlier || length == 0 || length == sizeof(f.name)) continue;
      uint64_t value, samples;
      if (n == 1) {
        value = __atomic_load_n(&f.value, __ATOMIC_RELAXED);
        samples = __atomic_load_n(&f.samples, __ATOMIC_RELAXED);
      } else {
        frame_totals(blocks, n, f.name, &value, &samples);
      }
      if (!first) out.raw(",");
      first = false;
      out.string(f.name, length, length == sizeof(f.name) - 1);
      out.raw(":[");
      out.number(value);
      out.raw(",");
      out.number(samples);
      out.raw("]");
    }
  }
  out.raw("}");
}

}  // namespace

void merge_histogram(graphsignal_instrument_data* into, const graphsignal_instrument_data& from) {
  into->count += from.count;
  into->sum += from.sum;
  if (from.min < into->min) into->min = from.min;
  if (from.max > into->max) into->max = from.max;
  for (uint32_t i = 0; i < GRAPHSIGNAL_PROBE_HIST_BINS; i++) into->bins[i] += from.bins[i];
}

void write_probe_start(Json& out, bool* first, const graphsignal_probe_entry& e) {
  write_entry_start(out, first, e.name, strlen(e.name), type_word(e.type));
  for (uint32_t t = 0; t < e.ntags; t++) {
    if (t) out.raw(",");
    write_text(out, e.tag_keys[t], sizeof(e.tag_keys[t]));
    out.raw(":");
    write_text(out, e.tag_values[t], sizeof(e.tag_values[t]));
  }
  out.raw("}");
}

bool ProbeRegistries::add(graphsignal_probe_registry* registry) {
  if (!registry) return false;
  for (uint32_t i = 0; i < kMaxRegistries; i++) {
    graphsignal_probe_registry* empty = nullptr;
    if (__atomic_load_n(&registries_[i], __ATOMIC_ACQUIRE) == registry) return true;
    if (__atomic_load_n(&registries_[i], __ATOMIC_ACQUIRE)) continue;
    if (!linker_left()) keep_loaded(registry);
    if (__atomic_compare_exchange_n(&registries_[i], &empty, registry, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return true;
    if (empty == registry) return true;
  }
  return false;
}

void ProbeRegistries::attach() {
  graphsignal_probe_registry* r = graphsignal_probe_reader_attach();
  if (r) add(r);
}

void ProbeRegistries::discover() {
  if (linker_left()) return;
  scan_.run([](void* self, graphsignal_probe_registry* r) { static_cast<ProbeRegistries*>(self)->add(r); }, this);
}

const graphsignal_probe_registry* ProbeRegistries::get(uint32_t position) const {
  const graphsignal_probe_registry* r = position < kMaxRegistries ? __atomic_load_n(&registries_[position], __ATOMIC_ACQUIRE) : nullptr;
  return r && ready(r) ? r : nullptr;
}

bool ProbeRegistries::has_host_entries() const {
  for (uint32_t r = 0; r < kMaxRegistries; r++) {
    const graphsignal_probe_registry* registry = __atomic_load_n(&registries_[r], __ATOMIC_ACQUIRE);
    if (!registry) break;
    const uint64_t n = ready(registry) ? graphsignal_probe_reader_count(registry) : 0;
    for (uint64_t i = 0; i < n; i++) {
      if (registry->entries[i].storage == GRAPHSIGNAL_STORAGE_HOST) return true;
    }
  }
  return false;
}

void ProbeRegistries::write_host(Json& out, bool* first) const {
  for (uint32_t r = 0; r < kMaxRegistries; r++) {
    const graphsignal_probe_registry* registry = __atomic_load_n(&registries_[r], __ATOMIC_ACQUIRE);
    if (!registry) break;
    if (!ready(registry)) continue;
    const uint64_t n = graphsignal_probe_reader_count(registry);
    for (uint64_t i = 0; i < n; i++) {
      const graphsignal_probe_entry& e = registry->entries[i];
      if (e.storage != GRAPHSIGNAL_STORAGE_HOST || !well_formed(e)) continue;

      const graphsignal_probe_entry* same[kMaxRegistries] = {&e};
      uint32_t copies = 1;
      bool written = false;
      for (uint32_t other = 0; other < kMaxRegistries && !written; other++) {
        const graphsignal_probe_registry* o = __atomic_load_n(&registries_[other], __ATOMIC_ACQUIRE);
        if (!o) break;
        if (other == r || !ready(o)) continue;
        const graphsignal_probe_entry* twin = lookup(*o, e);
        if (!twin || !well_formed(*twin)) continue;
        if (other < r) written = true;
        same[copies++] = twin;
      }
      if (written) continue;

      graphsignal_instrument_data block = {};
      if (e.type != GRAPHSIGNAL_PROFILE) {
        graphsignal_probe_snapshot(same[e.type == GRAPHSIGNAL_GAUGE ? copies - 1 : 0], &block);
        if (e.type == GRAPHSIGNAL_GAUGE && !__builtin_isfinite(graphsignal_probe_gauge_value(&block))) continue;
        for (uint32_t c = 1; c < copies && e.type != GRAPHSIGNAL_GAUGE; c++) {
          graphsignal_instrument_data more = {};
          graphsignal_probe_snapshot(same[c], &more);
          if (e.type == GRAPHSIGNAL_COUNTER) {
            block.value_bits += more.value_bits;
          } else {
            merge_histogram(&block, more);
          }
        }
      }

      write_probe_start(out, first, e);
      switch (e.type) {
        case GRAPHSIGNAL_GAUGE:
          out.raw(",\"value\":");
          out.number(graphsignal_probe_gauge_value(&block));
          break;
        case GRAPHSIGNAL_COUNTER:
          out.raw(",\"value\":");
          out.number(block.value_bits);
          break;
        case GRAPHSIGNAL_HISTOGRAM: write_histogram(out, block); break;
        default: {
          const graphsignal_profile_data* blocks[kMaxRegistries];
          for (uint32_t c = 0; c < copies; c++) blocks[c] = graphsignal_probe_profile_data(same[c]);
          write_frames(out, blocks, copies);
        }
      }
      out.raw("}");
    }
  }
}

void ProbeRegistries::write_dropped(Json& out, bool* first) const {
  uint64_t dropped = 0, frames = 0;
  for (uint32_t r = 0; r < kMaxRegistries; r++) {
    const graphsignal_probe_registry* registry = get(r);
    if (!registry) continue;
    dropped += __atomic_load_n(&registry->dropped, __ATOMIC_RELAXED);
    const uint64_t n = graphsignal_probe_reader_count(registry);
    for (uint64_t i = 0; i < n; i++) {
      const graphsignal_profile_data* profile = graphsignal_probe_profile_data(&registry->entries[i]);
      if (profile) frames += __atomic_load_n(&profile->dropped, __ATOMIC_RELAXED);
    }
  }
  if (dropped) write_counter(out, first, "graphsignal_probe_dropped_instruments", dropped);
  if (frames) write_counter(out, first, "graphsignal_probe_dropped_frames", frames);
}

}  // namespace graphsignal
