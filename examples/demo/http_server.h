// Serves one page over HTTP on the loopback interface.
#ifndef GRAPHSIGNAL_DEMO_HTTP_SERVER_H
#define GRAPHSIGNAL_DEMO_HTTP_SERVER_H

#include <functional>
#include <string>
#include <thread>

namespace demo {

class HttpServer {
 public:
  explicit HttpServer(std::function<std::string()> page) : page_(std::move(page)) {}
  ~HttpServer() { stop(); }

  // Listens on 127.0.0.1:port (0: any free one) and serves GET /metrics. Returns the port, or -1 with errno set.
  int start(int port);
  void stop();

 private:
  void serve();
  void answer(int connection) const;

  std::function<std::string()> page_;
  std::thread thread_;
  int listener_ = -1;
  int stop_pipe_[2] = {-1, -1};
};

}  // namespace demo

#endif
