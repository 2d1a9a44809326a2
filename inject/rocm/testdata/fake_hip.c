#define _GNU_SOURCE
#include "fake_hip.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 1, NOT_READY = 600, MAX_REGIONS = 64, MAX_PENDING = 256, RELAXED = 2, TO_HOST = 2, NON_BLOCKING = 1 };

struct region { int device; char *memory, *content; size_t bytes; };
struct stream { int device; int pending; struct { void* to; const void* from; size_t bytes; } copies[MAX_PENDING]; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region regions[MAX_REGIONS], pinned[MAX_REGIONS];
static int n_regions, n_pinned, held, hanging, gone, failing;
static uint64_t copies;
static void (*on_copy)(size_t);
static __thread int current_device, capture_mode; /* 0 is the global mode */

static void fault(const char* what) {
  fprintf(stderr, "fake HIP: %s\n", what);
  _exit(99);
}
static void check(void) {
  if (__atomic_load_n(&gone, __ATOMIC_ACQUIRE)) fault("a call after the end of the runtime");
  if (capture_mode != RELAXED) fault("a call that would break a capture");
}

void* fake_hip_malloc(int device, size_t bytes) {
  struct region* r = &regions[n_regions++];
  r->device = device;
  r->bytes = bytes;
  r->memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  r->content = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return r->memory;
}

static struct region* find(struct region* list, int n, const void* memory, size_t bytes) {
  for (int i = 0; i < n; i++) {
    const char* at = memory;
    if (at >= list[i].memory && at + bytes <= list[i].memory + list[i].bytes) return &list[i];
  }
  return NULL;
}

void* fake_hip_content(const void* memory) {
  struct region* r = find(regions, n_regions, memory, 1);
  return r ? r->content + ((const char*)memory - r->memory) : NULL;
}

uint64_t fake_hip_copies(void) { return __atomic_load_n(&copies, __ATOMIC_ACQUIRE); }
void fake_hip_hold(int on) { __atomic_store_n(&held, on, __ATOMIC_RELEASE); }
void fake_hip_hang(void) { __atomic_store_n(&hanging, 1, __ATOMIC_RELEASE); }
void fake_hip_fail(int n) { __atomic_store_n(&failing, n, __ATOMIC_RELEASE); }
void fake_hip_gone(void) { __atomic_store_n(&gone, 1, __ATOMIC_RELEASE); }
void fake_hip_on_copy(void (*hook)(size_t)) { on_copy = hook; }

/* ---- HIP ---- */

int hipSetDevice(int device) {
  if (__atomic_load_n(&gone, __ATOMIC_ACQUIRE)) fault("a call after the end of the runtime");
  if (device < 0 || device > 7) return INVALID;
  current_device = device;
  return SUCCESS;
}

int hipThreadExchangeStreamCaptureMode(int* mode) {
  const int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return SUCCESS;
}

int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  check();
  if (flags != NON_BLOCKING) fault("a stream that waits for the default one");
  struct stream* s = calloc(1, sizeof(*s));
  s->device = current_device;
  *stream = s;
  return SUCCESS;
}

int hipHostMalloc(void** memory, size_t bytes, unsigned flags) {
  check();
  if (flags != 0) return INVALID;
  pthread_mutex_lock(&lock);
  struct region* r = &pinned[n_pinned++];
  r->bytes = bytes;
  *memory = r->memory = calloc(1, bytes);
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  check();
  while (__atomic_load_n(&hanging, __ATOMIC_ACQUIRE)) pause();
  struct stream* s = stream;
  if (!s) fault("a copy on the default stream");
  if (kind != TO_HOST || s->device != current_device || s->pending == MAX_PENDING) return INVALID;
  if (__atomic_load_n(&failing, __ATOMIC_ACQUIRE) > 0) {
    __atomic_fetch_sub(&failing, 1, __ATOMIC_ACQ_REL);
    return INVALID;
  }
  const struct region* r = find(regions, n_regions, from, bytes);
  if (!r || r->device != current_device) return INVALID;
  if (!find(pinned, n_pinned, to, bytes)) fault("a copy to memory that is not pinned");
  s->copies[s->pending].to = to;
  s->copies[s->pending].from = r->content + ((const char*)from - r->memory);
  s->copies[s->pending].bytes = bytes;
  s->pending++;
  __atomic_fetch_add(&copies, 1, __ATOMIC_ACQ_REL);
  if (on_copy) on_copy(bytes);
  return SUCCESS;
}

int hipStreamQuery(void* stream) {
  check();
  struct stream* s = stream;
  if (__atomic_load_n(&held, __ATOMIC_ACQUIRE)) return NOT_READY;
  for (int i = 0; i < s->pending; i++) {
    /* As a device does it: word by word, while kernels go on writing. */
    uint64_t* to = s->copies[i].to;
    const uint64_t* from = s->copies[i].from;
    for (size_t w = 0; w < s->copies[i].bytes / 8; w++) to[w] = __atomic_load_n(&from[w], __ATOMIC_RELAXED);
  }
  s->pending = 0;
  return SUCCESS;
}

int hipMemcpy(void* to, const void* from, size_t bytes, int kind) {
  (void)to, (void)from, (void)bytes, (void)kind;
  fault("a synchronous copy");
  return INVALID;
}
