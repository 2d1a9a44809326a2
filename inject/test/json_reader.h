// A strict JSON reader for tests: it refuses what RFC 8259 refuses, bytes that are no UTF-8, and duplicate keys.
#ifndef GRAPHSIGNAL_INJECT_TEST_JSON_READER_H
#define GRAPHSIGNAL_INJECT_TEST_JSON_READER_H

#include <stdint.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace test {

struct Value {
  enum Kind { kNull, kBool, kNumber, kString, kArray, kObject } kind = kNull;
  std::string text;  // string, or number as written
  std::vector<Value> items;
  std::map<std::string, Value> members;
  std::vector<std::string> order;

  bool has(const std::string& key) const { return members.count(key) != 0; }
  const Value& operator[](const std::string& key) const {
    static const Value none;
    auto at = members.find(key);
    return at == members.end() ? none : at->second;
  }
  const Value& operator[](size_t i) const {
    static const Value none;
    return i < items.size() ? items[i] : none;
  }
  uint64_t u64() const { return kind == kNumber ? strtoull(text.c_str(), nullptr, 10) : 0; }
  double real() const { return kind == kNumber ? strtod(text.c_str(), nullptr) : 0; }
};

class Reader {
 public:
  // Throws std::runtime_error with the offset of the first fault.
  static Value parse(const std::string& text) {
    Reader r(text);
    Value v = r.value(0);
    r.space();
    if (r.at_ != text.size()) r.fault("text after the document");
    return v;
  }

 private:
  explicit Reader(const std::string& text) : text_(text) {}
  [[noreturn]] void fault(const char* what) { throw std::runtime_error(std::string(what) + " at " + std::to_string(at_)); }
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) at_++;
  }
  char peek() { return at_ < text_.size() ? text_[at_] : 0; }
  void expect(char c) {
    if (peek() != c) fault("unexpected character");
    at_++;
  }
  void word(const char* w) {
    for (; *w; w++) expect(*w);
  }

  Value value(int depth) {
    if (depth > 16) fault("too deep");
    space();
    Value v;
    switch (peek()) {
      case '{':
        v.kind = Value::kObject;
        at_++;
        space();
        if (peek() == '}') {
          at_++;
          return v;
        }
        for (;;) {
          space();
          std::string key = string();
          space();
          expect(':');
          if (!v.members.emplace(key, value(depth + 1)).second) fault("duplicate key");
          v.order.push_back(key);
          space();
          if (peek() != ',') break;
          at_++;
        }
        expect('}');
        return v;
      case '[':
        v.kind = Value::kArray;
        at_++;
        space();
        if (peek() == ']') {
          at_++;
          return v;
        }
        for (;;) {
          v.items.push_back(value(depth + 1));
          space();
          if (peek() != ',') break;
          at_++;
        }
        expect(']');
        return v;
      case '"':
        v.kind = Value::kString;
        v.text = string();
        return v;
      case 't': word("true"); v.kind = Value::kBool; v.text = "true"; return v;
      case 'f': word("false"); v.kind = Value::kBool; v.text = "false"; return v;
      case 'n': word("null"); return v;
      default: v.kind = Value::kNumber; v.text = number(); return v;
    }
  }

  std::string number() {
    const size_t from = at_;
    if (peek() == '-') at_++;
    if (peek() == '0') {
      at_++;
    } else {
      digits();
    }
    if (peek() == '.') {
      at_++;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      at_++;
      if (peek() == '+' || peek() == '-') at_++;
      digits();
    }
    return text_.substr(from, at_ - from);
  }
  void digits() {
    if (peek() < '0' || peek() > '9') fault("digit wanted");
    while (peek() >= '0' && peek() <= '9') at_++;
  }

  std::string string() {
    expect('"');
    std::string s;
    while (peek() != '"') {
      const unsigned char c = static_cast<unsigned char>(peek());
      if (at_ >= text_.size() || c < 0x20) fault("control character or end in a string");
      if (c == '\\') {
        at_++;
        const char e = peek();
        at_++;
        switch (e) {
          case '"': case '\\': case '/': s += e; break;
          case 'n': s += '\n'; break;
          case 'r': s += '\r'; break;
          case 't': s += '\t'; break;
          case 'u': {
            const unsigned code = static_cast<unsigned>(strtoul(text_.substr(at_, 4).c_str(), nullptr, 16));
            if (code >= 0x80) fault("only control characters are escaped by number");
            s += static_cast<char>(code);
            at_ += 4;
            break;
          }
          default: fault("bad escape");
        }
      } else {
        const size_t n = character();
        s += text_.substr(at_, n);
        at_ += n;
      }
    }
    at_++;
    return s;
  }

  // Bytes of the UTF-8 character at the current place.
  size_t character() {
    const auto byte = [&](size_t i) { return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0u; };
    const unsigned lead = byte(0);
    size_t n;
    uint32_t code;
    if (lead < 0x80) return 1;
    if (lead >= 0xC0 && lead < 0xE0) n = 2, code = lead & 0x1F;
    else if (lead >= 0xE0 && lead < 0xF0) n = 3, code = lead & 0x0F;
    else if (lead >= 0xF0 && lead < 0xF8) n = 4, code = lead & 0x07;
    else fault("byte that leads no character");
    for (size_t i = 1; i < n; i++) {
      if ((byte(i) & 0xC0) != 0x80) fault("character cut short");
      code = code << 6 | (byte(i) & 0x3F);
    }
    static const uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fault("invalid character");
    return n;
  }

  const std::string& text_;
  size_t at_ = 0;
};

// The metric entry with a name and, if given, one tag; a null value when there is none.
inline const Value& metric(const Value& document, const std::string& name, const std::string& key = "", const std::string& tag = "") {
  static const Value none;
  for (const Value& m : document["metrics"].items) {
    if (m["name"].text == name && (key.empty() || m["tags"][key].text == tag)) return m;
  }
  return none;
}

}  // namespace test

#endif
