#include "registries.h"

#include <elf.h>
#include <link.h>
#include <string.h>

namespace graphsignal {
namespace rocm {
namespace {

const char kSymbol[] = "__graphsignal_probe_registry_v1";

uint32_t gnu_hash(const char* name) {
  uint32_t h = 5381;
  for (; *name; name++) h = h * 33 + static_cast<unsigned char>(*name);
  return h;
}

// The tables of a loaded object that its symbols are found by.
struct Tables {
  const uint32_t* hash = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
};

// The loader has made most pointers absolute.
template <typename T>
T table(const dl_phdr_info& object, ElfW(Addr) value) {
  return reinterpret_cast<T>(value < object.dlpi_addr ? object.dlpi_addr + value : value);
}

bool find_tables(const dl_phdr_info& object, Tables* t) {
  for (int i = 0; i < object.dlpi_phnum; i++) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_DYNAMIC) continue;
    for (const ElfW(Dyn)* d = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + segment.p_vaddr); d->d_tag != DT_NULL; d++) {
      if (d->d_tag == DT_GNU_HASH) t->hash = table<const uint32_t*>(object, d->d_un.d_ptr);
      if (d->d_tag == DT_SYMTAB) t->symbols = table<const ElfW(Sym)*>(object, d->d_un.d_ptr);
      if (d->d_tag == DT_STRTAB) t->names = table<const char*>(object, d->d_un.d_ptr);
    }
  }
  return t->hash && t->symbols && t->names;
}

// The object's own definition of the registry, when it is one of those that keep a library from being unloaded.
graphsignal_probe_registry* own_registry(const dl_phdr_info& object) {
  Tables t;
  if (!object.dlpi_name || strstr(object.dlpi_name, "linux-vdso") || !find_tables(object, &t)) return nullptr;
  const uint32_t buckets = t.hash[0], first = t.hash[1], filter_words = t.hash[2], filter_shift = t.hash[3];
  if (buckets == 0 || filter_words == 0) return nullptr;
  const uint32_t hash = gnu_hash(kSymbol);
  const ElfW(Addr)* filter = reinterpret_cast<const ElfW(Addr)*>(t.hash + 4);
  const uint32_t bits = 8 * sizeof(ElfW(Addr));
  const ElfW(Addr) word = filter[hash / bits % filter_words];
  if (!(word >> hash % bits & 1) || !(word >> (hash >> filter_shift) % bits & 1)) return nullptr;
  const uint32_t* bucket = reinterpret_cast<const uint32_t*>(filter + filter_words);
  const uint32_t* chain = bucket + buckets;
  for (uint32_t i = bucket[hash % buckets]; i >= first && i != 0; i++) {
    const ElfW(Sym)& s = t.symbols[i];
    if ((chain[i - first] | 1) == (hash | 1) && s.st_shndx != SHN_UNDEF && s.st_info >> 4 == STB_GNU_UNIQUE &&
        s.st_size == sizeof(graphsignal_probe_registry) && strcmp(t.names + s.st_name, kSymbol) == 0) {
      return reinterpret_cast<graphsignal_probe_registry*>(object.dlpi_addr + s.st_value);
    }
    if (chain[i - first] & 1) break;
  }
  return nullptr;
}

bool ready(const graphsignal_probe_registry* r) {
  return __atomic_load_n(&r->magic, __ATOMIC_ACQUIRE) == GRAPHSIGNAL_PROBE_ABI_MAGIC &&
         r->abi_version == GRAPHSIGNAL_PROBE_ABI_VERSION;
}

}  // namespace

struct Walk {
  static int visit(dl_phdr_info* object, size_t, void* registries) {
    static_cast<Registries*>(registries)->add(own_registry(*object));
    return 0;
  }
};

void Registries::add(graphsignal_probe_registry* registry) {
  if (!registry || !ready(registry)) return;
  for (uint32_t i = 0; i < count_; i++) {
    if (found_[i] == registry) return;
  }
  if (count_ < kMax) found_[count_++] = registry;
}

void Registries::refresh() {
  add(graphsignal_probe_reader_attach());
  dl_iterate_phdr(Walk::visit, this);
}

}  // namespace rocm
}  // namespace graphsignal
