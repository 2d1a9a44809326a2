// Copyright Graphsignal contributors
// SPDX-License-Identifier: Apache-2.0
//
// Graphsignal probes inside CUDA kernels: histograms whose blocks live in GPU memory. Vendor this file beside probe.h; it
// needs the CUDA runtime only. Registration compiles with any C++17 host compiler, the device part with nvcc or clang.
//
//   graphsignal_probe_entry* tiles = graphsignal_probe_register_cuda("mykernels_tile_nanoseconds", nullptr, nullptr, 0);
//
//   __global__ void work(..., graphsignal_instrument_data* tile_ns) {
//     const unsigned long long start = graphsignal_gtimer();
//     ...
//     if (threadIdx.x == 0) GRAPHSIGNAL_RECORD(tile_ns, graphsignal_gtimer() - start);
//   }
//
//   work<<<grid, block>>>(..., graphsignal_probe_device_data(tiles));
//
// Registration works on the thread's current device, uses a stream of its own, and may be called while a stream is being
// captured, by any thread. Recording works in graphs as well: a block never moves and is never freed. The device is not
// part of an instrument's identity, so a program with several GPUs adds a tag per device. Do not let kernels of two GPUs
// record into one block.
//
// A translation unit may include this file or probe_rocm.h, not both.
#ifndef GRAPHSIGNAL_PROBE_CUDA_H
#define GRAPHSIGNAL_PROBE_CUDA_H

#include <cuda_runtime.h>
#include <graphsignal/probe.h>

#define GRAPHSIGNAL_PROBE_CUDA_POOL 1

// Many blocks in one allocation, which a profiler reads by one copy. Filled by graphsignal_probe_cuda_pool_init.
struct graphsignal_probe_cuda_pool {
  struct graphsignal_instrument_data* base;  // device memory, NULL in an unusable pool
  size_t capacity;                           // blocks
  size_t used;                               // blocks given to instruments
  uint64_t dropped;                          // registrations refused because the pool was full
  int device_id;                             // where the blocks are
};

#if UINTPTR_MAX == UINT64_MAX
static_assert(sizeof(struct graphsignal_probe_cuda_pool) == 40, "pool layout");
static_assert(offsetof(struct graphsignal_probe_cuda_pool, dropped) == 24, "pool layout");
static_assert(offsetof(struct graphsignal_probe_cuda_pool, device_id) == 32, "pool layout");
#endif

// ---------------------------------------------------------------------------------------------------------------------
// Private helpers

// Copies the initial image of n blocks to the device. The stream is private, so neither the program's streams nor a capture
// are touched, and the copy engine does the work, so it does not wait for kernels.
static inline bool graphsignal_probe__cuda_fill(struct graphsignal_instrument_data* blocks, size_t n) {
  struct graphsignal_instrument_data* image =
      static_cast<struct graphsignal_instrument_data*>(calloc(n, sizeof(struct graphsignal_instrument_data)));
  if (!image) return false;
  for (size_t i = 0; i < n; i++) image[i].min = UINT64_MAX;
  cudaStream_t stream = nullptr;
  bool ok = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
  if (ok) {
    ok = cudaMemcpyAsync(blocks, image, n * sizeof(*image), cudaMemcpyHostToDevice, stream) == cudaSuccess;
    // Also after a failure: the image must outlive whatever was queued.
    ok = cudaStreamSynchronize(stream) == cudaSuccess && ok;
    cudaStreamDestroy(stream);
  }
  free(image);
  return ok;
}

// Allocates and initialises n blocks on the current device; NULL on any failure, after which the thread's last CUDA error is
// what it was before.
static inline struct graphsignal_instrument_data* graphsignal_probe__cuda_blocks(size_t n, int* device) {
  const bool clean = cudaPeekAtLastError() == cudaSuccess;
  // Relaxed mode lets this thread allocate while it, or another thread, captures a stream.
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  const bool relaxed = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  void* blocks = nullptr;
  bool ok = cudaGetDevice(device) == cudaSuccess &&
            cudaMalloc(&blocks, n * sizeof(struct graphsignal_instrument_data)) == cudaSuccess;
  // A block that could not be filled is given up, not freed: freeing waits for the whole device.
  ok = ok && graphsignal_probe__cuda_fill(static_cast<struct graphsignal_instrument_data*>(blocks), n);
  if (relaxed) cudaThreadExchangeStreamCaptureMode(&mode);
  if (!ok && clean) cudaGetLastError();
  return ok ? static_cast<struct graphsignal_instrument_data*>(blocks) : nullptr;
}

// ---------------------------------------------------------------------------------------------------------------------
// Registration

// Registers a histogram with a block on the current device, or returns the existing instrument with the same name and
// ordered tags, without any CUDA call. NULL for an empty name, and (counted in the registry's `dropped`) when the registry
// is full or the device gives no memory. Limits of names and tags as in graphsignal_probe_register.
static inline struct graphsignal_probe_entry* graphsignal_probe_register_cuda(const char* name,
                                                                              const char* const* tag_keys,
                                                                              const char* const* tag_values,
                                                                              size_t ntags) {
  struct graphsignal_probe_entry* found;
  if (!graphsignal_probe__wants_block(name, tag_keys, tag_values, ntags, &found)) return found;
  int device = 0;
  struct graphsignal_instrument_data* block = graphsignal_probe__cuda_blocks(1, &device);
  if (!block) {
    graphsignal_probe__no_block();
    return nullptr;
  }
  return graphsignal_probe_register_storage(name, GRAPHSIGNAL_HISTOGRAM, tag_keys, tag_values, ntags, block, device);
}

// Makes a pool of `capacity` blocks on the current device. Returns 0, or -1 on a NULL pool, no capacity or any failure; the
// pool is then unusable: registrations from it are refused.
static inline int graphsignal_probe_cuda_pool_init(struct graphsignal_probe_cuda_pool* pool, size_t capacity) {
  if (!pool) return -1;
  memset(pool, 0, sizeof(*pool));
  if (capacity == 0 || capacity > SIZE_MAX / sizeof(struct graphsignal_instrument_data)) return -1;
  pool->base = graphsignal_probe__cuda_blocks(capacity, &pool->device_id);
  if (!pool->base) return -1;
  pool->capacity = capacity;
  return 0;
}

// As graphsignal_probe_register_cuda, with the next free block of a pool. An existing instrument takes no block, whatever the
// pool's state. A full pool gives NULL and counts in its `dropped`. Calls on one pool may come from several threads.
static inline struct graphsignal_probe_entry* graphsignal_probe_register_cuda_pooled(
    struct graphsignal_probe_cuda_pool* pool, const char* name, const char* const* tag_keys,
    const char* const* tag_values, size_t ntags) {
  struct graphsignal_probe_entry* found;
  if (!pool) return nullptr;
  if (!graphsignal_probe__wants_block(name, tag_keys, tag_values, ntags, &found)) return found;
  size_t slot = __atomic_load_n(&pool->used, __ATOMIC_RELAXED);
  do {
    if (slot >= pool->capacity) {
      __atomic_fetch_add(&pool->dropped, static_cast<uint64_t>(1), __ATOMIC_RELAXED);
      return nullptr;
    }
  } while (!__atomic_compare_exchange_n(&pool->used, &slot, slot + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  struct graphsignal_instrument_data* block = pool->base + slot;
  found = graphsignal_probe_register_storage(name, GRAPHSIGNAL_HISTOGRAM, tag_keys, tag_values, ntags, block,
                                             pool->device_id);
  if (!found || found->data != block) {
    // Another thread was faster. The slot goes back unless a later one was taken meanwhile.
    size_t next = slot + 1;
    __atomic_compare_exchange_n(&pool->used, &next, slot, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  }
  return found;
}

// The pointer to hand to kernels, or NULL (which kernels accept) for a NULL entry and for one in host memory.
static inline struct graphsignal_instrument_data* graphsignal_probe_device_data(const struct graphsignal_probe_entry* e) {
  return e && e->storage == GRAPHSIGNAL_STORAGE_DEVICE ? e->data : nullptr;
}

// ---------------------------------------------------------------------------------------------------------------------
// Device code

#if defined(__CUDACC__)

// Nanoseconds of a clock that all multiprocessors of the GPU share. Its step depends on the GPU, often 32 ns or 1 us.
static __device__ inline unsigned long long graphsignal_gtimer() {
  unsigned long long t = 0;
#if defined(__CUDA_ARCH__)
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
#endif
  return t;
}

// The bin of a value: the same as graphsignal_probe_bin_index.
static __device__ inline unsigned int graphsignal_probe__device_bin(unsigned long long v) {
  if (v < 4) return static_cast<unsigned int>(v);
  const unsigned int e = 63u - static_cast<unsigned int>(__clzll(static_cast<long long>(v)));
  return 4u * e + static_cast<unsigned int>((v >> (e - 2)) & 3u) - 4u;
}

// Adds one observation: five atomic operations of device scope whose results nobody waits for. Each thread that gets here
// records, so let one thread of a block or one lane of a warp do it. Nothing happens with NULL.
static __device__ inline void graphsignal_device_record(struct graphsignal_instrument_data* d, unsigned long long value) {
  if (!d) return;
  unsigned long long* const count = reinterpret_cast<unsigned long long*>(&d->count);
  unsigned long long* const sum = reinterpret_cast<unsigned long long*>(&d->sum);
  unsigned long long* const bins = reinterpret_cast<unsigned long long*>(d->bins);
  atomicAdd(count, 1ull);
  atomicAdd(sum, value);
  atomicAdd(bins + graphsignal_probe__device_bin(value), 1ull);
  atomicMin(reinterpret_cast<unsigned long long*>(&d->min), value);
  atomicMax(reinterpret_cast<unsigned long long*>(&d->max), value);
}

#define GRAPHSIGNAL_RECORD(data, value) graphsignal_device_record((data), (value))

#endif  // __CUDACC__

#endif  // GRAPHSIGNAL_PROBE_CUDA_H
