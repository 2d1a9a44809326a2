// A growing text buffer that writes JSON: valid UTF-8 and finite numbers whatever it is given.
#ifndef GRAPHSIGNAL_INJECT_JSON_H
#define GRAPHSIGNAL_INJECT_JSON_H

#include <stddef.h>
#include <stdint.h>

namespace graphsignal {

// Length of the well-formed UTF-8 sequence at p (1..4), or 0 when the bytes at p do not form one.
size_t utf8_sequence(const char* p, size_t available);

// Largest length <= limit at which text can be cut without splitting a character.
size_t utf8_cut(const char* text, size_t length, size_t limit);

// Length of a string of which at most limit bytes may be looked at.
size_t bounded_length(const char* text, size_t limit);

// Its memory is kept for the life of the process.
class Json {
 public:
  // Content past this many bytes is refused, and complete() turns false.
  static const size_t kMaxBytes = 64u << 20;

  void reset();
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  bool complete() const { return !failed_; }

  void raw(const char* text);
  void raw(const char* text, size_t length);
  void number(uint64_t value);
  // Integral values within 2^53 as integers, others with 17 significant digits. The value must be finite.
  void number(double value);
  // A quoted string. Bytes that are no UTF-8 become U+FFFD; with cut set, an incomplete character at the very end
  // (left by a bytewise cut) is dropped instead.
  void string(const char* text, size_t length, bool cut = false);

 private:
  bool reserve(size_t more);
  void put(char c);

  char* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  bool failed_ = false;
};

}  // namespace graphsignal

#endif
