// The library's own messages: a ring that is published with every document and printed to standard error.
#ifndef GRAPHSIGNAL_INJECT_LOG_H
#define GRAPHSIGNAL_INJECT_LOG_H

#include <stdarg.h>

#include "json.h"
#include "system.h"

namespace graphsignal {

enum class Level { kDebug, kWarning, kError };

class Log {
 public:
  static const unsigned kEntries = 256;
  static const unsigned kMaxMessage = 2047;

  void set_debug(bool on) { __atomic_store_n(&debug_, on, __ATOMIC_RELAXED); }
  bool debug() const { return __atomic_load_n(&debug_, __ATOMIC_RELAXED); }

  // Keeps a formatted message; debug text only while debug is on. Any thread.
  void add(Level level, const char* format, ...) __attribute__((format(printf, 3, 4)));

  // Writes `,"log":[...]` or nothing.
  void write(Json& out);
  // Prints what was added since the last call to standard error.
  void print();

 private:
  struct Entry {
    uint64_t ts;
    Level level;
    unsigned length;
    char text[kMaxMessage + 1];
  };

  Lock lock_;
  uint64_t added_ = 0;
  uint64_t printed_ = 0;
  uint64_t last_ts_ = 0;
  bool debug_ = false;
  Entry entries_[kEntries];
};

}  // namespace graphsignal

#endif
