// Stable names for CUDA graphs: a hash over what an executable graph consists of, the same in every process.
#ifndef GRAPHSIGNAL_INJECT_CUPTI_GRAPHS_H
#define GRAPHSIGNAL_INJECT_CUPTI_GRAPHS_H

#include "library.h"

namespace graphsignal {
namespace cupti {

// Hash of a signature text. The initial value is the established one of these names, a digit short of FNV-1a's own.
uint64_t hash_signature(const char* text, size_t length);

// Computes the structural signature of a graph: per kind of node its number, per kernel symbol its number, in bytewise
// order of the keys. False when the graph has no nodes, its nodes cannot be read, or kernels cannot be named (before
// CUDA 12.3).
bool graph_signature(const DriverFunctions& driver, void* graph, uint64_t* hash);

// Signatures by the ids that trace records carry. A later id replaces an earlier one at a distance of 65,536.
class GraphNames {
 public:
  bool allocate();
  void remember(uint32_t id, uint64_t hash);
  bool find(uint32_t id, uint64_t* hash) const;

 private:
  static const uint32_t kEntries = 65536;
  struct Entry {
    uint64_t hash;
    uint64_t id_plus_one;  // 0: empty
  };
  Entry* entries_ = nullptr;
};

}  // namespace cupti
}  // namespace graphsignal

#endif
