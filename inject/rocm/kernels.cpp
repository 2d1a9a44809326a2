#include "kernels.h"

#include <stdio.h>

namespace graphsignal {
namespace rocm {

bool KernelNames::allocate(Profile* profile) {
  profile_ = profile;
  names_ = Profile::create(kNames);
  entries_ = static_cast<Entry*>(map_pages(sizeof(Entry) * kIds));
  return profile_ && names_ && entries_;
}

bool KernelNames::remember(uint64_t id, const char* name) {
  const size_t length = name ? bounded_length(name, Profile::kMaxNameBytes + 4) : 0;
  if (length == 0) return false;
  Guard hold(lock_);
  const uint32_t before = names_->frames();
  const uint32_t index = name_bytes_ + length <= kNameBytes ? names_->intern(name, length) : Profile::kNoFrame;
  if (names_->frames() != before) name_bytes_ += length + 1;
  Entry& e = entries_[id % kIds];
  e.id_plus_one = id + 1;
  e.name_plus_one = index == Profile::kNoFrame ? 0 : index + 1;
  e.frame_plus_one = 0;
  return index != Profile::kNoFrame;
}

uint32_t KernelNames::frame(uint64_t id) {
  Guard hold(lock_);
  Entry& e = entries_[id % kIds];
  const bool known = e.id_plus_one == id + 1;
  if (known && e.frame_plus_one) return e.frame_plus_one - 1;
  uint32_t frame;
  if (known && e.name_plus_one) {
    frame = profile_->intern(names_->name(e.name_plus_one - 1), names_->length(e.name_plus_one - 1));
  } else {
    char number[32];
    const int n = snprintf(number, sizeof(number), "kernel_%llu", static_cast<unsigned long long>(id));
    frame = profile_->intern(number, static_cast<size_t>(n));
  }
  // A number may yet get its name.
  if (known && e.name_plus_one && frame != Profile::kNoFrame) e.frame_plus_one = frame + 1;
  return frame;
}

}  // namespace rocm
}  // namespace graphsignal
