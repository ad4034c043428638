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

// A head's keys and values as integers, and the memory for a group of queries; attention16_floats in all. Tokens are
// `padded` to whole vectors.
struct Shorts {
  Tokens tokens;  // whose keys and values they are
  int64_t padded, pairs;
  float* scores;     // (tokens, vectors of a group); later pairs of tokens
  int32_t* queries;  // (pairs of features, vectors of a group)
  int32_t* keys;     // (pairs of features, padded)
  int16_t* values;   // (features, padded)
  int64_t lowest, columns;  // distances of the tables, from the lowest on
  int32_t* to_key;          // (pairs of features, columns)
  int32_t* to_query;        // as to_key
  Vector key_scale, value_scale, query_scale;  // of an integer, in each lane; keys and to_key have the same
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
  each_block(example, features, {0, example.length}, [&](int64_t first, int64_t tokens, const float* block, int64_t width) {
    for (int64_t t = 0; t < tokens; t += kLanes) {
      const Integers kept = kept_lanes(example, first + t);
      Integers most{};
      for (int64_t d = row; d < row + rows; ++d) most = greater(most, (Integers)absolute(load_vector(block + d * width + t)));
      greatest = greater(greatest, most & kept);
    }
  });
  return greatest_lane(greatest);
}

// Pairs of rows as integers, `columns` of each: row_of(row, column) is a vector of them.
template <typename RowOf>
void pair_up(int64_t rows, int64_t columns, Vector factor, RowOf row_of, int32_t* out, int64_t stride) {
  for (int64_t d = 0; d < rows; d += 2, out += stride) {
    for (int64_t t = 0; t < columns; t += kLanes) {
      Bits pair = short_of(row_of(d, t), factor);
      if (d + 1 < rows) pair |= short_of(row_of(d + 1, t), factor) << 16;
      std::memcpy(out + t, &pair, sizeof pair);
    }
  }
}

void prepare_tables(const Head& head, Scale key, Shorts& shorts) {
  const Scale query((Integers)splat(head.most_of_query), kKeyLimit);
  shorts.query_scale = query.back;
  const auto rows_of = [&](const float* table) {
    return [=](int64_t d, int64_t t) { return load_vector(table + d * head.stride + shorts.lowest + t); };
  };
  pair_up(head.size, shorts.columns, key.there, rows_of(head.to_key), shorts.to_key, shorts.columns);
  pair_up(head.size, shorts.columns, query.there, rows_of(head.to_query), shorts.to_query, shorts.columns);
}

void prepare(const Head& head, const Example& example, Shorts& shorts) {
  Integers greatest = greatest_of(example, head.features, head.key, head.size);
  if (head.to_key) greatest = greater(greatest, (Integers)splat(head.most_of_key));
  const Scale key(greatest, kKeyLimit);
  const Scale value(greatest_of(example, head.features, head.value, head.size), kValueLimit);
  shorts.key_scale = key.back, shorts.value_scale = value.back;
  if (head.to_key) prepare_tables(head, key, shorts);
  each_block(example, head.features, shorts.tokens, [&](int64_t first, int64_t tokens, const float* block, int64_t width) {
    const int64_t place = first - shorts.tokens.first;
    const auto row_of = [&](int64_t d, int64_t t) { return load_vector(block + (head.key + d) * width + t); };
    pair_up(head.size, tokens, key.there, row_of, shorts.keys + place, shorts.padded);
    for (int64_t d = 0; d < head.size; ++d) {
      for (int64_t t = 0; t < tokens; t += kLanes) {
        const Vector some = load_vector(block + (head.value + d) * width + t);
        const Halves halves = __builtin_convertvector(short_of(some, value.there), Halves);
        std::memcpy(shorts.values + d * shorts.padded + place + t, &halves, sizeof halves);
      }
    }
  });
}

inline Integers load_integers(const int32_t* in) {
  Integers value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

// The sums of two int16 in each lane.
inline Integers add16(Integers a, Integers b) {
  typedef uint16_t Pairs __attribute__((vector_size(4 * kLanes), may_alias));
  return (Integers)((Pairs)a + (Pairs)b);
}

// The scores of J keys from the `key`-th on, and K vectors of queries from `query` on; as attention.h's.
template <int K, int J, bool apart>
MVPRUNE_TARGET inline void score16(const Shorts& shorts, int64_t key, int64_t query, const Vector (&scale)[K], Vector of_keys, float* scores) {
  const int32_t* keys = shorts.keys + (key - shorts.tokens.first);
  const int64_t distance = apart ? query - key - shorts.lowest : 0;
  Integers sum[J][K] = {};
  const Integers* queries = reinterpret_cast<const Integers*>(shorts.queries);
  for (int64_t pair = 0; pair < shorts.pairs; ++pair, queries += K) {
    const int32_t* to_key = apart ? shorts.to_key + pair * shorts.columns + distance : nullptr;
    for (int j = 0; j < J; ++j) {
      const Integers one = Integers{} + keys[pair * shorts.padded + j];
      for (int k = 0; k < K; ++k) {
        if constexpr (apart) {
          sum[j][k] = MVPRUNE_DOT16(sum[j][k], queries[k], add16(one, load_integers(to_key + k * kLanes - j)));
        } else {
          sum[j][k] = MVPRUNE_DOT16(sum[j][k], queries[k], one);
        }
      }
    }
  }
  Vector* out = reinterpret_cast<Vector*>(scores);
  for (int j = 0; j < J; ++j) {
    for (int k = 0; k < K; ++k) out[j * K + k] = __builtin_convertvector(sum[j][k], Vector) * scale[k];
  }
  if constexpr (apart) {
    Integers other[J][K] = {};
    for (int64_t pair = 0; pair < shorts.pairs; ++pair) {
      const int32_t* to_query = shorts.to_query + pair * shorts.columns + distance;
      for (int j = 0; j < J; ++j) {
        const Integers one = Integers{} + keys[pair * shorts.padded + j];
        for (int k = 0; k < K; ++k) other[j][k] = MVPRUNE_DOT16(other[j][k], one, load_integers(to_query + k * kLanes - j));
      }
    }
    for (int j = 0; j < J; ++j) {
      for (int k = 0; k < K; ++k) out[j * K + k] += __builtin_convertvector(other[j][k], Vector) * of_keys;
    }
  }
}

template <int K, bool apart>
MVPRUNE_TARGET void score16_all(const Head& head, const Shorts& shorts, Tokens keys, int64_t query, const Vector (&scale)[K]) {
  const Vector of_keys = shorts.key_scale * shorts.query_scale * head.scale;
  float* scores = shorts.scores;
  int64_t t = keys.first;
  for (; t + kRows <= keys.last; t += kRows, scores += kRows * K * kLanes) score16<K, kRows, apart>(shorts, t, query, scale, of_keys, scores);
  for (; t < keys.last; ++t, scores += K * kLanes) score16<K, 1, apart>(shorts, t, query, scale, of_keys, scores);
}

template <int K, int J>
MVPRUNE_TARGET inline void mix16(const Shorts& shorts, const int16_t* values, int64_t tokens, const Vector (&scale)[K], float* out, int64_t width, int64_t count) {
  Integers sum[J][K] = {};
  const Integers* weight = reinterpret_cast<const Integers*>(shorts.scores);
  for (int64_t pair = 0; pair < (tokens + 1) / 2; ++pair, weight += K) {
    for (int j = 0; j < J; ++j) {
      int32_t two;
      std::memcpy(&two, values + j * shorts.padded + 2 * pair, sizeof two);
      const Integers value = Integers{} + two;
      for (int k = 0; k < K; ++k) sum[j][k] = MVPRUNE_DOT16(sum[j][k], weight[k], value);
    }
  }
  for (int j = 0; j < J; ++j) {
    for (int k = 0; k < K; ++k) store_first(out + j * width + k * kLanes, __builtin_convertvector(sum[j][k], Vector) * scale[k], count - k * kLanes);
  }
}

// Scores become the shares of their exponentials in the sum, as integers, two tokens in a lane; `unit` is what a share of 1
// is divided by, or NaN where a score is not a number.
template <int K>
void shares(const Head& head, const Example& example, Tokens keys, int64_t query, float* scores, Vector (&unit)[K]) {
  Vector* score = reinterpret_cast<Vector*>(scores);
  Vector greatest[K], sum[K] = {}, factor[K];
  bias_and_greatest<K>(head, example, keys, query, score, greatest);
  const int64_t count = keys.last - keys.first;
  for (int64_t t = 0; t < count; ++t) {
    const bool kept = !example.kept || example.kept[keys.first + t];
    for (int k = 0; k < K; ++k) {
      score[t * K + k] = kept ? rough_exp(score[t * K + k] - greatest[k]) : Vector{};
      sum[k] += score[t * K + k];
    }
  }
  for (int k = 0; k < K; ++k) {
    factor[k] = select(sum[k] == Vector{}, Vector{}, kShare / sum[k]);
    unit[k] = select(sum[k] == sum[k], splat(1 / kShare), splat(__builtin_nanf("")));
  }
  for (int64_t t = 0; t < count; t += 2) {
    for (int k = 0; k < K; ++k) {
      Bits two = short_of(score[t * K + k], factor[k]);
      if (t + 1 < count) two |= short_of(score[(t + 1) * K + k], factor[k]) << 16;
      reinterpret_cast<Bits*>(score)[t / 2 * K + k] = two;
    }
  }
}

template <int K>
MVPRUNE_TARGET void attend16_group(const Head& head, const Example& example, Tokens tokens, const Shorts& shorts, const float* queries, int64_t width, float* out) {
  const auto row_of = [&](int64_t row, int k) { return load_vector(queries + row * width + k * kLanes); };
  Integers greatest[K] = {};
  for (int64_t d = 0; d < head.size; ++d) {
    for (int k = 0; k < K; ++k) greatest[k] = greater(greatest[k], (Integers)absolute(row_of(d, k)));
  }
  Vector scale[K];
  for (int k = 0; k < K; ++k) {
    const Scale one(greatest[k], kKeyLimit);
    scale[k] = one.back * shorts.key_scale * head.scale;
    for (int64_t d = 0; d < head.size; d += 2) {
      Bits pair = short_of(row_of(d, k), one.there);
      if (d + 1 < head.size) pair |= short_of(row_of(d + 1, k), one.there) << 16;
      reinterpret_cast<Bits*>(shorts.queries)[d / 2 * K + k] = pair;
    }
  }
  const Tokens keys = keys_of(head, example, tokens);
  (head.to_key ? score16_all<K, true> : score16_all<K, false>)(head, shorts, keys, tokens.first, scale);
  shares<K>(head, example, keys, tokens.first, shorts.scores, scale);
  for (Vector& one : scale) one *= shorts.value_scale;
  const int64_t count = keys.last - keys.first, queried = tokens.last - tokens.first;
  const int16_t* values = shorts.values + (keys.first - shorts.tokens.first);
  int64_t d = 0;
  for (; d + kRows <= head.size; d += kRows) mix16<K, kRows>(shorts, values + d * shorts.padded, count, scale, out + d * width, width, queried);
  for (; d < head.size; ++d) mix16<K, 1>(shorts, values + d * shorts.padded, count, scale, out + d * width, width, queried);
}

// As attention.h's attend; `memory` has room for attention16_floats.
void attend16(const Head& head, const Example& example, Tokens tokens, const float* queries, int64_t width, float* memory, float* out) {
  Shorts shorts{};
  const int64_t queried = (tokens.last - tokens.first + kLanes - 1) / kLanes * kLanes, group = smaller(queried, kGroup * kLanes);
  shorts.tokens = keys_of(head, example, tokens);
  const int64_t count = shorts.tokens.last - shorts.tokens.first;
  shorts.padded = (count + kLanes - 1) / kLanes * kLanes;
  shorts.pairs = (head.size + 1) / 2;
  shorts.scores = memory;
  shorts.queries = reinterpret_cast<int32_t*>(memory + count * group);
  shorts.keys = shorts.queries + shorts.pairs * group;
  shorts.values = reinterpret_cast<int16_t*>(shorts.keys + shorts.pairs * shorts.padded);
  shorts.lowest = tokens.first - shorts.tokens.last + 1;
  shorts.columns = shorts.padded + queried;
  shorts.to_key = shorts.keys + 2 * shorts.pairs * shorts.padded;
  shorts.to_query = shorts.to_key + shorts.pairs * shorts.columns;
  prepare(head, example, shorts);
  each_group(tokens, [&](int64_t vectors, Tokens some, int64_t before) {
    switch (vectors) {
      case 1: return attend16_group<1>(head, example, some, shorts, queries + before, width, out + before);
      case 2: return attend16_group<2>(head, example, some, shorts, queries + before, width, out + before);
      case 3: return attend16_group<3>(head, example, some, shorts, queries + before, width, out + before);
      default: return attend16_group<kGroup>(head, example, some, shorts, queries + before, width, out + before);
    }
  });
}

}  // namespace
}  // namespace mvprune
