// Activations in int8, for the products of `quads`: a panel becomes bytes, four columns of a token beside each other.
#pragma once

#include "kernel.h"
#include "matrix.h"
#include "simd.h"

namespace mvprune {
namespace {

// A block of columns is a run of floats: a scale for each token, then for each quad of columns and each token four bytes.
// A byte is round(x / scale) + 128, where the scale is max |x| / 127 over the block's columns of the token.
inline int64_t quantized_block(int64_t width) { return (1 + kQuadBlock / 4) * width; }

inline int64_t quantized_floats(int64_t columns, int64_t width) {
  return larger(1, (columns + kQuadBlock - 1) / kQuadBlock) * quantized_block(width);
}

constexpr uint32_t kAbove = 0x4b400000;  // the bits above a byte of 1.5 * 2^23 and more

// The byte plus kAbove: four of them are joined by sums, without masks. The same number of every instruction set: those with
// a fused multiply-add would round the product and the sum at once.
inline Bits byte_of(Vector x, Vector inverse) {
  constexpr float rounder = 12582912.0f + 128;  // adding 1.5 * 2^23 rounds to an integer, in the low bits
  return (Bits)(rounded(x * inverse) + rounder);
}

// One block of columns for K vectors of tokens; `width` is that of the whole panel. A token that has a value which is not
// finite has the scale NaN. One without a value of 1e-30 is all zeros: the inverse of its scale might be infinite.
template <int K>
void quantize(const float* panel, int64_t columns, int64_t width, float* scales, float* bytes) {
  const auto row_of = [&](int64_t column) { return reinterpret_cast<const Vector*>(panel + column * width); };
  Integers greatest[K] = {};  // as bits, which are in the order of the numbers, NaN last
  for (int64_t column = 0; column < columns; ++column) {
    for (int k = 0; k < K; ++k) greatest[k] = greater(greatest[k], (Integers)absolute(row_of(column)[k]));
  }
  Vector inverse[K];
  for (int k = 0; k < K; ++k) {
    const Vector most = (Vector)greatest[k];
    const Integers finite = greatest[k] < 0x7f800000, some = most >= splat(1e-30f);
    inverse[k] = select(some, 127.0f / most, Vector{});
    reinterpret_cast<Vector*>(scales)[k] = select(finite, select(some, most / 127.0f, Vector{}), splat(__builtin_nanf("")));
  }
  for (int64_t column = 0; column < columns; column += 4) {
    Bits* out = reinterpret_cast<Bits*>(bytes + column / 4 * width);
    if (column + 4 <= columns) {
      for (int k = 0; k < K; ++k) {
        out[k] = byte_of(row_of(column)[k], inverse[k]) + (byte_of(row_of(column + 1)[k], inverse[k]) << 8) +
                 (byte_of(row_of(column + 2)[k], inverse[k]) << 16) + (byte_of(row_of(column + 3)[k], inverse[k]) << 24) -
                 (kAbove + (kAbove << 8));
      }
    } else {
      for (int k = 0; k < K; ++k) out[k] = Bits{};
      for (int64_t i = 0; column + i < columns; ++i) {
        for (int k = 0; k < K; ++k) out[k] |= (byte_of(row_of(column + i)[k], inverse[k]) & 255u) << (8 * i);
      }
    }
  }
}

// All of a panel (columns, width). One without columns has a block of scales all the same: products multiply by them.
void quantize(const float* panel, int64_t columns, int64_t width, float* out) {
  for (int64_t left = 0; left < larger(1, columns); left += kQuadBlock, panel += kQuadBlock * width, out += quantized_block(width)) {
    const int64_t some = smaller(kQuadBlock, columns - left);
    int64_t first = 0;
    for (; first + 4 * kLanes <= width; first += 4 * kLanes) {
      quantize<4>(panel + first, some, width, out + first, out + width + first);
    }
    for (; first < width; first += kLanes) quantize<1>(panel + first, some, width, out + first, out + width + first);
  }
}

}  // namespace
}  // namespace mvprune
