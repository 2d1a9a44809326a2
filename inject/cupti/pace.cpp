#include "pace.h"

namespace graphsignal {
namespace cupti {
namespace {

const uint64_t kWindowNs = 50000000;
const uint64_t kBuffersPerSecond = 8;

thread_local uint32_t last_epoch = 0;

}  // namespace

uint32_t Pace::bound(uint64_t outstanding) {
  const uint32_t epoch = __atomic_load_n(&epoch_, __ATOMIC_RELAXED);
  if (last_epoch != epoch) {
    last_epoch = epoch;
    __atomic_fetch_add(&threads_now_, 1u, __ATOMIC_RELAXED);
  }
  uint64_t threads = __atomic_load_n(&threads_now_, __ATOMIC_RELAXED);
  const uint64_t before = __atomic_load_n(&threads_before_, __ATOMIC_RELAXED);
  if (before > threads) threads = before;
  const uint64_t share = rate() / kBuffersPerSecond / (threads ? threads : 1);
  const uint32_t least = outstanding < 16 ? 1 : outstanding < 32 ? 16 : outstanding < 64 ? 64 : 256;
  if (share < least) return least;
  return share < UINT32_MAX ? static_cast<uint32_t>(share) : UINT32_MAX;
}

void Pace::arrived(uint64_t records, uint64_t now_ns) {
  __atomic_store_n(&any_since_tick_, true, __ATOMIC_RELAXED);
  if (window_start_ == 0) window_start_ = now_ns - kWindowNs;
  window_records_ += records;
  if (now_ns < window_start_ + kWindowNs) return;
  const uint64_t now_rate =
      static_cast<uint64_t>(static_cast<double>(window_records_) * 1e9 / static_cast<double>(now_ns - window_start_));
  // Up at once, down by halves: a pause of a moment is no reason for small buffers.
  const uint64_t before = rate();
  __atomic_store_n(&rate_, now_rate > before ? now_rate : (before + now_rate) / 2, __ATOMIC_RELAXED);
  window_records_ = 0;
  window_start_ = now_ns;
}

void Pace::tick() {
  if (!__atomic_exchange_n(&any_since_tick_, false, __ATOMIC_RELAXED)) {
    __atomic_store_n(&rate_, rate() / 4, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&threads_before_, __atomic_exchange_n(&threads_now_, 0u, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  __atomic_fetch_add(&epoch_, 1u, __ATOMIC_RELAXED);
}

}  // namespace cupti
}  // namespace graphsignal
