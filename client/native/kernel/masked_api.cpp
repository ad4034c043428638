// The library's functions for few tokens, for ctypes; see masked.h.
#include <algorithm>

#include "decoder.h"
#include "masked.h"
#include "pool.h"
#include "scratch.h"

namespace mvprune {
namespace {

constexpr int kNoMemory = 1;
constexpr int kNotFinite = 3;

// A product's tiles, divided among the threads.
struct Shared {
  const FewIsa& isa;
  const MaskedProduct& product;
  const float* memory;
  int64_t tokens;
  int64_t parts;

  void task(int64_t part) {
    const int64_t all = tiles(*product.matrix);
    isa.multiply(product, memory, tokens, all * part / parts, all * (part + 1) / parts);
  }
};

void multiply(const FewIsa& isa, const MaskedProduct& product, const float* memory, int64_t tokens, int32_t threads) {
  Shared shared = {isa, product, memory, tokens, std::min<int64_t>(threads, tiles(*product.matrix))};
  parallel(shared.parts, threads, [](void* call, int64_t part) { static_cast<Shared*>(call)->task(part); }, &shared);
}

constexpr int64_t kTogether = 64;  // rows of a vocabulary, of which only the largest bound is looked at for the threshold

// A number that at least `top` of the lower bounds reach, or nearly the largest such.
float threshold(const float* logits, const float* bounds, int64_t rows, int64_t top, float* largest) {
  int64_t count = 0;
  for (int64_t first = 0; first < rows; first += kTogether, ++count) {
    float most = logits[first] - bounds[first];
    for (int64_t row = first; row < std::min(first + kTogether, rows); ++row) most = std::max(most, logits[row] - bounds[row]);
    largest[count] = most;
  }
  if (count <= top) return -__builtin_inff();
  std::nth_element(largest, largest + top - 1, largest + count, [](float a, float b) { return a > b; });
  return largest[top - 1];
}

// The logits of a token: those that can be among the first `top` are computed from the weight itself.
//
// |w x - w' x'| <= |w - w'| |x| + |w'| |x - x'| for the rounded w' and x'. x' has two digits, the second of what the first
// left. What sums in single precision round is below `units` of their size: those of 16 lanes of a row of the weight, which
// are the longest, and some more for the blocks, digits and scales.
// False if the bounds say nothing, since sums overflow.
bool finish(const FewIsa& isa, const RoundedVocabulary& given, const float* x, const float* rest, int64_t top, const float* second, float* logits, float* scratch) {
  const int64_t rows = given.rounded->rows, columns = given.rounded->columns;
  const float size = __builtin_sqrtf(isa.dot(x, x, columns)), digit = __builtin_sqrtf(isa.dot(rest, rest, columns));
  if (!(size < 1e18f)) return false;
  const float units = (static_cast<float>(columns) / 16 + 32) * 6e-8f;
  // Of a block the largest number is at most its norm, and a digit leaves half of 1 / 127 of it in each column.
  const float left = digit * __builtin_sqrtf(static_cast<float>(std::min(columns, kQuadBlock))) / 254;
  float* bounds = scratch;
  for (int64_t row = 0; row < rows; ++row) {
    logits[row] += second[row];
    bounds[row] = 1.0001f * (given.errors[row] * size + given.sizes[row] * left + units * (given.errors[row] + given.sizes[row]) * size);
  }
  if (given.bias) {
    for (int64_t row = 0; row < rows; ++row) logits[row] += given.bias[row], bounds[row] += 2e-7f * __builtin_fabsf(given.bias[row]);
  }
  const float least = threshold(logits, bounds, rows, top, scratch + rows);
  for (int64_t row = 0; row < rows; ++row) {
    if (logits[row] + bounds[row] >= least) logits[row] = isa.dot(given.weight + row * columns, x, columns) + (given.bias ? given.bias[row] : 0.0f);
  }
  return true;
}

}  // namespace

const FewIsa* few() {
#if defined(__x86_64__)
  const bool is_used = __atomic_load_n(&dots, __ATOMIC_RELAXED) == &kAvx512Vnni;
  if (is_used && __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("popcnt")) return &kFewAvx512;
#endif
  return nullptr;
}

bool multiply_few(const FewIsa& isa, const MaskedProduct& product, const float* x, int64_t tokens, int32_t threads, float* memory) {
  const int64_t rows = product.matrix->rows, columns = product.matrix->columns;
  for (int64_t first = 0; first < tokens; first += kFew) {
    const int64_t some = std::min(kFew, tokens - first), place = first * rows;
    if (!isa.prepare(*product.matrix, x + first * columns, some, memory)) return false;
    multiply(isa, {product.matrix, product.bias, product.residual ? product.residual + place : nullptr, product.y + place}, memory, some, threads);
  }
  return true;
}

}  // namespace mvprune

using namespace mvprune;

#define MVPRUNE_EXPORT extern "C" __attribute__((visibility("default")))

// Whether there are products of few tokens with the chosen instruction set.
MVPRUNE_EXPORT int mvprune_has_few() { return few() != nullptr; }

// y (tokens, rows) = x W^T + bias for x (tokens, columns). Returns 0, 1 when there is no memory, or 3 when a number of x is
// not finite: y is then not written in whole.
MVPRUNE_EXPORT int mvprune_few(const MaskedMatrix* matrix, const float* x, const float* bias, float* y, int64_t tokens, int32_t threads) {
  const FewIsa& isa = *few();
  float* memory = take_scratch(isa.floats(*matrix, std::min(tokens, kFew)));
  if (!memory) return kNoMemory;
  return multiply_few(isa, {matrix, bias, nullptr, y}, x, tokens, threads, memory) ? 0 : kNotFinite;
}

// logits (tokens, rows) of x (tokens, columns), of which those that can be among the first `top` of a token are exact.
// Returns as above.
MVPRUNE_EXPORT int mvprune_vocabulary(const RoundedVocabulary* given, const float* x, float* logits, int64_t tokens, int64_t top, int32_t threads) {
  const FewIsa& isa = *few();
  const MaskedMatrix& matrix = *given->rounded;
  const int64_t rows = matrix.rows, columns = matrix.columns, at_once = std::min(tokens, kFew / 2);
  const int64_t one = isa.floats(matrix, at_once), both = isa.floats(matrix, 2 * at_once), stride = isa.stride(matrix);
  float* memory = take_scratch(one + both + 2 * at_once * (columns + rows) + 2 * rows);
  if (!memory) return kNoMemory;
  float* digits = memory + one;  // of each token, and then of what the first digit leaves of it
  float* pairs = digits + both;
  float* products = pairs + 2 * at_once * columns;
  for (int64_t first = 0; first < tokens; first += at_once, x += at_once * columns) {
    const int64_t some = std::min(at_once, tokens - first);
    if (!isa.prepare(matrix, x, some, memory)) return kNotFinite;
    float* rest = pairs + some * columns;
    std::copy(x, x + some * columns, pairs);
    for (int64_t i = 0; i < some; ++i) isa.subtract(matrix, x + i * columns, memory + i * stride, rest + i * columns);
    isa.prepare(matrix, pairs, 2 * some, digits);
    multiply(isa, {&matrix, nullptr, nullptr, products}, digits, 2 * some, threads);
    for (int64_t i = 0; i < some; ++i, logits += rows) {
      std::copy(products + i * rows, products + (i + 1) * rows, logits);
      const float* second = products + (some + i) * rows;
      if (!finish(isa, *given, x + i * columns, rest + i * columns, top, second, logits, products + 2 * at_once * rows)) return kNotFinite;
    }
  }
  return 0;
}
