// How a model writes: the settings of generation_config.json and of a caller, and the choice of the next token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../base/json.h"
#include "../base/result.h"

namespace mvprune {

// When a search of beams ends: when it has as many texts as beams, when what is running is not better than these, or when it
// cannot become better.
enum class Stopping { kFull, kUsual, kNever };

// Settings with the names and meanings of transformers.
struct Generation {
  std::optional<int64_t> max_new_tokens, max_length;
  int64_t most_new_tokens = 1 << 24;  // where max_new_tokens is not the caller's
  int64_t min_length = 0, min_new_tokens = 0;
  bool do_sample = false;
  int64_t num_beams = 1;
  double length_penalty = 1;
  Stopping stopping = Stopping::kUsual;
  double temperature = 1, top_p = 1, repetition_penalty = 1;
  int64_t top_k = 50, no_repeat_ngram_size = 0;
  std::vector<int64_t> ends;  // tokens that end a text
  std::optional<int64_t> begin, start;  // those that begin one; start: of a decoder that has an encoder
  std::vector<int64_t> first;           // of which the second token of all is one, if it is not empty
  std::vector<int64_t> last;            // of which the last token is one, if the text is as long as it may be
  std::vector<std::vector<int64_t>> bad_words;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;  // texts before which the answer ends
  bool truncate = false;          // whether a prompt that is too long is cut

  // Changes those that a JSON object has. `file`: it is that of a model, whose other settings are refused unless they
  // change nothing here; else those of a caller.
  Fault read(const Json& json, bool file);

  // Settings that exclude each other. `code`: of the error.
  Fault check(Code code) const;
};

// Numbers of a seed: SplitMix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  double next();  // from 0 on, below 1

 private:
  uint64_t state_;
};

// The logits of all words after a text, or their logarithms of probabilities.
class Logits {
 public:
  Logits(float* first, int64_t words) : first_(first), words_(static_cast<size_t>(words)) {}

  float* begin() const { return first_; }
  float* end() const { return first_ + words_; }
  size_t size() const { return words_; }
  float& operator[](size_t word) const { return first_[word]; }

 private:
  float* first_;
  size_t words_;
};

// Changes logits by the settings. `prompt`: how many of the tokens are given; `most`: how many there may be in all.
void weigh(const Generation& settings, const std::vector<int64_t>& tokens, int64_t prompt, int64_t most, Logits logits);

// The next token of a text by the logits, which are weighed.
int64_t choose_token(const Generation& settings, const std::vector<int64_t>& tokens, int64_t prompt, int64_t most, Logits logits, Random& random);

}  // namespace mvprune
