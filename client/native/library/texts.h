// Texts of an artifact's model to ids: its tokenizer, its prompts, its longest input.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../text/tokenizer.h"
#include "artifact.h"
#include "config.h"

namespace mvprune {

// The tokens of texts, one text behind the other; one element for each token, but of `lengths`.
struct TokenizedTexts {
  std::vector<int64_t> lengths, ids, types;
  std::vector<int64_t> begins, ends;  // characters of the text
  std::vector<int32_t> texts;         // 0: the first text of a pair, 1: the second, -1: a special token
};

class Texts {
 public:
  // What is wrong with the tokenizer is said when a text comes.
  static Texts of(const Artifact& artifact, const Config& config, int64_t longest);

  // Adds the tokens of a text, or of a pair, cut to the model's longest input.
  Fault add(const char* first, const char* second, const char* prompt_name, TokenizedTexts& found) const;

 private:
  Fault read(const Artifact& artifact, int64_t longest);

  std::optional<Tokenizer> tokenizer_;
  Error error_;  // if there is none
  EncodeOptions options_;
  std::vector<std::pair<std::string, std::string>> prompts_;  // name and text
  std::string default_prompt_;                                // its text
};

}  // namespace mvprune
