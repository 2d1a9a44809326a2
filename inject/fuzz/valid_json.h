// Whether a text is JSON of valid UTF-8 characters (RFC 8259, RFC 3629), duplicate keys allowed.
#ifndef GRAPHSIGNAL_INJECT_FUZZ_VALID_JSON_H
#define GRAPHSIGNAL_INJECT_FUZZ_VALID_JSON_H

#include <stdint.h>

#include <string>

namespace fuzz {

// The character at p as RFC 3629 has it; its length, or 0 when there is none.
inline size_t character(const std::string& s, size_t at, uint32_t* code) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<uint8_t>(s[i]) : 0u; };
  const uint32_t lead = byte(at);
  const size_t n = lead < 0x80 ? 1 : (lead & 0xE0u) == 0xC0 ? 2 : (lead & 0xF0u) == 0xE0 ? 3 : (lead & 0xF8u) == 0xF0 ? 4 : 0;
  if (n == 0 || at + n > s.size()) return 0;
  uint32_t c = n == 1 ? lead : lead & (0xFFu >> (n + 1));
  for (size_t i = 1; i < n; i++) {
    if ((byte(at + i) & 0xC0u) != 0x80) return 0;
    c = c << 6 | (byte(at + i) & 0x3Fu);
  }
  static const uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kLeast[n] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
  *code = c;
  return n;
}

class JsonCheck {
 public:
  // Whether the whole text is one value. last, unless NULL, receives the last string in it, decoded.
  static bool valid(const std::string& text, std::string* last = nullptr) {
    JsonCheck c(text, last);
    return c.value(0) && (c.blank(), c.at_ == text.size());
  }

 private:
  JsonCheck(const std::string& text, std::string* last) : text_(text), last_(last) {}
  int peek() const { return at_ < text_.size() ? static_cast<uint8_t>(text_[at_]) : -1; }
  bool is(char c) { return peek() == c && ++at_; }
  void blank() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') at_++;
  }
  bool word(const char* w) {
    for (; *w; w++) {
      if (!is(*w)) return false;
    }
    return true;
  }
  bool digits() {
    const size_t from = at_;
    while (peek() >= '0' && peek() <= '9') at_++;
    return at_ > from;
  }
  bool number() {
    is('-');
    if (!is('0') && !digits()) return false;
    if (is('.') && !digits()) return false;
    if (peek() == 'e' || peek() == 'E') {
      at_++;
      if (!is('+')) is('-');
      return digits();
    }
    return true;
  }
  bool string() {
    if (!is('"')) return false;
    std::string decoded;
    for (;;) {
      const int c = peek();
      if (c < 0x20) return false;
      if (is('"')) break;
      if (is('\\')) {
        static const char kNames[] = "\"\\/bfnrt", kMeant[] = "\"\\/\b\f\n\r\t";
        const int name = peek();
        at_++;
        if (name == 'u') {
          uint32_t code = 0;
          for (int i = 0; i < 4; i++, at_++) {
            const int h = peek();
            const int v = h >= '0' && h <= '9' ? h - '0' : h >= 'a' && h <= 'f' ? h - 'a' + 10 : -1;  // as the writer has them
            if (v < 0) return false;
            code = code << 4 | static_cast<uint32_t>(v);
          }
          if (code >= 0x80) return false;  // the writer escapes ASCII only
          decoded.push_back(static_cast<char>(code));
          continue;
        }
        const char* found = name > 0 ? __builtin_strchr(kNames, name) : nullptr;
        if (!found) return false;
        decoded.push_back(kMeant[found - kNames]);
        continue;
      }
      uint32_t code;
      const size_t n = character(text_, at_, &code);
      if (n == 0) return false;
      decoded.append(text_, at_, n);
      at_ += n;
    }
    if (last_) *last_ = decoded;
    return true;
  }
  bool value(int depth) {
    if (depth > 16) return false;
    blank();
    switch (peek()) {
      case '{': {
        at_++;
        blank();
        if (is('}')) return true;
        do {
          blank();
          if (!string()) return false;
          blank();
          if (!is(':') || !value(depth + 1)) return false;
          blank();
        } while (is(','));
        return is('}');
      }
      case '[': {
        at_++;
        blank();
        if (is(']')) return true;
        do {
          if (!value(depth + 1)) return false;
          blank();
        } while (is(','));
        return is(']');
      }
      case '"': return string();
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: return number();
    }
  }

  const std::string& text_;
  std::string* last_;
  size_t at_ = 0;
};

}  // namespace fuzz

#endif
