// Notices when another tool of the process, such as torch.profiler, has taken the activity callbacks over.
//
// CUPTI has one pair of buffer callbacks per process and tells nobody when they are replaced. What shows it is silence
// while buffers of ours stay out, or together with a subscription that somebody else holds. They are not taken back: to
// enable kinds anew crashes or hangs a process that has instantiated CUDA graphs.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_TAKEOVER_H
#define GRAPHSIGNAL_INJECT_CUPTI_TAKEOVER_H

#include "../common/instruments.h"
#include "../common/log.h"
#include "library.h"

namespace graphsignal {
namespace cupti {

class Takeover {
 public:
  // With the subscription ours no other tool of its sort can start, so then there is nothing to watch.
  void start(Instruments& instruments, Log& log, const Functions& functions, bool subscribed);

  // Once a second: buffers requested and returned so far.
  void tick(uint64_t requested, uint64_t returned);

  // At the end of the process, after forced flushes, unless another tool has the activity: buffers requested before them, and
  // returned by now. Says so when another tool has come since the last tick.
  void end(uint64_t requested, uint64_t returned);

  bool watching() const { return watching_; }
  // Whether another tool was found and no buffer of ours was requested since, given those requested so far.
  bool taken_over(uint64_t requested) const { return seen_ && requested == requested_; }

 private:
  bool other_subscriber() const;
  void suspend(const char* why);

  Instruments* instruments_ = nullptr;
  Log* log_ = nullptr;
  const Functions* functions_ = nullptr;
  bool watching_ = false;
  bool suspended_ = false;
  Instrument* gauge_ = nullptr;
  uint64_t requested_ = 0;
  uint64_t returned_ = 0;
  uint32_t quiet_ = 0;
  bool seen_ = false;  // another tool had the subscription, in this quiet period
};

}  // namespace cupti
}  // namespace graphsignal

#endif
