/* Fake CUDA driver for reading GPU probes: two devices whose memory the host cannot touch, private streams with copies that
 * are done only when they are asked about, capture modes, failures and calls that hang. */
#define _GNU_SOURCE
#include "fake_cuda_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEVICES 2
#define BLOCKS 16384
#define STREAMS 64
#define COPIES 16384
#define RULES 8

struct block {
  uint8_t* address; /* reserved, without access */
  uint8_t* view;
  size_t bytes;
  int device;
};
struct copy {
  void* to;
  uint64_t from;
  size_t bytes;
};
struct stream {
  int device, used, destroyed, blocking;
  uint64_t ready;
  struct copy* queue;
  int queued;
};
struct rule {
  char name[48];
  int error, times;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[BLOCKS];
static int block_count;
static struct stream streams[STREAMS];
static int active[DEVICES];
static uint64_t generation[DEVICES] = {11, 12};
static struct rule rules[RULES];
static char hanging[48];
static int64_t copy_ns;
static int capturing, broken, teardown;
static struct fake_counts counts;
static __thread int mode; /* 0 global, 1 thread-local, 2 relaxed */
static __thread int depth;
static __thread int current = -1;
static __thread int counted_thread;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Enters a call: counts it, hangs or fails as told. The lock is held afterwards unless the result is an error. */
static int enter(const char* name, int unsafe) {
  for (;;) {
    pthread_mutex_lock(&lock);
    if (strcmp(hanging, name) != 0) break;
    pthread_mutex_unlock(&lock);
    usleep(1000);
  }
  counts.calls++;
  counts.after_teardown += teardown;
  if (unsafe && capturing && mode != 2) {
    counts.unrelaxed++;
    broken = 1;
    pthread_mutex_unlock(&lock);
    return 900;
  }
  for (int i = 0; i < RULES; i++) {
    struct rule* r = &rules[i];
    if (r->times == 0 || strcmp(r->name, name) != 0) continue;
    if (r->times > 0) r->times--;
    const int error = r->error;
    pthread_mutex_unlock(&lock);
    return error;
  }
  return 0;
}
static int leave(int result) {
  pthread_mutex_unlock(&lock);
  return result;
}
#define ENTER(name, unsafe)                 \
  do {                                      \
    const int failed = enter(name, unsafe); \
    if (failed) return failed;              \
  } while (0)

static struct block* find(uint64_t address, size_t bytes) {
  for (int i = 0; i < block_count; i++) {
    const uint64_t begin = (uint64_t)(uintptr_t)blocks[i].address;
    if (blocks[i].address && address >= begin && address + bytes <= begin + blocks[i].bytes) return &blocks[i];
  }
  return NULL;
}
static struct stream* stream_of(void* handle) {
  struct stream* s = handle;
  if (!s || s->blocking) counts.legacy++;
  if (s && s->destroyed) counts.stale++;
  return s && !s->destroyed ? s : NULL;
}
static struct stream* new_stream(int device, int blocking) {
  for (int i = 0; i < STREAMS; i++) {
    if (streams[i].used) continue;
    streams[i] = (struct stream){device, 1, 0, blocking, 0, malloc(COPIES * sizeof(struct copy)), 0};
    return &streams[i];
  }
  return NULL;
}

/* As by DMA: kernels may write meanwhile. */
static void copy_words(void* to, const uint8_t* from, size_t bytes) {
  for (size_t i = 0; i < bytes / 8; i++) ((uint64_t*)to)[i] = __atomic_load_n((const uint64_t*)from + i, __ATOMIC_RELAXED);
}

/* ---- what the program does ---- */

int fake_alloc(int device, size_t bytes, void** memory) {
  ENTER("fake_alloc", 1);
  active[device] = 1;
  if (block_count == BLOCKS) return leave(2);
  const size_t size = (bytes + 4095) & ~(size_t)4095;
  struct block* b = &blocks[block_count++];
  b->address = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  b->view = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(b->view, 0xAA, size); /* device memory comes with whatever was there */
  b->bytes = bytes;
  b->device = device;
  *memory = b->address;
  return leave(0);
}
int fake_write(int device, void* stream, void* to, const void* from, size_t bytes) {
  ENTER("fake_write", 1);
  struct block* b = find((uint64_t)(uintptr_t)to, bytes);
  if (!stream_of(stream) || !b || b->device != device) return leave(1);
  memcpy(b->view + ((uint8_t*)to - b->address), from, bytes);
  return leave(0);
}
void* fake_view(const void* device_memory) {
  pthread_mutex_lock(&lock);
  struct block* b = find((uint64_t)(uintptr_t)device_memory, 1);
  void* view = b ? b->view + ((const uint8_t*)device_memory - b->address) : NULL;
  pthread_mutex_unlock(&lock);
  return view;
}
void fake_reset(int device) {
  pthread_mutex_lock(&lock);
  active[device] = 0;
  generation[device] += 100;
  for (int i = 0; i < block_count; i++) {
    if (blocks[i].device == device) blocks[i].address = NULL;
  }
  for (int i = 0; i < STREAMS; i++) {
    if (streams[i].used && streams[i].device == device) streams[i].destroyed = 1;
  }
  pthread_mutex_unlock(&lock);
}
int fake_stream_create(int device, void** stream) {
  ENTER("fake_stream_create", 1);
  *stream = new_stream(device, 0);
  return leave(*stream ? 0 : 2);
}
int fake_stream_destroy(void* stream) {
  ENTER("fake_stream_destroy", 1);
  struct stream* s = stream_of(stream);
  if (s) {
    free(s->queue);
    s->used = 0;
  }
  return leave(s ? 0 : 400);
}
int fake_stream_synchronize(void* stream) {
  ENTER("fake_stream_synchronize", 1);
  return leave(stream_of(stream) ? 0 : 400);
}

/* ---- control ---- */

void fake_begin_capture(void) {
  pthread_mutex_lock(&lock);
  capturing = 1;
  broken = 0;
  pthread_mutex_unlock(&lock);
}
int fake_end_capture(void) {
  pthread_mutex_lock(&lock);
  capturing = 0;
  const int result = broken;
  pthread_mutex_unlock(&lock);
  return result;
}
void fake_fail(const char* function, int error, int times) {
  pthread_mutex_lock(&lock);
  struct rule* free_rule = NULL;
  for (int i = 0; i < RULES; i++) {
    if (strcmp(rules[i].name, function) == 0 || (!free_rule && rules[i].times == 0)) free_rule = &rules[i];
  }
  if (free_rule) {
    strncpy(free_rule->name, function, sizeof(free_rule->name) - 1);
    free_rule->error = error;
    free_rule->times = times;
  }
  pthread_mutex_unlock(&lock);
}
void fake_hang(const char* function) {
  pthread_mutex_lock(&lock);
  strncpy(hanging, function ? function : "", sizeof(hanging) - 1);
  pthread_mutex_unlock(&lock);
}
void fake_copy_time(int64_t ns) {
  pthread_mutex_lock(&lock);
  copy_ns = ns;
  pthread_mutex_unlock(&lock);
}
void fake_teardown(void) {
  pthread_mutex_lock(&lock);
  teardown = 1;
  pthread_mutex_unlock(&lock);
}
struct fake_counts fake_read_counts(void) {
  pthread_mutex_lock(&lock);
  const struct fake_counts c = counts;
  pthread_mutex_unlock(&lock);
  return c;
}

/* ---- the driver ---- */

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDeviceGet(int* handle, int ordinal) {
  ENTER("cuDeviceGet", 0);
  if (ordinal < 0 || ordinal >= DEVICES) return leave(101);
  *handle = ordinal + 70; /* a handle is no ordinal */
  return leave(0);
}
int cuDevicePrimaryCtxGetState(int handle, unsigned* flags, int* is_active) {
  ENTER("cuDevicePrimaryCtxGetState", 0);
  *flags = 0;
  *is_active = active[handle - 70];
  return leave(0);
}
int cuDevicePrimaryCtxRetain(void** context, int handle) {
  ENTER("cuDevicePrimaryCtxRetain", 0);
  counts.retains++;
  counts.activations += !active[handle - 70];
  active[handle - 70] = 1;
  *context = &active[handle - 70];
  return leave(0);
}
int cuCtxGetId(void* context, unsigned long long* id) {
  ENTER("cuCtxGetId", 0);
  *id = generation[(int*)context - active];
  return leave(0);
}
int cuCtxPushCurrent_v2(void* context) {
  ENTER("cuCtxPushCurrent", 0);
  depth++;
  counts.pushed++;
  current = (int)((int*)context - active);
  return leave(0);
}
int cuCtxPopCurrent_v2(void** context) {
  ENTER("cuCtxPopCurrent", 0);
  if (depth == 0) return leave(201);
  depth--;
  counts.pushed--;
  *context = &active[current];
  current = -1;
  return leave(0);
}
int cuThreadExchangeStreamCaptureMode(int* given) {
  ENTER("cuThreadExchangeStreamCaptureMode", 0);
  const int old = mode;
  mode = *given;
  *given = old;
  return leave(0);
}
int cuStreamCreate(void** stream, unsigned flags) {
  ENTER("cuStreamCreate", 1);
  if (current < 0) return leave(201);
  counts.streams++;
  *stream = new_stream(current, flags != 1);
  return leave(*stream ? 0 : 2);
}
int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  ENTER("cuMemHostRegister", 1);
  return leave(memory && bytes && flags == 1 && current >= 0 ? 0 : 1);
}
int cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
  ENTER("cuPointerGetAttribute", 0);
  if (attribute != 2 || !find(pointer, 1)) return leave(1);
  *(unsigned*)value = 2;
  return leave(0);
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  ENTER("cuMemcpyDtoHAsync", 1);
  struct stream* s = stream_of(stream);
  struct block* b = find(from, bytes);
  if (!s || !b || b->device != s->device || current != s->device || s->queued == COPIES) return leave(1);
  s->queue[s->queued++] = (struct copy){to, from, bytes};
  s->ready = copy_ns < 0 ? UINT64_MAX : now() + (uint64_t)copy_ns;
  counts.copies++;
  counts.copied += bytes;
  if (s->queued > counts.largest_copies) counts.largest_copies = s->queued;
  if (!counted_thread) {
    counted_thread = 1;
    counts.reading_threads++;
  }
  return leave(0);
}
int cuStreamQuery(void* stream) {
  ENTER("cuStreamQuery", 1);
  struct stream* s = stream_of(stream);
  if (!s) return leave(400);
  if (s->ready > now() && s->queued) return leave(600);
  for (int i = 0; i < s->queued; i++) {
    struct block* b = find(s->queue[i].from, s->queue[i].bytes);
    if (b) copy_words(s->queue[i].to, b->view + (s->queue[i].from - (uint64_t)(uintptr_t)b->address), s->queue[i].bytes);
  }
  s->queued = 0;
  return leave(0);
}
