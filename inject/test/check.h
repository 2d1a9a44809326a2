// A minimal test harness: named cases, checks that go on, and a non-zero exit when any failed.
#ifndef GRAPHSIGNAL_INJECT_TEST_CHECK_H
#define GRAPHSIGNAL_INJECT_TEST_CHECK_H

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace test {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline int& failures() {
  static int n = 0;
  return n;
}
struct Register {
  Register(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

template <typename T>
std::string show(const T& value) {
  std::ostringstream s;
  s << value;
  return s.str();
}

inline void fail(const char* file, int line, const std::string& what) {
  printf("%s:%d: %s\n", file, line, what.c_str());
  failures()++;
}

// Polls until the condition holds, at most so many seconds.
inline bool eventually(double seconds, const std::function<bool()>& condition) {
  const int steps = static_cast<int>(seconds * 100);
  for (int i = 0; i < steps; i++) {
    if (condition()) return true;
    const struct timespec pause = {0, 10000000};
    nanosleep(&pause, nullptr);
  }
  return condition();
}

// Keeps an object that lives for ever, as most do in the libraries, where the leak check sees it.
template <typename T>
T* keep(T* object) {
  static std::vector<void*>& all = *new std::vector<void*>;
  all.push_back(object);
  return object;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

inline bool exists(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0;
}

inline std::vector<std::string> list(const std::string& path) {
  std::vector<std::string> names;
  if (DIR* d = opendir(path.c_str())) {
    while (struct dirent* e = readdir(d)) {
      if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) names.push_back(e->d_name);
    }
    closedir(d);
  }
  return names;
}

// A directory that is removed with all its content.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char pattern[] = "/tmp/graphsignal-test-XXXXXX";
    if (!mkdtemp(pattern)) abort();
    path = pattern;
  }
  ~TemporaryDirectory() {
    nftw(path.c_str(), [](const char* p, const struct stat*, int, struct FTW*) { return remove(p); }, 16, FTW_DEPTH | FTW_PHYS);
  }
  std::string run_directory(pid_t pid = getpid()) const { return path + "/graphsignal_" + std::to_string(pid); }
  std::string path;
};

// Runs a program with the given environment on top of ours and returns its wait status and pid.
struct Ended {
  int status = -1;
  pid_t pid = -1;
};
inline Ended run(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  fflush(nullptr);
  Ended e;
  e.pid = fork();
  if (e.pid == 0) {
    for (const auto& v : environment) putenv(strdup(v.c_str()));
    std::vector<char*> argv;
    for (const auto& a : command) argv.push_back(strdup(a.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  while (waitpid(e.pid, &e.status, 0) < 0 && errno == EINTR) {
  }
  return e;
}

// Runs the body in a forked child and returns its wait status.
inline int in_child(const std::function<void()>& body) {
  fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    failures() = 0;
    body();
    fflush(nullptr);
    _exit(failures() ? 1 : 0);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

inline int run_all() {
  for (const Case& c : cases()) {
    const int before = failures();
    c.body();
    printf("%s %s\n", failures() == before ? "ok  " : "FAIL", c.name);
    fflush(stdout);
  }
  printf("%zu cases, %d failed checks\n", cases().size(), failures());
  return failures() ? 1 : 0;
}

}  // namespace test

#define TEST(name)                                        \
  static void name();                                     \
  static const test::Register name##_registered(#name, name); \
  static void name()

#define CHECK(condition) \
  do { if (!(condition)) test::fail(__FILE__, __LINE__, "not true: " #condition); } while (0)

#define CHECK_EQ(got, want)                                                                                   \
  do {                                                                                                        \
    const auto got_ = (got);                                                                                  \
    const decltype(got_) want_ = (want);                                                                      \
    if (!(got_ == want_))                                                                                     \
      test::fail(__FILE__, __LINE__, #got " is " + test::show(got_) + ", want " + test::show(want_));         \
  } while (0)

#endif
