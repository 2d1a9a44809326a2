// The writer of documents: whatever it is given, JSON of valid UTF-8 comes out, and what was valid comes out as it was.
#include "../common/json.h"

#include <math.h>

#include "input.h"
#include "valid_json.h"

using namespace graphsignal;
using fuzz::require;

namespace {

std::string written(const Json& out) { return std::string(out.data(), out.size()); }

bool valid_utf8(const std::string& text) {
  uint32_t code;
  for (size_t at = 0; at < text.size();) {
    const size_t n = fuzz::character(text, at, &code);
    if (n == 0) return false;
    at += n;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Json out;
  fuzz::Input in(data, size);
  const uint64_t bits = in.take<uint64_t>();
  const size_t limit = in.take<uint8_t>();
  const bool cut = in.yes();
  const std::string text = in.bytes(4096);

  // A copy of the exact length, so that a read past its end is seen.
  char* exact = new char[text.size()];
  memcpy(exact, text.data(), text.size());
  out.reset();
  out.string(exact, text.size(), cut);
  std::string decoded;
  const std::string string = written(out);
  require(out.complete() && fuzz::JsonCheck::valid(string, &decoded), "no JSON string", string);
  if (valid_utf8(text)) require(decoded == text, "valid text is changed", text + "\n" + decoded);
  // A repaired string needs no repair.
  out.reset();
  out.string(decoded.data(), decoded.size());
  std::string again;
  require(fuzz::JsonCheck::valid(written(out), &again) && again == decoded, "repaired text is changed", decoded + "\n" + again);

  const size_t kept = utf8_cut(exact, text.size(), limit);
  require(kept <= text.size() && kept <= limit && (kept == text.size() || kept + 3 >= limit), "a cut in the wrong place", text);
  if (valid_utf8(text)) require(valid_utf8(text.substr(0, kept)), "a cut through a character", text);
  for (size_t at = 0; at < text.size() && at < 16; at++) {
    uint32_t code;
    const size_t n = utf8_sequence(exact + at, text.size() - at);
    require(n == fuzz::character(text, at, &code), "a character that is none", text.substr(at));
  }
  delete[] exact;

  out.reset();
  out.number(bits);
  require(written(out) == std::to_string(bits), "a whole number is changed", written(out));
  double value;
  memcpy(&value, &bits, sizeof(value));
  if (isfinite(value)) {
    out.reset();
    out.number(value);
    const std::string number = written(out);
    require(fuzz::JsonCheck::valid(number) && strtod(number.c_str(), nullptr) == value, "a number is changed", number);
  }
  return 0;
}
