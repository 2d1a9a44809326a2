// Run directories with anything in their files: one is either ours, marked as such and without what others left, or refused
// with a reason and left as it was.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/rundir.h"
#include "input.h"

using namespace graphsignal;
using fuzz::require;

namespace {

// In memory, where that can be, and removed at the end.
struct Base {
  Base() {
    if (mkdtemp(path)) return;
    strcpy(path, "/tmp/graphsignal-fuzz-XXXXXX");
    if (!mkdtemp(path)) abort();
  }
  ~Base() {
    for (const char* name : {"/.owner", "/cupti.json", "/probes.lock"}) unlink((run() + name).c_str());
    rmdir(run().c_str());
    rmdir(path);
  }
  std::string run() const { return std::string(path) + "/graphsignal_" + std::to_string(getpid()); }
  char path[64] = "/dev/shm/graphsignal-fuzz-XXXXXX";
};

std::string read_file(const std::string& path) {
  char text[4096];
  const int fd = open(path.c_str(), O_RDONLY);
  const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
  close(fd);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : "";
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

void write_file(const std::string& path, const std::string& content, bool old) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, content.data(), content.size()) != static_cast<ssize_t>(content.size())) abort();
  if (old) {
    const struct timespec times[] = {{1, 0}, {1, 0}};
    futimens(fd, times);
  }
  close(fd);
}

// The mark without the id of a run, which does not tell whose a directory is.
std::string without_run(const std::string& mark) {
  const std::string key = ",\"run\":\"";
  const size_t at = mark.rfind(key);
  if (at == std::string::npos) return mark;
  const size_t end = mark.find_first_not_of("0123456789abcdef", at + key.size());
  return end != std::string::npos && mark[end] == '"' ? mark.substr(0, at) + mark.substr(end + 1) : mark;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Base base;
  static RunDirectory& directory = *new RunDirectory;
  static std::string owner;
  const std::string path = base.run();
  if (owner.empty()) {
    require(directory.set(base.path), "the path is refused");
    const int fd = directory.open_checked();
    require(fd >= 0, "an empty directory is refused", directory.reason());
    close(fd);
    owner = read_file(path + "/.owner");
    require(!owner.empty(), "the directory is not marked");
  }

  fuzz::Input in(data, size);
  const uint8_t what = in.take<uint8_t>();
  std::string content = what & 1 ? owner : in.bytes(600);
  if (what & 2) {  // a mark of ours with some bytes changed
    content = owner;
    for (int i = in.take<uint8_t>() % 4; i >= 0; i--) content[in.take<uint8_t>() % content.size()] = in.take<char>();
  }
  write_file(path + "/.owner", content, false);
  write_file(path + "/cupti.json", "x", what & 4);
  if (what & 8) write_file(path + "/probes.lock", in.bytes(200), what & 4);
  else unlink((path + "/probes.lock").c_str());

  const int fd = directory.open_checked();
  if (fd < 0) {
    require(directory.reason()[0] != 0, "no reason");
    require(read_file(path + "/.owner") == content, "the mark of others is changed", content);
    require(exists(path + "/cupti.json"), "a document of others is gone", content);
    require(!(what & 4) || what & 8, "a directory that is old is refused", content);
    require(!directory.claim_probes("cupti"), "the probes of others are claimed", content);
    return 0;
  }
  close(fd);
  const bool ours = without_run(content) == owner;
  require(read_file(path + "/.owner") == (ours ? content : owner), "the directory is not marked", content);
  require(exists(path + "/cupti.json") == ours, "leftovers stay, or our own are gone", content);
  if (directory.claim_probes("cupti")) {
    require(directory.claim_probes("cupti") && !directory.claim_probes("rocm"), "the probes are claimed twice");
  } else {
    require(what & 8, "nobody has the probes, and they are refused");
  }
  return 0;
}
