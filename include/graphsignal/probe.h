// Copyright Graphsignal contributors
// SPDX-License-Identifier: Apache-2.0
//
// Graphsignal probes: gauges, counters, histograms and profiles that a program updates in place and that a profiler
// reads from the same process. Vendor this one file; it needs libc only and works the same with no profiler around.
//
//   static graphsignal_probe_entry* steps =
//       graphsignal_probe_register("myengine_step_nanoseconds", GRAPHSIGNAL_HISTOGRAM, nullptr, nullptr, 0);
//   uint64_t t0 = graphsignal_now_ns();
//   step();
//   graphsignal_record(steps, graphsignal_now_ns() - t0);
//
// Values are cumulative for the life of the process. Registration takes a lock, may allocate and should happen once, at
// start-up; recording is a few relaxed atomic operations and may happen in any thread. A NULL entry is accepted
// everywhere and does nothing, so a refused registration needs no check by the caller.
//
// All structures and the registry symbol are a binary interface shared by every copy of this header in a process,
// whatever its version: sizes, offsets and the meaning of each field never change.
//
// Environment: GRAPHSIGNAL_PROBE_LIB names (by absolute path) a publisher library, which the first registration loads.
// It is ignored in set-user-id programs and in statically linked ones, whose probes nobody reads; nor does anybody read those of a
// forked child whose parent has registered some, unless it executes a program or starts the GPU's runtime.
//
// No link flag is needed: where the dynamic linker does not show a registry, the publisher looks for it in memory. An executable
// may still export it (-rdynamic) for readers that do not look.
#ifndef GRAPHSIGNAL_PROBE_H
#define GRAPHSIGNAL_PROBE_H

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "graphsignal/probe.h needs C++17 or newer"
#endif

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#include <sched.h>
#define GRAPHSIGNAL_PROBE__UNIX 1
#endif
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#define GRAPHSIGNAL_PROBE_ABI_MAGIC 0x47535052u
#define GRAPHSIGNAL_PROBE_ABI_VERSION 2u
#define GRAPHSIGNAL_PROBE_REGISTRY_SYMBOL "__graphsignal_probe_registry_v1"

#define GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS 4096
#define GRAPHSIGNAL_PROBE_HIST_BINS 256
#define GRAPHSIGNAL_PROBE_MAX_NAME 128
#define GRAPHSIGNAL_PROBE_MAX_TAGS 4
#define GRAPHSIGNAL_PROBE_MAX_TAG_KEY 32
#define GRAPHSIGNAL_PROBE_MAX_TAG_VALUE 128
#define GRAPHSIGNAL_PROBE_MAX_PROFILE_FRAMES 250
#define GRAPHSIGNAL_PROBE_MAX_FRAME_NAME 128

enum graphsignal_instrument_type {
  GRAPHSIGNAL_GAUGE = 0,      // a level: the last double that was set
  GRAPHSIGNAL_COUNTER = 1,    // a running total of unsigned integers
  GRAPHSIGNAL_HISTOGRAM = 2,  // a distribution of unsigned integers
  GRAPHSIGNAL_PROFILE = 3     // running totals by frame name
};

enum graphsignal_instrument_storage {
  GRAPHSIGNAL_STORAGE_HOST = 0,   // the block is host memory
  GRAPHSIGNAL_STORAGE_DEVICE = 1  // the block is GPU memory, never dereferenced on the host
};

// Block of a gauge, counter or histogram; the same bytes on host and device.
struct graphsignal_instrument_data {
  uint64_t count;       // histogram: observations
  uint64_t sum;         // histogram: sum of the observed values, modulo 2^64
  uint64_t min;         // histogram: smallest value, UINT64_MAX before the first
  uint64_t max;         // histogram: largest value
  uint64_t value_bits;  // gauge: bits of an IEEE-754 double; counter: total
  uint64_t bins[GRAPHSIGNAL_PROBE_HIST_BINS];
};

struct graphsignal_profile_frame {
  char name[GRAPHSIGNAL_PROBE_MAX_FRAME_NAME];
  uint64_t value;    // sum of all added deltas
  uint64_t samples;  // number of adds
};

// Block of a profile.
struct graphsignal_profile_data {
  uint64_t frame_count;  // published frames
  uint64_t dropped;      // lookups refused because the table was full
  struct graphsignal_profile_frame frames[GRAPHSIGNAL_PROBE_MAX_PROFILE_FRAMES];
};

struct graphsignal_probe_entry {
  uint32_t type;
  uint32_t storage;
  int32_t device_id;  // process-visible ordinal for DEVICE storage, -1 for HOST
  uint32_t ntags;
  char name[GRAPHSIGNAL_PROBE_MAX_NAME];
  char tag_keys[GRAPHSIGNAL_PROBE_MAX_TAGS][GRAPHSIGNAL_PROBE_MAX_TAG_KEY];
  char tag_values[GRAPHSIGNAL_PROBE_MAX_TAGS][GRAPHSIGNAL_PROBE_MAX_TAG_VALUE];
  struct graphsignal_instrument_data* data;  // HOST PROFILE: points at a graphsignal_profile_data
};

struct graphsignal_probe_registry {
  uint32_t magic;  // 0 before the first registration of the process
  uint32_t abi_version;
  uint64_t start_ts;  // epoch nanoseconds of the first registration
  uint64_t dropped;   // registrations refused for lack of room or memory
  uint64_t reg_lock;  // 0 free, 1 held
  uint64_t count;     // published entries
  struct graphsignal_probe_entry entries[GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS];
};

#if UINTPTR_MAX == UINT64_MAX
static_assert(sizeof(struct graphsignal_instrument_data) == 2088, "instrument block layout");
static_assert(offsetof(struct graphsignal_instrument_data, bins) == 40, "instrument block layout");
static_assert(sizeof(struct graphsignal_profile_frame) == 144, "profile frame layout");
static_assert(sizeof(struct graphsignal_profile_data) == 36016, "profile block layout");
static_assert(sizeof(struct graphsignal_probe_entry) == 792, "entry layout");
static_assert(offsetof(struct graphsignal_probe_entry, data) == 784, "entry layout");
static_assert(sizeof(struct graphsignal_probe_registry) == 3244072, "registry layout");
static_assert(offsetof(struct graphsignal_probe_registry, entries) == 40, "registry layout");
#endif

// The registry of the process. One definition wins wherever the dynamic linker can unify the copies.
extern "C" {
#if defined(_WIN32)
inline struct graphsignal_probe_registry __graphsignal_probe_registry_v1;
#else
inline struct graphsignal_probe_registry __graphsignal_probe_registry_v1 __attribute__((visibility("default")));
#endif
}

// ---------------------------------------------------------------------------------------------------------------------
// Time and bins

// Wall-clock time in nanoseconds since the epoch. The clock may step, so a difference of two readings may be negative.
static inline uint64_t graphsignal_now_ns() {
  struct timespec ts;
#if defined(GRAPHSIGNAL_PROBE__UNIX)
  clock_gettime(CLOCK_REALTIME, &ts);
#else
  timespec_get(&ts, TIME_UTC);
#endif
  return static_cast<uint64_t>(ts.tv_sec) * 1000000000u + static_cast<uint64_t>(ts.tv_nsec);
}

// Bin of a value: exact below 8, then four bins per power of two. Result 0..251.
static inline uint32_t graphsignal_probe_bin_index(uint64_t v) {
  if (v < 4) return static_cast<uint32_t>(v);
  const uint32_t e = 63u - static_cast<uint32_t>(__builtin_clzll(v));
  return 4u * e + static_cast<uint32_t>((v >> (e - 2)) & 3u) - 4u;
}

// Inclusive lower bound of a bin. Saturates at 2^64-1 from bin 252 on, which is the upper end of bin 251.
static inline uint64_t graphsignal_probe_bin_lower(uint32_t idx) {
  if (idx < 4) return idx;
  if (idx >= 252) return UINT64_MAX;
  return static_cast<uint64_t>(4u + (idx & 3u)) << (idx / 4u - 1u);
}

// ---------------------------------------------------------------------------------------------------------------------
// Private helpers

// Waits for the registry lock. Other copies of this header, of any version, use the same protocol.
static inline void graphsignal_probe__lock(struct graphsignal_probe_registry* r) {
  for (unsigned spins = 0; __atomic_exchange_n(&r->reg_lock, static_cast<uint64_t>(1), __ATOMIC_ACQUIRE) != 0;) {
    if (++spins < 64) {
#if defined(__x86_64__) && !defined(__CUDA_ARCH__) && !defined(__HIP_DEVICE_COMPILE__)
      __builtin_ia32_pause();
#endif
    } else {
#if defined(GRAPHSIGNAL_PROBE__UNIX)
      sched_yield();
#endif
    }
  }
}

static inline void graphsignal_probe__unlock(struct graphsignal_probe_registry* r) {
  __atomic_store_n(&r->reg_lock, static_cast<uint64_t>(0), __ATOMIC_RELEASE);
}

// Copies at most cap-1 bytes, cut bytewise (part of the identity rule), and terminates. NULL counts as empty.
static inline void graphsignal_probe__copy(char* dst, const char* src, size_t cap) {
  size_t n = 0;
  if (src) {
    for (; n < cap - 1 && src[n] != 0; n++) dst[n] = src[n];
  }
  dst[n] = 0;
}

// Whether a stored string equals a caller's string cut the same way.
static inline bool graphsignal_probe__same(const char* stored, const char* given, size_t cap) {
  return strncmp(stored, given ? given : "", cap - 1) == 0;
}

// Stamps an unused registry. Returns false when it belongs to another layout. The lock is held.
static inline bool graphsignal_probe__stamp(struct graphsignal_probe_registry* r) {
  const uint32_t magic = __atomic_load_n(&r->magic, __ATOMIC_ACQUIRE);
  if (magic == 0) {
    r->abi_version = GRAPHSIGNAL_PROBE_ABI_VERSION;
    r->start_ts = graphsignal_now_ns();
    __atomic_store_n(&r->magic, GRAPHSIGNAL_PROBE_ABI_MAGIC, __ATOMIC_RELEASE);
    return true;
  }
  return magic == GRAPHSIGNAL_PROBE_ABI_MAGIC && r->abi_version == GRAPHSIGNAL_PROBE_ABI_VERSION;
}

// Finds a published entry by name and ordered tags, or NULL. The lock is held.
static inline struct graphsignal_probe_entry* graphsignal_probe__find(struct graphsignal_probe_registry* r,
                                                                      const char* name, const char* const* keys,
                                                                      const char* const* values, size_t ntags) {
  const uint64_t n = __atomic_load_n(&r->count, __ATOMIC_RELAXED);
  for (uint64_t i = 0; i < n; i++) {
    struct graphsignal_probe_entry* e = &r->entries[i];
    if (e->ntags != ntags || !graphsignal_probe__same(e->name, name, GRAPHSIGNAL_PROBE_MAX_NAME)) continue;
    size_t t = 0;
    while (t < ntags && graphsignal_probe__same(e->tag_keys[t], keys[t], GRAPHSIGNAL_PROBE_MAX_TAG_KEY) &&
           graphsignal_probe__same(e->tag_values[t], values[t], GRAPHSIGNAL_PROBE_MAX_TAG_VALUE)) {
      t++;
    }
    if (t == ntags) return e;
  }
  return nullptr;
}

// Adds 1 to the refused registrations. The lock is held.
static inline void graphsignal_probe__refuse(struct graphsignal_probe_registry* r) {
  __atomic_store_n(&r->dropped, r->dropped + 1, __ATOMIC_RELAXED);
}

// For headers whose blocks cost something to make: true when a registration needs a block. False when it is answered
// already: *found is the existing entry, or NULL for one that has to be refused (an empty name, a full registry).
static inline bool graphsignal_probe__wants_block(const char* name, const char* const* keys, const char* const* values,
                                                  size_t ntags, struct graphsignal_probe_entry** found) {
  *found = nullptr;
  if (!name || !name[0]) return false;
  if (!keys || !values) ntags = 0;
  if (ntags > GRAPHSIGNAL_PROBE_MAX_TAGS) ntags = GRAPHSIGNAL_PROBE_MAX_TAGS;
  struct graphsignal_probe_registry* r = &__graphsignal_probe_registry_v1;
  graphsignal_probe__lock(r);
  bool wanted = graphsignal_probe__stamp(r);
  if (wanted) {
    *found = graphsignal_probe__find(r, name, keys, values, ntags);
    if (*found) {
      wanted = false;
    } else if (__atomic_load_n(&r->count, __ATOMIC_RELAXED) >= GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS) {
      graphsignal_probe__refuse(r);
      wanted = false;
    }
  }
  graphsignal_probe__unlock(r);
  return wanted;
}

// Counts a registration whose block could not be made.
static inline void graphsignal_probe__no_block() {
  struct graphsignal_probe_registry* r = &__graphsignal_probe_registry_v1;
  graphsignal_probe__lock(r);
  graphsignal_probe__refuse(r);
  graphsignal_probe__unlock(r);
}

#if defined(__linux__)
// Whether the program has a dynamic loader. To load a library into a statically linked one brings in a second libc, and crashes.
static inline bool graphsignal_probe__has_loader() {
  const char* header = reinterpret_cast<const char*>(getauxval(AT_PHDR));
  if (!header) return true;  // not told
  const size_t size = getauxval(AT_PHENT);
  for (size_t n = getauxval(AT_PHNUM); n > 0; n--, header += size) {
    uint32_t type;
    memcpy(&type, header, sizeof(type));
    if (type == 3) return true;  // PT_INTERP
  }
  return false;
}
#endif

// Loads the publisher that GRAPHSIGNAL_PROBE_LIB names and hands it this registry; once per copy of the header.
// Runs without the lock: loading runs foreign constructors.
static inline void graphsignal_probe__start_publisher(struct graphsignal_probe_registry* r) {
#if defined(__linux__)
  static int started = 0;
  if (__atomic_exchange_n(&started, 1, __ATOMIC_ACQ_REL) != 0) return;
  if (getauxval(AT_SECURE) != 0 || !graphsignal_probe__has_loader()) return;
  const char* path = getenv("GRAPHSIGNAL_PROBE_LIB");
  if (!path || path[0] != '/') return;
  void* lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) return;
  void* add = dlsym(lib, "graphsignal_probe_publish");
  if (!add) return;
  int (*publish)(struct graphsignal_probe_registry*);
  memcpy(&publish, &add, sizeof(publish));
  publish(r);
#else
  (void)r;
#endif
}

// Body of both registration calls. With data NULL the block is allocated here, after the search and the cap check.
static inline struct graphsignal_probe_entry* graphsignal_probe__register(
    const char* name, enum graphsignal_instrument_type type, const char* const* keys, const char* const* values,
    size_t ntags, enum graphsignal_instrument_storage storage, struct graphsignal_instrument_data* data,
    int device_id) {
  if (!name || !name[0]) return nullptr;
  if (!keys || !values) ntags = 0;
  if (ntags > GRAPHSIGNAL_PROBE_MAX_TAGS) ntags = GRAPHSIGNAL_PROBE_MAX_TAGS;

  struct graphsignal_probe_registry* r = &__graphsignal_probe_registry_v1;
  graphsignal_probe__lock(r);
  if (!graphsignal_probe__stamp(r)) {
    graphsignal_probe__unlock(r);
    return nullptr;
  }
  struct graphsignal_probe_entry* e = graphsignal_probe__find(r, name, keys, values, ntags);
  if (!e) {
    const uint64_t n = __atomic_load_n(&r->count, __ATOMIC_RELAXED);
    if (n < GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS && !data) {
      if (type == GRAPHSIGNAL_PROFILE) {
        data = static_cast<struct graphsignal_instrument_data*>(calloc(1, sizeof(struct graphsignal_profile_data)));
      } else {
        data = static_cast<struct graphsignal_instrument_data*>(calloc(1, sizeof(struct graphsignal_instrument_data)));
        if (data) data->min = UINT64_MAX;
      }
    }
    if (n >= GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS || !data) {
      graphsignal_probe__refuse(r);
    } else {
      e = &r->entries[n];
      e->type = static_cast<uint32_t>(type);
      e->storage = static_cast<uint32_t>(storage);
      e->device_id = device_id;
      e->ntags = static_cast<uint32_t>(ntags);
      graphsignal_probe__copy(e->name, name, GRAPHSIGNAL_PROBE_MAX_NAME);
      for (size_t t = 0; t < ntags; t++) {
        graphsignal_probe__copy(e->tag_keys[t], keys[t], GRAPHSIGNAL_PROBE_MAX_TAG_KEY);
        graphsignal_probe__copy(e->tag_values[t], values[t], GRAPHSIGNAL_PROBE_MAX_TAG_VALUE);
      }
      e->data = data;
      __atomic_store_n(&r->count, n + 1, __ATOMIC_RELEASE);
    }
  }
  graphsignal_probe__unlock(r);
  graphsignal_probe__start_publisher(r);
  return e;
}

// Block of an entry that host code may record into, or NULL.
static inline struct graphsignal_instrument_data* graphsignal_probe__host(const struct graphsignal_probe_entry* e) {
  if (!e || e->storage != GRAPHSIGNAL_STORAGE_HOST || e->type == GRAPHSIGNAL_PROFILE) return nullptr;
  return e->data;
}

// ---------------------------------------------------------------------------------------------------------------------
// Registration

// Registers an instrument, or returns the existing one with the same name and the same tags in the same order (whatever
// its type). At most 4 tags count; strings longer than the limits above are cut. Returns NULL for an empty name, and
// when the registry is full or memory is short (counted in the registry's `dropped`).
static inline struct graphsignal_probe_entry* graphsignal_probe_register(const char* name,
                                                                         enum graphsignal_instrument_type type,
                                                                         const char* const* tag_keys,
                                                                         const char* const* tag_values, size_t ntags) {
  return graphsignal_probe__register(name, type, tag_keys, tag_values, ntags, GRAPHSIGNAL_STORAGE_HOST, nullptr, -1);
}

// Registers an instrument whose block lives in memory of device `device_id` and is updated by kernels. Every field of the
// block must be 0 except `min`, which must be UINT64_MAX. The block is never freed and must never move. Returns NULL also
// when block is NULL or type is GRAPHSIGNAL_PROFILE.
static inline struct graphsignal_probe_entry* graphsignal_probe_register_storage(
    const char* name, enum graphsignal_instrument_type type, const char* const* tag_keys,
    const char* const* tag_values, size_t ntags, struct graphsignal_instrument_data* block, int device_id) {
  if (!block || type == GRAPHSIGNAL_PROFILE) return nullptr;
  return graphsignal_probe__register(name, type, tag_keys, tag_values, ntags, GRAPHSIGNAL_STORAGE_DEVICE, block,
                                     device_id);
}

// ---------------------------------------------------------------------------------------------------------------------
// Recording: any thread, no lock, no allocation. No effect on NULL, DEVICE and PROFILE entries.

// Adds one observation to a histogram.
static inline void graphsignal_record(struct graphsignal_probe_entry* e, uint64_t value) {
  struct graphsignal_instrument_data* d = graphsignal_probe__host(e);
  if (!d) return;
  __atomic_fetch_add(&d->count, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
  __atomic_fetch_add(&d->sum, value, __ATOMIC_RELAXED);
  __atomic_fetch_add(&d->bins[graphsignal_probe_bin_index(value)], static_cast<uint64_t>(1), __ATOMIC_RELAXED);
  uint64_t seen = __atomic_load_n(&d->min, __ATOMIC_RELAXED);
  while (value < seen &&
         !__atomic_compare_exchange_n(&d->min, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  seen = __atomic_load_n(&d->max, __ATOMIC_RELAXED);
  while (value > seen &&
         !__atomic_compare_exchange_n(&d->max, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// Adds to a counter.
static inline void graphsignal_add(struct graphsignal_probe_entry* e, uint64_t delta) {
  struct graphsignal_instrument_data* d = graphsignal_probe__host(e);
  if (d) __atomic_fetch_add(&d->value_bits, delta, __ATOMIC_RELAXED);
}

// Sets a gauge. The last set wins; non-finite values are kept as they are but are not published.
static inline void graphsignal_set(struct graphsignal_probe_entry* e, double value) {
  struct graphsignal_instrument_data* d = graphsignal_probe__host(e);
  if (!d) return;
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  __atomic_store_n(&d->value_bits, bits, __ATOMIC_RELAXED);
}

// Value of a gauge block, by a plain read: meant for a snapshot.
static inline double graphsignal_probe_gauge_value(const struct graphsignal_instrument_data* d) {
  double v;
  memcpy(&v, &d->value_bits, sizeof(v));
  return v;
}

// ---------------------------------------------------------------------------------------------------------------------
// Profiles

// Block of a host profile, or NULL for anything else.
static inline struct graphsignal_profile_data* graphsignal_probe_profile_data(const struct graphsignal_probe_entry* e) {
  if (!e || e->type != GRAPHSIGNAL_PROFILE || e->storage != GRAPHSIGNAL_STORAGE_HOST || !e->data) return nullptr;
  return static_cast<struct graphsignal_profile_data*>(static_cast<void*>(e->data));
}

// Finds or adds a frame. The pointer stays valid for ever, so hot paths should keep it. Returns NULL for an entry that is
// no profile, for an empty name, and past 250 frames (counted in the block's `dropped`).
static inline struct graphsignal_profile_frame* graphsignal_profile_frame_get(struct graphsignal_probe_entry* e,
                                                                              const char* frame) {
  struct graphsignal_profile_data* d = graphsignal_probe_profile_data(e);
  if (!d || !frame || !frame[0]) return nullptr;
  uint64_t seen = __atomic_load_n(&d->frame_count, __ATOMIC_ACQUIRE);
  for (uint64_t i = 0; i < seen; i++) {
    if (graphsignal_probe__same(d->frames[i].name, frame, GRAPHSIGNAL_PROBE_MAX_FRAME_NAME)) return &d->frames[i];
  }
  if (seen >= GRAPHSIGNAL_PROBE_MAX_PROFILE_FRAMES) {
    __atomic_fetch_add(&d->dropped, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
    return nullptr;
  }
  struct graphsignal_probe_registry* r = &__graphsignal_probe_registry_v1;
  struct graphsignal_profile_frame* found = nullptr;
  graphsignal_probe__lock(r);
  const uint64_t n = __atomic_load_n(&d->frame_count, __ATOMIC_RELAXED);
  for (uint64_t i = seen; i < n && !found; i++) {
    if (graphsignal_probe__same(d->frames[i].name, frame, GRAPHSIGNAL_PROBE_MAX_FRAME_NAME)) found = &d->frames[i];
  }
  if (!found && n < GRAPHSIGNAL_PROBE_MAX_PROFILE_FRAMES) {
    found = &d->frames[n];
    graphsignal_probe__copy(found->name, frame, GRAPHSIGNAL_PROBE_MAX_FRAME_NAME);
    __atomic_store_n(&d->frame_count, n + 1, __ATOMIC_RELEASE);
  } else if (!found) {
    __atomic_fetch_add(&d->dropped, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
  }
  graphsignal_probe__unlock(r);
  return found;
}

// Adds a delta to a frame and counts one sample.
static inline void graphsignal_profile_add(struct graphsignal_profile_frame* f, uint64_t delta) {
  if (!f) return;
  __atomic_fetch_add(&f->value, delta, __ATOMIC_RELAXED);
  __atomic_fetch_add(&f->samples, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
}

static inline void graphsignal_profile_add_by_name(struct graphsignal_probe_entry* e, const char* frame,
                                                   uint64_t delta) {
  graphsignal_profile_add(graphsignal_profile_frame_get(e, frame), delta);
}

// ---------------------------------------------------------------------------------------------------------------------
// Reading

// The registry of the process as the dynamic linker's global scope shows it, else this object's own copy. NULL while
// nothing is registered, or when the registry found has another version.
static inline struct graphsignal_probe_registry* graphsignal_probe_reader_attach() {
  struct graphsignal_probe_registry* r = nullptr;
#if defined(GRAPHSIGNAL_PROBE__UNIX)
  r = static_cast<struct graphsignal_probe_registry*>(dlsym(RTLD_DEFAULT, GRAPHSIGNAL_PROBE_REGISTRY_SYMBOL));
#endif
  if (!r || __atomic_load_n(&r->magic, __ATOMIC_ACQUIRE) == 0) r = &__graphsignal_probe_registry_v1;
  if (__atomic_load_n(&r->magic, __ATOMIC_ACQUIRE) != GRAPHSIGNAL_PROBE_ABI_MAGIC ||
      r->abi_version != GRAPHSIGNAL_PROBE_ABI_VERSION) {
    return nullptr;
  }
  return r;
}

// Number of entries that may be read without further synchronisation.
static inline uint64_t graphsignal_probe_reader_count(const struct graphsignal_probe_registry* r) {
  return __atomic_load_n(&r->count, __ATOMIC_ACQUIRE);
}

// Copies the block of a host gauge, counter or histogram word by word. Not a point-in-time cut: the bins may differ from
// `count` by records in flight. Returns 1, or 0 with `out` untouched for any other entry.
static inline int graphsignal_probe_snapshot(const struct graphsignal_probe_entry* e,
                                             struct graphsignal_instrument_data* out) {
  const struct graphsignal_instrument_data* d = graphsignal_probe__host(e);
  if (!d || !out) return 0;
  out->count = __atomic_load_n(&d->count, __ATOMIC_RELAXED);
  out->sum = __atomic_load_n(&d->sum, __ATOMIC_RELAXED);
  out->min = __atomic_load_n(&d->min, __ATOMIC_RELAXED);
  out->max = __atomic_load_n(&d->max, __ATOMIC_RELAXED);
  out->value_bits = __atomic_load_n(&d->value_bits, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < GRAPHSIGNAL_PROBE_HIST_BINS; i++) {
    out->bins[i] = __atomic_load_n(&d->bins[i], __ATOMIC_RELAXED);
  }
  return 1;
}

#endif  // GRAPHSIGNAL_PROBE_H
