// The body of a model that writes text: its decoder, its encoder if it has one, and the vocabulary.
#pragma once

#include <memory>
#include <vector>

#include "stack.h"

namespace mvprune {

class Decoder {
 public:
  // rounds: activations in int8.
  static Result<std::unique_ptr<Decoder>> read(const Weights& weights, const DecoderConfig& config, bool rounds);

  // Goes on with texts by `ids`, (texts, tokens), at least one token. `logits`, (texts, words), are those of the token after
  // them. Any number of threads may call at once, each with texts of its own.
  Fault run(const Batch& texts, const std::vector<int64_t>& ids, int32_t threads, float* logits) const;

  // Reads the tokens that a text is written from, at least one, with the encoder; before the text begins.
  Fault read_source(Remembered& text, const std::vector<int64_t>& ids, int32_t threads) const;

  int64_t words() const { return stack_->words()->rows; }
  int64_t longest() const { return stack_->longest(); }

  // Null: there is none.
  const Stack* encoder() const { return encoder_.get(); }

 private:
  Fault read_head(const Weights& weights, const DecoderConfig& config);
  void count_words(const std::vector<float>& states, int32_t threads, float* logits) const;

  std::unique_ptr<Stack> stack_, encoder_;
  StoredTable head_;  // empty if it is that of the words
  std::unique_ptr<FewMatrix> few_head_;
  std::vector<float> head_bias_;
  float scale_ = 1;  // of the states that the head takes
};

}  // namespace mvprune
