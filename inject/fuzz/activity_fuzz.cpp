// CUPTI's buffers with any content: the walk stays within what is valid, and each record counts once.
#include <vector>

#include "../cupti/activity.h"
#include "input.h"
#include "memory.h"
#include "valid_json.h"

using namespace graphsignal;
using namespace graphsignal::cupti;
using fuzz::require;

namespace {

// A CUPTI whose records have one size for each kind, as the input says.
uint32_t stride[256];
uint32_t kind_of(const uint8_t* record) {
  uint32_t kind;
  memcpy(&kind, record, sizeof(kind));
  return kind;
}
size_t size_of(const uint8_t* record) { return stride[kind_of(record) & 255]; }

int next_record(uint8_t* buffer, size_t valid, void** record) {
  uint8_t* at = static_cast<uint8_t*>(*record);
  at = at ? at + size_of(at) : buffer;
  if (valid < 8 || static_cast<size_t>(at - buffer) > valid - 8) return kMaxLimitReached;
  *record = at;
  return kSuccess;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Json out;
  static Log& log = *new Log;
  static const char* const kNames[] = {"kernel_a", "kernel_\xff\"\\", "", nullptr, "k\xf0\x9f"};
  static const uint32_t kKinds[] = {kKindMemcpy,     kKindMemset,          kKindKernel,     kKindConcurrentKernel,
                                    kKindMemcpyPeer, kKindSynchronization, kKindGraphTrace, 40};
  out.reset();
  out.raw("[");
  fuzz::Input in(data, size);
  for (uint32_t kind = 0; kind < 256; kind++) stride[kind] = 8 + kind % 4 * 8;
  for (uint32_t kind : kKinds) stride[kind] = 8 + in.take<uint8_t>() % 26 * 8;

  fuzz::Memory pages;
  Instruments instruments;
  Functions functions = {};
  functions.next_record = next_record;
  if (in.yes()) {
    functions.timestamp = [](uint64_t* ns) {
      *ns = monotonic_ns();
      return 0;
    };
  }
  GraphNames graphs;
  Pace pace;
  Activity* activity = new Activity;
  require(instruments.allocate() && graphs.allocate(), "no memory");
  graphs.remember(7, in.take<uint64_t>());
  require(activity->start(instruments, log, functions, graphs, in.yes()), "the instruments are refused");
  activity->ignore_copies(in.take<uint8_t>(), in.take<uint8_t>());
  if (in.yes()) activity->distrust_name_pointers();

  uint64_t records = 0;
  for (int round = 0; round < 4 && !in.empty(); round++) {
    // Whole records with times that may be, as many as the input says, and then its bytes as they are.
    std::vector<uint8_t> content;
    const uint64_t now = monotonic_ns();
    for (int i = in.take<uint8_t>() % 24; i > 0 && !in.empty(); i--) {
      const uint32_t kind = kKinds[in.take<uint8_t>() % 8];
      std::vector<uint8_t> record(stride[kind] < 112 ? 112 : stride[kind]);
      for (size_t at = 4; at < record.size(); at += 8) record[at] = in.take<uint8_t>();
      const uint64_t times[] = {now - in.take<uint16_t>(), now + in.take<uint16_t>()};
      memcpy(record.data(), &kind, sizeof(kind));
      const size_t place = kind == kKindSynchronization || kind == kKindGraphTrace ? 8 : 16;
      memcpy(record.data() + place, times, sizeof(times));
      content.insert(content.end(), record.begin(), record.begin() + stride[kind]);
    }
    const std::string tail = in.bytes(600);
    content.insert(content.end(), tail.begin(), tail.end());
    const size_t valid = in.yes() ? content.size() : content.size() / 8 * 8;
    // CUPTI's names are pointers that can be followed, or NULL.
    uint64_t whole = 0;
    bool short_one = false;
    for (void* at = nullptr; !short_one && valid >= 8 && next_record(content.data(), valid, &at) == kSuccess;) {
      uint8_t* record = static_cast<uint8_t*>(at);
      const size_t left = valid - static_cast<size_t>(record - content.data());
      const uint32_t kind = kind_of(record);
      if (kind == kKindInvalid) break;
      if ((kind == kKindKernel || kind == kKindConcurrentKernel) && left >= sizeof(KernelRecord)) {
        const char* name = kNames[record[4] % 5];
        memcpy(record + offsetof(KernelRecord, name), &name, sizeof(name));
      }
      const size_t least = kind == kKindKernel || kind == kKindConcurrentKernel ? sizeof(KernelRecord)
                           : kind == kKindMemcpy || kind == kKindMemcpyPeer     ? sizeof(MemcpyRecord)
                           : kind == kKindMemset                                ? sizeof(MemsetRecord)
                           : kind == kKindSynchronization                       ? sizeof(SynchronizationRecord)
                           : kind == kKindGraphTrace                            ? sizeof(GraphTraceRecord)
                                                                                : 8;
      short_one = left < least;
      if (!short_one) whole++;
    }
    uint8_t* exact = new uint8_t[valid];
    if (valid) memcpy(exact, content.data(), valid);
    activity->process(exact, valid, pace);
    delete[] exact;
    records += whole;
    require(activity->records() == records, "records are lost or counted twice",
            std::to_string(activity->records()) + " of " + std::to_string(records));
  }
  bool first = true;
  instruments.write(out, &first);
  out.raw("]");
  const std::string document(out.data(), out.size());
  require(out.complete() && fuzz::JsonCheck::valid(document), "no JSON", document);
  activity->close(0);
  delete activity;
  return 0;
}
