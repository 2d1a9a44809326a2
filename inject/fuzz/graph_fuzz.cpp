// Signatures of graphs: the hash over the sorted keys as they are documented, whatever the order of the nodes and whatever the
// driver says of some.
#include <algorithm>
#include <map>
#include <vector>

#include "../cupti/graphs.h"
#include "input.h"
#include "memory.h"

using namespace graphsignal;
using namespace graphsignal::cupti;
using fuzz::require;

namespace {

struct Node {
  int type;
  bool unreadable;
  std::string symbol;
  int named;  // by the function, by the kernel, not at all
};
std::vector<Node*> graph;
bool listed = true;

DriverFunctions driver() {
  DriverFunctions d = {};
  d.graph_nodes = [](void*, void** nodes, size_t* count) {
    for (size_t i = 0; i < *count && i < graph.size(); i++) nodes[i] = graph[i];
    *count = graph.size();  // all that there are
    return listed ? 0 : 1;
  };
  d.node_type = [](void* node, int* type) {
    *type = static_cast<Node*>(node)->type;
    return static_cast<Node*>(node)->unreadable ? 1 : 0;
  };
  d.kernel_node_params = [](void* node, KernelNodeParams* p) {
    Node* n = static_cast<Node*>(node);
    if (n->named == 0) p->function = n;
    if (n->named == 1) p->kernel = n;
    return n->named == 2 ? 1 : 0;
  };
  d.function_name = [](const char** name, void* function) {
    *name = static_cast<Node*>(function)->symbol.c_str();
    return 0;
  };
  d.kernel_name = d.function_name;
  return d;
}

const char* word(int type) {
  static const char* const kWords[] = {"kernel", "memcpy", "memset", "host", "child", "empty", "wait", "event",
                                       "semsignal", "semwait", "memalloc", "memfree"};
  return type >= 0 && type < 12 ? kWords[type] : "other";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input in(data, size);
  fuzz::Memory pages;
  std::vector<Node> nodes;
  listed = in.take<uint8_t>() != 0xff;
  const uint32_t more = in.take<uint8_t>() == 0xff ? 8200 : 0;  // more than are looked at
  while (!in.empty() && nodes.size() < 64) {
    const uint8_t kind = in.take<uint8_t>();
    nodes.push_back({kind & 0x80 ? in.take<int>() : kind & 15, (kind & 0x70) == 0x70, in.text(12), kind >> 4 & 3});
    if (nodes.back().named == 3) nodes.back().named = 0;
  }
  graph.clear();
  for (Node& n : nodes) graph.push_back(&n);
  while (!nodes.empty() && graph.size() < more) graph.push_back(&nodes[graph.size() % nodes.size()]);

  std::map<std::string, uint32_t> keys;
  for (size_t i = 0; i < graph.size() && i < 8192; i++) {
    const Node& n = *graph[i];
    if (n.unreadable || !listed) continue;
    const std::string symbol = n.named == 2 ? "" : n.symbol;
    keys[n.type == kNodeKernel ? "kernel[name=" + symbol + ",calls=" : std::string(word(n.type)) + "[calls="]++;
  }
  std::string text;
  for (const auto& k : keys) text += k.first + std::to_string(k.second) + "];";

  const DriverFunctions d = driver();
  uint64_t hash = 0, shuffled = 0;
  const bool named = graph_signature(d, &graph, &hash);
  require(named == !keys.empty(), "a graph without nodes has a name, or one with nodes has none", text);
  if (named) require(hash == hash_signature(text.data(), text.size()), "another hash", text);
  if (more) return 0;
  std::reverse(graph.begin(), graph.end());
  const bool again = graph_signature(d, &graph, &shuffled);
  require(again == named && (!named || shuffled == hash), "the order of the nodes counts", text);
  return 0;
}
