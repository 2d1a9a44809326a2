/* Stub CUPTI. -DMINIMAL leaves out every function that the injection library can do without. It checks its client: a
 * buffer that is not zeroed, misaligned or handed out twice ends the process with status 99. */
#include "stub_cupti.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void (*request_fn)(uint8_t**, size_t*, size_t*);
typedef void (*complete_fn)(void*, uint32_t, uint8_t*, size_t, size_t);
typedef void (*callback_fn)(void*, int, uint32_t, const void*);

struct thread;
struct buffer {
  uint8_t* data;
  size_t size, max, valid, records;
  struct thread* writer; /* the thread that still adds to it */
  struct buffer* next;
};
struct thread {
  struct buffer* current;
  struct thread* next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer* outstanding;
/* Not freed: buffers outlive the threads that filled them. */
static struct thread* threads;
static __thread struct thread* self;
static request_fn on_request;
static complete_fn on_complete;
static int subscribed_by; /* 0 nobody, 1 the library, 2 another tool */
#ifndef MINIMAL
static callback_fn on_callback;
static void* callback_user;
#endif
static struct stub_counts counts;
static size_t drop_next;
static int zeroed_attribute;
static int hang;
static size_t kernel_size = 208, copy_size = 88, set_size = 88, sync_size = 40, graph_size = 56;

static struct { const char* name; int result; } failures[32];
static int result_of(const char* name) {
  for (int i = 0; i < 32 && failures[i].name; i++) {
    if (strcmp(failures[i].name, name) == 0) return failures[i].result;
  }
  return 0;
}
void stub_fail(const char* function, int result) {
  for (int i = 0; i < 32; i++) {
    if (!failures[i].name || strcmp(failures[i].name, function) == 0) {
      failures[i].name = function;
      failures[i].result = result;
      return;
    }
  }
}

static void client_fault(const char* what) {
  fprintf(stderr, "stub CUPTI: %s\n", what);
  _exit(99);
}

uint64_t stub_now(void) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void stub_release(int release) {
  kernel_size = release >= 130 ? 216 : release >= 124 ? 208 : 200;
  copy_size = release >= 130 ? 96 : 88;
  graph_size = release >= 124 ? 56 : 48;
  sync_size = release >= 130 ? 56 : 40;
}

static size_t record_size(uint32_t kind) {
  switch (kind) {
    case 3: case 10: return kernel_size;
    case 1: return copy_size;
    case 22: return 96;
    case 2: return set_size;
    case 38: return sync_size;
    case 51: return graph_size;
    default: return 64; /* some kind the library does not know */
  }
}

static int unfinished(const uint8_t* r) {
  uint32_t kind;
  uint64_t end;
  memcpy(&kind, r, 4);
  memcpy(&end, r + (kind == 38 || kind == 51 ? 16 : 24), 8);
  return (kind == 10 || kind == 1) && end == 0;
}

static int all_finished(const struct buffer* b) {
  for (size_t at = 0; at < b->valid;) {
    uint32_t kind;
    memcpy(&kind, b->data + at, 4);
    if (unfinished(b->data + at)) return 0;
    at += record_size(kind);
  }
  return 1;
}

static void complete(struct buffer* b) {
  counts.completed++;
  pthread_mutex_unlock(&lock);
  if (on_complete) on_complete((void*)0x1000, 7, b->data, b->size, b->valid);
  free(b);
  pthread_mutex_lock(&lock);
}

/* Hands back what may be handed back: finished buffers, full ones only unless flushing, all when forced. */
static void collect(int flushing, int forced) {
  for (struct buffer** p = &outstanding; *p;) {
    struct buffer* b = *p;
    if ((flushing || !b->writer) && (forced || all_finished(b))) {
      *p = b->next;
      if (b->writer) b->writer->current = NULL;
      complete(b);
      p = &outstanding; /* the list may have changed meanwhile */
    } else {
      p = &b->next;
    }
  }
}

static struct buffer* fresh_buffer(void) {
  uint8_t* data = NULL;
  size_t size = 0, max = 0;
  counts.requests++;
  request_fn ask = on_request;
  pthread_mutex_unlock(&lock);
  if (ask) ask(&data, &size, &max);
  pthread_mutex_lock(&lock);
  if (!data) return NULL;
  if ((uintptr_t)data % 8 != 0) client_fault("misaligned buffer");
  for (struct buffer* b = outstanding; b; b = b->next) {
    if (b->data < data + size && data < b->data + b->size) client_fault("buffer handed out twice");
  }
  for (size_t i = 0; zeroed_attribute && i < size; i++) {
    if (data[i]) client_fault("buffer not zeroed");
  }
  struct buffer* b = calloc(1, sizeof(*b));
  b->data = data;
  b->size = size;
  b->max = max;
  b->writer = self;
  b->next = outstanding;
  outstanding = b;
  return b;
}

void* stub_add(const struct stub_record* in) {
  pthread_mutex_lock(&lock);
  if (!(counts.enabled >> in->kind & 1) && in->kind < 60) {
    /* Kind 22 comes with kind 1; kind 3 may be enabled by others. */
    if (in->kind != 3 && (in->kind != 22 || !(counts.enabled >> 1 & 1))) {
      pthread_mutex_unlock(&lock);
      return NULL;
    }
  }
  const size_t size = record_size(in->kind);
  if (!self) {
    self = calloc(1, sizeof(*self));
    self->next = threads;
    threads = self;
  }
  struct buffer* full = self->current;
  if (full && (full->valid + size > full->size || (full->max && full->records >= full->max))) {
    full->writer = NULL;
    self->current = NULL;
    collect(0, 0);
  }
  if (!self->current) self->current = fresh_buffer();
  struct buffer* current = self->current;
  if (!current) {
    counts.unreported++;
    pthread_mutex_unlock(&lock);
    return NULL;
  }
  uint8_t* r = current->data + current->valid;
  current->valid += size;
  current->records++;
  memset(r, 0xEE, size);
  memcpy(r, &in->kind, 4);
  switch (in->kind) {
    case 3: case 10:
      memcpy(r + 16, &in->start, 8);
      memcpy(r + 24, &in->end, 8);
      memcpy(r + 104, &in->name, 8);
      memcpy(r + 156, &in->number, 4);
      break;
    case 1: case 22:
      r[4] = (uint8_t)in->number;
      memcpy(r + 8, &in->bytes, 8);
      memcpy(r + 16, &in->start, 8);
      memcpy(r + 24, &in->end, 8);
      break;
    case 2: {
      const uint16_t memory = (uint16_t)in->number;
      memcpy(r + 8, &in->bytes, 8);
      memcpy(r + 16, &in->start, 8);
      memcpy(r + 24, &in->end, 8);
      memcpy(r + 50, &memory, 2);
      break;
    }
    case 38:
      memcpy(r + 4, &in->number, 4);
      memcpy(r + 8, &in->start, 8);
      memcpy(r + 16, &in->end, 8);
      break;
    case 51:
      memcpy(r + 8, &in->start, 8);
      memcpy(r + 16, &in->end, 8);
      memcpy(r + 28, &in->number, 4);
      break;
    default: break;
  }
  pthread_mutex_unlock(&lock);
  return r;
}

void stub_finish(void* record, uint64_t end) {
  pthread_mutex_lock(&lock);
  memcpy((uint8_t*)record + 24, &end, 8);
  collect(0, 0);
  pthread_mutex_unlock(&lock);
}

void stub_drop(size_t records) {
  pthread_mutex_lock(&lock);
  drop_next = records;
  pthread_mutex_unlock(&lock);
}

void stub_other_subscribes(int on) { subscribed_by = on ? 2 : 0; }

static void other_request(uint8_t** b, size_t* s, size_t* m) {
  *s = 65536;
  *b = calloc(1, *s);
  *m = 0;
}
/* It takes each buffer that it is given for its own, as XLA's tracer does. */
static void other_complete(void* c, uint32_t s, uint8_t* b, size_t size, size_t valid) {
  (void)c, (void)s, (void)size, (void)valid;
  free(b);
}
void stub_other_registers(void) {
  pthread_mutex_lock(&lock);
  on_request = other_request;
  on_complete = other_complete;
  pthread_mutex_unlock(&lock);
}

struct stub_counts stub_read_counts(void) {
  pthread_mutex_lock(&lock);
  struct stub_counts c = counts;
  pthread_mutex_unlock(&lock);
  return c;
}

void stub_hang_flush(void) { hang = 1; }

/* ---- the CUPTI interface ---- */

int cuptiActivityRegisterCallbacks(request_fn request, complete_fn done) {
  counts.register_calls++;
  const int r = result_of("ActivityRegisterCallbacks");
  if (r) return r;
  pthread_mutex_lock(&lock);
  on_request = request;
  on_complete = done;
  pthread_mutex_unlock(&lock);
  return 0;
}

int cuptiActivityEnable(uint32_t kind) {
  const int r = result_of("ActivityEnable");
  if (r) return r;
  pthread_mutex_lock(&lock);
  counts.enabled |= 1ull << kind;
  pthread_mutex_unlock(&lock);
  return 0;
}

int cuptiActivityFlushAll(uint32_t flags) {
  const int r = result_of("ActivityFlushAll");
  while (hang) pause();
  pthread_mutex_lock(&lock);
  if (flags) counts.forced++; else counts.unforced++;
  if (!r) collect(1, flags != 0);
  pthread_mutex_unlock(&lock);
  return r;
}

int cuptiActivityGetNextRecord(uint8_t* data, size_t valid, void** record) {
  const int r = result_of("ActivityGetNextRecord");
  if (r) return r;
  uint8_t* at = data;
  if (*record) {
    uint32_t kind;
    memcpy(&kind, *record, 4);
    at = (uint8_t*)*record + record_size(kind);
  }
  if (at >= data + valid) return 12;
  *record = at;
  return 0;
}

#ifndef MINIMAL
int cuptiActivityGetNumDroppedRecords(void* context, uint32_t stream, size_t* dropped) {
  (void)context, (void)stream;
  const int r = result_of("ActivityGetNumDroppedRecords");
  if (r) return r;
  pthread_mutex_lock(&lock);
  *dropped = drop_next;
  drop_next = 0;
  pthread_mutex_unlock(&lock);
  return 0;
}

int cuptiActivitySetAttribute(int attribute, size_t* size, void* value) {
  const int r = result_of("ActivitySetAttribute");
  if (r) return r;
  if (attribute == 5 && *size == 1) zeroed_attribute = *(uint8_t*)value;
  return 0;
}

int cuptiSubscribe(void** subscriber, callback_fn callback, void* user) {
  counts.subscribe_calls++;
  const int r = result_of("Subscribe");
  if (r) return r;
  if (subscribed_by) return 39;
  subscribed_by = 1;
  on_callback = callback;
  callback_user = user;
  *subscriber = (void*)0x77;
  return 0;
}

int cuptiUnsubscribe(void* subscriber) {
  (void)subscriber;
  on_callback = NULL;
  subscribed_by = 0;
  return 0;
}

int cuptiEnableCallback(uint32_t enable, void* subscriber, int domain, uint32_t callback) {
  (void)subscriber;
  const int r = result_of("EnableCallback");
  if (r) return r;
  if (domain == 3 && enable) counts.callbacks |= 1ull << callback;
  return 0;
}

int cuptiFinalize(void) {
  counts.finalize_calls++;
  return 0;
}

static uint32_t graph_ids[2];
int cuptiGetGraphId(void* graph, uint32_t* id) {
  (void)graph;
  *id = graph_ids[0];
  return result_of("GetGraphId");
}
int cuptiGetGraphExecId(void* exec, uint32_t* id) {
  (void)exec;
  *id = graph_ids[1];
  return result_of("GetGraphExecId");
}

int cuptiGetTimestamp(uint64_t* ns) {
  *ns = stub_now();
  return result_of("GetTimestamp");
}

int cuptiGetVersion(uint32_t* version) {
  *version = 22;
  return result_of("GetVersion");
}

int cuptiGetResultString(int result, const char** text) {
  (void)result;
  *text = "stub result";
  return result_of("GetResultString");
}

void stub_resource(uint32_t callback, const void* data) {
  if (on_callback && (counts.callbacks >> callback & 1)) on_callback(callback_user, 3, callback, data);
}

void stub_graph_exec_created(void* graph, void* exec, uint32_t graph_id, uint32_t exec_id) {
  graph_ids[0] = graph_id;
  graph_ids[1] = exec_id;
  void* graph_data[7] = {graph, NULL, NULL, NULL, NULL, NULL, exec};
  void* resource_data[3] = {NULL, NULL, graph_data};
  stub_resource(18, resource_data);
}
#else
void stub_resource(uint32_t callback, const void* data) { (void)callback, (void)data; }
void stub_graph_exec_created(void* graph, void* exec, uint32_t graph_id, uint32_t exec_id) {
  (void)graph, (void)exec, (void)graph_id, (void)exec_id;
}
#endif
