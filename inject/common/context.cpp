#include "context.h"

#include <string.h>

#include "system.h"

namespace graphsignal {
namespace {

struct Source {
  const char* key;
  const char* variables[4];  // in order of preference
};

// The rank keys prefer Slurm over Open MPI, the size keys the other way round: the established contract.
const Source kSources[Context::kKeys] = {
    {"rank", {"RANK", "NCCL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}},
    {"local_rank", {"LOCAL_RANK", "NCCL_LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}},
    {"world_size", {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", nullptr}},
    {"local_world_size", {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE", nullptr}},
    {"master_addr", {"MASTER_ADDR", nullptr, nullptr, nullptr}},
    {"master_port", {"MASTER_PORT", nullptr, nullptr, nullptr}},
    {"slurm_job_id", {"SLURM_JOB_ID", "SLURM_JOBID", nullptr, nullptr}},
    {"slurm_step_id", {"SLURM_STEP_ID", "SLURM_STEPID", nullptr, nullptr}},
    {"slurm_node_id", {"SLURM_NODEID", nullptr, nullptr, nullptr}},
    {"slurm_node_count", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", nullptr, nullptr}},
};

// Keeps printable ASCII without quote and backslash; returns the length.
size_t sanitize(const char* from, char* to) {
  size_t n = 0;
  for (int i = 0; i < Context::kMaxValue && from[i]; i++) {
    const char c = from[i];
    if (c >= 0x20 && c <= 0x7e && c != '"' && c != '\\') to[n++] = c;
  }
  to[n] = 0;
  return n;
}

}  // namespace

void Context::capture() {
  for (int k = 0; k < kKeys; k++) {
    values_[k][0] = 0;
    for (const char* name : kSources[k].variables) {
      const char* value = name ? environment(name) : nullptr;
      if (value && sanitize(value, values_[k]) != 0) break;
    }
  }
}

void Context::write(Json& out) const {
  bool any = false;
  for (int k = 0; k < kKeys; k++) {
    if (!values_[k][0]) continue;
    out.raw(any ? ",\"" : "\"context\":{\"");
    out.raw(kSources[k].key);
    out.raw("\":");
    out.string(values_[k], strlen(values_[k]));
    any = true;
  }
  if (any) out.raw("},");
}

}  // namespace graphsignal
