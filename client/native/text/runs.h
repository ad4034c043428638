// Tables of what all characters of a run have.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "packed.h"

namespace mvprune {

// Stored are the number of the runs, the length of each but the last, and their values; looked up are their first
// characters.
class Runs {
 public:
  explicit Runs(const uint8_t* table) {
    Packed packed(table);
    runs_.resize(packed.next());
    for (size_t i = 1; i < runs_.size(); ++i) runs_[i] = runs_[i - 1] + (packed.next() << 8);
    for (uint32_t& run : runs_) run |= packed.next();
  }

  // The value of a character.
  uint32_t of(uint32_t code) const {
    return std::upper_bound(runs_.begin(), runs_.end(), code << 8 | 255)[-1] & 255;
  }

 private:
  std::vector<uint32_t> runs_;  // first character << 8 | value
};

}  // namespace mvprune
