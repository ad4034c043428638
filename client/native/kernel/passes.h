// Passes over all weights of a training step: what numpy and torch do in several passes over memory, in one.
#pragma once

#include "simd.h"

namespace mvprune {
namespace {

// Bit i is set where lane i of a comparison's result is true.
inline uint32_t lanes_of(Integers mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
#else
  uint32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= static_cast<uint32_t>(mask[lane] & 1) << lane;
  return bits;
#endif
}

// As bf16: rounded to the nearest, from the middle to the even one.
inline Halves halves(Vector value) {
  const Bits bits = (Bits)value, nearest = (bits + (((bits >> 16) & 1u) + 0x7fffu)) >> 16;
  const Bits not_a_number = Bits{} + 0x7fc0u;
  return __builtin_convertvector(value == value ? nearest : not_a_number, Halves);
}

inline void store_vector(uint16_t* out, Vector value) {
  const Halves rounded = halves(value);
  std::memcpy(out, &rounded, sizeof rounded);
}

inline void store_some(float* out, Vector value, int64_t count) { std::memcpy(out, &value, static_cast<size_t>(count) * sizeof *out); }

inline void store_some(uint16_t* out, Vector value, int64_t count) {
  const Halves rounded = halves(value);
  std::memcpy(out, &rounded, static_cast<size_t>(count) * sizeof *out);
}

// The first `count` floats, then zeros.
inline Vector load_some(const float* in, int64_t count) {
  Vector value{};
  std::memcpy(&value, in, static_cast<size_t>(count) * sizeof(float));
  return value;
}

// The derivative of the logistic function.
inline Vector sigmoid_slope(Vector x) {
  const Vector falling = exp(-absolute(x)), sum = falling + 1.0f;
  return falling / (sum * sum);
}

struct Shares {
  Vector score, weight;
};

// True in lane j where the (i + j)-th of `count` bits is set; i is a multiple of kLanes. No byte behind the last bit is read.
inline Integers lanes_from(const uint8_t* bits, int64_t i, int64_t count) {
  uint32_t some = bits[i / 8] >> (i % 8);
  if (kLanes > 8 && i + 8 < count) some |= static_cast<uint32_t>(bits[i / 8 + 1]) << 8;
  Bits place;
  for (int lane = 0; lane < kLanes; ++lane) place[lane] = 1u << lane;
  return ((Bits{} + some) & place) != Bits{};
}

template <bool penalized>
inline Shares share(Vector grad, Vector weight, Integers kept, Vector score, const Penalty& penalty) {
  Vector of_score = grad * weight;
  if (penalized) of_score += sigmoid_slope(score - penalty.shift) * penalty.factor;
  return {of_score, select(kept, grad, Vector{})};
}

template <bool penalized>
void share_all(float* grad, const float* weight, const uint8_t* bits, float* of_scores, const Penalty& penalty, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vector score = penalized ? load_vector(penalty.scores + i) : Vector{};
    const Shares found = share<penalized>(load_vector(grad + i), load_vector(weight + i), lanes_from(bits, i, count), score, penalty);
    store_vector(of_scores + i, found.score);
    store_vector(grad + i, found.weight);
  }
  if (const int64_t rest = count - i) {
    const Vector score = penalized ? load_some(penalty.scores + i, rest) : Vector{};
    const Shares found = share<penalized>(load_some(grad + i, rest), load_some(weight + i, rest), lanes_from(bits, i, count), score, penalty);
    store_some(of_scores + i, found.score, rest);
    store_some(grad + i, found.weight, rest);
  }
}

void share_gradient(float* grad, const float* weight, const uint8_t* bits, float* of_scores, const Penalty& penalty, int64_t count) {
  (penalty.scores ? share_all<true> : share_all<false>)(grad, weight, bits, of_scores, penalty, count);
}

// A product, so that a masked weight which is not a number stays one.
inline Vector mask(Vector weight, Integers kept) { return weight * select(kept, splat(1.0f), Vector{}); }

// `Out` is float, or uint16_t for bf16.
template <typename Out>
void mask_weights(const float* weight, const uint8_t* bits, Out* out, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_vector(out + i, mask(load_vector(weight + i), lanes_from(bits, i, count)));
  if (const int64_t rest = count - i) {
    store_some(out + i, mask(load_some(weight + i, rest), lanes_from(bits, i, count)), rest);
  }
}

// One vector of importances against the bracket. Returns how many candidates there are now.
inline int64_t weigh(Vector value, Bracket& bracket, int64_t first, uint8_t (&kept)[kLanes], Integers& above, int64_t found) {
  typedef int8_t Bytes __attribute__((vector_size(kLanes), may_alias));
  const Integers over = value >= splat(bracket.high);
  const Bytes bytes = __builtin_convertvector(over, Bytes) & 1;
  std::memcpy(kept, &bytes, sizeof bytes);
  above -= over;
  for (uint32_t between = lanes_of((value >= splat(bracket.low)) & ~over); between; between &= between - 1) {
    const int lane = __builtin_ctz(between);
    if (first + lane >= bracket.count) break;  // behind the end
    if (found < bracket.capacity) {
      bracket.indices[found] = first + lane;
      bracket.candidates[found] = value[lane];
    }
    ++found;
  }
  return found;
}

inline int64_t sum_of(Integers counts) {
  int64_t sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += counts[lane];
  return sum;
}

template <bool weighted>
void select_in(Bracket& bracket) {
  const auto importance = [&](Vector score, Vector weight) {
    return weighted ? rounded(absolute(weight) * bracket.factor) + score : score;
  };
  constexpr int64_t most = int64_t{1} << 30;  // vectors that a lane's counter counts
  int64_t i = 0, found = 0;
  bracket.above = 0;
  while (i + kLanes <= bracket.count) {
    Integers above{};
    const int64_t vectors = (bracket.count - i) / kLanes, end = i + (vectors < most ? vectors : most) * kLanes;
    for (; i < end; i += kLanes) {
      const Vector weight = weighted ? load_vector(bracket.weights + i) : Vector{};
      auto& kept = *reinterpret_cast<uint8_t(*)[kLanes]>(bracket.kept + i);
      found = weigh(importance(load_vector(bracket.scores + i), weight), bracket, i, kept, above, found);
    }
    bracket.above += sum_of(above);
  }
  if (const int64_t rest = bracket.count - i) {
    const Vector weight = weighted ? load_some(bracket.weights + i, rest) : Vector{};
    uint8_t kept[kLanes];
    Integers above{};
    found = weigh(importance(load_some(bracket.scores + i, rest), weight), bracket, i, kept, above, found);
    std::memcpy(bracket.kept + i, kept, static_cast<size_t>(rest));
    for (int64_t lane = 0; lane < rest; ++lane) bracket.above += above[lane];
  }
  bracket.found = found;
}

void select_above(Bracket& bracket) { (bracket.weights ? select_in<true> : select_in<false>)(bracket); }

}  // namespace
}  // namespace mvprune
