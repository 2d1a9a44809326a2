// Notices when another tool of the process, such as torch.profiler, has taken the activity callbacks over, and takes them
// back when that is safe.
//
// CUPTI has one pair of buffer callbacks per process and tells nobody when they are replaced. What shows it is silence
// while buffers of ours stay out, or after activity, together with a subscription that somebody else holds.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_TAKEOVER_H
#define GRAPHSIGNAL_INJECT_CUPTI_TAKEOVER_H

#include "../common/instruments.h"
#include "../common/log.h"
#include "library.h"

namespace graphsignal {
namespace cupti {

class Takeover {
 public:
  // enable registers our callbacks and kinds anew. With the subscription ours no other tool of its sort can start, so then
  // there is nothing to watch.
  void start(Instruments& instruments, Log& log, const Functions& functions, bool subscribed, bool (*enable)());

  // Once a second: buffers requested and returned so far, and whether the process has any CUDA graph.
  void tick(uint64_t requested, uint64_t returned, bool graphs);

  bool suspended() const { return suspended_; }

 private:
  bool other_subscriber() const;
  void suspend(const char* why);

  Instruments* instruments_ = nullptr;
  Log* log_ = nullptr;
  const Functions* functions_ = nullptr;
  bool (*enable_)() = nullptr;
  bool watching_ = false;
  bool suspended_ = false;
  bool final_ = false;  // suspended for good
  Instrument* gauge_ = nullptr;
  uint64_t requested_ = 0;
  uint64_t returned_ = 0;
  uint32_t quiet_ = 0;
  bool retaken_ = false;  // in this quiet period
};

}  // namespace cupti
}  // namespace graphsignal

#endif
