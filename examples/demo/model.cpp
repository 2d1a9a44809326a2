#include "model.h"

#include <cmath>

namespace demo {
namespace {

// Uniform in [-scale, scale), the same in every run.
void fill(std::vector<float>& m, size_t size, float scale, uint32_t seed) {
  m.resize(size);
  for (float& x : m) {
    seed = seed * 1664525u + 1013904223u;
    x = (static_cast<float>(seed >> 8) / 8388608.0f - 1.0f) * scale;
  }
}

// out[b][r] = sum over c of weights[r][c] * in[b][c]
void multiply(const std::vector<float>& weights, int rows, int columns, const std::vector<float>& in, int batch,
              std::vector<float>& out) {
  out.resize(static_cast<size_t>(batch) * rows);
  for (int r = 0; r < rows; r++) {
    const float* w = &weights[static_cast<size_t>(r) * columns];
    for (int b = 0; b < batch; b++) {
      const float* x = &in[static_cast<size_t>(b) * columns];
      float sum = 0;
      for (int c = 0; c < columns; c++) sum += w[c] * x[c];
      out[static_cast<size_t>(b) * rows + r] = sum;
    }
  }
}

void normalize(std::vector<float>& x, int batch, int width) {
  for (int b = 0; b < batch; b++) {
    float* row = &x[static_cast<size_t>(b) * width];
    float square = 0;
    for (int i = 0; i < width; i++) square += row[i] * row[i];
    const float scale = 1.0f / std::sqrt(square / static_cast<float>(width) + 1e-5f);
    for (int i = 0; i < width; i++) row[i] *= scale;
  }
}

// Adds the time since the last lap to a frame.
class Laps {
 public:
  void end(graphsignal_profile_frame* frame) {
    const uint64_t now = graphsignal_now_ns();
    if (now > last_) graphsignal_profile_add(frame, now - last_);
    last_ = now;
  }

 private:
  uint64_t last_ = graphsignal_now_ns();
};

}  // namespace

Model::Model() {
  fill(embedding_, static_cast<size_t>(kVocabulary) * kWidth, 1.0f, 1);
  uint32_t seed = 2;
  for (Layer& l : layers_) {
    fill(l.mix, static_cast<size_t>(kWidth) * kWidth, 0.15f, seed++);
    fill(l.up, static_cast<size_t>(kHidden) * kWidth, 0.15f, seed++);
    fill(l.down, static_cast<size_t>(kWidth) * kHidden, 0.1f, seed++);
  }
  fill(head_, static_cast<size_t>(kVocabulary) * kWidth, 0.2f, seed);

  graphsignal_probe_entry* parts =
      graphsignal_probe_register("demo_parts_nanoseconds", GRAPHSIGNAL_PROFILE, nullptr, nullptr, 0);
  embed_frame_ = graphsignal_profile_frame_get(parts, "embed");
  mix_frame_ = graphsignal_profile_frame_get(parts, "mix");
  mlp_frame_ = graphsignal_profile_frame_get(parts, "mlp");
  sample_frame_ = graphsignal_profile_frame_get(parts, "sample");
}

void Model::step(std::vector<int>& tokens) {
  const int batch = static_cast<int>(tokens.size());
  Laps laps;
  state_.resize(static_cast<size_t>(batch) * kWidth);
  for (int b = 0; b < batch; b++) {
    for (int i = 0; i < kWidth; i++) {
      state_[static_cast<size_t>(b) * kWidth + i] = embedding_[static_cast<size_t>(tokens[b]) * kWidth + i];
    }
  }
  laps.end(embed_frame_);
  for (const Layer& l : layers_) {
    normalize(state_, batch, kWidth);
    multiply(l.mix, kWidth, kWidth, state_, batch, out_);
    for (size_t i = 0; i < state_.size(); i++) state_[i] += out_[i];
    laps.end(mix_frame_);
    normalize(state_, batch, kWidth);
    multiply(l.up, kHidden, kWidth, state_, batch, hidden_);
    for (float& x : hidden_) x = x / (1.0f + std::exp(-x));
    multiply(l.down, kWidth, kHidden, hidden_, batch, out_);
    for (size_t i = 0; i < state_.size(); i++) state_[i] += out_[i];
    laps.end(mlp_frame_);
  }
  multiply(head_, kVocabulary, kWidth, state_, batch, out_);
  for (int b = 0; b < batch; b++) {
    const float* scores = &out_[static_cast<size_t>(b) * kVocabulary];
    int best = 0;
    for (int v = 1; v < kVocabulary; v++) {
      if (scores[v] > scores[best]) best = v;
    }
    tokens[b] = best;
  }
  laps.end(sample_frame_);
}

}  // namespace demo
