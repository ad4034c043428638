// A stack of blocks: of a decoder, with the keys and values of the tokens so far, or of an encoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "decoder_config.h"
#include "encoder.h"
#include "few.h"

namespace mvprune {

// The keys and values of a source's tokens: of each block, (groups, tokens, size).
struct RememberedSource {
  int64_t tokens = 0;
  std::vector<std::vector<float>> keys, values;
};

// Those of a text's tokens: of each block, (groups, capacity, size).
struct Remembered {
  int64_t length = 0, capacity = 0;
  std::vector<std::vector<float>> keys, values;
  std::shared_ptr<const RememberedSource> source;  // that cross-attention attends to
};

// Texts that go on together, copies of one: all have the same number of tokens, and the same capacity.
using Batch = std::vector<Remembered*>;

class Stack {
 public:
  // rounds: activations in int8. `words`: the table, if another stack has it; else it is read.
  static Result<std::unique_ptr<Stack>> read(const Weights& weights, const StackConfig& config, bool rounds, std::shared_ptr<const StoredTable> words);

  // Goes on with texts by `ids`, (texts, tokens), at least one token. `last`, (texts, hidden), are the states of the last
  // ones. Any number of threads may call at once, each with texts of its own.
  Fault run(const Batch& texts, const std::vector<int64_t>& ids, int32_t threads, float* last) const;

  // The states of all tokens, (tokens, hidden), of a stack that is not causal.
  Fault read_whole(const std::vector<int64_t>& ids, int32_t threads, std::vector<float>& states) const;

  // Keys and values of a source, which has these states, (tokens, hidden), for the cross-attention of a text.
  Fault remember_source(const std::vector<float>& states, int32_t threads, Remembered& text) const;

  const std::shared_ptr<const StoredTable>& words() const { return words_; }
  int64_t hidden() const { return config_.hidden; }
  int64_t longest() const { return config_.longest; }

 private:
  // x Wᵀ + bias, for many tokens and for one.
  struct Weight {
    AffineWeights many;
    std::unique_ptr<FewMatrix> few;  // null: this machine has no products of few tokens, or the stack is not causal

    int64_t rows() const { return many.weight->rows(); }
    Affine affine() const { return {few ? few->matrix() : nullptr, many.bias.empty() ? nullptr : many.bias.data()}; }
  };

  struct Part {
    NormWeights attention_norm, cross_norm, feed_norm, query_norm, key_norm;
    Weight query, key, value, out, gate, up, down;
    Weight cross_query, cross_key, cross_value, cross_out;
    int64_t heads = 0, groups = 0;
  };

  // Arrays between the parts of a block, for some tokens of each text.
  struct Work {
    Work(const Batch& texts, int64_t each, int32_t threads)
        : texts(texts), each(each), tokens(static_cast<int64_t>(texts.size()) * each), first(texts.front()->length), threads(threads) {}

    Remembered& text(int64_t token) const { return *texts[static_cast<size_t>(token / each)]; }
    int64_t place(int64_t token) const { return first + token % each; }  // in its text

    const Batch& texts;
    int64_t each, tokens, first;  // tokens: of all texts; first: the place of a text's first one
    int32_t threads;
    std::vector<float> x, normal, query, key, value, context, inner, gate, turns, bias;
  };

  explicit Stack(const StackConfig& config) : config_(config) {}
  Fault read_block(const Weights& weights, int64_t number, bool rounds);
  Fault read_tables(const Weights& weights);
  Result<Weight> read_weight(const Weights& weights, const std::string& name, int64_t rows, int64_t columns, bool rounds, bool is_for_few) const;
  Result<NormWeights> read_norm_of(const Weights& weights, const std::string& name, int64_t features) const;
  Normal normal_of(const NormWeights& norm) const;
  Block block_of(const Part& part) const;

  Fault check_length(int64_t tokens) const;
  void make_room(Remembered& text, int64_t tokens) const;
  Fault embed(const int64_t* ids, Work& work) const;
  void turn(Work& work) const;
  void set_bias(Work& work) const;
  Fault enter(const int64_t* ids, Work& work) const;
  Fault go_on(const Batch& texts, const std::vector<int64_t>& ids, int32_t threads, float* last) const;
  bool step(const Work& work, float* last) const;
  Fault pass(const Part& part, size_t index, Work& work) const;
  float* packed(const Part& part, Work& work, int64_t which, int64_t token, int64_t head) const;
  void place(const NormWeights& norm, const Work& work, int64_t token, float* head) const;
  void remember(const Part& part, size_t slot, Work& work) const;
  void attend(const Part& part, size_t slot, Work& work) const;
  void attend_source(const Part& part, size_t index, Work& work) const;
  Fault feed(const Part& part, Work& work, const std::vector<float>& in) const;
  void leave(const float* x, int64_t tokens, float* y) const;

  StackConfig config_;
  std::vector<Part> parts_;
  std::vector<Block> blocks_;  // of the kernel, whose step takes them; empty if this machine has none
  std::shared_ptr<const StoredTable> words_;
  StoredTable positions_;
  std::vector<float> distances_;  // (buckets, heads), of a stack with buckets
  NormWeights embedding_norm_, last_;
};

}  // namespace mvprune
