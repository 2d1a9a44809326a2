// The library's own instruments: gauges, counters, histograms and profiles in tables of fixed capacity.
#ifndef GRAPHSIGNAL_INJECT_INSTRUMENTS_H
#define GRAPHSIGNAL_INJECT_INSTRUMENTS_H

#include <graphsignal/probe.h>

#include "json.h"
#include "system.h"

namespace graphsignal {

// Published frames of one profile.
const uint32_t kListedFrames = 250;

// Running totals by frame name. All names seen are kept, up to a capacity, with exact totals; the document lists those
// with the greatest values. Adding is lock-free; a new name takes a lock.
class Profile {
 public:
  static const uint32_t kNoFrame = UINT32_MAX;
  static const uint32_t kMaxNameBytes = 4096;

  // Returns NULL when memory is short. The capacity is rounded up to a power of two.
  static Profile* create(uint32_t capacity);

  // Index of a name, which is cut at kMaxNameBytes on a character boundary; kNoFrame for an empty name and for a new one
  // past the capacity.
  uint32_t intern(const char* name, size_t length);
  // Whether a frame's stored name is the given text.
  bool is(uint32_t frame, const char* name) const;
  // Adds to a frame; kNoFrame adds to the totals that no frame shows.
  void add(uint32_t frame, uint64_t value, uint64_t samples = 1);

  // Writes the `frames` object and returns the sum of the values that are not in it.
  uint64_t write(Json& out) const;

  uint32_t frames() const { return __atomic_load_n(&count_, __ATOMIC_ACQUIRE); }
  // Name of a frame, which stays valid for ever.
  const char* name(uint32_t frame) const { return frames_[frame].name; }
  uint32_t length(uint32_t frame) const { return frames_[frame].length; }
  // Totals of a frame, for tests and callers that publish them otherwise.
  uint64_t value(uint32_t frame) const { return __atomic_load_n(&frames_[frame].value, __ATOMIC_RELAXED); }
  uint64_t samples(uint32_t frame) const { return __atomic_load_n(&frames_[frame].samples, __ATOMIC_RELAXED); }

 private:
  struct Frame {
    const char* name;
    uint32_t length;
    uint32_t hash;
    uint64_t value;
    uint64_t samples;
  };

  uint32_t find(const char* name, uint32_t length, uint32_t hash, uint32_t* slot) const;
  char* store(const char* name, size_t length);
  void select(uint32_t n, uint64_t* threshold, uint32_t* at_threshold) const;

  Lock lock_;
  uint32_t capacity_;
  uint32_t count_;
  uint32_t slots_mask_;
  Frame* frames_;
  uint32_t* slots_;    // open addressing; frame index + 1, 0 empty
  uint64_t* scratch_;  // values while a document is written; the writer's lock protects it
  char* chunk_;
  size_t chunk_left_;
  uint64_t overflow_value_;
};

struct Tag {
  const char* key;
  const char* value;
};

class Instrument {
 public:
  void set(double value);        // gauge
  void add(uint64_t delta);      // counter
  void record(uint64_t value);   // histogram
  Profile* profile() { return profile_; }
  // Names a gauge, registered later than this profile, that each document sets to the sum of the frames it leaves out.
  void show_unlisted(Instrument* gauge) { __atomic_store_n(&unlisted_, gauge, __ATOMIC_RELEASE); }

 private:
  friend class Instruments;
  static const size_t kMaxName = 128;
  static const size_t kMaxTagKey = 50;
  static const size_t kMaxTagValue = 250;

  graphsignal_instrument_type type_;
  uint32_t ntags_;
  char name_[kMaxName + 1];
  char keys_[GRAPHSIGNAL_PROBE_MAX_TAGS][kMaxTagKey + 1];
  char values_[GRAPHSIGNAL_PROBE_MAX_TAGS][kMaxTagValue + 1];
  uint64_t bits_;  // gauge: double bits; counter: total
  graphsignal_instrument_data* histogram_;
  Profile* profile_;
  Instrument* unlisted_;
};

class Instruments {
 public:
  static const uint32_t kMaxInstruments = 4096;

  bool allocate();

  // The instrument with this name and ordered tags, whatever its type, or a new one. NULL for an empty name, and (counted)
  // when the table is full or memory is short. A profile keeps at most `frames` names.
  Instrument* get(const char* name, graphsignal_instrument_type type, const Tag* tags = nullptr, uint32_t ntags = 0,
                  uint32_t frames = 1024);
  uint64_t dropped() const { return __atomic_load_n(&dropped_, __ATOMIC_RELAXED); }

  // Writes all entries, each preceded by a comma unless it is the first of the array.
  void write(Json& out, bool* first) const;

 private:
  Lock lock_;
  Instrument* table_ = nullptr;
  uint32_t count_ = 0;
  uint64_t dropped_ = 0;
};

// Pieces of an entry that probes and own instruments share.
void write_entry_start(Json& out, bool* first, const char* name, size_t name_length, const char* type);
void write_histogram(Json& out, const graphsignal_instrument_data& d);
// A counter without tags.
void write_counter(Json& out, bool* first, const char* name, uint64_t value);

}  // namespace graphsignal

#endif
