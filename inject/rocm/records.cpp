#include "records.h"

#include <string.h>

namespace graphsignal {
namespace rocm {

const char* const kSyncNames[kSyncCalls] = {"hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize",
                                            "hipStreamWaitEvent", "hipEventRecord"};

namespace {

const uint32_t kKernelFrames = 16384;
const uint64_t kSlackNs = 1000000000;

const char* const kCopyNames[] = {"other", "host_to_host", "host_to_device", "device_to_host", "device_to_device"};

template <typename T>
T load(const uint8_t* record, size_t offset) {
  T value;
  memcpy(&value, record + offset, sizeof(value));
  return value;
}

Profile* make_profile(Instruments& in, const char* name, uint32_t frames) {
  Instrument* i = in.get(name, GRAPHSIGNAL_PROFILE, nullptr, 0, frames);
  return i ? i->profile() : nullptr;
}

}  // namespace

bool Records::start(Instruments& in, Log& log, const HipMemory& memory, const Options& options) {
  instruments_ = &in;
  log_ = &log;
  memory_ = &memory;
  api_ = options.new_layout ? kNewApi : kOldApi;
  began_ns_ = monotonic_ns();
  kernels_ = make_profile(in, "rocm_kernels_nanoseconds", kKernelFrames);
  copies_ = make_profile(in, "rocm_memcpy_nanoseconds", 16);
  if (options.synchronization) syncs_ = make_profile(in, "rocm_sync_nanoseconds", 16);
  Instrument* mode = in.get("rocm_kernel_trace_mode", GRAPHSIGNAL_GAUGE);
  Instrument* unlisted = in.get("rocm_kernels_unlisted_nanoseconds", GRAPHSIGNAL_GAUGE);
  dropped_ = in.get("rocm_dropped_records_total", GRAPHSIGNAL_COUNTER);
  invalid_ = in.get("rocm_invalid_records", GRAPHSIGNAL_COUNTER);
  if (!kernels_ || !copies_ || (options.synchronization && !syncs_) || !mode || !unlisted || !dropped_ || !invalid_ ||
      !names_.allocate(kernels_)) {
    return false;
  }
  mode->set(options.kernels ? 1 : 0);
  in.get("rocm_kernels_nanoseconds", GRAPHSIGNAL_PROFILE)->show_unlisted(unlisted);
  for (uint32_t i = 0; i < kCopyKinds; i++) copy_frames_[i] = copies_->intern(kCopyNames[i], strlen(kCopyNames[i]));
  for (uint32_t i = 0; i < kSyncCalls; i++) {
    operations_[i] = -1;
    sync_frames_[i] = syncs_ ? syncs_->intern(kSyncNames[i], strlen(kSyncNames[i])) : Profile::kNoFrame;
  }
  return true;
}

void Records::name_kernel(uint64_t id, const char* name) {
  if (names_.remember(id, name) || __atomic_exchange_n(&names_lost_, true, __ATOMIC_RELAXED)) return;
  log_->add(Level::kWarning, "a kernel has no name, or too many have been loaded: some are shown as kernel_<number>");
}

bool Records::duration(const uint8_t* record, size_t start_offset, size_t end_offset, uint64_t* ns) {
  const uint64_t start = load<uint64_t>(record, start_offset), end = load<uint64_t>(record, end_offset);
  *ns = end - start;
  if (end > start && *ns <= longest_ns_) return true;
  invalid_->add(1);
  return false;
}

void Records::add_dispatch(const uint8_t* r, uint64_t size) {
  uint64_t ns;
  if (size < kKernelPrefix) {
    invalid_->add(1);
  } else if (!memory_->is_ours(load<uint64_t>(r, kThread)) && duration(r, kStart, kEnd, &ns)) {
    kernels_->add(names_.frame(load<uint64_t>(r, kKernelId)), ns);
  }
}

void Records::add_copy(const uint8_t* r, uint64_t size) {
  uint64_t ns;
  if (size < kCopyPrefix) {
    invalid_->add(1);
    return;
  }
  if (memory_->is_ours(load<uint64_t>(r, kThread)) || !duration(r, kStart, kEnd, &ns)) return;
  const uint32_t operation = load<uint32_t>(r, kOperation);
  const uint32_t kind = operation < kCopyKinds ? operation : 0;
  copies_->add(copy_frames_[kind], ns);
  if (!copy_bytes_[kind]) {
    const Tag tag = {"kind", kCopyNames[kind]};
    copy_bytes_[kind] = instruments_->get("rocm_memcpy_bytes", GRAPHSIGNAL_COUNTER, &tag, 1);
  }
  if (copy_bytes_[kind] && size >= kCopyWithBytes) copy_bytes_[kind]->add(load<uint64_t>(r, kCopyBytes));
}

void Records::add_call(const uint8_t* r, uint64_t size) {
  uint64_t ns;
  if (!syncs_) return;
  if (size < api_.prefix) {
    invalid_->add(1);
    return;
  }
  const int64_t operation = static_cast<int64_t>(load<uint32_t>(r, kOperation));
  for (uint32_t i = 0; i < kSyncCalls; i++) {
    if (operations_[i] != operation) continue;
    if (duration(r, api_.start, api_.end, &ns)) syncs_->add(sync_frames_[i], ns);
    return;
  }
}

void Records::process(const RecordHeader* const* headers, size_t count, uint64_t dropped) {
  Guard hold(lock_);
  longest_ns_ = monotonic_ns() - began_ns_ + kSlackNs;
  for (size_t i = 0; headers && i < count; i++) {
    const RecordHeader* h = headers[i];
    if (!h || h->category != kCategoryTracing || !h->payload) continue;
    if (h->kind != kKernelDispatch && h->kind != kMemoryCopy && h->kind != kHipRuntimeApi) continue;
    const uint64_t size = load<uint64_t>(h->payload, 0);
    if (size > kLargestRecord) {
      invalid_->add(1);
      continue;
    }
    switch (h->kind) {
      case kKernelDispatch: add_dispatch(h->payload, size); break;
      case kMemoryCopy: add_copy(h->payload, size); break;
      default: add_call(h->payload, size); break;
    }
  }
  if (dropped == dropped_before_) return;
  if (dropped_before_ == 0) {
    log_->add(Level::kWarning, "rocprofiler-sdk dropped %llu records; rocm_dropped_records_total counts on",
              static_cast<unsigned long long>(dropped));
  }
  // Less than before: the SDK has begun to count anew.
  dropped_->add(dropped > dropped_before_ ? dropped - dropped_before_ : dropped);
  dropped_before_ = dropped;
}

}  // namespace rocm
}  // namespace graphsignal
