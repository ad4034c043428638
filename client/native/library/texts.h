// Texts of an artifact's model to ids: its tokenizer, its prompts, its longest input.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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
  // What is wrong with the tokenizer is said by `fault`, and when a text comes.
  static Texts of(const Artifact& artifact, const Config& config, int64_t longest);

  // Why there is no tokenizer; none, if there is one.
  Fault fault() const { return tokenizer_ ? Fault() : Fault(error_); }

  // Adds the tokens of a text, or of a pair, cut to the model's longest input.
  Fault add(const char* first, const char* second, const char* prompt_name, TokenizedTexts& found) const;

  // As many tokens as fit into `max_length`; 0: all. At least one.
  Result<Encoding> cut(std::string_view first, std::optional<std::string_view> second, Truncate truncate,
                       int64_t max_length) const;

  // All of a text, in as many windows as its length needs: of the second text, if there is one, with the first before
  // each part.
  Result<std::vector<Encoding>> windows(std::string_view first, std::optional<std::string_view> second,
                                        int64_t max_length, int64_t stride) const;

  // The start of a text that has at most so many tokens.
  Result<std::string> shortened(std::string_view text, int64_t tokens) const;

  // Tokens of the longest input, special ones with them; 0: any number.
  int64_t longest() const { return longest_; }

  // The text of a prompt; null: there is none of that name. "" is the default one.
  const std::string* prompt(std::string_view name) const;

 private:
  Fault read(const Artifact& artifact, int64_t longest);
  Result<std::vector<Encoding>> encode(std::string_view first, std::optional<std::string_view> second,
                                       const EncodeOptions& options) const;

  std::optional<Tokenizer> tokenizer_;
  Error error_;  // if there is none
  Truncate truncate_ = Truncate::kLongest;  // of pairs
  bool has_types_ = false;
  int64_t longest_ = 0;
  std::vector<std::pair<std::string, std::string>> prompts_;  // name and text
  std::string default_prompt_;                                // its text
};

// The bytes before a character of a text.
size_t byte_of(std::string_view text, int64_t character);

}  // namespace mvprune
