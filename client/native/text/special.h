// The post-processors of tokenizer.json: the special tokens around a text or two, types, and offsets without blanks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "../base/json.h"
#include "tokenizer.h"

namespace mvprune {

// A text's token before special ones are added.
struct TextToken {
  int32_t id;
  int64_t begin, end;           // characters of the source
  int32_t leading, trailing;    // its blanks at either end
};

using TextTokens = std::vector<TextToken>;

class SpecialTokens {
 public:
  // Of the value of "post_processor", which may be null.
  static Result<SpecialTokens> read(const Json& json);

  // Special tokens that one text, or two, are given.
  int64_t count(bool two) const;

  // The special tokens in front of one text.
  std::vector<int32_t> before() const;

  // Puts together what a model takes.
  Encoding assemble(TextTokens first, std::optional<TextTokens> second, bool special) const;

 private:
  // A special token, or the place of a text.
  struct Part {
    int32_t id;    // of a text: -1
    int32_t text;  // 0, 1; -1: a special token
    int32_t type;
  };
  using Parts = std::vector<Part>;

  Result<bool> add(const Json& json);
  Result<Parts> read_parts(const Json& list, const Json& special, bool two) const;
  void trim(TextTokens& tokens) const;

  Parts one_{{-1, 0, 0}}, two_{{-1, 0, 0}, {-1, 1, 1}};
  bool has_template_ = false;
  bool types_without_special_ = false;  // whether the parts' types also hold where no special token is added
  // Offsets are cut by their blanks, once for each; true: the blank in front of a text is not its own.
  std::vector<bool> trims_;
};

}  // namespace mvprune
