// Finds the probe registries of the process (graphsignal/probe.h), also those of modules in scopes of their own.
#ifndef GRAPHSIGNAL_INJECT_ROCM_REGISTRIES_H
#define GRAPHSIGNAL_INJECT_ROCM_REGISTRIES_H

#include <graphsignal/probe.h>

namespace graphsignal {
namespace rocm {

class Registries {
 public:
  static const uint32_t kMax = 64;

  // Looks for new ones. One thread.
  void refresh();

  uint32_t count() const { return count_; }
  graphsignal_probe_registry* at(uint32_t i) const { return found_[i]; }

 private:
  friend struct Walk;
  void add(graphsignal_probe_registry* registry);

  graphsignal_probe_registry* found_[kMax];
  uint32_t count_ = 0;
};

}  // namespace rocm
}  // namespace graphsignal

#endif
