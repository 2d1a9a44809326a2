// The copies that read GPU probes do not count as the program's.
#include "../cupti/activity.h"

#include "check.h"
#include "json_reader.h"

using namespace graphsignal;
using namespace graphsignal::cupti;

namespace {

const size_t kRecordBytes = 64;

// Records lie one behind the other.
int next_record(uint8_t* buffer, size_t valid, void** record) {
  uint8_t* next = *record ? static_cast<uint8_t*>(*record) + kRecordBytes : buffer;
  if (next + kRecordBytes > buffer + valid) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}

template <typename T>
void put(uint8_t* record, size_t offset, T value) {
  memcpy(record + offset, &value, sizeof(value));
}

void add_copy(std::vector<uint8_t>* buffer, uint32_t kind, uint32_t context, uint32_t stream, uint64_t bytes) {
  buffer->resize(buffer->size() + kRecordBytes);
  uint8_t* r = buffer->data() + buffer->size() - kRecordBytes;
  put<uint32_t>(r, 0, kind);
  put<uint8_t>(r, 4, 2);  // device to host
  put<uint64_t>(r, 8, bytes);
  put<uint64_t>(r, 16, 1000);
  put<uint64_t>(r, 24, 1100);
  put<uint32_t>(r, kMemcpyContextOffset, context);
  put<uint32_t>(r, kMemcpyStreamOffset, stream);
}

}  // namespace

TEST(own_copies_are_left_out) {
  Functions f = {};
  f.next_record = next_record;
  Instruments& instruments = *test::keep(new Instruments);
  CHECK(instruments.allocate());
  Log log;
  GraphNames& graphs = *test::keep(new GraphNames);
  CHECK(graphs.allocate());
  Activity& activity = *test::keep(new Activity);
  CHECK(activity.start(instruments, log, f, graphs, false));
  Pace pace;
  std::vector<uint8_t> before, after;
  add_copy(&before, kKindMemcpy, 1, 13, 1);
  activity.process(before.data(), before.size(), pace);
  activity.ignore_copies(1, 13);
  activity.ignore_copies(2, 14);
  add_copy(&after, kKindMemcpy, 1, 13, 10);        // ours
  add_copy(&after, kKindMemcpy, 2, 14, 100);       // ours
  add_copy(&after, kKindMemcpy, 1, 14, 1000);      // another stream
  add_copy(&after, kKindMemcpy, 2, 13, 10000);     // another context
  add_copy(&after, kKindMemcpyPeer, 1, 13, 100000);  // of another layout
  activity.process(after.data(), after.size(), pace);
  Json out;
  out.raw("{\"metrics\":[");
  bool first = true;
  instruments.write(out, &first);
  out.raw("]}");
  const test::Value d = test::Reader::parse(std::string(out.data(), out.size()));
  CHECK_EQ(test::metric(d, "cuda_memcpy_bytes", "kind", "device_to_host")["value"].text, std::string("111001"));
  CHECK_EQ(test::metric(d, "cuda_memcpy_nanoseconds")["frames"]["device_to_host"][1].text, std::string("4"));
}

int main() { return test::run_all(); }
