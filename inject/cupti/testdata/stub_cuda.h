/* Control of the stub CUDA driver: graphs are arrays of nodes that tests describe. */
#ifndef GRAPHSIGNAL_STUB_CUDA_H
#define GRAPHSIGNAL_STUB_CUDA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stub_node {
  int type;
  const char* function; /* symbol behind a function handle */
  const char* kernel;   /* symbol behind a kernel handle */
  int unreadable;
};
struct stub_graph {
  struct stub_node* nodes;
  size_t count;
};

/* What cuDriverGetVersion says, for example 12040. */
void stub_driver_version(int version);

#ifdef __cplusplus
}
#endif

#endif
