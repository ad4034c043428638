// The added tokens of tokenizer.json: they are found in a text before it is cut, special ones among them.
#pragma once

#include <string>
#include <vector>

#include "../base/json.h"
#include "pieces.h"

namespace mvprune {

struct AddedToken {
  std::string text;
  Chars content;  // as it is looked for
  int32_t id;
  bool single_word, left, right, normalized, special;
};

class AddedTokens {
 public:
  // Of the value of "added_tokens"; those to be found in normalized text are normalized by the function.
  static Result<AddedTokens> read(const Json& json, const std::function<void(Chars&)>& normalize);

  // Cuts out the tokens that are to be found in text that is normalized, or not normalized.
  void cut(Pieces& pieces, bool normalized) const;

  const std::vector<AddedToken>& all() const { return all_; }

 private:
  const AddedToken* at(const Chars& text, size_t place, bool normalized) const;

  std::vector<AddedToken> all_;  // the longest first
};

}  // namespace mvprune
