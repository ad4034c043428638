// Tables of what all characters of a run have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace mvprune {

// The lower byte of the run that a character is in, in an array of (first character << 8 | byte).
template <size_t N>
uint32_t of_run(const uint32_t (&runs)[N], uint32_t code) {
  const uint32_t* const behind = std::upper_bound(runs, runs + N, code << 8 | 255);
  return behind == runs ? 0 : behind[-1] & 255;
}

}  // namespace mvprune
