#include "metrics_page.h"

#include <sstream>

namespace demo {

void MetricsPage::set_requests(size_t running, size_t waiting) {
  std::lock_guard<std::mutex> hold(mutex_);
  running_ = running;
  waiting_ = waiting;
}

void MetricsPage::add_tokens(uint64_t n) {
  std::lock_guard<std::mutex> hold(mutex_);
  tokens_ += n;
}

void MetricsPage::observe_request(double seconds) {
  std::lock_guard<std::mutex> hold(mutex_);
  size_t i = 0;
  while (i < kBounds.size() && seconds > kBounds[i]) i++;
  buckets_[i]++;
  sum_ += seconds;
}

std::string MetricsPage::render() const {
  std::lock_guard<std::mutex> hold(mutex_);
  std::ostringstream out;
  const char* labels = "{model_name=\"demo\"}";
  out << "# HELP demo_num_requests_running Requests in the current batch.\n# TYPE demo_num_requests_running gauge\n"
      << "demo_num_requests_running" << labels << ' ' << running_ << '\n'
      << "# HELP demo_num_requests_waiting Requests that wait for a place.\n# TYPE demo_num_requests_waiting gauge\n"
      << "demo_num_requests_waiting" << labels << ' ' << waiting_ << '\n'
      << "# HELP demo_generation_tokens_total Tokens generated.\n# TYPE demo_generation_tokens_total counter\n"
      << "demo_generation_tokens_total" << labels << ' ' << tokens_ << '\n'
      << "# HELP demo_request_latency_seconds Arrival to last token.\n# TYPE demo_request_latency_seconds histogram\n";
  uint64_t count = 0;
  for (size_t i = 0; i < buckets_.size(); i++) {
    count += buckets_[i];
    out << "demo_request_latency_seconds_bucket{model_name=\"demo\",le=\"";
    if (i < kBounds.size()) {
      out << kBounds[i];
    } else {
      out << "+Inf";
    }
    out << "\"} " << count << '\n';
  }
  out << "demo_request_latency_seconds_sum" << labels << ' ' << sum_ << '\n'
      << "demo_request_latency_seconds_count" << labels << ' ' << count << '\n';
  return out.str();
}

}  // namespace demo
