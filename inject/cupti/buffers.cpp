#include "buffers.h"

#include <stdlib.h>
#include <string.h>

#include "../common/system.h"

namespace graphsignal {
namespace cupti {
namespace {

const size_t kPage = 4096;
const uint32_t kLeastSlots = 8;

}  // namespace

bool Slots::reserve(size_t slot_bytes, uint32_t count) {
  for (; count >= kLeastSlots; count /= 2) {
    base_ = static_cast<uint8_t*>(map_pages(slot_bytes * count));
    if (base_) break;
  }
  return base_ && reserve_stack(slot_bytes, count);
}

bool Slots::reserve_blocks(size_t slot_bytes, uint32_t count) {
  return reserve_stack(slot_bytes, count);
}

bool Slots::reserve_stack(size_t slot_bytes, uint32_t count) {
  next_ = static_cast<uint32_t*>(map_pages(count * sizeof(uint32_t)));
  if (!next_) return false;
  bytes_ = slot_bytes;
  count_ = count;
  return true;
}

// A fresh slot, zeroed; NULL when there is no memory.
uint8_t* Slots::make(uint32_t index) {
  if (base_) return at(index);
  uint8_t* block = static_cast<uint8_t*>(calloc(1, bytes_));
  __atomic_store_n(&blocks_[index], block, __ATOMIC_RELEASE);
  return block;
}

uint8_t* Slots::at(uint32_t index) const {
  return base_ ? base_ + index * bytes_ : __atomic_load_n(&blocks_[index], __ATOMIC_ACQUIRE);
}

bool Slots::find(const uint8_t* slot, uint32_t* index) const {
  if (base_) {
    if (slot < base_ || slot >= base_ + bytes_ * count_) return false;
    *index = static_cast<uint32_t>(static_cast<size_t>(slot - base_) / bytes_);
    return true;
  }
  for (uint32_t i = 0; i < count_; i++) {
    if (slot != at(i)) continue;
    *index = i;
    return true;
  }
  return false;
}

uint8_t* Slots::take(bool* cold) {
  *cold = false;
  uint64_t top = __atomic_load_n(&top_, __ATOMIC_ACQUIRE);
  while (static_cast<uint32_t>(top) != 0) {
    const uint32_t index = static_cast<uint32_t>(top) - 1;
    const uint64_t below = __atomic_load_n(&next_[index], __ATOMIC_RELAXED);
    const uint64_t tagged = (((top >> 32) + 1) << 32) | below;
    if (__atomic_compare_exchange_n(&top_, &top, tagged, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      __atomic_fetch_sub(&ready_, 1u, __ATOMIC_RELAXED);
      return at(index);
    }
  }
  uint32_t fresh = __atomic_load_n(&fresh_, __ATOMIC_RELAXED);
  while (fresh < count_) {
    if (__atomic_compare_exchange_n(&fresh_, &fresh, fresh + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      *cold = true;
      return make(fresh);
    }
  }
  return nullptr;
}

void Slots::push(uint32_t index) {
  uint64_t top = __atomic_load_n(&top_, __ATOMIC_RELAXED);
  uint64_t tagged;
  do {
    __atomic_store_n(&next_[index], static_cast<uint32_t>(top), __ATOMIC_RELAXED);
    tagged = (((top >> 32) + 1) << 32) | (index + 1);
  } while (!__atomic_compare_exchange_n(&top_, &top, tagged, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  __atomic_fetch_add(&ready_, 1u, __ATOMIC_RELAXED);
}

bool Slots::give_back(uint8_t* slot, size_t used) {
  uint32_t index;
  if (!slot || !find(slot, &index)) return false;
  memset(slot, 0, used < bytes_ ? used : bytes_);
  push(index);
  return true;
}

void Slots::warm(uint32_t wanted) {
  while (ready() < wanted) {
    uint32_t fresh = __atomic_load_n(&fresh_, __ATOMIC_RELAXED);
    if (fresh >= count_) return;
    if (!__atomic_compare_exchange_n(&fresh_, &fresh, fresh + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
    volatile uint8_t* slot = make(fresh);
    if (!slot) return;
    for (size_t at = 0; at < bytes_; at += kPage) slot[at] = 0;
    push(fresh);
  }
}

bool BufferPool::start(bool lent) {
  lent_ = lent;
  // Small ones are for bursts of threads beyond all bounds; where buffers are lent there are none.
  if (lent ? !full_.reserve_blocks(kBufferBytes, kMaxBuffers)
           : !full_.reserve(kBufferBytes, kMaxBuffers) || !small_.reserve(kSmallBytes, kMaxSmall)) {
    return false;
  }
  full_.warm(warm_target_ / 2);
  return true;
}

uint8_t* BufferPool::take(uint32_t records, bool may_refuse, size_t* size) {
  bool cold = false;
  uint8_t* buffer = full_.take(&cold);
  if (buffer) {
    __atomic_fetch_add(&requested_, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
    if (cold) __atomic_fetch_add(&cold_, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
    const size_t wanted = (records * kRecordBytes + kPage - 1) / kPage * kPage;
    *size = records == 0 || wanted > kBufferBytes ? kBufferBytes : wanted;
    return buffer;
  }
  buffer = small_.take(&cold);
  if (buffer) {
    __atomic_fetch_add(&requested_, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
  } else if (!may_refuse) {
    buffer = static_cast<uint8_t*>(lent_ ? calloc(1, kSmallBytes) : map_pages(kSmallBytes));
  }
  if (!buffer) {
    __atomic_fetch_add(&refused_, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
    *size = 0;
    return nullptr;
  }
  __atomic_fetch_add(&small_taken_, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
  *size = kSmallBytes;
  return buffer;
}

bool BufferPool::give_back(uint8_t* buffer, size_t size) {
  if (!full_.give_back(buffer, size) && !small_.give_back(buffer, size)) return false;
  __atomic_fetch_add(&returned_, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
  return true;
}

void BufferPool::retire(const uint8_t* buffer) {
  uint32_t index;
  if (!full_.find(buffer, &index) && !small_.find(buffer, &index)) return;
  __atomic_fetch_add(&returned_, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
}

void BufferPool::maintain() {
  const uint64_t cold_now = cold();
  if (cold_now != cold_seen_ && warm_target_ < kMaxBuffers / 4) warm_target_ *= 2;
  cold_seen_ = cold_now;
  full_.warm(warm_target_);
}

}  // namespace cupti
}  // namespace graphsignal
