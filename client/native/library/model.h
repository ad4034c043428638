// An artifact that is open: its body and its head.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artifact.h"
#include "encoder.h"
#include "texts.h"

namespace mvprune {

enum class Activations { kAsStored, kFp32, kInt8 };

// What a call gives.
struct Answer {
  std::vector<float> values;  // (rows, columns): logits, or vectors
  int64_t rows = 0, columns = 0;
  std::vector<float> hidden;  // (tokens, hidden), if it was asked for
  int64_t tokens = 0, features = 0;
};

// Divides a vector by its length.
void scale_to_one(float* values, int64_t count);

class Model {
 public:
  // The source is not read later.
  static Result<std::unique_ptr<Model>> open(const Source& source, Activations activations);

  Result<Answer> run(const Ids& ids, int32_t threads, bool wants_hidden) const;

  const Config& config() const { return config_; }
  const std::vector<std::string>& labels() const { return labels_; }
  const Texts& texts() const { return texts_; }
  double density() const { return density_; }
  bool rounds() const { return rounds_; }

  // Tokens of the longest text; 0: any number.
  int64_t longest() const;

 private:
  Fault read_head(const Weights& weights);
  std::vector<float> pooled(const std::vector<float>& hidden, const Ids& ids) const;

  Config config_{};
  std::unique_ptr<Encoder> encoder_;
  // The head: out(norm(activation(dense(x)))), of which only `out` is always there; none of a model of vectors.
  AffineWeights dense_, out_;
  NormWeights norm_;
  bool has_tanh_ = false;  // in place of the activation
  std::vector<std::string> labels_;
  Texts texts_;
  double density_ = 0;
  bool rounds_ = false;
};

}  // namespace mvprune
