// The body of a model that writes text: embeddings, blocks with the keys and values of the tokens so far, and the
// vocabulary.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "decoder_config.h"
#include "encoder.h"
#include "few.h"

namespace mvprune {

// The keys and values of a text's tokens: of each block, (groups, capacity, size).
struct Remembered {
  int64_t length = 0, capacity = 0;
  std::vector<std::vector<float>> keys, values;
};

class Decoder {
 public:
  // rounds: activations in int8.
  static Result<std::unique_ptr<Decoder>> read(const Weights& weights, const DecoderConfig& config, bool rounds);

  // Goes on with a text by some tokens, at least one. `logits`, (words,), are those of the token after them. Any number
  // of threads may call at once, each with a text of its own.
  Fault run(Remembered& text, const std::vector<int64_t>& ids, int32_t threads, float* logits) const;

  int64_t words() const { return words_.rows; }
  int64_t longest() const { return config_.longest; }

 private:
  // x Wᵀ + bias, for many tokens and for one.
  struct Weight {
    AffineWeights many;
    std::unique_ptr<FewMatrix> few;  // null: this machine has no products of few tokens

    int64_t rows() const { return many.weight->rows(); }
    Affine affine() const { return {few ? few->matrix() : nullptr, many.bias.empty() ? nullptr : many.bias.data()}; }
  };

  struct Part {
    NormWeights attention_norm, feed_norm, query_norm, key_norm;
    Weight query, key, value, out, gate, up, down;
    int64_t heads = 0, groups = 0;
  };

  // Arrays between the parts of a block, for some tokens.
  struct Work {
    int64_t tokens, first;  // first: the place of the first one in the text
    int32_t threads;
    std::vector<float> x, normal, query, key, value, context, inner, gate, turns;
  };

  explicit Decoder(const DecoderConfig& config) : config_(config) {}
  Fault read_block(const Weights& weights, int64_t number, bool rounds);
  Fault read_head(const Weights& weights);
  Result<Weight> read_weight(const Weights& weights, const std::string& name, int64_t rows, int64_t columns, bool rounds) const;
  Result<NormWeights> read_norm_of(const Weights& weights, const std::string& name, int64_t features) const;
  Normal normal_of(const NormWeights& norm) const;
  Block block_of(const Part& part) const;

  void make_room(Remembered& text, int64_t tokens) const;
  Fault embed(const int64_t* ids, Work& work) const;
  void turn(Work& work) const;
  Fault go_on(Remembered& text, const int64_t* ids, int64_t count, int32_t threads, float* last) const;
  bool step(Remembered& text, const Work& work, float* last) const;
  Fault pass(const Part& part, size_t index, Remembered& text, Work& work) const;
  void attend(const Part& part, size_t index, Remembered& text, Work& work) const;
  Fault feed(const Part& part, Work& work, const std::vector<float>& in) const;
  Fault count_words(const float* hidden, int32_t threads, float* logits) const;

  DecoderConfig config_;
  std::vector<Part> parts_;
  std::vector<Block> blocks_;  // of the kernel, whose step takes them; empty if this machine has none
  StoredTable words_, positions_, head_;  // head_: empty if it is `words_`
  std::unique_ptr<FewMatrix> few_head_;
  std::vector<float> head_bias_;
  NormWeights last_;
};

}  // namespace mvprune
