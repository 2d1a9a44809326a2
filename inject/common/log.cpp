#include "log.h"

#include <stdio.h>
#include <string.h>

namespace graphsignal {
namespace {

const char* level_name(Level level) {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kWarning: return "warning";
    case Level::kError: return "error";
  }
  return "error";
}

}  // namespace

void Log::add(Level level, const char* format, ...) {
  if (forked() || (level == Level::kDebug && !debug())) return;
  char text[kMaxMessage + 1];
  va_list arguments;
  va_start(arguments, format);
  const int wanted = vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (wanted < 0) return;
  const unsigned full = static_cast<unsigned>(strlen(text));
  // The buffer may have cut a character in two.
  unsigned length = full;
  if (static_cast<unsigned>(wanted) > full) {
    while (length > 0 && full - length < 3 && (static_cast<unsigned char>(text[length - 1]) & 0xC0u) == 0x80u) length--;
    if (length > 0 && static_cast<unsigned char>(text[length - 1]) >= 0xC0u &&
        utf8_sequence(text + length - 1, full - (length - 1)) == 0) {
      length--;
    } else {
      length = full;
    }
  }

  Guard hold(lock_);
  Entry& e = entries_[added_ % kEntries];
  // Readers tell entries apart by their time, so no two may share one.
  uint64_t now = realtime_ns();
  if (now <= last_ts_) now = last_ts_ + 1;
  last_ts_ = now;
  e.ts = now;
  e.level = level;
  e.length = length;
  memcpy(e.text, text, length);
  added_++;
}

void Log::write(Json& out) {
  Guard hold(lock_);
  if (added_ == 0) return;
  const uint64_t first = added_ > kEntries ? added_ - kEntries : 0;
  for (uint64_t i = first; i < added_; i++) {
    const Entry& e = entries_[i % kEntries];
    out.raw(i == first ? ",\"log\":[{\"ts\":" : ",{\"ts\":");
    out.number(e.ts);
    out.raw(",\"level\":\"");
    out.raw(level_name(e.level));
    out.raw("\",\"msg\":");
    out.string(e.text, e.length);
    out.raw("}");
  }
  out.raw("]");
}

void Log::print() {
  char line[kMaxMessage + 32];
  for (;;) {
    size_t n = 0;
    {
      Guard hold(lock_);
      const uint64_t first = added_ > kEntries ? added_ - kEntries : 0;
      if (printed_ < first) printed_ = first;
      if (printed_ == added_) return;
      const Entry& e = entries_[printed_++ % kEntries];
      n = static_cast<size_t>(snprintf(line, sizeof(line), "graphsignal: %.*s\n", static_cast<int>(e.length), e.text));
    }
    write_stderr(line, n);
  }
}

}  // namespace graphsignal
