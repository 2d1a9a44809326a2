// What the targets share: taking an input apart, and failing.
#ifndef GRAPHSIGNAL_INJECT_FUZZ_INPUT_H
#define GRAPHSIGNAL_INJECT_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>

namespace fuzz {

// Hands out the bytes of an input from its beginning; past its end, zeros.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  template <typename T>
  T take() {
    T value = T();
    const size_t n = size_ < sizeof(T) ? size_ : sizeof(T);
    if (n) memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }
  bool yes() { return take<uint8_t>() & 1; }
  // At most so many bytes, as many as the next two bytes say.
  std::string bytes(size_t limit) {
    size_t n = take<uint16_t>() % (limit + 1);
    if (n > size_) n = size_;
    std::string text(reinterpret_cast<const char*>(data_), n);
    data_ += n;
    size_ -= n;
    return text;
  }
  // The same up to a zero byte, as C takes it.
  std::string text(size_t limit) { return bytes(limit).c_str(); }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Reports a broken promise; what was given and what came of it stand in the message.
[[noreturn]] inline void fail(const char* what, const std::string& detail = "") {
  fprintf(stderr, "broken: %s\n%.4000s\n", what, detail.c_str());
  abort();
}

inline void require(bool held, const char* what, const std::string& detail = "") {
  if (!held) fail(what, detail);
}

}  // namespace fuzz

#endif
