// Tables of what all characters of a run have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mvprune {

// Stored are the runs' lengths, which compress well where a page loads them; looked up are their first characters.
class Runs {
 public:
  template <size_t N>
  Runs(const uint16_t (&lengths)[N], const uint8_t (&values)[N + 1]) {
    runs_.reserve(N + 1);
    uint32_t first = 0;
    for (size_t i = 0; i < N; first += lengths[i++]) runs_.push_back(first << 8 | values[i]);
    runs_.push_back(first << 8 | values[N]);
  }

  // The value of a character.
  uint32_t of(uint32_t code) const {
    return std::upper_bound(runs_.begin(), runs_.end(), code << 8 | 255)[-1] & 255;
  }

 private:
  std::vector<uint32_t> runs_;  // first character << 8 | value
};

}  // namespace mvprune
