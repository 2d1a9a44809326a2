// What waits for whom in a start of the publisher. A thread that registers may be in a library's constructor, and hold the dynamic linker's
// lock. So it must not wait for another thread that starts the publisher, which needs the linker; nor, with the argument "own", for the
// publisher's thread. Ends with 42 when it did not wait.
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

static thread_local bool registering;
static std::atomic<bool> registered;
static std::atomic<int> in_time_for_own;

struct Given {
  void* (*body)(void*);
  void* argument;
};

static void* late(void* p) {
  const Given given = *static_cast<Given*>(p);
  for (int i = 0; i < 1000 && !registered; i++) usleep(10000);
  in_time_for_own = registered ? 1 : 2;
  return given.body(given.argument);
}

// Stands before libc's: a thread that is created during a registration begins after it.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  void* symbol = dlsym(RTLD_NEXT, "pthread_create");
  decltype(&pthread_create) real;
  memcpy(&real, &symbol, sizeof(real));
  static Given given;
  if (!registering) return real(thread, attributes, body, argument);
  given = {body, argument};
  return real(thread, attributes, late, &given);
}

static int own() {
  registering = true;
  graphsignal_add(graphsignal_probe_register("first_total", GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0), 1);
  registering = false;
  registered = true;
  while (in_time_for_own == 0) usleep(1000);
  return in_time_for_own == 1 ? 42 : 2;
}

int main(int argc, char**) {
  if (argc > 1) {
    starting = true;
    return own();
  }
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
