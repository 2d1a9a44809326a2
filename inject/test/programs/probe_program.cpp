// A program with probes: what it does is its first argument.
#include <graphsignal/probe.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static graphsignal_probe_entry* reg(const char* name, graphsignal_instrument_type type) {
  return graphsignal_probe_register(name, type, nullptr, nullptr, 0);
}

static void record_all() {
  const char* keys[] = {"op"};
  const char* values[] = {"a\"b\xff"};
  graphsignal_probe_entry* h = graphsignal_probe_register("app_step_ns", GRAPHSIGNAL_HISTOGRAM, keys, values, 1);
  graphsignal_record(h, 100);
  graphsignal_record(h, 5000);
  graphsignal_record(h, 3);
  graphsignal_set(reg("app_level", GRAPHSIGNAL_GAUGE), 2.5);
  graphsignal_set(reg("app_not_a_number", GRAPHSIGNAL_GAUGE), NAN);
  graphsignal_add(reg("app_total", GRAPHSIGNAL_COUNTER), 42);
  graphsignal_probe_entry* p = reg("app_phases_nanoseconds", GRAPHSIGNAL_PROFILE);
  graphsignal_profile_add_by_name(p, "gemm_\x9f\xfe_v2", 5000);
  // 126 bytes and a character of three: the identity rule cuts it bytewise, the document must not.
  char name[160];
  for (int i = 0; i < 126; i++) name[i] = 'n';
  memcpy(name + 126, "\xE2\x82\xAC", 4);
  graphsignal_profile_add_by_name(p, name, 9);
  reg("app_unused_ns", GRAPHSIGNAL_HISTOGRAM);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "exec") == 0) {
    graphsignal_add(reg("first_image", GRAPHSIGNAL_COUNTER), 1);
    usleep(400000);  // past the first periodic write
    execl(argv[0], argv[0], "all", static_cast<char*>(nullptr));
    return 9;
  }
  if (strcmp(what, "modules") == 0) {
    for (int i = 2; i < argc; i++) {
      void* lib = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
      void* symbol = lib ? dlsym(lib, "use_probes") : nullptr;
      if (!symbol) return 8;
      void (*use)(const char*);
      memcpy(&use, &symbol, sizeof(use));
      use(i == 2 ? "module_one" : "module_two");
    }
    return 0;
  }
  if (strcmp(what, "full") == 0) {
    char name[32];
    for (int i = 0; i < GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS + 4; i++) {
      snprintf(name, sizeof(name), "i%d", i);
      reg(name, GRAPHSIGNAL_COUNTER);
    }
    return 0;
  }
  record_all();
  if (strcmp(what, "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      graphsignal_add(reg("app_total", GRAPHSIGNAL_COUNTER), 1000);
      reg("child_only", GRAPHSIGNAL_COUNTER);
      exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 7;
  }
  if (strcmp(what, "blocked") == 0) {
    // Our handler must never run on a thread of the publisher.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    kill(getpid(), SIGUSR1);
    usleep(300000);
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGUSR1) == 1 ? 0 : 6;
  }
  return strcmp(what, "all") == 0 ? 3 : 0;
}
