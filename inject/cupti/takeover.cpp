#include "takeover.h"

namespace graphsignal {
namespace cupti {
namespace {

// Quiet seconds before the first look, and between looks: a look takes the subscription for some microseconds, in which
// another tool could not get it.
const uint32_t kFirstLook = 2;
const uint32_t kLookEvery = 5;

void ignore(void*, int, uint32_t, const void*) {}

}  // namespace

void Takeover::start(Instruments& instruments, Log& log, const Functions& functions, bool subscribed, bool (*enable)()) {
  instruments_ = &instruments;
  log_ = &log;
  functions_ = &functions;
  enable_ = enable;
  watching_ = !subscribed && functions.subscribe && functions.unsubscribe;
}

bool Takeover::other_subscriber() const {
  void* subscriber = nullptr;
  const int result = functions_->subscribe(&subscriber, ignore, nullptr);
  if (result == kSuccess) functions_->unsubscribe(subscriber);
  return result == kMultipleSubscribers;
}

void Takeover::suspend(const char* why) {
  if (!gauge_) gauge_ = instruments_->get("cuda_trace_suspended", GRAPHSIGNAL_GAUGE);
  if (gauge_) gauge_->set(1);
  if (!suspended_ || final_) log_->add(Level::kWarning, "GPU activity is not recorded: %s", why);
  suspended_ = true;
}

void Takeover::tick(uint64_t requested, uint64_t returned, bool graphs) {
  if (!watching_ || final_) return;
  const bool moved = requested != requested_ || returned != returned_;
  requested_ = requested;
  returned_ = returned;
  if (moved) {
    quiet_ = 0;
    retaken_ = false;
    if (suspended_) {
      suspended_ = false;
      gauge_->set(0);
      log_->add(Level::kWarning, "GPU activity is recorded again");
    }
    return;
  }
  if (requested == 0) return;
  quiet_++;
  if (quiet_ < kFirstLook || (quiet_ - kFirstLook) % kLookEvery != 0) return;
  if (other_subscriber()) {
    if (!suspended_) suspend("another tool in the process is using CUPTI");
    return;
  }
  // Nobody else is there. Buffers that stay out were handed to a tool that has gone, or hold a kernel that still runs.
  const bool taken = suspended_ || requested != returned;
  if (!taken || retaken_) return;
  if (graphs) {
    // Enabling kinds again hangs processes that have instantiated graphs. A long kernel is no reason to say so.
    if (!suspended_) return;
    final_ = true;
    suspend("another tool has used CUPTI, and starting again is not safe in a process with CUDA graphs");
    return;
  }
  retaken_ = true;
  enable_();
}

}  // namespace cupti
}  // namespace graphsignal
