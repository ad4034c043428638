// The words of a text, and which token begins which of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../text/tokenizer.h"

namespace mvprune::answers {

// A run of letters, digits and underscores, or any other character that is no white space.
struct Word {
  int64_t begin = 0, end = 0;  // characters of the text
  std::string text;
};

std::vector<Word> words_of(std::string_view text);

// The words with a blank between them: what the model reads.
std::string joined(const std::vector<Word>& words);

// Goes through the pieces of one text, in their order.
class FirstTokens {
 public:
  explicit FirstTokens(const std::vector<Word>& words);

  // For each token of a piece the number of the word that begins with it; -1 for others. The first token of a word
  // carries its tag (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 5.3).
  std::vector<int64_t> next(const Encoding& piece);

 private:
  std::vector<int64_t> ends_;  // of words, in characters of what `joined` gives
  int64_t last_ = -1;          // the last word that has begun
};

}  // namespace mvprune::answers
