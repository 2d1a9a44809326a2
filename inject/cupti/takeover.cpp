#include "takeover.h"

namespace graphsignal {
namespace cupti {
namespace {

// Quiet seconds after which buffers that stay out are told of.
const uint32_t kLong = 30;

void ignore(void*, int, uint32_t, const void*) {}

}  // namespace

void Takeover::start(Instruments& instruments, Log& log, const Functions& functions, bool subscribed) {
  instruments_ = &instruments;
  log_ = &log;
  functions_ = &functions;
  watching_ = !subscribed && functions.subscribe && functions.unsubscribe;
}

// Takes the subscription for some microseconds, in which another tool could not get it: so not while the program is busy.
bool Takeover::other_subscriber() const {
  void* subscriber = nullptr;
  const int result = functions_->subscribe(&subscriber, ignore, nullptr);
  if (result == kSuccess) functions_->unsubscribe(subscriber);
  return result == kMultipleSubscribers;
}

void Takeover::suspend(const char* why) {
  if (!gauge_) gauge_ = instruments_->get("cuda_trace_suspended", GRAPHSIGNAL_GAUGE);
  if (gauge_) gauge_->set(1);
  if (!suspended_) log_->add(Level::kWarning, "GPU activity is not recorded: %s", why);
  suspended_ = true;
}

void Takeover::tick(uint64_t requested, uint64_t returned) {
  if (!watching_) return;
  const bool moved = requested != requested_ || returned != returned_;
  requested_ = requested;
  returned_ = returned;
  if (moved) {
    quiet_ = 0;
    seen_ = false;
    if (suspended_) {
      suspended_ = false;
      gauge_->set(0);
      log_->add(Level::kWarning, "GPU activity is recorded again");
    }
    return;
  }
  if (seen_) return;
  quiet_++;
  if (other_subscriber()) {
    seen_ = true;
    suspend("another tool in the process is using CUPTI");
  } else if (!suspended_ && requested != returned && quiet_ >= kLong) {
    suspend("nothing came for a long time: another tool has used CUPTI, or a kernel takes this long");
  }
}

void Takeover::end(uint64_t requested, uint64_t returned) {
  if (!watching_) return;
  // A forced flush brings back all that our callbacks would get.
  const bool taken = returned < requested || (requested == requested_ && other_subscriber());
  if (taken && !suspended_) suspend("another tool in the process has used CUPTI");
  if (!taken && suspended_) gauge_->set(0);
}

}  // namespace cupti
}  // namespace graphsignal
