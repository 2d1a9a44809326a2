// rocprofiler-sdk's records with any content: no more is read of one than it says that it has, and all are counted.
#include <memory>
#include <vector>

#include "../rocm/records.h"
#include "input.h"
#include "memory.h"
#include "valid_json.h"

using namespace graphsignal;
using namespace graphsignal::rocm;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Json out;
  static Log& log = *new Log;
  static HipMemory& memory = *new HipMemory;
  out.reset();
  out.raw("[");
  fuzz::Input in(data, size);
  fuzz::Memory pages;
  Instruments instruments;
  std::unique_ptr<Records> records(new Records);
  Records::Options options = {in.yes(), in.yes(), in.yes()};
  require(instruments.allocate() && records->start(instruments, log, memory, options), "the instruments are refused");
  for (uint32_t call = 0; call < kSyncCalls; call++) records->set_operation(call, in.take<uint8_t>() % 8);
  for (int i = in.take<uint8_t>() % 8; i > 0; i--) {
    const std::string name = in.text(40);
    records->name_kernel(in.yes() ? in.take<uint64_t>() : in.take<uint8_t>() % 8, in.yes() ? name.c_str() : nullptr);
  }

  uint64_t dropped = 0, told = 0;
  for (int round = 0; round < 4 && !in.empty(); round++) {
    std::vector<RecordHeader> headers;
    std::vector<std::unique_ptr<uint8_t[]>> payloads;
    std::vector<const RecordHeader*> list;
    const uint64_t now = monotonic_ns();
    for (int i = in.take<uint8_t>() % 24; i > 0 && !in.empty(); i--) {
      static const uint32_t kKinds[] = {kKernelDispatch, kMemoryCopy, kHipRuntimeApi, 7};
      const uint8_t what = in.take<uint8_t>();
      RecordHeader h = {what & 0x80 ? in.take<uint32_t>() : kCategoryTracing, kKinds[what & 3], nullptr};
      // The size that the record tells is what can be read of it.
      const uint64_t told_size = what & 0x40 ? in.take<uint64_t>() : in.take<uint8_t>();
      const size_t readable = told_size < 8 || told_size > kLargestRecord ? 8 : static_cast<size_t>(told_size);
      payloads.emplace_back(new uint8_t[readable]());
      uint8_t* p = payloads.back().get();
      for (size_t at = 8; at < readable; at += what & 0x20 ? 1 : 8) p[at] = in.take<uint8_t>();
      const uint64_t times[] = {now - in.take<uint16_t>(), now};
      const size_t start = h.kind == kHipRuntimeApi ? kOldApi.start : kStart;
      if (!(what & 0x10) && readable >= start + sizeof(times)) memcpy(p + start, times, sizeof(times));
      memcpy(p, &told_size, sizeof(told_size));
      h.payload = what & 8 ? nullptr : p;
      headers.push_back(h);
    }
    for (const RecordHeader& h : headers) list.push_back(&h);
    if (in.yes()) list.push_back(nullptr);
    const uint64_t now_dropped = in.yes() ? in.take<uint16_t>() : dropped;
    told += now_dropped >= dropped ? now_dropped - dropped : now_dropped;
    dropped = now_dropped;
    records->process(list.data(), list.size(), dropped);
  }
  // A whole record is counted whatever came before, and what was dropped is counted.
  uint8_t copy[kCopyWithBytes] = {};
  const uint64_t now = monotonic_ns();
  const uint64_t length = sizeof(copy), times[] = {now - 1000, now}, bytes = 4711;
  const uint32_t operation = kDeviceToHost;
  memcpy(copy, &length, sizeof(length));
  memcpy(copy + kOperation, &operation, sizeof(operation));
  memcpy(copy + kStart, times, sizeof(times));
  memcpy(copy + kCopyBytes, &bytes, sizeof(bytes));
  const RecordHeader last = {kCategoryTracing, kMemoryCopy, copy};
  const RecordHeader* list[] = {&last};
  static const Tag kind = {"kind", "device_to_host"};
  Instrument* copied = instruments.get("rocm_memcpy_bytes", GRAPHSIGNAL_COUNTER, &kind, 1);
  require(copied != nullptr, "no counter");
  const auto document = [&] {
    out.reset();
    out.raw("[");
    bool first = true;
    instruments.write(out, &first);
    out.raw("]");
    const std::string text(out.data(), out.size());
    require(out.complete() && fuzz::JsonCheck::valid(text), "no JSON", text);
    return text;
  };
  const auto value = [](const std::string& text, const std::string& start) {
    const size_t at = text.find(start + "},\"value\":");
    require(at != std::string::npos, "an instrument is missing", text);
    return strtoull(text.c_str() + at + start.size() + strlen("},\"value\":"), nullptr, 10);
  };
  const std::string counter = "\"rocm_memcpy_bytes\",\"type\":\"counter\",\"tags\":{\"kind\":\"device_to_host\"";
  const uint64_t before = value(document(), counter);
  records->process(list, 1, dropped);
  const std::string text = document();
  require(value(text, counter) == before + bytes, "a whole record is not counted", text);
  const std::string lost = "\"rocm_dropped_records_total\",\"type\":\"counter\",\"tags\":{";
  require(value(text, lost) == told, "dropped records are not counted", text);
  return 0;
}
