// Attention of one head by products of pairs of int16, for layers whose other products are of bytes: queries and keys are
// rounded to 12 bits, the weights of a query to 15 bits of their sum, values to 15 bits. Included by dots.cpp, where
// MVPRUNE_DOT16 is the instruction. As in attention.h, lanes are tokens.
#pragma once

#include <cstring>

#include "attention.h"
#include "kernel.h"
#include "matrix.h"
#include "simd.h"

namespace mvprune {
namespace {

constexpr float kKeyLimit = 2047, kShare = 32767, kValueLimit = 16383;  // no sum leaves int32, up to 512 features of a head

// round(x factor) in the low half of each lane.
inline Bits short_of(Vector x, Vector factor) {
  return (Bits)(rounded(x * factor) + 12582912.0f) & 0xffffu;  // adding 1.5 * 2^23 rounds to an integer, in the low bits
}

// What x is multiplied by to become integers up to `limit`, and back, for the largest |x| of each lane, as bits.
struct Scale {
  Vector there, back;

  Scale(Integers greatest, float limit) {
    const Vector most = (Vector)greatest;
    const Integers finite = greatest < 0x7f800000, some = most >= splat(1e-30f);
    there = select(some, limit / most, Vector{});
    back = select(finite, select(some, most / limit, Vector{}), splat(__builtin_nanf("")));
  }
};

inline Integers greatest_lane(Integers values) {
  int32_t most = 0;
  for (int lane = 0; lane < kLanes; ++lane) most = values[lane] > most ? values[lane] : most;
  return Integers{} + most;
}

// e^x for x <= 0, within 5e-5 of it.
inline Vector rough_exp(Vector x) {
  static constexpr float p[] = {1.0f, 1.0f, 0.5f, 0.16666667f, 0.041666668f};
  constexpr float least = -87.0f, rounder = 12582912.0f;
  const Vector whole = x * 1.44269504f + rounder, power = whole - rounder;
  const Vector result = (Vector)((Bits)polynomial(x - power * 0.693147181f, p) + ((Bits)whole << 23));
  return select(x < splat(least), Vector{}, result);
}

// A head's keys and values as integers, and the memory for a group of queries; attention16_floats in all. Tokens are `padded` to whole vectors.
struct Shorts {
  int64_t padded, pairs;
  float* scores;     // (tokens, vectors of a group); later pairs of tokens
  int32_t* keys;     // (pairs of features, padded)
  int32_t* queries;  // (pairs of features, vectors of a group)
  int16_t* values;   // (features, padded)
  Vector key_scale, value_scale;  // of an integer, in each lane
};

// All ones in the lanes of a block's tokens, from the first one on, that others may attend to.
inline Integers kept_lanes(const Example& example, int64_t first) {
  if (!example.kept && first + kLanes <= example.length) return ~Integers{};
  Integers kept{};
  for (int lane = 0; lane < kLanes && first + lane < example.length; ++lane) {
    kept[lane] = -static_cast<int32_t>(!example.kept || example.kept[first + lane]);
  }
  return kept;
}

// The largest size of some rows' values in the tokens that others may attend to, in each lane.
Integers greatest_of(const Example& example, int64_t features, int64_t row, int64_t rows) {
  Integers greatest{};
  each_block(example, features, [&](int64_t first, int64_t, const float* block, int64_t width) {
    for (int64_t t = 0; t < width; t += kLanes) {
      const Integers kept = kept_lanes(example, first + t);
      Integers most{};
      for (int64_t d = row; d < row + rows; ++d) {
        most = greater(most, (Integers)absolute(*reinterpret_cast<const Vector*>(block + d * width + t)));
      }
      greatest = greater(greatest, most & kept);
    }
  });
  return greatest_lane(greatest);
}

void prepare(const Head& head, const Example& example, Shorts& shorts) {
  const Scale key(greatest_of(example, head.features, head.key, head.size), kKeyLimit);
  const Scale value(greatest_of(example, head.features, head.value, head.size), kValueLimit);
  shorts.key_scale = key.back, shorts.value_scale = value.back;
  each_block(example, head.features, [&](int64_t first, int64_t, const float* block, int64_t width) {
    const auto row_of = [&](int64_t row, int64_t t) { return *reinterpret_cast<const Vector*>(block + row * width + t); };
    for (int64_t d = 0; d < head.size; d += 2) {
      for (int64_t t = 0; t < width; t += kLanes) {
        Bits pair = short_of(row_of(head.key + d, t), key.there);
        if (d + 1 < head.size) pair |= short_of(row_of(head.key + d + 1, t), key.there) << 16;
        *reinterpret_cast<Bits*>(shorts.keys + d / 2 * shorts.padded + first + t) = pair;
      }
    }
    for (int64_t d = 0; d < head.size; ++d) {
      for (int64_t t = 0; t < width; t += kLanes) {
        const Halves some = __builtin_convertvector(short_of(row_of(head.value + d, t), value.there), Halves);
        std::memcpy(shorts.values + d * shorts.padded + first + t, &some, sizeof some);
      }
    }
  });
}

template <int K, int J>
MVPRUNE_TARGET inline void score16(const Shorts& shorts, const int32_t* keys, const Vector (&scale)[K], float* scores) {
  Integers sum[J][K] = {};
  const Integers* query = reinterpret_cast<const Integers*>(shorts.queries);
  for (int64_t pair = 0; pair < shorts.pairs; ++pair, keys += shorts.padded, query += K) {
    for (int j = 0; j < J; ++j) {
      const Integers key = Integers{} + keys[j];
      for (int k = 0; k < K; ++k) sum[j][k] = MVPRUNE_DOT16(sum[j][k], query[k], key);
    }
  }
  Vector* out = reinterpret_cast<Vector*>(scores);
  for (int j = 0; j < J; ++j) {
    for (int k = 0; k < K; ++k) out[j * K + k] = __builtin_convertvector(sum[j][k], Vector) * scale[k];
  }
}

template <int K, int J>
MVPRUNE_TARGET inline void mix16(const Shorts& shorts, const int16_t* values, int64_t pairs, const Vector (&scale)[K], float* out, int64_t width) {
  Integers sum[J][K] = {};
  const Integers* weight = reinterpret_cast<const Integers*>(shorts.scores);
  for (int64_t pair = 0; pair < pairs; ++pair, weight += K) {
    for (int j = 0; j < J; ++j) {
      int32_t two;
      std::memcpy(&two, values + j * shorts.padded + 2 * pair, sizeof two);
      const Integers value = Integers{} + two;
      for (int k = 0; k < K; ++k) sum[j][k] = MVPRUNE_DOT16(sum[j][k], weight[k], value);
    }
  }
  for (int j = 0; j < J; ++j) {
    Vector* target = reinterpret_cast<Vector*>(out + j * width);
    for (int k = 0; k < K; ++k) target[k] = __builtin_convertvector(sum[j][k], Vector) * scale[k];
  }
}

// Scores become the shares of their exponentials in the sum, as integers, two tokens in a lane; `unit` is what a share of 1
// is divided by, or NaN where a score is not a number.
template <int K>
void shares(const Example& example, float* scores, Vector (&unit)[K]) {
  Vector* score = reinterpret_cast<Vector*>(scores);
  const auto kept = [&](int64_t t) { return t < example.length && (!example.kept || example.kept[t]); };
  Vector greatest[K], sum[K] = {}, factor[K];
  for (int k = 0; k < K; ++k) greatest[k] = splat(-3e38f);
  for (int64_t t = 0; t < example.length; ++t) {
    if (!kept(t)) continue;
    for (int k = 0; k < K; ++k) greatest[k] = select(score[t * K + k] > greatest[k], score[t * K + k], greatest[k]);
  }
  for (int64_t t = 0; t < example.length; ++t) {
    for (int k = 0; k < K; ++k) {
      score[t * K + k] = kept(t) ? rough_exp(score[t * K + k] - greatest[k]) : Vector{};
      sum[k] += score[t * K + k];
    }
  }
  for (int k = 0; k < K; ++k) {
    factor[k] = select(sum[k] == Vector{}, Vector{}, kShare / sum[k]);
    unit[k] = select(sum[k] == sum[k], splat(1 / kShare), splat(__builtin_nanf("")));
  }
  for (int64_t t = 0; t < example.length; t += 2) {
    for (int k = 0; k < K; ++k) {
      Bits two = short_of(score[t * K + k], factor[k]);
      if (t + 1 < example.length) two |= short_of(score[(t + 1) * K + k], factor[k]) << 16;
      reinterpret_cast<Bits*>(score)[t / 2 * K + k] = two;
    }
  }
}

template <int K>
MVPRUNE_TARGET void attend16_group(const Head& head, const Example& example, const Shorts& shorts, const float* queries, int64_t width, float* out) {
  const auto row_of = [&](int64_t row) { return reinterpret_cast<const Vector*>(queries + row * width); };
  Integers greatest[K] = {};
  for (int64_t d = 0; d < head.size; ++d) {
    for (int k = 0; k < K; ++k) greatest[k] = greater(greatest[k], (Integers)absolute(row_of(d)[k]));
  }
  Vector scale[K];
  for (int k = 0; k < K; ++k) {
    const Scale one(greatest[k], kKeyLimit);
    scale[k] = one.back * shorts.key_scale * head.scale;
    for (int64_t d = 0; d < head.size; d += 2) {
      Bits pair = short_of(row_of(d)[k], one.there);
      if (d + 1 < head.size) pair |= short_of(row_of(d + 1)[k], one.there) << 16;
      reinterpret_cast<Bits*>(shorts.queries)[d / 2 * K + k] = pair;
    }
  }
  int64_t t = 0;
  for (; t + kRows <= example.length; t += kRows) score16<K, kRows>(shorts, shorts.keys + t, scale, shorts.scores + t * K * kLanes);
  for (; t < example.length; ++t) score16<K, 1>(shorts, shorts.keys + t, scale, shorts.scores + t * K * kLanes);
  shares<K>(example, shorts.scores, scale);
  for (Vector& one : scale) one *= shorts.value_scale;
  const int64_t pairs = (example.length + 1) / 2;
  int64_t d = 0;
  for (; d + kRows <= head.size; d += kRows) mix16<K, kRows>(shorts, shorts.values + d * shorts.padded, pairs, scale, out + d * width, width);
  for (; d < head.size; ++d) mix16<K, 1>(shorts, shorts.values + d * shorts.padded, pairs, scale, out + d * width, width);
}

// out[:, query] for a block of queries, both (head.size, width); `memory` has room for attention16_floats.
void attend16(const Head& head, const Example& example, const float* queries, int64_t width, float* memory, float* out) {
  Shorts shorts{};
  const int64_t group = smaller(width, kGroup * kLanes);
  shorts.padded = (example.length + kLanes - 1) / kLanes * kLanes;
  shorts.pairs = (head.size + 1) / 2;
  shorts.scores = memory;
  shorts.queries = reinterpret_cast<int32_t*>(memory + example.length * group);
  shorts.keys = shorts.queries + shorts.pairs * group;
  shorts.values = reinterpret_cast<int16_t*>(shorts.keys + shorts.pairs * shorts.padded);
  prepare(head, example, shorts);
  for (int64_t first = 0; first < width; first += kGroup * kLanes) {
    const float* some = queries + first;
    switch ((width - first) / kLanes) {
      case 1: attend16_group<1>(head, example, shorts, some, width, out + first); break;
      case 2: attend16_group<2>(head, example, shorts, some, width, out + first); break;
      case 3: attend16_group<3>(head, example, shorts, some, width, out + first); break;
      default: attend16_group<kGroup>(head, example, shorts, some, width, out + first);
    }
  }
}

}  // namespace
}  // namespace mvprune
