// A stand-in for libnvidia-ml.so.1 whose devices and answers are written in a script. It is for tests only.
//
// FAKENVML_SCRIPT names the script. It is read at nvmlInit and again whenever the file was replaced, so a test changes
// what GPUs say by renaming a new script over the old one. FAKENVML_LOG, if set, names a file to which every call is
// appended, one line "function device". The package documentation of fakenvml.go describes the script.
//
// Layouts of structures are those of NVML's public documentation; sizes are checked below.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7,
  TIMEOUT = 10,
  ARGUMENT_VERSION_MISMATCH = 25,
};

enum { MAX_DEVICES = 64, MAX_ENTRIES = 160, MAX_NUMBERS = 16, MAX_TEXT = 112, MAX_EVENTS = 256 };

typedef struct {
  char key[64];
  int ret;
  int count;
  double numbers[MAX_NUMBERS];
  uint64_t integers[MAX_NUMBERS];
  char text[MAX_TEXT];
} entry;

typedef struct {
  uint64_t xid;
  unsigned gpu_instance, compute_instance;
} event;

typedef struct {
  int present, parent, slot;
  int override, delay;
  entry entries[MAX_ENTRIES];
  int entry_count;
  event events[MAX_EVENTS];
  int event_count, events_taken;
} device;

typedef device* device_t;

typedef struct {
  device_t device;
} event_set;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device devices[MAX_DEVICES];
static entry library[MAX_ENTRIES];
static int library_count, device_count, initialised;
// statx, since the other functions of its kind have symbols that glibc 2.31 lacks.
static struct statx read_at;
static double loaded;
// The environment as it was at nvmlInit: a test may change it while calls of an earlier one are still under way.
static char script_path[4096], log_path[4096];

static double now_seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void note(const char* function, const device* d) {
  FILE* f = *log_path ? fopen(log_path, "a") : NULL;
  if (f) {
    fprintf(f, "%s %d\n", function, d ? (int)(d - devices) : -1);
    fclose(f);
  }
}

// parse_entry reads "KEY RET VALUE...": numbers, or the rest of the line as text.
static void parse_entry(char* line, entry* list, int* count) {
  if (*count == MAX_ENTRIES) {
    fprintf(stderr, "fakenvml: too many lines\n");
    abort();
  }
  entry* e = &list[(*count)++];
  memset(e, 0, sizeof *e);
  int used = 0;
  if (sscanf(line, "%63s %d %n", e->key, &e->ret, &used) < 2) {
    fprintf(stderr, "fakenvml: cannot read \"%s\"\n", line);
    abort();
  }
  snprintf(e->text, sizeof e->text, "%s", line + used);
  char* p = line + used;
  while (e->count < MAX_NUMBERS) {
    char* end;
    double number = strtod(p, &end);
    if (end == p) break;
    e->numbers[e->count] = number;
    e->integers[e->count++] = strtoull(p, NULL, 0);
    p = end;
  }
}

// load reads the script. Devices keep their place and the events that were taken from them.
static void load(void) {
  FILE* f = fopen(script_path, "r");
  if (!f) {
    if (initialised) return;  // the test is over
    fprintf(stderr, "fakenvml: FAKENVML_SCRIPT cannot be opened\n");
    abort();
  }
  statx(AT_FDCWD, script_path, 0, STATX_INO | STATX_MTIME, &read_at);
  library_count = device_count = 0;
  loaded = now_seconds(CLOCK_MONOTONIC);
  device* current = NULL;
  int parent = -1;
  int used = 0;
  for (int i = 0; i < MAX_DEVICES; i++) {
    devices[i].present = devices[i].override = devices[i].delay = devices[i].entry_count = devices[i].event_count = 0;
  }
  char line[512];
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n#")] = 0;
    char word[64];
    if (sscanf(line, "%63s", word) != 1) continue;
    if (!strcmp(word, "gpu") || !strcmp(word, "mig")) {
      if (used == MAX_DEVICES) abort();
      current = &devices[used];
      current->present = 1;
      if (*word == 'g') {
        parent = used;
        current->parent = -1;
        current->slot = device_count++;
      } else {
        current->parent = parent;
        current->slot = 0;
        sscanf(line, " mig %d", &current->slot);
      }
      used++;
    } else if (!current) {
      parse_entry(line, library, &library_count);
    } else if (!strcmp(word, "all")) {
      sscanf(line, " all %d", &current->override);
    } else if (!strcmp(word, "delay")) {
      sscanf(line, " delay %d", &current->delay);
    } else if (!strcmp(word, "event")) {
      event* e = &current->events[current->event_count++];
      unsigned long long xid = 0;
      e->gpu_instance = e->compute_instance = 0xffffffffu;
      sscanf(line, " event %llu %u %u", &xid, &e->gpu_instance, &e->compute_instance);
      e->xid = xid;
      if (current->event_count == MAX_EVENTS) abort();
    } else {
      parse_entry(line, current->entries, &current->entry_count);
    }
  }
  fclose(f);
}

static void refresh(void) {
  struct statx s;
  if (statx(AT_FDCWD, script_path, 0, STATX_INO | STATX_MTIME, &s) == 0 &&
      (s.stx_ino != read_at.stx_ino || s.stx_mtime.tv_nsec != read_at.stx_mtime.tv_nsec))
    load();
}

static const entry* find(const entry* list, int count, const char* key) {
  for (int i = 0; i < count; i++) {
    if (!strcmp(list[i].key, key)) return &list[i];
  }
  return NULL;
}

static void pause_ms(int ms) {
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  while (ms > 0 && nanosleep(&t, &t) != 0) {
  }
}

// ask answers a call of the library, or of a device.
static int ask_key(device_t d, const char* function, const char* key, entry* out) {
  pthread_mutex_lock(&lock);
  note(function, d);
  if (!initialised) {
    pthread_mutex_unlock(&lock);
    return UNINITIALIZED;
  }
  refresh();
  int ret = NOT_SUPPORTED, delay = 0;
  if (d && !d->present) {
    ret = INVALID_ARGUMENT;
  } else {
    const entry* e = d ? find(d->entries, d->entry_count, key) : find(library, library_count, key);
    if (e) {
      *out = *e;
      ret = e->ret;
    }
    if (d && d->override) ret = d->override;
    if (d) {
      char name[80];
      snprintf(name, sizeof name, "delay.%s", function);
      const entry* own = find(d->entries, d->entry_count, name);
      delay = own ? own->ret : d->delay;
    }
  }
  pthread_mutex_unlock(&lock);
  pause_ms(delay);
  return ret;
}

static int ask(device_t d, const char* function, entry* out) { return ask_key(d, function, function, out); }

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2(void) {
  pthread_mutex_lock(&lock);
  const char* log = getenv("FAKENVML_LOG");
  const char* script = getenv("FAKENVML_SCRIPT");
  snprintf(log_path, sizeof log_path, "%s", log ? log : "");
  int other = strcmp(script ? script : "", script_path);
  snprintf(script_path, sizeof script_path, "%s", script ? script : "");
  note("Init", NULL);
  load();
  if (other) {
    for (int i = 0; i < MAX_DEVICES; i++) devices[i].events_taken = 0;
  }
  const entry* e = find(library, library_count, "Init");
  int ret = e ? e->ret : SUCCESS;
  const entry* delay = find(library, library_count, "InitDelay");
  int ms = delay ? delay->ret : 0;
  pthread_mutex_unlock(&lock);
  pause_ms(ms);
  pthread_mutex_lock(&lock);
  if (ret == SUCCESS) initialised++;
  pthread_mutex_unlock(&lock);
  return ret;
}

EXPORT int nvmlShutdown(void) {
  pthread_mutex_lock(&lock);
  note("Shutdown", NULL);
  int ret = initialised ? SUCCESS : UNINITIALIZED;
  if (initialised) initialised--;
  pthread_mutex_unlock(&lock);
  return ret;
}

EXPORT const char* nvmlErrorString(int ret) {
  static const char* const texts[] = {"Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
                                      "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
                                      "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found",
                                      "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
                                      "GPU access blocked by the operating system", "Driver/library version mismatch"};
  return ret >= 0 && ret < (int)(sizeof texts / sizeof *texts) ? texts[ret] : "Unknown Error";
}

EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  entry e;
  int ret = ask(NULL, "DeviceGetCount", &e);
  *count = (unsigned)device_count;
  return ret == NOT_SUPPORTED ? SUCCESS : ret;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t* d) {
  entry e;
  int ret = ask(NULL, "DeviceGetHandleByIndex", &e);
  if (ret != NOT_SUPPORTED) return ret;
  for (int i = 0; i < MAX_DEVICES; i++) {
    if (devices[i].present && devices[i].parent < 0 && devices[i].slot == (int)index) {
      *d = &devices[i];
      ret = ask(*d, "GetHandle", &e);
      return ret == NOT_SUPPORTED ? SUCCESS : ret;
    }
  }
  return INVALID_ARGUMENT;
}

static int text(device_t d, const char* function, char* out, unsigned length) {
  entry e;
  int ret = ask(d, function, &e);
  if (ret == SUCCESS) snprintf(out, length, "%s", e.text);
  return ret;
}

EXPORT int nvmlDeviceGetUUID(device_t d, char* out, unsigned length) { return text(d, "GetUUID", out, length); }
EXPORT int nvmlDeviceGetName(device_t d, char* out, unsigned length) { return text(d, "GetName", out, length); }

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
} pci_info;
_Static_assert(sizeof(pci_info) == 68, "PciInfo");

EXPORT int nvmlDeviceGetPciInfo_v3(device_t d, pci_info* out) {
  entry e;
  int ret = ask(d, "GetPciInfo", &e);
  memset(out, 0, sizeof *out);
  if (ret == SUCCESS) snprintf(out->bus_id, sizeof out->bus_id, "%.31s", e.text);
  return ret;
}

#define U32(NAME)                                       \
  EXPORT int nvmlDevice##NAME(device_t d, unsigned* out) { \
    entry e;                                            \
    int ret = ask(d, #NAME, &e);                        \
    if (ret == SUCCESS) *out = (unsigned)e.integers[0]; \
    return ret;                                         \
  }

#define U32_OF(NAME)                                                   \
  EXPORT int nvmlDevice##NAME(device_t d, unsigned kind, unsigned* out) { \
    entry e;                                                           \
    char key[64];                                                      \
    snprintf(key, sizeof key, #NAME ".%u", kind);                      \
    int ret = ask_key(d, #NAME, key, &e);                              \
    if (ret == SUCCESS) *out = (unsigned)e.integers[0];                \
    return ret;                                                        \
  }

U32(GetArchitecture)
U32(GetPowerUsage)
U32(GetPowerManagementLimit)
U32(GetFanSpeed)
U32(GetPerformanceState)
U32(GetCurrPcieLinkGeneration)
U32(GetCurrPcieLinkWidth)
U32(GetMaxPcieLinkGeneration)
U32(GetMaxPcieLinkWidth)
U32(GetPcieReplayCounter)
U32(GetMaxMigDeviceCount)
U32(GetGpuInstanceId)
U32(GetComputeInstanceId)
U32_OF(GetTemperature)
U32_OF(GetClockInfo)
U32_OF(GetMaxClockInfo)
U32_OF(GetPcieThroughput)
U32_OF(GetNvLinkState)

EXPORT int nvmlDeviceGetCudaComputeCapability(device_t d, int* major, int* minor) {
  entry e;
  int ret = ask(d, "GetCudaComputeCapability", &e);
  if (ret == SUCCESS) {
    *major = (int)e.integers[0];
    *minor = (int)e.integers[1];
  }
  return ret;
}

EXPORT int nvmlDeviceGetMigMode(device_t d, unsigned* current, unsigned* pending) {
  entry e;
  int ret = ask(d, "GetMigMode", &e);
  if (ret == SUCCESS) *current = *pending = (unsigned)e.integers[0];
  return ret;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(device_t d, unsigned index, device_t* out) {
  entry e;
  int ret = ask(d, "GetMigMode", &e);
  if (ret != SUCCESS) return ret;
  for (int i = 0; i < MAX_DEVICES; i++) {
    if (devices[i].present && devices[i].parent == (int)(d - devices) && devices[i].slot == (int)index) {
      *out = &devices[i];
      return SUCCESS;
    }
  }
  return NOT_FOUND;
}

typedef struct {
  uint64_t total, free, used;
} memory_v1;
typedef struct {
  unsigned version;
  uint64_t total, reserved, free, used;
} memory_v2;
_Static_assert(sizeof(memory_v1) == 24 && sizeof(memory_v2) == 40, "Memory");

EXPORT int nvmlDeviceGetMemoryInfo(device_t d, memory_v1* out) {
  entry e;
  int ret = ask(d, "GetMemoryInfo", &e);
  if (ret == SUCCESS) *out = (memory_v1){e.integers[0], e.integers[1], e.integers[2]};
  return ret;
}

typedef struct {
  uint64_t timestamp;
  union {
    double d;
    unsigned u32;
    uint64_t u64;
  } value;
} sample;
_Static_assert(sizeof(sample) == 16, "Sample");

typedef struct {
  unsigned gpu, memory;
} utilization;
_Static_assert(sizeof(utilization) == 8, "Utilization");

EXPORT int nvmlDeviceGetUtilizationRates(device_t d, utilization* out) {
  entry e;
  int ret = ask(d, "GetUtilizationRates", &e);
  if (ret != SUCCESS) return ret;
  out->gpu = (unsigned)e.integers[0];
  out->memory = (unsigned)e.integers[1];
  return SUCCESS;
}

// The samples of a script are always as new as can be.
EXPORT int nvmlDeviceGetSamples(device_t d, unsigned kind, uint64_t since, unsigned* type, unsigned* count, sample* out) {
  (void)since;
  entry e;
  char key[64];
  snprintf(key, sizeof key, "GetSamples.%u", kind);
  int ret = ask_key(d, "GetSamples", key, &e);
  if (ret != SUCCESS) return ret;
  *type = 1;
  if (out) {
    if (*count < (unsigned)e.count) return INSUFFICIENT_SIZE;
    for (int i = 0; i < e.count; i++) {
      out[i].timestamp = (uint64_t)(now_seconds(CLOCK_REALTIME) * 1e6) + (uint64_t)i;
      out[i].value.u32 = (unsigned)e.integers[i];
    }
  }
  *count = (unsigned)e.count;
  return SUCCESS;
}

EXPORT int nvmlDeviceGetTotalEccErrors(device_t d, unsigned type, unsigned counter, uint64_t* out) {
  entry e;
  char key[64];
  snprintf(key, sizeof key, "GetTotalEccErrors.%u.%u", type, counter);
  int ret = ask_key(d, "GetTotalEccErrors", key, &e);
  if (ret == SUCCESS) *out = e.integers[0];
  return ret;
}

EXPORT int nvmlDeviceGetNvLinkErrorCounter(device_t d, unsigned link, unsigned counter, uint64_t* out) {
  entry e;
  char key[64];
  snprintf(key, sizeof key, "GetNvLinkErrorCounter.%u.%u", link, counter);
  int ret = ask_key(d, "GetNvLinkErrorCounter", key, &e);
  if (ret == SUCCESS) *out = e.integers[0];
  return ret;
}

static int reasons(device_t d, const char* function, uint64_t* out) {
  entry e;
  int ret = ask_key(d, function, "ClocksReasons", &e);
  if (ret == SUCCESS) *out = e.integers[0];
  return ret;
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(device_t d, uint64_t* out) { return reasons(d, "GetCurrentClocksThrottleReasons", out); }

static int busy(device_t d, const char* function, unsigned* percent, unsigned* period) {
  entry e;
  int ret = ask(d, function, &e);
  if (ret == SUCCESS) {
    *percent = (unsigned)e.integers[0];
    *period = 167000;
  }
  return ret;
}
EXPORT int nvmlDeviceGetEncoderUtilization(device_t d, unsigned* percent, unsigned* period) { return busy(d, "GetEncoderUtilization", percent, period); }
EXPORT int nvmlDeviceGetDecoderUtilization(device_t d, unsigned* percent, unsigned* period) { return busy(d, "GetDecoderUtilization", percent, period); }

EXPORT int nvmlEventSetCreate(event_set** out) {
  entry e;
  int ret = ask(NULL, "EventSetCreate", &e);
  if (ret != NOT_SUPPORTED) return ret;
  *out = calloc(1, sizeof **out);
  return SUCCESS;
}

EXPORT int nvmlEventSetFree(event_set* set) {
  note("EventSetFree", set->device);
  free(set);
  return SUCCESS;
}

EXPORT int nvmlDeviceRegisterEvents(device_t d, uint64_t types, event_set* set) {
  entry e;
  int ret = ask(d, "RegisterEvents", &e);
  if (ret == SUCCESS && types != 8) return INVALID_ARGUMENT;
  if (ret == SUCCESS) set->device = d;
  return ret;
}

typedef struct {
  device_t device;
  uint64_t type, data;
  unsigned gpu_instance, compute_instance;
} event_data;
_Static_assert(sizeof(event_data) == 32, "EventData");

// Events come before a device's troubles: the XID that tells of a loss is still delivered.
EXPORT int nvmlEventSetWait_v2(event_set* set, event_data* out, unsigned timeout) {
  (void)timeout;
  if (!set->device) return INVALID_ARGUMENT;
  pthread_mutex_lock(&lock);
  note("EventSetWait", set->device);
  refresh();
  device* d = set->device;
  int ret = d->override ? d->override : TIMEOUT;
  if (d->events_taken < d->event_count) {
    event e = d->events[d->events_taken++];
    *out = (event_data){d, 8, e.xid, e.gpu_instance, e.compute_instance};
    ret = SUCCESS;
  }
  int delay = d->delay;
  pthread_mutex_unlock(&lock);
  pause_ms(delay);
  return ret;
}

typedef struct {
  unsigned pid;
  uint64_t memory;
} process_v1;
typedef struct {
  unsigned pid;
  uint64_t memory;
  unsigned gpu_instance, compute_instance;
} process;
_Static_assert(sizeof(process) == 24 && sizeof(process_v1) == 16, "ProcessInfo");

// The script has pairs of pid and bytes; bytes 0 stands for "not known".
static int list_processes(device_t d, const char* function, unsigned* count, void* out, size_t size) {
  entry e;
  int ret = ask(d, function, &e);
  if (ret != SUCCESS) return ret;
  unsigned n = (unsigned)e.count / 2;
  if (*count < n) {
    *count = n;
    return INSUFFICIENT_SIZE;
  }
  *count = n;
  for (unsigned i = 0; i < n; i++) {
    process p = {(unsigned)e.integers[2 * i], e.integers[2 * i + 1], 0xffffffffu, 0xffffffffu};
    if (!p.memory) p.memory = UINT64_MAX;
    memcpy((char*)out + i * size, &p, size);
  }
  return SUCCESS;
}

#ifdef OLD_DRIVER
EXPORT int nvmlDeviceGetComputeRunningProcesses(device_t d, unsigned* count, process_v1* out) {
  return list_processes(d, "GetComputeRunningProcesses", count, out, sizeof *out);
}
#else
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(device_t d, unsigned* count, process* out) {
  return list_processes(d, "GetComputeRunningProcesses", count, out, sizeof *out);
}
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t d, unsigned* count, process* out) {
  return list_processes(d, "GetGraphicsRunningProcesses", count, out, sizeof *out);
}
EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t d, unsigned* count, process* out) {
  return list_processes(d, "GetMPSComputeRunningProcesses", count, out, sizeof *out);
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(device_t d, memory_v2* out) {
  entry e;
  int ret = ask(d, "GetMemoryInfo_v2", &e);
  if (ret == SUCCESS && out->version != 0x02000028) return ARGUMENT_VERSION_MISMATCH;
  if (ret == SUCCESS) *out = (memory_v2){out->version, e.integers[0], e.integers[1], e.integers[2], e.integers[3]};
  return ret;
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(device_t d, uint64_t* out) {
  entry e;
  int ret = ask(d, "GetTotalEnergyConsumption", &e);
  if (ret == SUCCESS) *out = e.integers[0];
  return ret;
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(device_t d, uint64_t* out) { return reasons(d, "GetCurrentClocksEventReasons", out); }

typedef struct {
  unsigned field, scope;
  int64_t timestamp, latency;
  unsigned type, status;
  union {
    double d;
    unsigned u32;
    uint64_t u64;
  } value;
} field_value;
_Static_assert(sizeof(field_value) == 40, "FieldValue");

// "field.ID.SCOPE STATUS TYPE VALUE [GROWTH]": GROWTH is per second since the script was read.
EXPORT int nvmlDeviceGetFieldValues(device_t d, int count, field_value* values) {
  entry e;
  int ret = ask_key(d, "GetFieldValues", "GetFieldValues", &e);
  if (ret != SUCCESS) return ret;
  for (int i = 0; i < count; i++) {
    field_value* v = &values[i];
    char key[64];
    snprintf(key, sizeof key, "field.%u.%u", v->field, v->scope);
    pthread_mutex_lock(&lock);
    const entry* f = find(d->entries, d->entry_count, key);
    v->status = f ? (unsigned)f->ret : NOT_SUPPORTED;
    v->timestamp = (int64_t)(now_seconds(CLOCK_REALTIME) * 1e6);
    if (v->status == SUCCESS) {
      v->type = (unsigned)f->integers[0];
      v->value.u64 = f->integers[1];
      if (f->count > 2) v->value.u64 += (uint64_t)(f->numbers[2] * (now_seconds(CLOCK_MONOTONIC) - loaded));
      if (v->type == 1) v->value.u64 &= 0xffffffffu;
    }
    pthread_mutex_unlock(&lock);
  }
  return SUCCESS;
}
#endif
