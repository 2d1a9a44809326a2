// The distributed-run context of a document: rank, sizes and job ids found in the environment.
#ifndef GRAPHSIGNAL_INJECT_CONTEXT_H
#define GRAPHSIGNAL_INJECT_CONTEXT_H

#include "json.h"

namespace graphsignal {

class Context {
 public:
  // Reads the environment; done once, when the writer starts.
  void capture();
  // Writes `"context":{...},` or nothing when no key has a value.
  void write(Json& out) const;

  static const int kKeys = 10;
  static const int kMaxValue = 256;

 private:
  char values_[kKeys][kMaxValue + 1];
};

}  // namespace graphsignal

#endif
