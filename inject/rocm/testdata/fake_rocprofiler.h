/* Control of the fake rocprofiler-sdk: a library that speaks the SDK's binary interface without a GPU. Programs script what
 * it reports; a client that breaks a rule of the interface ends the process with status 99. */
#ifndef GRAPHSIGNAL_FAKE_ROCPROFILER_H
#define GRAPHSIGNAL_FAKE_ROCPROFILER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_HIP_API = 5, FAKE_COPY = 10, FAKE_DISPATCH = 11 };

struct fake_counts {
  uint64_t flushes, callbacks, undelivered;
  uint64_t services;   /* bit per buffer kind */
  uint64_t operations; /* operations chosen for FAKE_HIP_API; 0: all */
  uint64_t code_objects; /* whether that callback service is on */
  uint64_t clients;    /* tools that take part */
  uint64_t started;    /* contexts */
};

/* Loads the tools of ROCP_TOOL_LIBRARIES and lets them configure themselves. A version is 10000 * major + 100 * minor +
 * patch; it decides about the layouts. Returns the tools that take part. As in one release, the last element of a list
 * with several is overlooked, and a library that cannot be loaded ends the program. */
int fake_start(uint32_t version);
/* Calls the tools' finalizers under the registration lock. Done at exit, too. */
void fake_finalize(void);

/* Now, in the clock of the records. */
uint64_t fake_now(void);
void fake_dispatch(uint64_t kernel, uint64_t start, uint64_t end);
void fake_copy(uint32_t operation, uint64_t bytes, uint64_t start, uint64_t end);
/* A call of HIP's runtime by name. */
void fake_call(const char* name, uint64_t start, uint64_t end);
/* Any record: size bytes of payload, of which the first word is set to claimed. */
void fake_record(uint32_t category, uint32_t kind, const void* payload, size_t size, uint64_t claimed);
/* Code objects: a kernel gets a name; its code object goes. */
void fake_register(uint64_t kernel, const char* name);
void fake_unload(uint64_t kernel, const char* name);
/* Total of dropped records from now on. */
void fake_drop(uint64_t total);

/* Copy records without sizes, as before 0.4.1. */
void fake_old_copies(void);
/* Callbacks come on the threads that make the records. */
void fake_inline(void);
/* So many flushes find the buffer busy. */
void fake_busy(int flushes);
/* Blocks every flush until the process ends. */
void fake_hang_flush(void);
struct fake_counts fake_read_counts(void);

#ifdef __cplusplus
}
#endif

#endif
