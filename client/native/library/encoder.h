// The body of a model, its embeddings and layers, as one call of the kernel.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "config.h"
#include "layouts.h"

namespace mvprune {

// x Wᵀ + bias.
struct AffineWeights {
  std::unique_ptr<LaidOut> weight;
  std::vector<float> bias;  // empty: none

  Product product(Activation activation = Activation::none, float* y = nullptr) const {
    return {weight ? weight->matrix() : nullptr, bias.empty() ? nullptr : bias.data(), nullptr, y, activation};
  }
};

// A layer normalization.
struct NormWeights {
  std::vector<float> weight, bias;  // an empty weight: none; an empty bias: none
  float epsilon = 0;

  Norm norm() const { return {weight.empty() ? nullptr : weight.data(), bias.empty() ? nullptr : bias.data(), epsilon}; }

  // In place; (rows, features) values.
  void apply(float* values, int64_t rows) const;
};

// Reads a matrix of that shape with its bias, if there is one. `rounds`: for activations in int8.
Result<AffineWeights> read_affine(const Weights& weights, const std::string& name, int64_t rows, int64_t columns, bool rounds);

// A normalization of so many features.
Result<NormWeights> read_norm(const Weights& weights, const std::string& name, int64_t features, float epsilon);

// The error of a call of the kernel.
Error call_error(int status);

// What the layers know of the places of tokens, for examples of up to `span` - 32 tokens, and the layers that refer to it.
struct Placed {
  int64_t span = 0;
  std::vector<std::vector<float>> held;
  std::vector<Places> places;  // of each layer
  std::vector<Layer> layers;
};

// Texts as ids, one behind the other.
struct Ids {
  const int64_t* ids = nullptr;
  const int64_t* types = nullptr;  // null: all 0
  const uint8_t* kept = nullptr;   // those that others may attend to; null: all
  const int64_t* lengths = nullptr;
  int64_t examples = 0, tokens = 0;
};

class Encoder {
 public:
  static Result<std::unique_ptr<Encoder>> read(const Weights& weights, const Config& config, bool rounds);

  // The hidden states (tokens, hidden), written to y. Any number of threads may call at once.
  Fault run(const Ids& ids, int32_t threads, float* y) const;

  // Tokens of the longest example; 0: any number.
  int64_t longest() const { return longest_; }

 private:
  enum class Given { kWords, kTypes, kPositions };

  struct Block {
    AffineWeights query, key, value, out, up, down;
    NormWeights attention_norm, output_norm;
    AffineWeights key_places, query_places;  // of DeBERTa, where a layer has its own
    int64_t heads = 0;
  };

  explicit Encoder(const Config& config) : config_(config) {}
  Fault read_tables(const Weights& weights);
  Fault read_places(const Weights& weights);
  Fault read_block(const Weights& weights, int64_t number, bool rounds);
  Layer layer_of(const Block& block) const;
  Result<std::shared_ptr<const Placed>> placed(int64_t length, int32_t threads) const;
  Fault make_places(Placed& made, int32_t threads) const;
  void make_relative(Placed& made) const;
  void make_turned(Placed& made) const;
  Fault make_disentangled(Placed& made, int32_t threads) const;
  std::vector<int64_t> positions_of(const Ids& ids) const;

  Config config_;
  std::vector<Block> blocks_;
  std::vector<StoredTable> tables_;
  std::vector<Given> given_;  // what each table looks up
  NormWeights norm_, last_;
  StoredTable places_;        // of MPNet the biases, of DeBERTa the embeddings of distances
  NormWeights places_norm_;
  int64_t longest_ = 0;

  // The newest tables of places; the lock is held only to copy the pointer.
  mutable std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  mutable std::shared_ptr<const Placed> placed_;
};

}  // namespace mvprune
