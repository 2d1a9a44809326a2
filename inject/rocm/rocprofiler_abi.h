// The part of rocprofiler-sdk's binary interface that is used, in our own declarations. Offsets and numbers are those of
// the public headers of 0.4 (ROCm 6.2) to 1.x (ROCm 7); two layouts exist, told apart by the version that the SDK passes
// to rocprofiler_configure.
#ifndef GRAPHSIGNAL_INJECT_ROCM_ROCPROFILER_ABI_H
#define GRAPHSIGNAL_INJECT_ROCM_ROCPROFILER_ABI_H

#include <stddef.h>
#include <stdint.h>

namespace graphsignal {
namespace rocm {

const int kSuccess = 0;
const int kBufferBusy = 14;

// All handles of the SDK are structs of one u64, which the calling convention passes as a u64.
typedef uint64_t Handle;

// Versions are 10000 * major + 100 * minor + patch.
const uint32_t kOldestVersion = 400;
const uint32_t kNewLayoutVersion = 10000;
const uint32_t kUnknownVersion = 20000;

// What rocprofiler_configure hands back.
struct ConfigureResult {
  size_t size;
  int (*initialize)(void (*finalize_client)(uint32_t), void* tool_data);
  void (*finalize)(void* tool_data);
  void* tool_data;
};
static_assert(sizeof(ConfigureResult) == 32, "rocprofiler_tool_configure_result_t");

// Place of the name in a client id: first in the old layout, after a size word in the new one.
const size_t kOldClientName = 0;
const size_t kNewClientName = 8;

const int kPolicyLossless = 2;

enum BufferKind : uint32_t { kHipRuntimeApi = 5, kMemoryCopy = 10, kKernelDispatch = 11 };
const uint32_t kCallbackCodeObject = 10;
const uint32_t kCategoryTracing = 1;

struct RecordHeader {
  uint32_t category;
  uint32_t kind;
  const uint8_t* payload;
};
static_assert(sizeof(RecordHeader) == 16, "rocprofiler_record_header_t");

// Every record begins with its size in bytes (u64).
const uint64_t kLargestRecord = 4096;

// Kernel dispatch and memory copy, both layouts.
const size_t kOperation = 12;
const size_t kThread = 32;
const size_t kStart = 40;
const size_t kEnd = 48;
const size_t kKernelId = 80;
const size_t kKernelPrefix = 88;
const size_t kCopyPrefix = 56;
const size_t kCopyBytes = 72;
const size_t kCopyWithBytes = 80;

// Calls of the HIP runtime: the new layout has an ancestor's correlation id before the times.
struct ApiLayout {
  size_t start, end;
  uint64_t prefix;
};
const ApiLayout kOldApi = {32, 40, 48};
const ApiLayout kNewApi = {40, 48, 56};

enum CopyOperation : uint32_t { kHostToHost = 1, kHostToDevice = 2, kDeviceToHost = 3, kDeviceToDevice = 4 };

// The record of a callback service, which is passed by value: its true size matters.
struct OldCallbackRecord {
  uint64_t context, thread, correlation[2];
  uint32_t kind, operation, phase, unused;
  const uint8_t* payload;
};
struct NewCallbackRecord {
  uint64_t context, thread, correlation[3];
  uint32_t kind, operation, phase, unused;
  const uint8_t* payload;
};
static_assert(sizeof(OldCallbackRecord) == 56 && offsetof(OldCallbackRecord, payload) == 48, "callback record before 1.0");
static_assert(sizeof(NewCallbackRecord) == 64 && offsetof(NewCallbackRecord, payload) == 56, "callback record from 1.0");

const uint32_t kKernelSymbolRegister = 2;
const uint32_t kPhaseLoad = 1;
const size_t kSymbolKernelId = 8;
const size_t kSymbolName = 24;
const uint64_t kSymbolPrefix = 32;

typedef void (*BufferCallback)(Handle context, Handle buffer, const RecordHeader* const* headers, size_t count, void* data,
                               uint64_t drop_count);
typedef void (*OldCodeObjectCallback)(OldCallbackRecord record, void* user, void* data);
typedef void (*NewCodeObjectCallback)(NewCallbackRecord record, void* user, void* data);

}  // namespace rocm
}  // namespace graphsignal

#endif
