// Pages that the libraries keep for ever, as memory of one input.
#ifndef GRAPHSIGNAL_INJECT_FUZZ_MEMORY_H
#define GRAPHSIGNAL_INJECT_FUZZ_MEMORY_H

namespace fuzz {

// While one exists, pages are such that an access behind them is seen; with it they go. What outlives an input, such as a
// Json, must have its pages before.
class Memory {
 public:
  Memory();
  ~Memory();
};

}  // namespace fuzz

#endif
