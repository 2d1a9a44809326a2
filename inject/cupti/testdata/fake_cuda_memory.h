/* Control of the fake CUDA driver with memory, streams and captures. Numbers of errors are the driver's. */
#ifndef GRAPHSIGNAL_FAKE_CUDA_MEMORY_H
#define GRAPHSIGNAL_FAKE_CUDA_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the program's runtime would do. An allocation activates the device's primary context; the address cannot be used by
 * the host. Returns 0 (and NULL memory) or the driver's error. */
int fake_alloc(int device, size_t bytes, void** memory);
int fake_write(int device, void* stream, void* to, const void* from, size_t bytes);
/* Where the bytes of a device address really are: for what kernels do. */
void* fake_view(const void* device_memory);
/* cudaDeviceReset: memory, streams and the context of a device are gone. */
void fake_reset(int device);
int fake_stream_create(int device, void** stream);
int fake_stream_destroy(void* stream);
int fake_stream_synchronize(void* stream);

/* A capture in global mode by another thread: calls of threads that are not in relaxed mode fail with 900 and break it. */
void fake_begin_capture(void);
/* Returns whether the capture was broken. */
int fake_end_capture(void);

/* The next `times` calls of a function fail with the error; times < 0: all. One function at a time per name, 8 names. */
void fake_fail(const char* function, int error, int times);
/* Calls of the function do not return; NULL lets them go on. */
void fake_hang(const char* function);
/* Copies take so long after they were queued; negative: for ever. */
void fake_copy_time(int64_t ns);
/* The driver is being taken down: calls from now on are counted. */
void fake_teardown(void);

struct fake_counts {
  int calls;            /* of any function of the driver */
  int copies;           /* device to host, asynchronous */
  int largest_copies;   /* copies that were queued in one round: between two waits */
  size_t copied;        /* bytes */
  int streams;          /* created by cuStreamCreate */
  int retains;
  int activations;      /* contexts that a retain has made */
  int pushed;           /* depth of context stacks, all threads */
  int unrelaxed;        /* calls of memory functions outside relaxed mode while a capture goes on */
  int legacy;           /* uses of the default stream, or of a blocking one */
  int stale;            /* uses of streams that a reset has destroyed */
  int after_teardown;
  int reading_threads;  /* threads that have queued copies */
};
struct fake_counts fake_read_counts(void);

#ifdef __cplusplus
}
#endif

#endif
