// Tables as a page loads them: small numbers in one byte, larger ones in more.
#pragma once

#include <cstdint>

namespace mvprune {

// Reads the numbers of a table, one after another.
class Packed {
 public:
  explicit Packed(const uint8_t* table) : at_(table) {}

  // Seven bits in each byte, the lowest first; the last byte has no eighth bit.
  uint32_t next() {
    uint32_t number = 0;
    for (int shift = 0;; shift += 7) {
      number |= (*at_ & 127u) << shift;
      if (*at_++ < 128) return number;
    }
  }

  // One that may be negative: its sign is the lowest bit.
  int32_t next_signed() {
    const uint32_t number = next();
    return static_cast<int32_t>(number >> 1) ^ -static_cast<int32_t>(number & 1);
  }

 private:
  const uint8_t* at_;
};

}  // namespace mvprune
