// The decoders of tokenizer.json: tokens to the text that they write.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../base/json.h"

namespace mvprune {

using TokenTexts = std::vector<std::string>;

// Changes the texts of tokens, and how many they are; one after the other they are the whole text.
using TextDecoder = std::function<void(TokenTexts&)>;

// Of the value of "decoder", which may be null.
Result<TextDecoder> read_decoder(const Json& json);

// Removes the blanks that a tokenizer's tokens leave before punctuation and in contractions of English.
void remove_blanks(std::string& text);

// Bytes as UTF-8, with U+FFFD for what is none.
std::string as_utf8(const std::string& bytes);

}  // namespace mvprune
