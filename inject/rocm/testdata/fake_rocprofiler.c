/* Fake rocprofiler-sdk. -DMINIMAL leaves out every function that a tool can do without. */
#include "fake_rocprofiler.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, CONTEXT_NOT_FOUND = 2, BUFFER_NOT_FOUND = 3, KIND_NOT_FOUND = 4, OPERATION_NOT_FOUND = 5, BUFFER_BUSY = 14,
       SERVICE_CONFIGURED = 15, LOCKED = 16, FINALIZED = 21 };
enum { CONTEXT = 0x51, BUFFER = 0x62, THREAD = 0x73, WATERMARK_RECORDS = 512, MAX_TOOLS = 8 };

struct header { uint32_t category, kind; void* payload; };
struct result { size_t size; int (*initialize)(void (*)(uint32_t), void*); void (*finalize)(void*); void* data; };
struct old_record { uint64_t context, thread, correlation[2]; uint32_t kind, operation, phase; void* payload; };
struct new_record { uint64_t context, thread, correlation[3]; uint32_t kind, operation, phase; void* payload; };
typedef void (*buffer_fn)(uint64_t, uint64_t, struct header**, size_t, void*, uint64_t);
typedef void (*old_fn)(struct old_record, void*, void*);
typedef void (*new_fn)(struct new_record, void*, void*);
typedef struct result* (*configure_fn)(uint32_t, const char*, uint32_t, void*);

/* Not recursive: a tool that calls about contexts from its finalizer hangs, as with the real SDK. */
static pthread_mutex_t registration = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;

static uint32_t version;
static int locked = 1, finalized, hang, busy, inline_callbacks, has_thread;
static struct result* tools[MAX_TOOLS];
static struct fake_counts counts;
static buffer_fn on_buffer;
static void* buffer_data;
static void (*on_code_object)(void);
static uint64_t dropped;
static size_t copy_size = 96;
static uint32_t chosen[64];

static struct header* pending[1 << 16];
static size_t n_pending;
static int delivering;
#ifndef MINIMAL
static pthread_t deliverer;
#endif

static int new_layout(void) { return version >= 10000; }

static void client_fault(const char* what) {
  fprintf(stderr, "fake rocprofiler-sdk: %s\n", what);
  _exit(99);
}

static int result_of(const char* name) {
  const char* fail = getenv("FAKE_FAIL"); /* name=status */
  const size_t n = strlen(name);
  return fail && strncmp(fail, name, n) == 0 && fail[n] == '=' ? atoi(fail + n + 1) : 0;
}

uint64_t fake_now(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- HIP's operations: numbered differently in each layout ---- */

static const char* const kOldNames[] = {"hipApiName", "hipDeviceSynchronize", "hipEventRecord", "hipEventSynchronize",
                                        "hipLaunchKernel", "hipMemcpy", "hipStreamSynchronize", "hipStreamWaitEvent"};
static const char* const kNewNames[] = {"hipArray3DCreate", "hipMemcpy", "hipLaunchKernel", "hipStreamWaitEvent",
                                        "hipStreamSynchronize", "hipEventSynchronize", "hipEventRecord", "hipMalloc",
                                        "hipDeviceSynchronize", "hipStreamBeginCapture"};

static const char* operation_name(uint32_t operation) {
  if (new_layout()) return operation < sizeof(kNewNames) / sizeof(*kNewNames) ? kNewNames[operation] : NULL;
  return operation < sizeof(kOldNames) / sizeof(*kOldNames) ? kOldNames[operation] : NULL;
}

static int operation_number(const char* name) {
  for (uint32_t i = 0; operation_name(i); i++) {
    if (strcmp(operation_name(i), name) == 0) return (int)i;
  }
  client_fault("no such HIP call");
  return -1;
}

/* ---- delivery ---- */

/* With the lock held. */
static void deliver(void) {
  while (delivering && !inline_callbacks) pthread_cond_wait(&done, &lock);
  const size_t n = n_pending;
  if (n == 0) return;
  struct header** mine = malloc(n * sizeof(*mine));
  memcpy(mine, pending, n * sizeof(*mine));
  n_pending = 0;
  delivering = 1;
  counts.callbacks++;
  const uint64_t drops = dropped;
  pthread_mutex_unlock(&lock);
  if (on_buffer) on_buffer(CONTEXT, BUFFER, mine, n, buffer_data, drops);
  for (size_t i = 0; i < n; i++) {
    /* What a tool keeps of a record is gone. */
    memset(mine[i]->payload, 0xDD, 16);
    free(mine[i]->payload);
    free(mine[i]);
  }
  free(mine);
  pthread_mutex_lock(&lock);
  delivering = 0;
  pthread_cond_broadcast(&done);
}

static int wanted, served; /* flushes asked of and done by the callback thread */

#ifndef MINIMAL
static void* deliver_loop(void* unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (wanted == served) pthread_cond_wait(&wake, &lock);
    const int upto = wanted;
    deliver();
    served = upto;
    pthread_cond_broadcast(&done);
  }
  return NULL;
}
#endif

/* With the lock held. */
static void flush_now(int wait) {
  if (!has_thread || inline_callbacks) {
    deliver();
    return;
  }
  const int mine = ++wanted;
  pthread_cond_signal(&wake);
  while (wait && served < mine) pthread_cond_wait(&done, &lock);
}

void fake_record(uint32_t category, uint32_t kind, const void* payload, size_t size, uint64_t claimed) {
  pthread_mutex_lock(&lock);
  if (!counts.started || (category == 1 && kind < 64 && kind <= FAKE_DISPATCH && !(counts.services >> kind & 1))) {
    counts.undelivered++;
    pthread_mutex_unlock(&lock);
    return;
  }
  /* Lossless: who makes records waits while there is no room. */
  while (n_pending == sizeof(pending) / sizeof(*pending)) flush_now(1);
  struct header* h = malloc(sizeof(*h));
  h->category = category;
  h->kind = kind;
  h->payload = malloc(size < 16 ? 16 : size);
  memcpy(h->payload, payload, size);
  memcpy(h->payload, &claimed, 8);
  pending[n_pending++] = h;
  if (n_pending % WATERMARK_RECORDS == 0) flush_now(0);
  pthread_mutex_unlock(&lock);
}

static uint64_t thread_id(void) { return (uint64_t)syscall(SYS_gettid); }
static void put32(uint8_t* r, size_t at, uint32_t v) { memcpy(r + at, &v, 4); }
static void put64(uint8_t* r, size_t at, uint64_t v) { memcpy(r + at, &v, 8); }

void fake_dispatch(uint64_t kernel, uint64_t start, uint64_t end) {
  uint8_t r[184];
  memset(r, 0xEE, sizeof(r));
  put32(r, 8, FAKE_DISPATCH);
  put64(r, 32, thread_id());
  put64(r, 40, start);
  put64(r, 48, end);
  put64(r, 56 + 24, kernel);
  fake_record(1, FAKE_DISPATCH, r, sizeof(r), sizeof(r));
}

void fake_copy(uint32_t operation, uint64_t bytes, uint64_t start, uint64_t end) {
  uint8_t r[96];
  memset(r, 0xEE, sizeof(r));
  put32(r, 8, FAKE_COPY);
  put32(r, 12, operation);
  put64(r, 32, thread_id());
  put64(r, 40, start);
  put64(r, 48, end);
  put64(r, 72, bytes);
  const size_t size = new_layout() || copy_size < 80 ? copy_size : 80;
  fake_record(1, FAKE_COPY, r, size, size);
}

void fake_call(const char* name, uint64_t start, uint64_t end) {
  uint8_t r[64];
  const size_t at = new_layout() ? 40 : 32, size = new_layout() ? 64 : 56;
  const uint32_t operation = (uint32_t)operation_number(name);
  int traced = counts.operations == 0;
  for (uint64_t i = 0; i < counts.operations && i < 64; i++) traced |= chosen[i] == operation;
  if (!traced) return;
  memset(r, 0xEE, sizeof(r));
  put32(r, 8, FAKE_HIP_API);
  put32(r, 12, operation);
  put64(r, at, start);
  put64(r, at + 8, end);
  fake_record(1, FAKE_HIP_API, r, size, size);
}

static void code_object(uint32_t operation, uint32_t phase, uint64_t kernel, const char* name) {
  if (!on_code_object || !counts.started) return;
  /* The text lives only as long as the call. */
  char* text = name ? strdup(name) : NULL;
  uint64_t payload[16] = {sizeof(payload), kernel, 9, (uint64_t)(uintptr_t)text};
  uint64_t user = 0;
  if (new_layout()) {
    struct new_record r = {CONTEXT, 1, {2, 3, 4}, 10, operation, phase, payload};
    ((new_fn)on_code_object)(r, &user, NULL);
  } else {
    struct old_record r = {CONTEXT, 1, {2, 3}, 10, operation, phase, payload};
    ((old_fn)on_code_object)(r, &user, NULL);
  }
  if (text) memset(text, '#', strlen(text));
  free(text);
}

void fake_register(uint64_t kernel, const char* name) {
  code_object(1, 1, kernel, "not a kernel");
  code_object(2, 1, kernel, name);
}
void fake_unload(uint64_t kernel, const char* name) { code_object(2, 2, kernel, name); }

void fake_drop(uint64_t total) {
  pthread_mutex_lock(&lock);
  dropped = total;
  pthread_mutex_unlock(&lock);
}
void fake_old_copies(void) { copy_size = 72; }
void fake_inline(void) { inline_callbacks = 1; }
void fake_busy(int flushes) { busy = flushes; }
void fake_hang_flush(void) { hang = 1; }

struct fake_counts fake_read_counts(void) {
  pthread_mutex_lock(&lock);
  struct fake_counts c = counts;
  pthread_mutex_unlock(&lock);
  return c;
}

/* ---- life ---- */

static void add_tool(const char* path) {
  void* library = dlopen(path, RTLD_LOCAL | RTLD_LAZY);
  if (!library) {
    fprintf(stderr, "fake rocprofiler-sdk: %s\n", dlerror());
    abort();
  }
  void* symbol = dlsym(library, "rocprofiler_configure");
  if (!symbol) abort();
  configure_fn configure;
  memcpy(&configure, &symbol, sizeof(symbol));
  struct { uint64_t words[3]; } client;
  memset(&client, 0, sizeof(client));
  if (new_layout()) client.words[0] = 24;
  char text[32];
  snprintf(text, sizeof(text), "%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
  struct result* r = configure(version, text, (uint32_t)counts.clients, &client);
  if (!r) return;
  if (r->size != sizeof(*r) || !r->initialize || !r->finalize) client_fault("malformed configure result");
  const char* name = (const char*)(uintptr_t)client.words[new_layout() ? 1 : 0];
  if (version < 20000 && (!name || (strncmp(name, "graphsignal", 11) != 0))) client_fault("client without a name");
  if (client.words[2] != 0 || (new_layout() && client.words[0] != 24)) client_fault("client id overwritten");
  if (counts.clients == MAX_TOOLS) abort();
  tools[counts.clients++] = r;
}

int fake_start(uint32_t v) {
  version = v;
  finalized = 0;
  const char* list = getenv("ROCP_TOOL_LIBRARIES");
  if (list && list[0]) {
    char* all = strdup(list);
    if (!strchr(all, ':')) {
      add_tool(all);
    } else {
      for (char *at = all, *colon; (colon = strchr(at, ':')); at = colon + 1) {
        *colon = 0;
        if (*at) add_tool(at);
      }
    }
    free(all);
  }
  locked = 0;
  for (uint64_t i = 0; i < counts.clients; i++) {
    if (tools[i]->initialize(NULL, tools[i]->data) != 0) client_fault("initialize failed");
  }
  locked = 1;
  atexit(fake_finalize);
  return (int)counts.clients;
}

void fake_finalize(void) {
  if (finalized) return;
  pthread_mutex_lock(&registration);
  for (uint64_t i = 0; i < counts.clients; i++) tools[i]->finalize(tools[i]->data);
  finalized = 1;
  pthread_mutex_unlock(&registration);
}

/* ---- the SDK's interface ---- */

int rocprofiler_create_context(uint64_t* context) {
  pthread_mutex_lock(&registration);
  pthread_mutex_unlock(&registration);
  if (locked) return LOCKED;
  if (*context != 0) client_fault("context id is not zero");
  const int r = result_of("create_context");
  if (!r) *context = CONTEXT;
  return r;
}

int rocprofiler_create_buffer(uint64_t context, size_t size, size_t watermark, int policy, buffer_fn callback, void* data,
                              uint64_t* buffer) {
  if (locked) return LOCKED;
  const int r = result_of("create_buffer");
  if (r) return r;
  if (context != CONTEXT) return CONTEXT_NOT_FOUND;
  if (*buffer != 0) client_fault("buffer id is not zero");
  if (policy != 2) client_fault("a buffer that is not lossless loses everything after its first flush");
  if (size != 4u << 20 || watermark != 1u << 20 || !callback) client_fault("unexpected buffer");
  on_buffer = callback;
  buffer_data = data;
  *buffer = BUFFER;
  return SUCCESS;
}

int rocprofiler_configure_buffer_tracing_service(uint64_t context, uint32_t kind, const uint32_t* operations, size_t n,
                                                 uint64_t buffer) {
  if (locked) return LOCKED;
  char name[32];
  snprintf(name, sizeof(name), "buffer_service_%u", kind);
  const int r = result_of(name);
  if (r) return r;
  if (context != CONTEXT) return CONTEXT_NOT_FOUND;
  if (buffer != BUFFER) return BUFFER_NOT_FOUND;
  if (kind != FAKE_HIP_API && kind != FAKE_COPY && kind != FAKE_DISPATCH) return KIND_NOT_FOUND;
  if (counts.services >> kind & 1) return SERVICE_CONFIGURED;
  if ((operations == NULL) != (n == 0) || n > 64) client_fault("operations and their count disagree");
  for (size_t i = 0; i < n; i++) {
    if (!operation_name(operations[i])) return OPERATION_NOT_FOUND;
    chosen[i] = operations[i];
  }
  if (kind == FAKE_HIP_API) counts.operations = n;
  counts.services |= 1ull << kind;
  return SUCCESS;
}

int rocprofiler_start_context(uint64_t context) {
  const int r = result_of("start_context");
  if (r) return r;
  if (context != CONTEXT) return CONTEXT_NOT_FOUND;
  counts.started++;
  return SUCCESS;
}

int rocprofiler_stop_context(uint64_t context) {
  (void)context;
  pthread_mutex_lock(&registration);
  pthread_mutex_unlock(&registration);
  client_fault("a tool stopped its context");
  return CONTEXT_NOT_FOUND;
}

int rocprofiler_flush_buffer(uint64_t buffer) {
  while (hang) pause();
  const int r = result_of("flush_buffer");
  if (r) return r;
  if (buffer != BUFFER) return BUFFER_NOT_FOUND;
  if (finalized) return FINALIZED;
  pthread_mutex_lock(&lock);
  if (busy > 0) {
    busy--;
    pthread_mutex_unlock(&lock);
    return BUFFER_BUSY;
  }
  counts.flushes++;
  flush_now(1);
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

#ifndef MINIMAL
int rocprofiler_configure_callback_tracing_service(uint64_t context, uint32_t kind, const uint32_t* operations, size_t n,
                                                   void (*callback)(void), void* data) {
  (void)data;
  if (locked) return LOCKED;
  const int r = result_of("callback_service");
  if (r) return r;
  if (context != CONTEXT) return CONTEXT_NOT_FOUND;
  if (kind != 10 || operations || n) return KIND_NOT_FOUND;
  on_code_object = callback;
  counts.code_objects = 1;
  return SUCCESS;
}

int rocprofiler_create_callback_thread(uint64_t* thread) {
  const int r = result_of("create_callback_thread");
  if (r) return r;
  *thread = THREAD;
  return pthread_create(&deliverer, NULL, deliver_loop, NULL) == 0 ? SUCCESS : 1;
}

int rocprofiler_assign_callback_thread(uint64_t buffer, uint64_t thread) {
  const int r = result_of("assign_callback_thread");
  if (r) return r;
  if (buffer != BUFFER || thread != THREAD) return BUFFER_NOT_FOUND;
  has_thread = 1;
  return SUCCESS;
}

int rocprofiler_query_buffer_tracing_kind_operation_name(uint32_t kind, uint32_t operation, const char** name, uint64_t* length) {
  const int r = result_of("operation_name");
  if (r) return r;
  if (kind != FAKE_HIP_API) return KIND_NOT_FOUND;
  *name = operation_name(operation);
  if (!*name) return OPERATION_NOT_FOUND;
  *length = strlen(*name);
  return SUCCESS;
}

int rocprofiler_iterate_buffer_tracing_kind_operations(uint32_t kind, int (*callback)(uint32_t, uint32_t, void*), void* data) {
  const int r = result_of("each_operation");
  if (r) return r;
  for (uint32_t i = 0; kind == FAKE_HIP_API && operation_name(i); i++) {
    if (callback(kind, i, data)) break;
  }
  return SUCCESS;
}

const char* rocprofiler_get_status_string(int status) {
  (void)status;
  return result_of("status_string") ? NULL : "fake status";
}
#endif
