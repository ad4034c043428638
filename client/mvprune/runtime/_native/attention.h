// Softmax attention of one head. All is transposed, lanes are tokens: nothing is ever summed across lanes.
#pragma once

#include "kernel.h"
#include "simd.h"

namespace mvprune {
namespace {

// Rows (keys, or features of the values) whose sums are in registers together, for kGroup vectors of queries each.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kRows = 6;
#else
constexpr int kRows = 3;
#endif
constexpr int kGroup = 4;

// Floats of memory that a head needs by products of floats, and by those of attention16.h.
inline int64_t attention_floats(int64_t length, int64_t vectors) { return length * (vectors < kGroup ? vectors : kGroup) * kLanes; }

inline int64_t attention16_floats(int64_t size, int64_t length, int64_t vectors) {
  const int64_t padded = (length + kLanes - 1) / kLanes * kLanes, pairs = (size + 1) / 2;
  return attention_floats(length + pairs, vectors) + 2 * pairs * padded;
}

// A matrix (features, tokens of an example) lies block of tokens by block, each (features, width of the block).
// Calls use(first token, tokens, start of the block, its width) for all blocks.
template <typename Use>
void each_block(const Example& example, int64_t features, Use use) {
  const int64_t padded = (example.length + kLanes - 1) / kLanes * kLanes;
  for (int64_t first = 0; first < example.length; first += example.width) {
    const int64_t width = padded - first < example.width ? padded - first : example.width;
    const int64_t tokens = example.length - first < width ? example.length - first : width;
    use(first, tokens, example.products + first * features, width);
  }
}

// scores[row, query] = scale * keys[:, row] . queries[:, query], of J rows and K vectors of queries.
template <int K, int J>
void score(const float* keys, int64_t key_width, const float* queries, int64_t width, int64_t size, float scale,
           float* scores) {
  Vector sum[J][K] = {};
  for (int64_t d = 0; d < size; ++d, keys += key_width, queries += width) {
    const Vector* query = reinterpret_cast<const Vector*>(queries);
    for (int j = 0; j < J; ++j) {
      for (int k = 0; k < K; ++k) sum[j][k] += keys[j] * query[k];
    }
  }
  Vector* out = reinterpret_cast<Vector*>(scores);
  for (int j = 0; j < J; ++j) {
    for (int k = 0; k < K; ++k) out[j * K + k] = sum[j][k] * scale;
  }
}

// sum[row, query] += sum over tokens of values[row, token] weights[token, query], of J rows and K vectors of queries.
template <int K, int J>
void mix(const float* values, int64_t value_width, const float* weights, int64_t tokens, Vector (&sum)[J][K]) {
  const Vector* weight = reinterpret_cast<const Vector*>(weights);
  for (int64_t t = 0; t < tokens; ++t, weight += K) {
    for (int j = 0; j < J; ++j) {
      const float value = values[j * value_width + t];
      for (int k = 0; k < K; ++k) sum[j][k] += value * weight[k];
    }
  }
}

// scores[key, query] become e^(score - greatest), 0 for keys that are masked; inverse[query] = 1 / their sum. A query
// that may attend to nothing gets 0.
template <int K>
void exponentials(const Example& example, float* scores, Vector (&inverse)[K]) {
  Vector* score = reinterpret_cast<Vector*>(scores);
  Vector greatest[K], sum[K] = {};
  for (int k = 0; k < K; ++k) greatest[k] = splat(-3e38f);
  for (int64_t t = 0; t < example.length; ++t) {
    if (example.kept && !example.kept[t]) continue;
    for (int k = 0; k < K; ++k) {
      greatest[k] = select(score[t * K + k] > greatest[k], score[t * K + k], greatest[k]);
    }
  }
  for (int64_t t = 0; t < example.length; ++t) {
    const bool kept = !example.kept || example.kept[t];
    for (int k = 0; k < K; ++k) {
      score[t * K + k] = kept ? exp(score[t * K + k] - greatest[k]) : Vector{};
      sum[k] += score[t * K + k];
    }
  }
  for (int k = 0; k < K; ++k) inverse[k] = select(sum[k] == Vector{}, Vector{}, 1.0f / sum[k]);
}

// One head, K vectors of queries. `keys` and `values` are what each_block of the features gives, plus an offset in
// features; `scores` has room for the example's tokens times K vectors.
template <int K>
void attend_group(const Head& head, const Example& example, const float* queries, int64_t width, float* scores, float* out) {
  each_block(example, head.features, [&](int64_t first, int64_t tokens, const float* block, int64_t block_width) {
    const float* keys = block + head.key * block_width;
    float* rows = scores + first * K * kLanes;
    int64_t t = 0;
    for (; t + kRows <= tokens; t += kRows) {
      score<K, kRows>(keys + t, block_width, queries, width, head.size, head.scale, rows + t * K * kLanes);
    }
    for (; t < tokens; ++t) {
      score<K, 1>(keys + t, block_width, queries, width, head.size, head.scale, rows + t * K * kLanes);
    }
  });
  Vector inverse[K];
  exponentials<K>(example, scores, inverse);
  const auto rows_from = [&](int64_t d, auto& sum) {
    each_block(example, head.features, [&](int64_t first, int64_t tokens, const float* block, int64_t block_width) {
      mix(block + (head.value + d) * block_width, block_width, scores + first * K * kLanes, tokens, sum);
    });
    for (auto& row : sum) {
      Vector* target = reinterpret_cast<Vector*>(out + d++ * width);
      for (int k = 0; k < K; ++k) target[k] = row[k] * inverse[k];
    }
  };
  int64_t d = 0;
  for (; d + kRows <= head.size; d += kRows) {
    Vector sum[kRows][K] = {};
    rows_from(d, sum);
  }
  for (; d < head.size; ++d) {
    Vector sum[1][K] = {};
    rows_from(d, sum);
  }
}

// out[:, query] for a block of queries, both (head.size, width).
void attend(const Head& head, const Example& example, const float* queries, int64_t width, float* scores, float* out) {
  for (int64_t first = 0; first < width; first += kGroup * kLanes) {
    const float* some = queries + first;
    switch ((width - first) / kLanes) {
      case 1: attend_group<1>(head, example, some, width, scores, out + first); break;
      case 2: attend_group<2>(head, example, some, width, scores, out + first); break;
      case 3: attend_group<3>(head, example, some, width, scores, out + first); break;
      default: attend_group<kGroup>(head, example, some, width, scores, out + first);
    }
  }
}

}  // namespace
}  // namespace mvprune
