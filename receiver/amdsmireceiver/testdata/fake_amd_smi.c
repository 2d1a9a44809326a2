/* Fake libamd_smi, driven by the file `script` beside it, which is read again whenever it is replaced:
 *
 *   abi MAJOR MINOR                 version, and with it the sizes of the structures
 *   init STATUS                     what amdsmi_init returns
 *   device                          the following lines are about one more GPU, on a socket of its own
 *   same_socket                     ... on the socket of the one before
 *   cpu                             it is no GPU
 *   fill STRUCT BYTE                what a structure holds where nothing else is said (hexadecimal)
 *   u16|u32|u64 STRUCT OFFSET VALUE
 *   str STRUCT OFFSET TEXT
 *   ret STRUCT STATUS               what the call returns; 2 (not supported) if nothing is said about the structure
 *   hold STRUCT FILE                the call returns only when FILE is there; FILE.held says that it waits
 *
 * Structures are named after their calls: metrics memory_total memory_usage vram_usage activity temp0 temp1 temp2 power_cap
 * fan clock0 clock4 ecc pcie bdf uuid enumeration asic. Two calls at a time end the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 8192, MAX_DEVICES = 64, NOT_SUPPORTED = 2, NOT_FOUND = 31, NOT_INITIALIZED = 32 };

static const char* const kNames[] = {"metrics", "memory_total", "memory_usage", "vram_usage", "activity", "temp0", "temp1", "temp2",
                                     "power_cap", "fan", "clock0", "clock4", "ecc", "pcie", "bdf", "uuid", "enumeration", "asic"};
enum { METRICS, MEMORY_TOTAL, MEMORY_USAGE, VRAM_USAGE, ACTIVITY, TEMP0, TEMP1, TEMP2, POWER_CAP, FAN, CLOCK0, CLOCK4, ECC, PCIE, BDF,
       UUID, ENUMERATION, ASIC, STRUCTS };

struct image {
  int scripted, status;
  char hold[256];
  uint8_t data[LARGEST];
};
struct device {
  int socket, type;
  struct image* images;
};

static struct device devices[MAX_DEVICES];
static int n_devices, n_sockets, abi = 26, minor = 0, init_status, initialized;
static struct timespec read_at;
static ino_t read_inode;
static int calls_under_way;

static size_t size_of(int what) {
  switch (what) {
    case METRICS: return abi >= 26 ? 4544 : abi == 25 ? 2368 : minor >= 7 ? 1832 : 424;
    case ASIC: return abi >= 25 ? 896 : minor >= 7 ? 456 : minor == 6 ? 448 : 256;
    case ENUMERATION: return 272;
    case PCIE: return 512;
    case POWER_CAP: case ACTIVITY: return 64;
    case CLOCK0: case CLOCK4: return 32;
    case VRAM_USAGE: return 16;
    case UUID: return 38;
    default: return 8;
  }
}

static void fault(const char* what) {
  fprintf(stderr, "fake libamd_smi: %s\n", what);
  abort();
}

static int index_of(const char* name) {
  for (int i = 0; i < STRUCTS; i++) {
    if (strcmp(kNames[i], name) == 0) return i;
  }
  fprintf(stderr, "%s: ", name);
  fault("no such structure");
  return -1;
}

static struct image* image_of(const char* name) {
  if (n_devices == 0) fault("a structure before the first device");
  struct image* im = &devices[n_devices - 1].images[index_of(name)];
  if (!im->scripted) im->status = 0;
  im->scripted = 1;
  return im;
}

static void read_line(char* line) {
  char word[32], name[32], rest[256];
  unsigned long long offset, value;
  int status;
  line[strcspn(line, "\n")] = 0;
  if (sscanf(line, "%31s", word) != 1 || word[0] == '#') return;
  if (strcmp(word, "abi") == 0 && sscanf(line, "%*s %d %d", &abi, &minor) == 2) return;
  if (strcmp(word, "init") == 0 && sscanf(line, "%*s %d", &init_status) == 1) return;
  if (strcmp(word, "device") == 0) {
    if (n_devices == MAX_DEVICES) fault("too many devices");
    struct device* d = &devices[n_devices++];
    d->socket = n_sockets++;
    d->type = 1;
    if (!d->images) d->images = malloc(STRUCTS * sizeof(*d->images));
    memset(d->images, 0, STRUCTS * sizeof(*d->images));
    for (int i = 0; i < STRUCTS; i++) d->images[i].status = NOT_SUPPORTED;
    memset(d->images[METRICS].data, 0xff, LARGEST);
    return;
  }
  if (n_devices > 0 && strcmp(word, "same_socket") == 0) {
    devices[n_devices - 1].socket = --n_sockets - 1;
    return;
  }
  if (n_devices > 0 && strcmp(word, "cpu") == 0) {
    devices[n_devices - 1].type = 2;
    return;
  }
  if (sscanf(line, "%*s %31s %llx", name, &value) == 2 && strcmp(word, "fill") == 0) {
    memset(image_of(name)->data, (int)value, LARGEST);
    return;
  }
  if (sscanf(line, "%*s %31s %d", name, &status) == 2 && strcmp(word, "ret") == 0) {
    image_of(name)->status = status;
    return;
  }
  if (sscanf(line, "%*s %31s %255s", name, rest) == 2 && strcmp(word, "hold") == 0) {
    strcpy(image_of(name)->hold, rest);
    return;
  }
  if (sscanf(line, "%*s %31s %llu %255[^\n]", name, &offset, rest) == 3 && offset < LARGEST - 256 && strcmp(word, "str") == 0) {
    strcpy((char*)image_of(name)->data + offset, rest);
    return;
  }
  if (sscanf(line, "%*s %31s %llu %lli", name, &offset, (long long*)&value) == 3 && offset < LARGEST - 8) {
    if (strcmp(word, "u16") == 0) { memcpy(image_of(name)->data + offset, &value, 2); return; }
    if (strcmp(word, "u32") == 0) { memcpy(image_of(name)->data + offset, &value, 4); return; }
    if (strcmp(word, "u64") == 0) {
      value = strtoull(strrchr(line, ' ') + 1, NULL, 0);
      memcpy(image_of(name)->data + offset, &value, 8);
      return;
    }
  }
  fprintf(stderr, "%s: ", line);
  fault("cannot be read");
}

static void read_script(void) {
  static char path[4096];
  if (!path[0]) {
    Dl_info info;
    if (!dladdr((void*)read_script, &info)) fault("no path");
    snprintf(path, sizeof(path), "%s", info.dli_fname);
    strcpy(strrchr(path, '/') + 1, "script");
  }
  struct stat st;
  if (stat(path, &st) != 0) fault("no script");
  if (st.st_ino == read_inode && st.st_mtim.tv_sec == read_at.tv_sec && st.st_mtim.tv_nsec == read_at.tv_nsec) return;
  read_inode = st.st_ino;
  read_at = st.st_mtim;
  FILE* f = fopen(path, "r");
  if (!f) fault("no script");
  n_devices = n_sockets = init_status = 0;
  char line[512];
  while (fgets(line, sizeof(line), f)) read_line(line);
  fclose(f);
}

/* Every call begins and ends so. */
static void begin(void) {
  if (__atomic_exchange_n(&calls_under_way, 1, __ATOMIC_ACQ_REL)) fault("two calls at a time");
  read_script();
}
static int end(int status) {
  __atomic_store_n(&calls_under_way, 0, __ATOMIC_RELEASE);
  return status;
}

/* Handles of processors and of sockets. */
static void* processor(int i) { return (void*)(uintptr_t)(0x1000 + 16 * i); }
static void* socket_of(int i) { return (void*)(uintptr_t)(0x9000 + 16 * i); }
static struct device* device_of(void* handle) {
  const uintptr_t i = ((uintptr_t)handle - 0x1000) / 16;
  return i < (uintptr_t)n_devices ? &devices[i] : NULL;
}

/* Copies a structure of its true size to the caller. */
static int give(void* handle, int what, void* to) {
  begin();
  struct device* d = device_of(handle);
  if (!initialized) return end(NOT_INITIALIZED);
  if (!d) return end(NOT_FOUND);
  const struct image* im = &d->images[what];
  const struct timespec pause = {0, 1000000};
  if (im->hold[0] && access(im->hold, F_OK) != 0) {
    char held[300];
    snprintf(held, sizeof(held), "%s.held", im->hold);
    FILE* mark = fopen(held, "w");
    if (mark) fclose(mark);
    while (access(im->hold, F_OK) != 0) nanosleep(&pause, NULL);
  }
  if (im->status != 0) return end(im->status);
  memcpy(to, im->data, size_of(what));
  return end(0);
}

int amdsmi_get_lib_version(uint32_t* v) {
  begin();
  v[0] = (uint32_t)abi;
  v[1] = (uint32_t)minor;
  v[2] = 0;
  if (abi < 26) v[3] = 0;
  const char* build = "fake";
  memcpy(v + 4, &build, sizeof(build));
  return end(0);
}

int amdsmi_init(uint64_t flags) {
  begin();
  if (flags != 2) fault("flags are not those of GPUs");
  if (init_status == 0) initialized++;
  return end(init_status);
}

int amdsmi_shut_down(void) {
  begin();
  if (initialized == 0) fault("shut down without init");
  initialized--;
  return end(0);
}

int amdsmi_get_socket_handles(uint32_t* count, void** sockets) {
  begin();
  if (sockets && *count < (uint32_t)n_sockets) fault("too little room for sockets");
  for (int i = 0; sockets && i < n_sockets; i++) sockets[i] = socket_of(i);
  *count = (uint32_t)n_sockets;
  return end(0);
}

int amdsmi_get_processor_handles(void* socket, uint32_t* count, void** processors) {
  begin();
  uint32_t n = 0;
  for (int i = 0; i < n_devices; i++) {
    if (socket_of(devices[i].socket) != socket) continue;
    if (processors && n >= *count) fault("too little room for processors");
    if (processors) processors[n] = processor(i);
    n++;
  }
  *count = n;
  return end(0);
}

int amdsmi_get_processor_type(void* handle, uint32_t* type) {
  begin();
  struct device* d = device_of(handle);
  if (!d) return end(NOT_FOUND);
  *type = (uint32_t)d->type;
  return end(0);
}

int amdsmi_get_gpu_metrics_info(void* h, void* m) { return give(h, METRICS, m); }
int amdsmi_get_gpu_memory_total(void* h, int type, void* v) { return type == 0 ? give(h, MEMORY_TOTAL, v) : 1; }
int amdsmi_get_gpu_memory_usage(void* h, int type, void* v) { return type == 0 ? give(h, MEMORY_USAGE, v) : 1; }
int amdsmi_get_gpu_vram_usage(void* h, void* v) { return give(h, VRAM_USAGE, v); }
int amdsmi_get_gpu_activity(void* h, void* v) { return give(h, ACTIVITY, v); }
int amdsmi_get_temp_metric(void* h, int sensor, int metric, void* v) {
  return sensor >= 0 && sensor <= 2 && metric == 0 ? give(h, TEMP0 + sensor, v) : 1;
}
int amdsmi_get_power_cap_info(void* h, uint32_t sensor, void* v) { return sensor == 0 ? give(h, POWER_CAP, v) : 1; }
int amdsmi_get_gpu_fan_speed(void* h, uint32_t sensor, void* v) { return sensor == 0 ? give(h, FAN, v) : 1; }
int amdsmi_get_clock_info(void* h, int domain, void* v) { return domain == 0 ? give(h, CLOCK0, v) : domain == 4 ? give(h, CLOCK4, v) : 1; }
int amdsmi_get_pcie_info(void* h, void* v) { return give(h, PCIE, v); }
int amdsmi_get_gpu_device_bdf(void* h, void* v) { return give(h, BDF, v); }
int amdsmi_get_gpu_asic_info(void* h, void* v) { return give(h, ASIC, v); }
#ifndef BEFORE_25
int amdsmi_get_gpu_enumeration_info(void* h, void* v) { return give(h, ENUMERATION, v); }
#endif

int amdsmi_get_gpu_device_uuid(void* h, uint32_t* length, char* text) {
  if (*length < 38) return 1;
  char all[64] = {0};
  const int status = give(h, UUID, all);
  if (status == 0) {
    memcpy(text, all, 38);
    *length = 38;
  }
  return status;
}

/* Adds to what the caller's structure holds. */
int amdsmi_get_gpu_total_ecc_count(void* h, uint64_t* v) {
  begin();
  struct device* d = device_of(h);
  if (!d) return end(NOT_FOUND);
  if (d->images[ECC].status != 0) return end(d->images[ECC].status);
  for (int i = 0; i < 3; i++) {
    uint64_t n;
    memcpy(&n, d->images[ECC].data + 8 * i, 8);
    v[i] += n;
  }
  return end(0);
}
