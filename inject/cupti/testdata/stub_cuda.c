/* Stub of the CUDA driver functions that the injection library uses. -DBEFORE_12_3 leaves out the naming functions. */
#include "stub_cuda.h"

#include <stdint.h>
#include <string.h>

static int driver_version = 12040;
void stub_driver_version(int version) { driver_version = version; }

int cuDriverGetVersion(int* version) {
  *version = driver_version;
  return 0;
}

int cuGraphGetNodes(void* graph, void** nodes, size_t* count) {
  const struct stub_graph* g = graph;
  if (!g->nodes && g->count) return 1;
  for (size_t i = 0; i < *count; i++) nodes[i] = i < g->count ? &g->nodes[i] : NULL;
  if (*count > g->count) *count = g->count;
  return 0;
}

int cuGraphNodeGetType(void* node, int* type) {
  const struct stub_node* n = node;
  *type = n->type;
  return n->unreadable;
}

int cuGraphKernelNodeGetParams_v2(void* node, void* params) {
  const struct stub_node* n = node;
  memcpy(params, &n->function, sizeof(void*));
  memcpy((uint8_t*)params + 56, &n->kernel, sizeof(void*));
  return 0;
}

#ifndef BEFORE_12_3
int cuFuncGetName(const char** name, void* function) {
  *name = function;
  return 0;
}
int cuKernelGetName(const char** name, void* kernel) {
  *name = kernel;
  return 0;
}
#endif

/* A process that has not started the driver: calls on memory and contexts are refused. */
#define NOT_INITIALIZED(name) \
  int name(void) { return 3; }
NOT_INITIALIZED(cuDeviceGet)
NOT_INITIALIZED(cuDevicePrimaryCtxGetState)
NOT_INITIALIZED(cuDevicePrimaryCtxRetain)
NOT_INITIALIZED(cuCtxPushCurrent_v2)
NOT_INITIALIZED(cuCtxPopCurrent_v2)
NOT_INITIALIZED(cuStreamCreate)
NOT_INITIALIZED(cuStreamQuery)
NOT_INITIALIZED(cuMemHostRegister_v2)
NOT_INITIALIZED(cuMemcpyDtoHAsync_v2)
NOT_INITIALIZED(cuPointerGetAttribute)
