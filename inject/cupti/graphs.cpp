#include "graphs.h"

#include <stdlib.h>
#include <string.h>

#include "../common/system.h"

namespace graphsignal {
namespace cupti {
namespace {

const uint64_t kHashStart = 1469598103934665603u;
const uint64_t kHashPrime = 1099511628211u;
const size_t kMaxNodes = 8192;
const uint32_t kSlots = 16384;  // a power of two above kMaxNodes

uint64_t mix(uint64_t hash, const char* text, size_t length) {
  for (size_t i = 0; i < length; i++) hash = (hash ^ static_cast<unsigned char>(text[i])) * kHashPrime;
  return hash;
}

uint64_t mix(uint64_t hash, const char* text) { return mix(hash, text, strlen(text)); }

// Nodes that count as one: same kind and, for kernels, same symbol.
struct Group {
  int type;
  const char* symbol;  // kernels only
  uint32_t count;
};

// Memory of one computation. Mapped for it, so that no lock is held while the driver is asked.
struct Work {
  void* nodes[kMaxNodes];
  Group groups[kMaxNodes];
  uint32_t order[kMaxNodes];
  uint32_t slots[kSlots];  // group index + 1
};

const char* token(int type) {
  switch (type) {
    case kNodeKernel: return "kernel";
    case kNodeMemcpy: return "memcpy";
    case kNodeMemset: return "memset";
    case kNodeHost: return "host";
    case kNodeGraph: return "child";
    case kNodeEmpty: return "empty";
    case kNodeWaitEvent: return "wait";
    case kNodeEventRecord: return "event";
    case kNodeSemaphoreSignal: return "semsignal";
    case kNodeSemaphoreWait: return "semwait";
    case kNodeMemAlloc: return "memalloc";
    case kNodeMemFree: return "memfree";
    default: return "other";
  }
}

// The pieces of a group's key: token and symbol, then what follows them.
struct Key {
  const char* parts[4];
};

Key key_of(const Group& g) {
  if (g.type == kNodeKernel) return {{"kernel[name=", g.symbol, ",calls=", ""}};
  return {{token(g.type), "[calls=", "", ""}};
}

// Bytewise order of the concatenated pieces.
int compare_keys(const Key& a, const Key& b) {
  int i = 0, j = 0;
  const char *p = a.parts[0], *q = b.parts[0];
  for (;;) {
    while (*p == 0 && i < 3) p = a.parts[++i];
    while (*q == 0 && j < 3) q = b.parts[++j];
    const unsigned char c = static_cast<unsigned char>(*p), d = static_cast<unsigned char>(*q);
    if (c != d) return c < d ? -1 : 1;
    if (c == 0) return 0;
    p++;
    q++;
  }
}

// Heap sort of the order by key: no recursion, no allocation.
void sort_groups(Work* w, uint32_t n) {
  const auto less = [w](uint32_t a, uint32_t b) {
    return compare_keys(key_of(w->groups[a]), key_of(w->groups[b])) < 0;
  };
  const auto sink = [&](uint32_t root, uint32_t end) {
    for (uint32_t child = 2 * root + 1; child < end; child = 2 * root + 1) {
      if (child + 1 < end && less(w->order[child], w->order[child + 1])) child++;
      if (!less(w->order[root], w->order[child])) return;
      const uint32_t t = w->order[root];
      w->order[root] = w->order[child];
      w->order[child] = t;
      root = child;
    }
  };
  for (uint32_t i = 0; i < n; i++) w->order[i] = i;
  for (uint32_t i = n / 2; i-- > 0;) sink(i, n);
  for (uint32_t end = n; end-- > 1;) {
    const uint32_t t = w->order[0];
    w->order[0] = w->order[end];
    w->order[end] = t;
    sink(0, end);
  }
}

// The symbol of a kernel node; empty when it has none.
const char* kernel_symbol(const DriverFunctions& driver, void* node) {
  KernelNodeParams params;
  memset(&params, 0, sizeof(params));
  if (driver.kernel_node_params(node, &params) != 0) return "";
  const char* name = nullptr;
  if (params.function && driver.function_name && driver.function_name(&name, params.function) == 0 && name) return name;
  name = nullptr;
  if (params.kernel && driver.kernel_name && driver.kernel_name(&name, params.kernel) == 0 && name) return name;
  return "";
}

}  // namespace

uint64_t hash_signature(const char* text, size_t length) { return mix(kHashStart, text, length); }

bool graph_signature(const DriverFunctions& driver, void* graph, uint64_t* hash) {
  if (!driver.graph_nodes || !driver.node_type || !driver.kernel_node_params || !driver.function_name) return false;
  Work* w = static_cast<Work*>(map_pages(sizeof(Work)));
  if (!w) return false;
  size_t nodes = kMaxNodes;
  uint32_t groups = 0;
  if (driver.graph_nodes(graph, w->nodes, &nodes) == 0) {
    if (nodes > kMaxNodes) nodes = kMaxNodes;
    for (size_t i = 0; i < nodes; i++) {
      int type = 0;
      if (!w->nodes[i] || driver.node_type(w->nodes[i], &type) != 0) continue;
      if (type < kNodeKernel || type > kNodeMemFree) type = kNodeMemFree + 1;
      const char* symbol = type == kNodeKernel ? kernel_symbol(driver, w->nodes[i]) : "";
      uint32_t slot = static_cast<uint32_t>(mix(kHashStart + static_cast<uint64_t>(type), symbol)) & (kSlots - 1);
      for (; w->slots[slot] != 0; slot = (slot + 1) & (kSlots - 1)) {
        Group& g = w->groups[w->slots[slot] - 1];
        if (g.type == type && strcmp(g.symbol, symbol) == 0) break;
      }
      if (w->slots[slot] == 0) {
        w->groups[groups] = {type, symbol, 0};
        w->slots[slot] = ++groups;
      }
      w->groups[w->slots[slot] - 1].count++;
    }
  }
  sort_groups(w, groups);
  uint64_t h = kHashStart;
  for (uint32_t i = 0; i < groups; i++) {
    const Group& g = w->groups[w->order[i]];
    for (const char* part : key_of(g).parts) h = mix(h, part);
    char digits[12];
    size_t n = sizeof(digits);
    uint32_t count = g.count;
    do {
      digits[--n] = static_cast<char>('0' + count % 10);
      count /= 10;
    } while (count != 0);
    h = mix(h, digits + n, sizeof(digits) - n);
    h = mix(h, "];");
  }
  unmap_pages(w, sizeof(Work));
  *hash = h;
  return groups > 0;
}

bool GraphNames::allocate() {
  entries_ = static_cast<Entry*>(map_pages(sizeof(Entry) * kEntries));
  return entries_ != nullptr;
}

void GraphNames::remember(uint32_t id, uint64_t hash) {
  if (!entries_) return;
  Entry& e = entries_[id % kEntries];
  __atomic_store_n(&e.id_plus_one, static_cast<uint64_t>(0), __ATOMIC_RELEASE);
  __atomic_store_n(&e.hash, hash, __ATOMIC_RELEASE);
  __atomic_store_n(&e.id_plus_one, static_cast<uint64_t>(id) + 1, __ATOMIC_RELEASE);
}

bool GraphNames::find(uint32_t id, uint64_t* hash) const {
  if (!entries_) return false;
  const Entry& e = entries_[id % kEntries];
  const uint64_t wanted = static_cast<uint64_t>(id) + 1;
  if (__atomic_load_n(&e.id_plus_one, __ATOMIC_ACQUIRE) != wanted) return false;
  *hash = __atomic_load_n(&e.hash, __ATOMIC_ACQUIRE);
  return __atomic_load_n(&e.id_plus_one, __ATOMIC_ACQUIRE) == wanted;
}

}  // namespace cupti
}  // namespace graphsignal
