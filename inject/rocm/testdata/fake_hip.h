/* Control of the fake HIP runtime: device memory that the host cannot touch, streams, and copies that may be held up. A
 * reader that breaks a rule (the default stream, a synchronous copy, a thread whose calls would break the capture of
 * another one, memory that is not pinned) ends the process with status 99. */
#ifndef GRAPHSIGNAL_FAKE_HIP_H
#define GRAPHSIGNAL_FAKE_HIP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed memory of a device, and the place where its content can be seen and changed. */
void* fake_hip_malloc(int device, size_t bytes);
void* fake_hip_content(const void* memory);
uint64_t fake_hip_copies(void);
/* Copies do not end until it is called with 0. */
void fake_hip_hold(int on);
/* Every copy call blocks until the process ends. */
void fake_hip_hang(void);
/* The next copies fail. */
void fake_hip_fail(int copies);
/* Any call from now on is a fault. */
void fake_hip_gone(void);
/* Called on the thread that copies. */
void fake_hip_on_copy(void (*hook)(size_t bytes));

#ifdef __cplusplus
}
#endif

#endif
