#include "json.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "system.h"

namespace graphsignal {
namespace {

const size_t kFirstBytes = 64 * 1024;

bool continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

// Bytes of the character that a lead byte announces, or 0 for a byte that cannot lead.
size_t announced(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

}  // namespace

size_t utf8_sequence(const char* p, size_t available) {
  if (available == 0) return 0;
  const unsigned char lead = static_cast<unsigned char>(p[0]);
  const size_t n = announced(lead);
  if (n == 0 || n > available) return 0;
  for (size_t i = 1; i < n; i++) {
    if (!continuation(p[i])) return 0;
  }
  const unsigned char second = n > 1 ? static_cast<unsigned char>(p[1]) : 0;
  if (lead == 0xE0 && second < 0xA0) return 0;   // overlong
  if (lead == 0xED && second >= 0xA0) return 0;  // surrogate
  if (lead == 0xF0 && second < 0x90) return 0;   // overlong
  if (lead == 0xF4 && second >= 0x90) return 0;  // past U+10FFFF
  return n;
}

size_t utf8_cut(const char* text, size_t length, size_t limit) {
  if (length <= limit) return length;
  size_t start = limit;
  for (int back = 0; back < 3 && start > 0 && continuation(text[start]); back++) start--;
  // Only a whole character that reaches over the limit is left out; stray bytes are the repair's business.
  return utf8_sequence(text + start, length - start) != 0 ? start : limit;
}

size_t bounded_length(const char* text, size_t limit) {
  const void* end = memchr(text, 0, limit);
  return end ? static_cast<size_t>(static_cast<const char*>(end) - text) : limit;
}

void Json::reset() {
  size_ = 0;
  failed_ = false;
}

bool Json::reserve(size_t more) {
  if (failed_) return false;
  if (more <= capacity_ - size_) return true;
  if (more > kMaxBytes - size_) {
    failed_ = true;
    return false;
  }
  size_t wanted = capacity_ ? capacity_ : kFirstBytes;
  while (wanted - size_ < more) wanted *= 2;
  void* grown = nullptr;
  if (data_) {
    grown = mremap(data_, capacity_, wanted, MREMAP_MAYMOVE);
    if (grown == MAP_FAILED) grown = nullptr;
  } else {
    grown = map_pages(wanted);
  }
  if (!grown) {
    failed_ = true;
    return false;
  }
  data_ = static_cast<char*>(grown);
  capacity_ = wanted;
  return true;
}

void Json::put(char c) {
  if (reserve(1)) data_[size_++] = c;
}

void Json::raw(const char* text) { raw(text, strlen(text)); }

void Json::raw(const char* text, size_t length) {
  if (length == 0 || !reserve(length)) return;
  memcpy(data_ + size_, text, length);
  size_ += length;
}

void Json::number(uint64_t value) {
  char digits[24];
  size_t n = sizeof(digits);
  do {
    digits[--n] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  raw(digits + n, sizeof(digits) - n);
}

void Json::number(double value) {
  const double exact = 9007199254740992.0;  // 2^53
  if (value >= -exact && value <= exact && value == static_cast<double>(static_cast<int64_t>(value))) {
    const int64_t whole = static_cast<int64_t>(value);
    if (whole < 0) put('-');
    number(whole < 0 ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole));
    return;
  }
  char text[64];
  const int n = snprintf(text, sizeof(text), "%.17g", value);
  // The program's locale decides the decimal separator, which may be any character; JSON knows the point only.
  bool separated = false;
  for (int i = 0; i < n && i < static_cast<int>(sizeof(text)) - 1; i++) {
    const char c = text[i];
    if ((c >= '0' && c <= '9') || c == '-' || c == '+' || c == 'e') {
      put(c);
    } else if (!separated) {
      put('.');
      separated = true;
    }
  }
}

void Json::string(const char* text, size_t length, bool cut) {
  static const char kHex[] = "0123456789abcdef";
  put('"');
  size_t plain = 0;  // start of bytes not yet copied
  size_t i = 0;
  while (i < length) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
      i++;
      continue;
    }
    if (c >= 0x80) {
      const size_t n = utf8_sequence(text + i, length - i);
      if (n != 0) {
        i += n;
        continue;
      }
      raw(text + plain, i - plain);
      size_t tail = 1;
      while (i + tail < length && continuation(text[i + tail])) tail++;
      const bool incomplete = i + tail == length && announced(c) > tail;
      if (!(cut && incomplete)) {
        raw("\xEF\xBF\xBD");
        tail = 1;
      }
      i += tail;
      plain = i;
      continue;
    }
    raw(text + plain, i - plain);
    switch (c) {
      case '"': raw("\\\""); break;
      case '\\': raw("\\\\"); break;
      case '\n': raw("\\n"); break;
      case '\r': raw("\\r"); break;
      case '\t': raw("\\t"); break;
      default: {
        const char escape[] = {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
        raw(escape, sizeof(escape));
      }
    }
    i++;
    plain = i;
  }
  raw(text + plain, length - plain);
  put('"');
}

}  // namespace graphsignal
