#include "registry_scan.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace graphsignal {
namespace {

const size_t kRegistry = sizeof(graphsignal_probe_registry);
// Searches of small memory without a pause: a huge page brings a registry into use, together with what lies beside it,
// before it is filled.
const uint32_t kWithoutPause = 8;
const uint32_t kLongestPause = 64;
// Up to so much is small: it is watched for pages that come into use.
const size_t kSmall = 64u << 20;
// More than this of an object is not searched.
const size_t kMostBytes = 1u << 30;
const size_t kPagesAtOnce = 1024;
const size_t kBytesAtOnce = 128 << 10;  // at least a page of any machine
// No registry is older than this (2015).
const uint64_t kEarliest = 1420070400000000000u;
const uint64_t kHour = 3600000000000u;

// Reads memory of this process; false when a part of it cannot be read.
bool read_memory(uintptr_t from, void* to, size_t bytes) {
  const struct iovec local = {to, bytes}, remote = {reinterpret_cast<void*>(from), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

// The fields before the entries.
struct Header {
  uint32_t magic;
  uint32_t abi_version;
  uint64_t start_ts;
  uint64_t dropped;
  uint64_t reg_lock;
  uint64_t count;
};
static_assert(sizeof(Header) == offsetof(graphsignal_probe_registry, entries), "registry layout");

bool terminated(const char* text, size_t capacity) { return memchr(text, 0, capacity) != nullptr; }

bool plausible_entry(const graphsignal_probe_entry& e) {
  if (e.type > GRAPHSIGNAL_PROFILE || e.storage > GRAPHSIGNAL_STORAGE_DEVICE || e.ntags > GRAPHSIGNAL_PROBE_MAX_TAGS ||
      !e.name[0] || !terminated(e.name, sizeof(e.name)) || !e.data) {
    return false;
  }
  for (uint32_t t = 0; t < e.ntags; t++) {
    if (!terminated(e.tag_keys[t], sizeof(e.tag_keys[t])) || !terminated(e.tag_values[t], sizeof(e.tag_values[t]))) return false;
  }
  if (e.storage == GRAPHSIGNAL_STORAGE_DEVICE) return e.device_id >= 0 && e.type != GRAPHSIGNAL_PROFILE;
  // A host block has to be there.
  const size_t size = e.type == GRAPHSIGNAL_PROFILE ? sizeof(graphsignal_profile_data) : sizeof(graphsignal_instrument_data);
  const uintptr_t block = reinterpret_cast<uintptr_t>(e.data);
  uint64_t word;
  return block % alignof(graphsignal_instrument_data) == 0 && read_memory(block, &word, sizeof(word)) &&
         read_memory(block + size - sizeof(word), &word, sizeof(word));
}

// The tables of an object's dynamic symbols.
struct Symbols {
  const ElfW(Sym)* table;
  const char* names;
  const uint32_t* gnu_hash;
  const uint32_t* hash;
};

bool is_registry(const Symbols& in, uint32_t index) {
  const ElfW(Sym)& s = in.table[index];
  return s.st_shndx != SHN_UNDEF && s.st_size == kRegistry && strcmp(in.names + s.st_name, GRAPHSIGNAL_PROBE_REGISTRY_SYMBOL) == 0;
}

// The symbol of the registry, or NULL: in the hash table that all objects have today, else in the one that they used to have.
const ElfW(Sym)* find_registry(const Symbols& in) {
  if (in.gnu_hash) {
    const uint32_t buckets = in.gnu_hash[0], first = in.gnu_hash[1], words = in.gnu_hash[2];
    const uint32_t* bucket = reinterpret_cast<const uint32_t*>(reinterpret_cast<const ElfW(Addr)*>(in.gnu_hash + 4) + words);
    const uint32_t* chain = bucket + buckets;
    uint32_t wanted = 5381;
    for (const char* c = GRAPHSIGNAL_PROBE_REGISTRY_SYMBOL; *c; c++) wanted = wanted * 33 + static_cast<unsigned char>(*c);
    uint32_t i = buckets ? bucket[wanted % buckets] : 0;
    if (i < first || i == 0) return nullptr;
    for (;; i++) {
      const uint32_t here = chain[i - first];
      if ((here | 1) == (wanted | 1) && is_registry(in, i)) return in.table + i;
      if (here & 1) return nullptr;
    }
  }
  for (uint32_t i = 1; in.hash && i < in.hash[1]; i++) {
    if (is_registry(in, i)) return in.table + i;
  }
  return nullptr;
}

// Where an object defines the registry for others, or 0. Its tables are read where they lie: the dynamic linker would give a
// handle too, but first it would run the constructors of an object whose turn has not come, in the middle of a program's start.
uintptr_t defined_registry(const struct dl_phdr_info& object) {
  const ElfW(Dyn)* d = nullptr;
  for (int i = 0; i < object.dlpi_phnum; i++) {
    if (object.dlpi_phdr[i].p_type == PT_DYNAMIC) d = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
  }
  Symbols in = {};
  for (; d && d->d_tag != DT_NULL; d++) {
    // Some dynamic linkers leave here what the file says.
    const uintptr_t at = d->d_un.d_ptr < object.dlpi_addr ? d->d_un.d_ptr + object.dlpi_addr : d->d_un.d_ptr;
    switch (d->d_tag) {
      case DT_SYMTAB: in.table = reinterpret_cast<const ElfW(Sym)*>(at); break;
      case DT_STRTAB: in.names = reinterpret_cast<const char*>(at); break;
      case DT_GNU_HASH: in.gnu_hash = reinterpret_cast<const uint32_t*>(at); break;
      case DT_HASH: in.hash = reinterpret_cast<const uint32_t*>(at); break;
      default: break;
    }
  }
  const ElfW(Sym)* found = in.table && in.names ? find_registry(in) : nullptr;
  return found ? object.dlpi_addr + found->st_value : 0;
}

struct Loaded {
  uintptr_t begin;
  uintptr_t end;
  uintptr_t registry;  // as defined_registry
};

struct Listing {
  Loaded* items;
  uint32_t count;
};

int list_object(struct dl_phdr_info* info, size_t, void* p) {
  Listing& all = *static_cast<Listing*>(p);
  for (int i = 0; i < info->dlpi_phnum && all.count < RegistryScan::kMaxObjects; i++) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_W) || segment.p_memsz < segment.p_filesz + kRegistry) continue;
    Loaded& item = all.items[all.count++];
    const uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    item.begin = start + segment.p_filesz;
    item.end = start + segment.p_memsz;
    item.registry = defined_registry(*info);
  }
  return 0;
}

// In the same memory as the copy of the registry that this library has itself.
uint32_t own;

}  // namespace

// Too much for the stack of a program's thread.
struct RegistryScan::Scratch {
  Loaded items[kMaxObjects];
  unsigned char resident[kPagesAtOnce];
  uint64_t words[kBytesAtOnce / sizeof(uint64_t)];
};

bool plausible_registry(uintptr_t address) {
  Header h;
  if (address % alignof(graphsignal_probe_registry) != 0 || !read_memory(address, &h, sizeof(h))) return false;
  if (h.magic != GRAPHSIGNAL_PROBE_ABI_MAGIC || h.abi_version != GRAPHSIGNAL_PROBE_ABI_VERSION || h.reg_lock > 1 ||
      h.count == 0 || h.count > GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS || h.start_ts < kEarliest ||
      h.start_ts > realtime_ns() + kHour) {
    return false;
  }
  for (uint64_t i = 0; i < h.count; i++) {
    graphsignal_probe_entry e;
    if (!read_memory(address + sizeof(h) + i * sizeof(e), &e, sizeof(e)) || !plausible_entry(e)) return false;
  }
  uint64_t last;
  return read_memory(address + kRegistry - sizeof(last), &last, sizeof(last));
}

bool keep_loaded(const void* address) {
  Dl_info info;
  if (!dladdr(address, &info) || !info.dli_fname) return false;
  // Fails for the program itself, which stays anyway.
  dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  return true;
}

// FNV-1a over which pages are in memory.
uint64_t RegistryScan::pages_in_use(const Object& o) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uint64_t hash = 0xCBF29CE484222325u;
  for (uintptr_t at = o.begin & ~(page - 1); at < o.end; at += kPagesAtOnce * page) {
    const size_t left = (o.end - at + page - 1) / page;
    const size_t pages = left < kPagesAtOnce ? left : kPagesAtOnce;
    if (mincore(reinterpret_cast<void*>(at), pages * page, scratch_->resident) != 0) continue;
    for (size_t i = 0; i < pages; i++) hash = (hash ^ (scratch_->resident[i] & 1)) * 0x100000001B3u;
  }
  return hash;
}

// Searches the pages that are in memory: a registry in use has been written to.
graphsignal_probe_registry* RegistryScan::search(Object& o) {
  const bool small = o.end - o.begin <= kSmall;
  const uint64_t in_use = small ? pages_in_use(o) : 0;
  if (in_use != o.pages) o.vain = o.pause = o.wait = 0;
  o.pages = in_use;
  if (o.wait > 0) {
    o.wait--;
    return nullptr;
  }
  if (!small || ++o.vain > kWithoutPause) o.pause = o.pause == 0 ? 1 : o.pause * 2 < kLongestPause ? o.pause * 2 : kLongestPause;
  o.wait = o.pause;
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uint64_t mark = GRAPHSIGNAL_PROBE_ABI_MAGIC | static_cast<uint64_t>(GRAPHSIGNAL_PROBE_ABI_VERSION) << 32;
  const uintptr_t end = o.end - o.begin < kMostBytes ? o.end : o.begin + kMostBytes;
  for (uintptr_t at = o.begin & ~(page - 1); at < end; at += kPagesAtOnce * page) {
    const size_t left = (end - at + page - 1) / page;
    const size_t pages = left < kPagesAtOnce ? left : kPagesAtOnce;
    if (mincore(reinterpret_cast<void*>(at), pages * page, scratch_->resident) != 0) continue;
    for (size_t i = 0; i < pages;) {
      // As many pages as are in memory one behind the other, up to what is read at once.
      size_t run = i;
      while (run < pages && (scratch_->resident[run] & 1) && (run - i + 1) * page <= kBytesAtOnce) run++;
      const uintptr_t from = at + i * page;
      const size_t bytes = (run - i) * page;
      i = run > i ? run : i + 1;
      if (bytes == 0 || !read_memory(from, scratch_->words, bytes)) continue;
      for (size_t w = 0; w < bytes / sizeof(uint64_t); w++) {
        const uintptr_t address = from + w * sizeof(uint64_t);
        if (scratch_->words[w] != mark || address < o.begin || address > o.end || o.end - address < kRegistry) continue;
        if (plausible_registry(address)) return reinterpret_cast<graphsignal_probe_registry*>(address);
      }
    }
  }
  return nullptr;
}

RegistryScan::Object* RegistryScan::object(uintptr_t begin, uintptr_t end) {
  Object* unused = nullptr;
  for (Object& o : objects_) {
    if (o.begin == begin && o.end == end) return &o;
    if (o.begin == 0) unused = &o;
  }
  if (unused) {
    *unused = {};
    unused->begin = begin;
    unused->end = end;
  }
  return unused;
}

void RegistryScan::run(Found found, void* context) {
  if (!scratch_) scratch_ = static_cast<Scratch*>(map_pages(sizeof(Scratch)));
  if (!scratch_) return;
  Listing all = {scratch_->items, 0};
  dl_iterate_phdr(list_object, &all);
  for (Object& o : objects_) o.seen = false;
  for (uint32_t i = 0; i < all.count; i++) {
    if (Object* o = object(all.items[i].begin, all.items[i].end)) o->seen = true;
  }
  for (Object& o : objects_) {
    if (!o.seen) o.begin = 0;
  }
  for (uint32_t i = 0; i < all.count; i++) {
    const Loaded& item = all.items[i];
    Object* o = object(item.begin, item.end);
    const uintptr_t ours = reinterpret_cast<uintptr_t>(&own);
    // Our own copy is attached otherwise.
    if (!o || o->done || (ours >= item.begin && ours < item.end)) continue;
    graphsignal_probe_registry* r = nullptr;
    if (item.registry == 0) {
      r = search(*o);
    } else if (plausible_registry(item.registry)) {
      r = reinterpret_cast<graphsignal_probe_registry*>(item.registry);
    }
    if (!r || !keep_loaded(r)) continue;
    o->done = true;
    found(context, r);
  }
}

}  // namespace graphsignal
