// The normalizer `Precompiled`: SentencePiece's map of characters.
#pragma once

#include <string_view>

#include "../base/result.h"
#include "normalizers.h"

namespace mvprune {

// Of the text of "precompiled_charsmap", which is base64.
Result<Normalizer> read_charsmap(std::string_view base64);

}  // namespace mvprune
