// The pre-tokenizers of tokenizer.json: they cut a text into the pieces that the model takes one by one.
#pragma once

#include <functional>

#include "../base/json.h"
#include "unicode.h"

namespace mvprune {

struct Piece {
  Chars text;
  int32_t id = -1;  // of an added token, which is not cut
};

using Pieces = std::vector<Piece>;
using PreTokenizer = std::function<void(Pieces&)>;

// Of the value of "pre_tokenizer", which may be null.
Result<PreTokenizer> read_pre_tokenizer(const Json& json);

// The character that stands for a byte in byte-level vocabularies: for a printable one itself.
uint32_t byte_char(uint8_t byte);

}  // namespace mvprune
