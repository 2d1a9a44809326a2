// Decides how many records a buffer may hold. CUPTI hands a buffer back only when all its records are finished, so on a
// stream that is never idle a large buffer would come late: a buffer shall cover an eighth of a second of one thread's
// work, down to a single record where kernels take long. Changing buffers costs time in the launching thread, so the
// bound follows the rate at which records complete, and a burst that outruns it gets larger buffers the more are out.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_PACE_H
#define GRAPHSIGNAL_INJECT_CUPTI_PACE_H

#include <stdint.h>

namespace graphsignal {
namespace cupti {

class Pace {
 public:
  // Bound for a buffer that the calling thread asks for while so many are out. Lock-free.
  uint32_t bound(uint64_t outstanding);
  // Counts records that have arrived, at a time of a clock that never steps. Callers take turns.
  void arrived(uint64_t records, uint64_t now_ns);
  // Once a second, on our own thread.
  void tick();

  uint64_t rate() const { return __atomic_load_n(&rate_, __ATOMIC_RELAXED); }

 private:
  uint64_t rate_ = 0;  // records per second
  uint64_t window_records_ = 0;
  uint64_t window_start_ = 0;
  bool any_since_tick_ = false;
  uint32_t epoch_ = 1;            // ticks
  uint32_t threads_now_ = 0;      // threads that asked in this epoch
  uint32_t threads_before_ = 0;   // and in the one before
};

}  // namespace cupti
}  // namespace graphsignal

#endif
