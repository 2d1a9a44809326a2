// Buffers for CUPTI's records. Taking one happens in the application's launching thread, so it is a lock-free pop of
// memory that our own thread has zeroed and faulted in before.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_BUFFERS_H
#define GRAPHSIGNAL_INJECT_CUPTI_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

namespace graphsignal {
namespace cupti {

// Equal buffers.
class Slots {
 public:
  // Reserves one range of addresses for count slots; less when the system refuses. count at most 65535.
  bool reserve(size_t slot_bytes, uint32_t count);
  // The same without a range: each slot is a block of malloc's, made when it is first needed, so that whoever gets it
  // instead of us may free it. count at most kMaxBlocks.
  bool reserve_blocks(size_t slot_bytes, uint32_t count);
  static const uint32_t kMaxBlocks = 256;

  // A zeroed slot, or NULL when all are out. *cold tells that it was never touched before.
  uint8_t* take(bool* cold);
  // Zeroes the first `used` bytes and makes the slot available. False for memory that is not a slot.
  bool give_back(uint8_t* slot, size_t used);
  // The slot's index; false for memory that is not a slot.
  bool find(const uint8_t* slot, uint32_t* index) const;
  // Touches fresh slots until so many are ready to be taken.
  void warm(uint32_t wanted);

  size_t slot_bytes() const { return bytes_; }
  uint32_t ready() const { return __atomic_load_n(&ready_, __ATOMIC_RELAXED); }

 private:
  bool reserve_stack(size_t slot_bytes, uint32_t count);
  uint8_t* make(uint32_t index);
  uint8_t* at(uint32_t index) const;
  void push(uint32_t index);

  uint8_t* base_ = nullptr;
  // In place of base_. Here, so that a leak detector finds the blocks from the object.
  uint8_t* blocks_[kMaxBlocks] = {};
  uint32_t* next_ = nullptr;  // index + 1 of the slot below in the stack of free ones
  size_t bytes_ = 0;
  uint32_t count_ = 0;
  uint32_t fresh_ = 0;  // slots from here on were never handed out
  uint32_t ready_ = 0;
  uint64_t top_ = 0;  // low half: index + 1; high half: a tag against reuse between load and exchange
};

class BufferPool {
 public:
  static const size_t kBufferBytes = 256 * 1024;
  static const uint32_t kMaxBuffers = Slots::kMaxBlocks;  // 64 MiB
  static const size_t kSmallBytes = 8 * 1024;
  static const uint32_t kMaxSmall = 8192;  // 64 MiB more, in the worst case
  static const size_t kRecordBytes = 256;  // no record is larger

  // lent: another tool of the process may be handed buffers of ours, and free them.
  bool start(bool lent);

  // A zeroed buffer for about so many records (0: as many as fit). Past all bounds: fresh pages that are never reused
  // when may_refuse is false, else NULL. Any thread, lock-free but for malloc where buffers are lent and none is ready.
  uint8_t* take(uint32_t records, bool may_refuse, size_t* size);
  // Returns false for a buffer that this pool did not hand out.
  bool give_back(uint8_t* buffer, size_t size);
  // Counts a buffer of this pool as returned, and does not use it again.
  void retire(const uint8_t* buffer);
  // Keeps enough buffers warm; for our own thread, once a second.
  void maintain();

  // Buffers of this pool that were handed out, and that came back.
  uint64_t requested() const { return __atomic_load_n(&requested_, __ATOMIC_RELAXED); }
  uint64_t returned() const { return __atomic_load_n(&returned_, __ATOMIC_RELAXED); }
  uint64_t cold() const { return __atomic_load_n(&cold_, __ATOMIC_RELAXED); }
  uint64_t small() const { return __atomic_load_n(&small_taken_, __ATOMIC_RELAXED); }
  uint64_t refused() const { return __atomic_load_n(&refused_, __ATOMIC_RELAXED); }

 private:
  Slots full_;
  Slots small_;
  bool lent_ = false;
  uint32_t warm_target_ = 8;
  uint64_t cold_seen_ = 0;
  uint64_t requested_ = 0;
  uint64_t returned_ = 0;
  uint64_t cold_ = 0;         // handed out without having been faulted in
  uint64_t small_taken_ = 0;  // small ones, when all others were out
  uint64_t refused_ = 0;
};

}  // namespace cupti
}  // namespace graphsignal

#endif
