// The engine's own numbers as a Prometheus page (text format 0.0.4).
#ifndef GRAPHSIGNAL_DEMO_METRICS_PAGE_H
#define GRAPHSIGNAL_DEMO_METRICS_PAGE_H

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

namespace demo {

class MetricsPage {
 public:
  void set_requests(size_t running, size_t waiting);
  void add_tokens(uint64_t n);
  // A request ended after so many seconds.
  void observe_request(double seconds);

  std::string render() const;

 private:
  static constexpr std::array<double, 8> kBounds = {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};

  mutable std::mutex mutex_;
  size_t running_ = 0, waiting_ = 0;
  uint64_t tokens_ = 0;
  std::array<uint64_t, kBounds.size() + 1> buckets_{};
  double sum_ = 0;
};

}  // namespace demo

#endif
