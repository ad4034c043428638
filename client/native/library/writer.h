// A model that writes text, and the texts that it is writing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "decoder.h"
#include "generation.h"
#include "model.h"

namespace mvprune {

enum class Ended { kNot = 0, kStop = 1, kLength = 2 };

class Writer {
 public:
  // The source is not read later.
  static Result<std::unique_ptr<Writer>> open(const Artifact& artifact, const Json& config, Activations activations);

  const Decoder& decoder() const { return *decoder_; }
  const Generation& usual() const { return usual_; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const Error& why_no_tokenizer() const { return error_; }
  bool removes_blanks() const { return removes_blanks_; }
  int64_t hidden() const { return hidden_; }
  double density() const { return density_; }
  bool rounds() const { return rounds_; }

  // The tokens of a text.
  Result<std::vector<int64_t>> read(std::string_view text) const;

  // Those that a text begins with, as in training: the tokenizer's own ones, else the one that ends texts.
  const std::vector<int64_t>& begin() const { return begin_; }

  // What is said of it, as a JSON object.
  std::string facts() const;

 private:
  Fault read_tokenizer(const Artifact& artifact);

  std::unique_ptr<Decoder> decoder_;
  std::optional<Tokenizer> tokenizer_;
  Error error_;                  // if there is none
  std::vector<int64_t> begin_;
  int64_t end_ = -1;             // the tokenizer's token that ends one; -1: not known
  bool removes_blanks_ = false;
  Generation usual_;
  int64_t hidden_ = 0;
  double density_ = 0;
  bool rounds_ = false;
};

// A text that is being written, by one thread at a time.
class Writing {
 public:
  struct Piece {
    int64_t token = -1;  // -1: the text had ended before
    std::string text;    // characters that are final now
    Ended ended = Ended::kNot;
  };

  // `kept`: tokens at the start of the prompt that stay when it is cut. `settings`: a JSON object, or null.
  static Result<std::unique_ptr<Writing>> begin(const Writer& writer, std::vector<int64_t> ids, size_t kept, const Json& settings, int32_t threads);

  // Writes a token.
  Result<Piece> next();

  // Ends the text where it is: what is left of it.
  Piece finish();

  int64_t prompt_tokens() const { return prompt_; }
  int64_t truncated_tokens() const { return truncated_; }

 private:
  explicit Writing(const Writer& writer) : writer_(&writer) {}
  Fault fit(size_t kept);
  std::string written(bool is_last);

  const Writer* writer_;  // lives longer
  Generation settings_;
  Remembered remembered_;
  std::vector<int64_t> tokens_;
  std::vector<float> logits_;
  Random random_{0};
  size_t read_ = 0;    // tokens that have gone through the model
  size_t given_ = 0;   // bytes of the text that were given out
  int64_t prompt_ = 0, truncated_ = 0, most_ = 0;
  int32_t threads_ = 1;
  bool is_stopped_ = false;
  Ended ended_ = Ended::kNot;
};

}  // namespace mvprune
