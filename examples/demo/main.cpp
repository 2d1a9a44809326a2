// graphsignal-demo: a small inference engine that runs on the CPU. Requests arrive, share a batch, and get one token each
// per decode step; probes show what happens inside, a Prometheus page what an engine would publish.
#include <graphsignal/probe.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>

#include "http_server.h"
#include "metrics_page.h"
#include "model.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBatch = 8;
constexpr size_t kMaxWaiting = 64;
constexpr auto kStepPeriod = std::chrono::milliseconds(10);

volatile std::sig_atomic_t stop_asked = 0;

struct Request {
  Clock::time_point arrival;
  int token;
  unsigned left;  // tokens still to generate
  unsigned wanted;
};

struct Options {
  int port = 18500;
  double seconds = 0;  // 0: until a signal
};

void usage(FILE* to) {
  fprintf(to,
          "usage: graphsignal-demo [--port N] [--seconds N]\n"
          "  --port N     serve GET /metrics on 127.0.0.1:N (default 18500, 0: any free port)\n"
          "  --seconds N  end after N seconds (default: run until SIGTERM or SIGINT)\n");
}

// The number of an option, or -1 for anything that is none.
double parse_number(const char* text) {
  if (!text || !*text) return -1;
  char* end = nullptr;
  const double v = strtod(text, &end);
  return *end == 0 && v >= 0 && v < 1e9 ? v : -1;
}

// Returns false, after saying why, when the arguments make no sense.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i++) {
    const std::string name = argv[i];
    const double value = parse_number(i + 1 < argc ? argv[i + 1] : nullptr);
    if (name == "--port" && value >= 0 && value <= 65535 && value == static_cast<int>(value)) {
      options.port = static_cast<int>(value);
    } else if (name == "--seconds" && value >= 0) {
      options.seconds = value;
    } else {
      fprintf(stderr, "graphsignal-demo: bad argument or value: %s\n", argv[i]);
      usage(stderr);
      return false;
    }
    i++;
  }
  return true;
}

// Arrivals and lengths that look random and are the same in every run.
class Traffic {
 public:
  unsigned next(unsigned below) {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 16) % below;
  }

 private:
  uint32_t state_ = 12345;
};

int run(const Options& options) {
  demo::MetricsPage page;
  demo::HttpServer server([&page] { return page.render(); });
  const int port = server.start(options.port);
  if (port < 0) {
    fprintf(stderr, "graphsignal-demo: cannot listen on 127.0.0.1:%d: %s\n", options.port, strerror(errno));
    return 1;
  }
  printf("INFO graphsignal-demo: serving http://127.0.0.1:%d/metrics\n", port);

  const auto probe = [](const char* name, graphsignal_instrument_type type) {
    return graphsignal_probe_register(name, type, nullptr, nullptr, 0);
  };
  graphsignal_probe_entry* step_time = probe("demo_decode_step_nanoseconds", GRAPHSIGNAL_HISTOGRAM);
  graphsignal_probe_entry* request_tokens = probe("demo_request_tokens", GRAPHSIGNAL_HISTOGRAM);
  graphsignal_probe_entry* tokens_out = probe("demo_tokens", GRAPHSIGNAL_COUNTER);
  graphsignal_probe_entry* batch_fill = probe("demo_batch_fill_ratio", GRAPHSIGNAL_GAUGE);

  demo::Model model;
  Traffic traffic;
  std::deque<Request> waiting, running;
  std::vector<int> tokens;
  uint64_t steps = 0, generated = 0, finished = 0, refused = 0;
  const Clock::time_point start = Clock::now();
  Clock::time_point next_step = start, next_report = start + std::chrono::seconds(1);

  while (!stop_asked && (options.seconds == 0 || Clock::now() - start < std::chrono::duration<double>(options.seconds))) {
    const Clock::time_point now = Clock::now();
    if (traffic.next(4) == 0) {
      const unsigned wanted = 8 + traffic.next(48);
      if (waiting.size() < kMaxWaiting) {
        waiting.push_back({now, static_cast<int>(traffic.next(demo::Model::kVocabulary)), wanted, wanted});
      } else {
        refused++;
      }
    }
    while (running.size() < kBatch && !waiting.empty()) {
      running.push_back(waiting.front());
      waiting.pop_front();
    }
    page.set_requests(running.size(), waiting.size());
    graphsignal_set(batch_fill, static_cast<double>(running.size()) / kBatch);

    if (!running.empty()) {
      tokens.clear();
      for (const Request& r : running) tokens.push_back(r.token);
      const Clock::time_point before = Clock::now();
      model.step(tokens);
      const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - before).count();
      graphsignal_record(step_time, static_cast<uint64_t>(took));
      graphsignal_add(tokens_out, tokens.size());
      page.add_tokens(tokens.size());
      generated += tokens.size();
      steps++;
      std::deque<Request> still;
      for (size_t i = 0; i < running.size(); i++) {
        Request r = running[i];
        r.token = tokens[i];
        if (--r.left > 0) {
          still.push_back(r);
          continue;
        }
        page.observe_request(std::chrono::duration<double>(Clock::now() - r.arrival).count());
        graphsignal_record(request_tokens, r.wanted);
        finished++;
      }
      running.swap(still);
    }

    if (Clock::now() >= next_report) {
      printf("INFO graphsignal-demo: %llu steps, %llu tokens, %llu requests done, %zu running, %zu waiting\n",
             static_cast<unsigned long long>(steps), static_cast<unsigned long long>(generated),
             static_cast<unsigned long long>(finished), running.size(), waiting.size());
      next_report += std::chrono::seconds(1);
    }
    next_step += kStepPeriod;
    if (next_step < Clock::now()) next_step = Clock::now();
    std::this_thread::sleep_until(next_step);
  }
  server.stop();
  printf("INFO graphsignal-demo: ended after %llu steps, %llu tokens, %llu requests done, %llu refused\n",
         static_cast<unsigned long long>(steps), static_cast<unsigned long long>(generated),
         static_cast<unsigned long long>(finished), static_cast<unsigned long long>(refused));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
    usage(stdout);
    return 0;
  }
  Options options;
  if (!parse(argc, argv, options)) return 2;
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_asked = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  return run(options);
}
