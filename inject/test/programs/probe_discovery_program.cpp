// A program whose registry nobody exports and, unless told otherwise, nobody is told of. What it does is its first argument,
// the publisher its second. It ends with 42 when it got to its end.
#include <graphsignal/probe.h>
#include <stdio.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

// So large that a registry beside it is looked for ever more rarely, and a place for what only looks like one.
alignas(8) unsigned char large[80 << 20];

void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, dlerror());
  _exit(9);
}

void* symbol(void* library, const char* name) {
  void* s = dlsym(library, name);
  if (!s) fail(name);
  return s;
}

// Starts the publisher without telling it of any registry.
void start(const char* publisher) {
  void* library = dlopen(publisher, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(publisher);
  int (*publish)(graphsignal_probe_registry*);
  void* s = symbol(library, "graphsignal_probe_publish");
  memcpy(&publish, &s, sizeof(publish));
  publish(nullptr);
}

void* use(const char* module, const std::string& name) {
  void* library = dlopen(module, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(module);
  void (*function)(const char*);
  void* s = symbol(library, "use_probes");
  memcpy(&function, &s, sizeof(function));
  function(name.c_str());
  return library;
}

graphsignal_probe_entry* counter(const char* name) { return graphsignal_probe_register(name, GRAPHSIGNAL_COUNTER, nullptr, nullptr, 0); }

// Headers that must not be believed.
void decoys() {
  graphsignal_probe_registry* r[6];
  for (int i = 0; i < 6; i++) {
    r[i] = reinterpret_cast<graphsignal_probe_registry*>(large + (4 << 20) * (i + 1));
    r[i]->abi_version = GRAPHSIGNAL_PROBE_ABI_VERSION;
    r[i]->start_ts = graphsignal_now_ns();
    r[i]->count = 1;
    strcpy(r[i]->entries[0].name, "decoy");
    r[i]->entries[0].type = GRAPHSIGNAL_COUNTER;
    r[i]->entries[0].device_id = -1;
    r[i]->entries[0].data = static_cast<graphsignal_instrument_data*>(calloc(1, sizeof(graphsignal_instrument_data)));
    r[i]->magic = GRAPHSIGNAL_PROBE_ABI_MAGIC;
  }
  r[0]->count = GRAPHSIGNAL_PROBE_MAX_INSTRUMENTS + 1;
  r[1]->entries[0].data = reinterpret_cast<graphsignal_instrument_data*>(8);
  memset(r[2]->entries[0].name, 'x', sizeof(r[2]->entries[0].name));
  r[3]->start_ts = 5;
  r[4]->count = 2;  // the second entry is empty
  r[5]->reg_lock = 77;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string what = argv[1];
  if (what != "told") start(argv[2]);
  if (what == "decoys") decoys();
  if (what == "own" || what == "decoys") {
    usleep(300000);  // the publisher has looked in vain
    graphsignal_add(counter("hidden_total"), 12);
    sleep(3);
  }
  if (what == "at-once") graphsignal_add(counter("hidden_total"), 12);
  if (what == "frames") {
    graphsignal_probe_entry* p = graphsignal_probe_register("frames_nanoseconds", GRAPHSIGNAL_PROFILE, nullptr, nullptr, 0);
    for (int i = 0; i < 260; i++) graphsignal_profile_add_by_name(p, ("f" + std::to_string(i)).c_str(), 1);
  }
  if (what == "modules" || what == "told") {
    std::vector<void*> libraries;
    for (int i = 3; i < argc; i++) libraries.push_back(use(argv[i], "module_" + std::to_string(i - 3)));
    for (void* library : libraries) printf("%p\n", symbol(library, GRAPHSIGNAL_PROBE_REGISTRY_SYMBOL));
    fflush(stdout);
    if (what == "told") {
      for (void* library : libraries) dlclose(library);
      sleep(2);  // documents are written meanwhile
    }
  }
  return large[0] == 0 ? 42 : 1;
}
