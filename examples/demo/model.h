// A tiny transformer-like language model on the CPU: random weights, real matrix products.
#ifndef GRAPHSIGNAL_DEMO_MODEL_H
#define GRAPHSIGNAL_DEMO_MODEL_H

#include <graphsignal/probe.h>

#include <cstdint>
#include <vector>

namespace demo {

class Model {
 public:
  static constexpr int kWidth = 128;
  static constexpr int kHidden = 256;
  static constexpr int kLayers = 4;
  static constexpr int kVocabulary = 1000;

  Model();

  // One decode step for a batch: replaces each token by the one that follows it. The time of each part goes to the
  // frames of the profile probe demo_parts_nanoseconds.
  void step(std::vector<int>& tokens);

 private:
  using Matrix = std::vector<float>;  // row-major
  struct Layer {
    Matrix mix, up, down;
  };

  Matrix embedding_;
  Layer layers_[kLayers];
  Matrix head_;
  Matrix state_, hidden_, out_;
  graphsignal_profile_frame* embed_frame_;
  graphsignal_profile_frame* mix_frame_;
  graphsignal_profile_frame* mlp_frame_;
  graphsignal_profile_frame* sample_frame_;
};

}  // namespace demo

#endif
