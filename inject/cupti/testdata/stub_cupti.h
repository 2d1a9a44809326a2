/* Control of the stub CUPTI: a library that speaks CUPTI's binary interface without a GPU. Tests script what it reports. */
#ifndef GRAPHSIGNAL_STUB_CUPTI_H
#define GRAPHSIGNAL_STUB_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stub_record {
  uint32_t kind;
  uint64_t start, end; /* end 0: unfinished until stub_finish */
  const char* name;    /* kernels */
  uint32_t number;     /* copy kind, memory kind, synchronization type, or graph id */
  uint64_t bytes;
};

struct stub_counts {
  uint64_t requests;   /* buffers asked for */
  uint64_t completed;  /* buffers handed back */
  uint64_t unreported; /* records lost: no buffer */
  uint64_t forced, unforced; /* flushes */
  uint64_t subscribe_calls, finalize_calls, register_calls;
  uint64_t enabled; /* bit per kind */
  uint64_t callbacks; /* bit per enabled resource callback */
};

/* Now, in the clock of the records. */
uint64_t stub_now(void);
/* Writes a record as the calling thread; returns its place, or NULL when no buffer was to be had. */
void* stub_add(const struct stub_record* record);
/* Ends an unfinished record of a kernel or copy. */
void stub_finish(void* record, uint64_t end);
/* Record sizes of a CUDA release: 118, 124 or 130. */
void stub_release(int release);
/* Makes a function return a result from now on (0: behave again). Names without "cupti". */
void stub_fail(const char* function, int result);
/* CUPTI reports so many dropped records once. */
void stub_drop(size_t records);
/* Calls the subscriber as the driver would. */
void stub_resource(uint32_t callback, const void* data);
void stub_graph_exec_created(void* graph, void* exec, uint32_t graph_id, uint32_t exec_id);
/* Another tool of the process: takes or leaves the subscription; takes the buffer callbacks. */
void stub_other_subscribes(int on);
void stub_other_registers(void);
struct stub_counts stub_read_counts(void);
/* Blocks every flush until the process ends. */
void stub_hang_flush(void);

#ifdef __cplusplus
}
#endif

#endif
