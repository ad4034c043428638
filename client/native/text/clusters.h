// Grapheme clusters (UAX #29): what a reader takes for one character.
#pragma once

#include <cstddef>

#include "unicode.h"

namespace mvprune {

// Where the cluster ends that begins at `at`. Flags of countries are not put together: a half of one has four bytes,
// and the one caller treats clusters of six bytes and more alike.
size_t cluster_end(const Chars& text, size_t at);

}  // namespace mvprune
