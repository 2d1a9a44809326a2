#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "../common/system.h"

// The linker puts these in the place of map_pages and unmap_pages (--wrap).
void* real_map_pages(size_t bytes) __asm__("__real__ZN11graphsignal9map_pagesEm");
void real_unmap_pages(void* pages, size_t bytes) __asm__("__real__ZN11graphsignal11unmap_pagesEPvm");
void* wrapped_map_pages(size_t bytes) __asm__("__wrap__ZN11graphsignal9map_pagesEm");
void wrapped_unmap_pages(void* pages, size_t bytes) __asm__("__wrap__ZN11graphsignal11unmap_pagesEPvm");

namespace {

// The heap clears what it gives and marks all around it, which takes long for large blocks. Those are pages with one behind
// them that cannot be touched.
const size_t kLarge = 256 << 10;

struct Block {
  void* begin;
  size_t mapped;  // 0: from the heap
};
bool counted = false;
std::vector<Block> blocks;

void give_back(const Block& b) {
  if (b.mapped) {
    munmap(b.begin, b.mapped);
  } else {
    free(b.begin);
  }
}

}  // namespace

void* wrapped_map_pages(size_t bytes) {
  if (!counted) return real_map_pages(bytes);
  if (bytes < kLarge) {
    void* p = calloc(1, bytes);
    if (p) blocks.push_back({p, 0});
    return p;
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = (bytes + page - 1) / page * page;
  void* p = real_map_pages(size + page);
  if (!p) return nullptr;
  mprotect(static_cast<char*>(p) + size, page, PROT_NONE);
  blocks.push_back({p, size + page});
  return p;
}

void wrapped_unmap_pages(void* pages, size_t bytes) {
  const auto at = std::find_if(blocks.begin(), blocks.end(), [&](const Block& b) { return b.begin == pages; });
  if (at == blocks.end()) {
    real_unmap_pages(pages, bytes);
    return;
  }
  give_back(*at);
  blocks.erase(at);
}

namespace fuzz {

Memory::Memory() { counted = true; }

Memory::~Memory() {
  for (const Block& b : blocks) give_back(b);
  blocks.clear();
  counted = false;
}

}  // namespace fuzz
