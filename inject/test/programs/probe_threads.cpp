// Two threads publish at the same time. While the first one starts the publisher, which needs the dynamic linker, the second one must not
// wait for it: it may be in a library's constructor, and hold the linker's lock. Ends with 42 when it did not wait.
#include <dlfcn.h>
#include <fcntl.h>
#include <graphsignal/probe.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

static std::atomic<bool> starting, second_done;
static bool in_time;
static graphsignal_probe_registry other;
static graphsignal_instrument_data block;

// Stands before libc's: the first call is the publisher's, for its run directory.
extern "C" int mkdir(const char* path, mode_t mode) {
  if (!starting.exchange(true)) {
    for (int i = 0; i < 1000 && !second_done; i++) usleep(10000);
    in_time = second_done;
  }
  return mkdirat(AT_FDCWD, path, mode);
}

int main() {
  void* library = dlopen(getenv("GRAPHSIGNAL_PROBE_LIB"), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? dlsym(library, "graphsignal_probe_publish") : nullptr;
  if (!symbol) return 1;
  int (*publish)(graphsignal_probe_registry*);
  memcpy(&publish, &symbol, sizeof(publish));

  std::thread first([] { graphsignal_add(graphsignal_probe_register("first_total", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 1); });
  while (!starting) usleep(1000);
  other.magic = GRAPHSIGNAL_PROBE_ABI_MAGIC;
  other.abi_version = GRAPHSIGNAL_PROBE_ABI_VERSION;
  other.start_ts = graphsignal_now_ns();
  other.entries[0].type = GRAPHSIGNAL_COUNTER;
  other.entries[0].device_id = -1;
  strcpy(other.entries[0].name, "second_total");
  other.entries[0].data = &block;
  block.value_bits = 7;
  other.count = 1;
  const int published = publish(&other);
  second_done = true;
  first.join();
  return in_time && published == 1 ? 42 : 2;
}
