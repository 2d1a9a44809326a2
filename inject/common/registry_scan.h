// Finds probe registries that the dynamic linker's global scope does not show: those of modules in scopes of their own, and
// those of executables and libraries that do not export the symbol.
#ifndef GRAPHSIGNAL_INJECT_REGISTRY_SCAN_H
#define GRAPHSIGNAL_INJECT_REGISTRY_SCAN_H

#include <graphsignal/probe.h>

#include "system.h"

namespace graphsignal {

// A registry is zero-initialised, so it lies in the part of a writable segment that the file does not fill. Few objects have
// such a part that is large enough; the registry is where its table of symbols says, and is searched for by its header where
// that does not tell. What looks like one counts only if all of its entries make sense. Memory is read through the kernel, so
// that no page that is protected, or is being unmapped, can fault.
class RegistryScan {
 public:
  // Called with each registry found, also with those found before. The object that holds it stays loaded from then on.
  typedef void (*Found)(void* context, graphsignal_probe_registry* registry);

  // Looks through the objects that are loaded now. Memory that was searched in vain is searched ever more rarely, up to every
  // 64th call. Small memory is searched in each of the first calls, and of those after more of it has come into use. Any
  // thread, one at a time.
  void run(Found found, void* context);

  static const uint32_t kMaxObjects = 32;

 private:
  struct Object {
    uintptr_t begin;  // the part that no file fills; 0 in an unused element
    uintptr_t end;
    uint32_t wait;    // calls until the next search
    uint32_t pause;   // between the last search and the next
    uint32_t vain;    // searches since more of it came into use
    uint64_t pages;   // hash over which of them were in memory
    bool done;        // its registry was found
    bool seen;        // in this call
  };
  struct Scratch;

  Object* object(uintptr_t begin, uintptr_t end);
  uint64_t pages_in_use(const Object& o);
  graphsignal_probe_registry* search(Object& o);

  Object objects_[kMaxObjects] = {};
  Scratch* scratch_ = nullptr;
};

// Whether the bytes at an address of this process are a registry with entries. The address need not be readable.
bool plausible_registry(uintptr_t address);

// Keeps the library that holds an address loaded for ever. False when nothing is loaded there.
bool keep_loaded(const void* address);

}  // namespace graphsignal

#endif
