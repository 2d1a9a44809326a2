// What recording costs on the host: nanoseconds per call and thread, with one thread and with several threads that all record
// into the same instrument, or each into its own. Prints "what | ns" lines; the least of several rounds counts.
#include <graphsignal/probe.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 7;
constexpr uint64_t kCalls = 400000;

graphsignal_probe_entry* instrument(const std::string& name, graphsignal_instrument_type type) {
  return graphsignal_probe_register(name.c_str(), type, nullptr, nullptr, 0);
}

// Least time of a call over the rounds, in ns. body(thread) makes kCalls calls.
template <typename Body>
double measure(unsigned threads, const Body& body) {
  double least = 1e9;
  for (int round = 0; round < kRounds; round++) {
    std::atomic<unsigned> ready{0};
    std::vector<double> took(threads);
    std::vector<std::thread> all;
    for (unsigned t = 0; t < threads; t++) {
      all.emplace_back([&, t] {
        ready++;
        while (ready < threads) std::this_thread::yield();
        const auto start = std::chrono::steady_clock::now();
        body(t);
        took[t] = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
      });
    }
    for (auto& t : all) t.join();
    least = std::min(least, *std::max_element(took.begin(), took.end()) / static_cast<double>(kCalls));
  }
  return least;
}

template <typename Call>
void report(const char* what, unsigned threads, bool shared, graphsignal_instrument_type type, const Call& call) {
  std::vector<graphsignal_probe_entry*> entries;
  for (unsigned t = 0; t < threads; t++) {
    entries.push_back(instrument(std::string("bench_") + what + std::to_string(shared ? 0 : t), type));
    if (!entries.back()) return;
  }
  const double ns = measure(threads, [&](unsigned t) {
    graphsignal_probe_entry* e = entries[t];
    for (uint64_t i = 0; i < kCalls; i++) call(e, i);
  });
  printf("%s, %u thread%s | %.1f ns\n", what, threads, threads == 1 ? "" : shared ? "s, one instrument" : "s, one each", ns);
  fflush(stdout);
}

}  // namespace

int main() {
  for (const auto& [threads, shared] : {std::pair<unsigned, bool>{1, true}, {8, true}, {8, false}}) {
    // Varying values, so that neither the branch predictor nor min and max see only one.
    report("record", threads, shared, GRAPHSIGNAL_HISTOGRAM, [](graphsignal_probe_entry* e, uint64_t i) { graphsignal_record(e, 1000 + (i * 2654435761u & 0xFFFF)); });
    report("add", threads, shared, GRAPHSIGNAL_COUNTER, [](graphsignal_probe_entry* e, uint64_t i) { graphsignal_add(e, i & 7); });
    report("set", threads, shared, GRAPHSIGNAL_GAUGE, [](graphsignal_probe_entry* e, uint64_t i) { graphsignal_set(e, static_cast<double>(i)); });
    report("profile add", threads, shared, GRAPHSIGNAL_PROFILE, [](graphsignal_probe_entry* e, uint64_t i) {
      static thread_local graphsignal_probe_entry* of = nullptr;
      static thread_local graphsignal_profile_frame* frame = nullptr;
      if (of != e) frame = graphsignal_profile_frame_get(of = e, "gemm");
      graphsignal_profile_add(frame, i & 7);
    });
    report("profile add by name", threads, shared, GRAPHSIGNAL_PROFILE,
           [](graphsignal_probe_entry* e, uint64_t i) { graphsignal_profile_add_by_name(e, "gemm", i & 7); });
  }
  report("record into NULL", 1, true, GRAPHSIGNAL_HISTOGRAM, [](graphsignal_probe_entry*, uint64_t i) { graphsignal_record(nullptr, i); });
  report("now_ns", 1, true, GRAPHSIGNAL_COUNTER, [](graphsignal_probe_entry* e, uint64_t) { e->data->value_bits = graphsignal_now_ns(); });
  return 0;
}
