// Our own declarations of the parts of CUPTI and of the CUDA driver that this library uses. Records are declared as the
// prefix that every release from 11.4 on shares: newer releases only append fields. Source of the numbers: NVIDIA's
// CUPTI reference; offsets were compared over the releases 11.4 to 13.2.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_ABI_H
#define GRAPHSIGNAL_INJECT_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

namespace graphsignal {
namespace cupti {

enum Result : int {
  kSuccess = 0,
  kMaxLimitReached = 12,
  kMultipleSubscribers = 39,
};

enum Kind : uint32_t {
  kKindInvalid = 0,
  kKindMemcpy = 1,
  kKindMemset = 2,
  kKindKernel = 3,
  kKindConcurrentKernel = 10,
  kKindMemcpyPeer = 22,
  kKindSynchronization = 38,
  kKindGraphTrace = 51,
};
// Kinds below this have their record size remembered.
const uint32_t kKindLimit = 64;

enum Attribute : int {
  kAttributeZeroedBuffers = 5,
  kAttributePerThreadBuffers = 9,
};

enum Domain : int { kDomainResource = 3 };

enum ResourceCallback : uint32_t {
  kContextCreated = 1,
  kModuleLoaded = 6,
  kModuleUnloadStarting = 7,
  kGraphExecCreated = 18,
};

// Kinds KERNEL and CONCURRENT_KERNEL.
struct KernelRecord {
  uint32_t kind;
  uint32_t unused_a[3];
  uint64_t start;
  uint64_t end;
  uint32_t unused_b[18];
  const char* name;
};

// Kinds MEMCPY and MEMCPY2 (between devices).
struct MemcpyRecord {
  uint32_t kind;
  uint8_t copy_kind;
  uint8_t unused[3];
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
};

// Kind MEMCPY only.
const size_t kMemcpyContextOffset = 36;
const size_t kMemcpyStreamOffset = 40;
const size_t kMemcpyPrefixBytes = 44;

struct MemsetRecord {
  uint32_t kind;
  uint32_t unused_a;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t unused_b[4];
  uint16_t unused_c;
  uint16_t memory_kind;
};

struct SynchronizationRecord {
  uint32_t kind;
  uint32_t type;
  uint64_t start;
  uint64_t end;
};

struct GraphTraceRecord {
  uint32_t kind;
  uint32_t unused_a;
  uint64_t start;
  uint64_t end;
  uint32_t unused_b;
  uint32_t graph_id;
};

#define GRAPHSIGNAL_OFFSET(type, field, offset) static_assert(offsetof(type, field) == offset, #type " " #field)
GRAPHSIGNAL_OFFSET(KernelRecord, start, 16);
GRAPHSIGNAL_OFFSET(KernelRecord, end, 24);
GRAPHSIGNAL_OFFSET(KernelRecord, name, 104);
GRAPHSIGNAL_OFFSET(MemcpyRecord, copy_kind, 4);
GRAPHSIGNAL_OFFSET(MemcpyRecord, bytes, 8);
GRAPHSIGNAL_OFFSET(MemcpyRecord, start, 16);
GRAPHSIGNAL_OFFSET(MemcpyRecord, end, 24);
GRAPHSIGNAL_OFFSET(MemsetRecord, bytes, 8);
GRAPHSIGNAL_OFFSET(MemsetRecord, start, 16);
GRAPHSIGNAL_OFFSET(MemsetRecord, end, 24);
GRAPHSIGNAL_OFFSET(MemsetRecord, memory_kind, 50);
GRAPHSIGNAL_OFFSET(SynchronizationRecord, type, 4);
GRAPHSIGNAL_OFFSET(SynchronizationRecord, start, 8);
GRAPHSIGNAL_OFFSET(SynchronizationRecord, end, 16);
GRAPHSIGNAL_OFFSET(GraphTraceRecord, start, 8);
GRAPHSIGNAL_OFFSET(GraphTraceRecord, end, 16);
GRAPHSIGNAL_OFFSET(GraphTraceRecord, graph_id, 28);

// Data of a callback of the RESOURCE domain.
struct ResourceData {
  void* context;
  void* handle;
  void* descriptor;
};
// Descriptor of the graph callbacks.
struct GraphData {
  void* graph;
  void* original_graph;
  void* node;
  void* original_node;
  int node_type;
  void* dependency;
  void* exec;
};
GRAPHSIGNAL_OFFSET(ResourceData, descriptor, 16);
GRAPHSIGNAL_OFFSET(GraphData, node_type, 32);
GRAPHSIGNAL_OFFSET(GraphData, exec, 48);

// CUgraphNodeType.
enum NodeType : int {
  kNodeKernel = 0,
  kNodeMemcpy = 1,
  kNodeMemset = 2,
  kNodeHost = 3,
  kNodeGraph = 4,
  kNodeEmpty = 5,
  kNodeWaitEvent = 6,
  kNodeEventRecord = 7,
  kNodeSemaphoreSignal = 8,
  kNodeSemaphoreWait = 9,
  kNodeMemAlloc = 10,
  kNodeMemFree = 11,
};

// CUDA_KERNEL_NODE_PARAMS_v2 (CUDA 12.0 and newer).
struct KernelNodeParams {
  void* function;
  uint32_t unused_a[7];
  void** unused_b[2];
  void* kernel;
  void* context;
};
GRAPHSIGNAL_OFFSET(KernelNodeParams, kernel, 56);
static_assert(sizeof(KernelNodeParams) == 72, "KernelNodeParams");
#undef GRAPHSIGNAL_OFFSET

typedef void (*BufferRequested)(uint8_t** buffer, size_t* size, size_t* max_records);
typedef void (*BufferCompleted)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);
typedef void (*Callback)(void* user, int domain, uint32_t callback, const void* data);

}  // namespace cupti
}  // namespace graphsignal

#endif
