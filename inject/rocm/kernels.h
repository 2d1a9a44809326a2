// Names of kernels by the numbers under which rocprofiler-sdk registers them.
#ifndef GRAPHSIGNAL_INJECT_ROCM_KERNELS_H
#define GRAPHSIGNAL_INJECT_ROCM_KERNELS_H

#include "../common/instruments.h"

namespace graphsignal {
namespace rocm {

// Numbers are given in sequence, and programs register far more kernels than they launch: a number's place is its
// remainder, so that the latest 262,144 are known, and a name becomes a frame of the profile only when it is first
// launched. Names outlive the code object, since records of its kernels may still come.
class KernelNames {
 public:
  static const uint32_t kIds = 262144;
  // Distinct names, and bytes of them, that are kept.
  static const uint32_t kNames = 262144;
  static const uint64_t kNameBytes = 64u << 20;

  // Frames are made in the given profile. False when memory is short.
  bool allocate(Profile* profile);

  // Registers a name as delivered. Any thread. False when it cannot be kept: the number then serves as the name.
  bool remember(uint64_t id, const char* name);
  // The profile's frame of a kernel. Any thread.
  uint32_t frame(uint64_t id);

 private:
  struct Entry {
    uint64_t id_plus_one;
    uint32_t name_plus_one;  // index into names_; 0: none
    uint32_t frame_plus_one;  // 0: not launched yet
  };

  Lock lock_;
  Profile* profile_ = nullptr;
  Profile* names_ = nullptr;
  Entry* entries_ = nullptr;
  uint64_t name_bytes_ = 0;
};

}  // namespace rocm
}  // namespace graphsignal

#endif
