// The cheapest injection library that CUPTI allows: it enables activity kinds and gives every buffer back unread. What it
// costs is the floor under any collector of the same kinds; ours is judged against it.
//
// FLOOR_KINDS: letters k kernels, g graph traces, m copies, s sets, y synchronization (default kgmsy)
// FLOOR_FLUSH: seconds between unforced flushes, 0 for none (default 1)
// FLOOR_BUFFER: bytes of a buffer (default 4 MiB)
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../inject/cupti/cupti_abi.h"

using namespace graphsignal::cupti;

namespace {

const int kKept = 256;
size_t buffer_bytes = 4u << 20;
double flush_seconds = 1;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
uint8_t* kept[kKept];
int kept_count = 0;
int (*flush_all)(uint32_t);

void requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  pthread_mutex_lock(&lock);
  *buffer = kept_count > 0 ? kept[--kept_count] : static_cast<uint8_t*>(aligned_alloc(4096, buffer_bytes));
  pthread_mutex_unlock(&lock);
  *size = *buffer ? buffer_bytes : 0;
  *max_records = 0;
}

void completed(void*, uint32_t, uint8_t* buffer, size_t, size_t) {
  pthread_mutex_lock(&lock);
  if (kept_count < kKept) {
    kept[kept_count++] = buffer;
    buffer = nullptr;
  }
  pthread_mutex_unlock(&lock);
  free(buffer);
}

void* flusher(void*) {
  for (;;) {
    usleep(static_cast<useconds_t>(flush_seconds * 1e6));
    flush_all(0);
  }
}

template <typename Function>
void resolve(void* library, const char* name, Function* to) {
  void* symbol = dlsym(library, name);
  if (!symbol) {
    fprintf(stderr, "floor: no %s\n", name);
    _exit(3);
  }
  memcpy(to, &symbol, sizeof(symbol));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const char* kinds = getenv("FLOOR_KINDS") ? getenv("FLOOR_KINDS") : "kgmsy";
  if (getenv("FLOOR_BUFFER")) buffer_bytes = strtoul(getenv("FLOOR_BUFFER"), nullptr, 0);
  if (getenv("FLOOR_FLUSH")) flush_seconds = atof(getenv("FLOOR_FLUSH"));
  void* cupti = nullptr;
  const char* names[] = {"libcupti.so.13", "libcupti.so.12"};
  for (const char* name : names) {
    if (!cupti) cupti = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  }
  if (!cupti && getenv("FLOOR_CUPTI")) cupti = dlopen(getenv("FLOOR_CUPTI"), RTLD_NOW);
  for (const char* name : names) {
    if (!cupti) cupti = dlopen(name, RTLD_NOW);
  }
  if (!cupti) {
    fprintf(stderr, "floor: no libcupti\n");
    _exit(3);
  }
  int (*register_callbacks)(BufferRequested, BufferCompleted);
  int (*enable)(uint32_t);
  resolve(cupti, "cuptiActivityRegisterCallbacks", &register_callbacks);
  resolve(cupti, "cuptiActivityEnable", &enable);
  resolve(cupti, "cuptiActivityFlushAll", &flush_all);
  register_callbacks(requested, completed);
  const struct {
    char letter;
    uint32_t kind;
  } table[] = {{'k', kKindConcurrentKernel}, {'g', kKindGraphTrace}, {'m', kKindMemcpy}, {'s', kKindMemset}, {'y', kKindSynchronization}};
  for (const auto& t : table) {
    if (!strchr(kinds, t.letter)) continue;
    const int result = enable(t.kind);
    if (result != 0) fprintf(stderr, "floor: kind %u: %d\n", t.kind, result);
  }
  if (flush_seconds > 0) {
    pthread_t thread;
    pthread_create(&thread, nullptr, flusher, nullptr);
    pthread_detach(thread);
  }
  return 1;
}
