// A toy batch server with probes of all four types: it makes batches of numbers, sorts and sums them, and says what it did.
// usage: probes-host [SECONDS]
#include <graphsignal/probe.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

namespace {

// One place that registers, once, at start-up. A NULL entry (nothing could be registered) is accepted everywhere.
struct Probes {
  graphsignal_probe_entry* batch_ns = make("toyserver_batch_nanoseconds", GRAPHSIGNAL_HISTOGRAM);
  graphsignal_probe_entry* bytes_in = make("toyserver_bytes_in", GRAPHSIGNAL_COUNTER);
  graphsignal_probe_entry* queue = make("toyserver_queue_depth", GRAPHSIGNAL_GAUGE);
  graphsignal_probe_entry* operations = make("toyserver_operations_nanoseconds", GRAPHSIGNAL_PROFILE);
  // Frames of a profile keep their place: look them up once where the path is hot.
  graphsignal_profile_frame* sort = graphsignal_profile_frame_get(operations, "sort");
  graphsignal_profile_frame* sum = graphsignal_profile_frame_get(operations, "sum");

  static graphsignal_probe_entry* make(const char* name, graphsignal_instrument_type type) {
    // Variants go into tags, not into names.
    const char* keys[] = {"worker"};
    const char* values[] = {"0"};
    return graphsignal_probe_register(name, type, keys, values, 1);
  }
};

// Adds the time of a block of code to a frame.
class Timed {
 public:
  explicit Timed(graphsignal_profile_frame* frame) : frame_(frame), start_(graphsignal_now_ns()) {}
  ~Timed() {
    // The clock may step back; such a time is not worth having.
    const uint64_t end = graphsignal_now_ns();
    if (end >= start_) graphsignal_profile_add(frame_, end - start_);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  graphsignal_profile_frame* frame_;
  uint64_t start_;
};

uint64_t process(std::vector<uint32_t>& batch, const Probes& probes) {
  {
    Timed t(probes.sort);
    std::sort(batch.begin(), batch.end());
  }
  Timed t(probes.sum);
  uint64_t total = 0;
  for (uint32_t v : batch) total += v;
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? atof(argv[1]) : 10;
  const Probes probes;
  std::mt19937 random(1);
  std::deque<std::vector<uint32_t>> queue;
  uint64_t batches = 0, checksum = 0;
  const uint64_t end = graphsignal_now_ns() + static_cast<uint64_t>(seconds * 1e9);
  while (graphsignal_now_ns() < end) {
    for (uint32_t arriving = random() % 3; arriving > 0; arriving--) {
      queue.emplace_back(1000 + random() % 9000);
      for (uint32_t& v : queue.back()) v = static_cast<uint32_t>(random());
      graphsignal_add(probes.bytes_in, queue.back().size() * sizeof(uint32_t));
    }
    graphsignal_set(probes.queue, static_cast<double>(queue.size()));
    if (queue.empty()) continue;
    const uint64_t start = graphsignal_now_ns();
    checksum += process(queue.front(), probes);
    const uint64_t now = graphsignal_now_ns();
    if (now >= start) graphsignal_record(probes.batch_ns, now - start);
    queue.pop_front();
    batches++;
  }
  printf("%llu batches, checksum %llu\n", static_cast<unsigned long long>(batches), static_cast<unsigned long long>(checksum));
  return 0;
}
