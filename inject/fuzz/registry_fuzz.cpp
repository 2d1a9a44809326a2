// Registries as they may lie in a program's memory, broken ones too: only one whose entries all make sense is taken, and what
// is taken can be read and published.
#include <sys/mman.h>
#include <unistd.h>

#include "../common/probe_export.h"
#include "../common/registry_scan.h"
#include "input.h"
#include "valid_json.h"

using namespace graphsignal;
using fuzz::require;

namespace {

// Memory with a page behind it that cannot be read.
struct Region {
  explicit Region(size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size = (bytes + page - 1) / page * page;
    begin = static_cast<char*>(mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (begin == MAP_FAILED) abort();
    mprotect(begin + size, page, PROT_NONE);
  }
  char* begin;
  size_t size;
};

void fill(char* to, size_t capacity, fuzz::Input& in) {
  const std::string text = in.bytes(capacity);
  memset(to, 0, capacity);
  memcpy(to, text.data(), text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Region image(sizeof(graphsignal_probe_registry)), blocks(2 * sizeof(graphsignal_profile_data));
  static Json out;
  static uint64_t used = 0;  // entries of the input before
  fuzz::Input in(data, size);

  // As far to the end of its region as its alignment allows.
  char* at = image.begin + image.size - sizeof(graphsignal_probe_registry);
  at -= reinterpret_cast<uintptr_t>(at) % alignof(graphsignal_probe_registry);
  graphsignal_probe_registry* r = reinterpret_cast<graphsignal_probe_registry*>(at);
  memset(r->entries, 0, used * sizeof(r->entries[0]));
  const uint8_t flaws = in.take<uint8_t>();
  r->magic = flaws & 1 ? in.take<uint32_t>() : GRAPHSIGNAL_PROBE_ABI_MAGIC;
  r->abi_version = flaws & 2 ? in.take<uint32_t>() : GRAPHSIGNAL_PROBE_ABI_VERSION;
  r->start_ts = flaws & 4 ? in.take<uint64_t>() : realtime_ns();
  r->reg_lock = flaws & 8 ? in.take<uint64_t>() : 0;
  r->dropped = in.take<uint16_t>();

  fill(blocks.begin, 4096, in);
  uint64_t n = 0;
  for (; n < 32 && !in.empty(); n++) {
    graphsignal_probe_entry& e = r->entries[n];
    memset(&e, 0, sizeof(e));
    const uint8_t kind = in.take<uint8_t>();
    e.type = kind & 0x80 ? in.take<uint32_t>() : kind & 3;
    e.storage = kind & 0x40 ? in.take<uint32_t>() : kind >> 2 & 1;
    e.device_id = in.take<int8_t>();
    e.ntags = kind & 0x20 ? in.take<uint32_t>() : kind >> 3 & 3;
    fill(e.name, sizeof(e.name), in);
    for (uint32_t t = 0; t < GRAPHSIGNAL_PROBE_MAX_TAGS && t < e.ntags; t++) {
      fill(e.tag_keys[t], sizeof(e.tag_keys[t]), in);
      fill(e.tag_values[t], sizeof(e.tag_values[t]), in);
    }
    // Into the blocks, into the registry itself, over the end of either, or nowhere.
    const uint32_t place = in.take<uint32_t>();
    char* pointers[] = {blocks.begin + place % (blocks.size + 64),
                        blocks.begin + place % 64 * 8,
                        reinterpret_cast<char*>(r) + place % (sizeof(*r) + 4096),
                        reinterpret_cast<char*>(static_cast<uintptr_t>(place % 65536)),
                        blocks.begin + sizeof(graphsignal_profile_data),
                        blocks.begin,
                        blocks.begin,
                        blocks.begin};
    e.data = reinterpret_cast<graphsignal_instrument_data*>(pointers[place >> 29]);
  }
  used = n;
  r->count = flaws & 16 ? in.take<uint64_t>() : n;

  const bool taken = plausible_registry(reinterpret_cast<uintptr_t>(r));
  for (uint64_t i = 0; taken && i < r->count; i++) {
    require(i < GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS && well_formed(r->entries[i]), "a broken entry is taken");
  }
  require(!plausible_registry(reinterpret_cast<uintptr_t>(r) + 4), "a registry in the wrong place is taken");
  if (!taken) return 0;
  ProbeRegistries all;
  require(all.add(r) && all.add(r) && all.get(0) == r && !all.get(1), "the registry is not listed once");
  out.reset();
  bool first = true;
  out.raw("[");
  all.write_host(out, &first);
  all.write_dropped(out, &first);
  out.raw("]");
  const std::string document(out.data(), out.size());
  require(out.complete() && fuzz::JsonCheck::valid(document), "no JSON", document);
  const std::string refused = "graphsignal_probe_dropped_instruments\",\"type\":\"counter\",\"tags\":{},\"value\":";
  require(r->dropped == 0 || document.find(refused + std::to_string(r->dropped)) != std::string::npos,
          "refused registrations are not counted", document);
  return 0;
}
