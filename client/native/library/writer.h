// A model that writes text, and the texts that it is writing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../answers/tasks.h"
#include "beams.h"
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

  // Tokens of the longest prompt and its text, or with an encoder of the longest text that it reads.
  int64_t longest() const { return longest_; }
  double density() const { return density_; }
  bool rounds() const { return rounds_; }

  // The tokens of a prompt, as in training. `is_whole`: nothing is added to it. `most`: of a text that is longer, these
  // are for an encoder; 0: all.
  Result<std::vector<int64_t>> read(std::string_view text, bool is_whole, int64_t most = 0) const;

  // How many tokens are in front of the text of a prompt, for a model without an encoder.
  size_t before(bool is_whole) const { return is_whole ? 0 : begin_.size(); }

  // What is said of it, as a JSON object.
  std::string facts() const;

 private:
  Fault read_task(const Artifact& artifact);
  Fault read_settings(const Artifact& artifact);
  Fault read_tokenizer(const Artifact& artifact);

  std::unique_ptr<Decoder> decoder_;
  std::optional<Tokenizer> tokenizer_;
  Error error_;                  // if there is none
  answers::WritingTask task_;
  std::string prefix_;           // before each text that an encoder reads
  std::vector<int64_t> begin_;   // what a prompt begins with: the tokenizer's own tokens, else the one that ends texts
  int64_t end_ = -1;             // the tokenizer's token that ends one; -1: not known
  bool removes_blanks_ = false;
  Generation usual_;
  int64_t hidden_ = 0, longest_ = 0;
  double density_ = 0;
  bool rounds_ = false;
};

// What a model reads before it writes: ids, or a text.
struct Prompt {
  std::vector<int64_t> ids;
  std::string_view text;
  bool has_text = false, is_whole = false;  // is_whole: see Writer::read
};

// A text that is being written, by one thread at a time.
class Writing {
 public:
  struct Piece {
    int64_t token = -1;  // -1: the text had ended before
    std::string text;    // characters that are final now
    Ended ended = Ended::kNot;
  };

  // `settings`: a JSON object, or null.
  static Result<std::unique_ptr<Writing>> begin(const Writer& writer, Prompt prompt, const Json& settings, int32_t threads);

  // Writes a token. With beams, the first call searches the text, or with `by_steps` each call goes on with the search by a
  // token of each beam, and its piece has no token until the search has ended.
  Result<Piece> next(bool by_steps);

  // Ends the text where it is: what is left of it.
  Piece finish();

  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t truncated_tokens() const { return truncated_; }
  int64_t written_tokens() const { return static_cast<int64_t>(tokens_.size()) - given_; }

 private:
  explicit Writing(const Writer& writer) : writer_(&writer) {}
  Fault fit_source(const Prompt& prompt);
  Fault fit(size_t kept, int64_t longest);
  Fault read_source();
  Fault search(bool by_steps);
  Result<int64_t> next_token();
  std::string written(bool is_last);

  const Writer* writer_;  // lives longer
  Generation settings_;
  Remembered remembered_;
  std::unique_ptr<Beams> beams_;  // while they are searched
  std::vector<int64_t> found_;    // by beams, the last first: those that were not given out
  std::vector<int64_t> source_;  // that an encoder has yet to read
  std::vector<int64_t> tokens_;  // of the text, the first `given_` not written
  std::vector<float> logits_;
  Random random_{0};
  size_t said_ = 0;    // bytes of the text that were given out
  int64_t given_ = 0, prompt_tokens_ = 0, truncated_ = 0, most_ = 0;
  int32_t threads_ = 1;
  bool is_stopped_ = false;
  Ended ended_ = Ended::kNot;
};

}  // namespace mvprune
