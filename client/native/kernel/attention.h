// Softmax attention of one head. All is transposed, lanes are tokens: nothing is ever summed across lanes.
#pragma once

#include "kernel.h"
#include "matrix.h"
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

// Floats of memory that a head needs by products of floats, and by those of attention16.h; `apart` if it has tables of
// distances.
inline int64_t attention_floats(int64_t length, int64_t vectors) { return length * (vectors < kGroup ? vectors : kGroup) * kLanes; }

inline int64_t attention16_floats(int64_t size, int64_t length, int64_t vectors, bool apart) {
  const int64_t padded = (length + kLanes - 1) / kLanes * kLanes, pairs = (size + 1) / 2;
  return attention_floats(length + pairs, vectors) + 2 * pairs * padded + (apart ? 2 * pairs * (padded + vectors * kLanes) : 0);
}

// The keys that some queries may attend to, from a whole vector on.
inline Tokens keys_of(const Head& head, const Example& example, Tokens queries) {
  if (!head.window) return {0, example.length};
  return {larger(0, queries.first - head.window) / kLanes * kLanes, smaller(example.length, queries.last + head.window)};
}

// A matrix (features, tokens of an example) lies block of tokens by block, each (features, width of the block).
// Calls use(first token, tokens, where it is in the block, the block's width) for some tokens, block by block.
template <typename Use>
void each_block(const Example& example, int64_t features, Tokens tokens, Use use) {
  const int64_t padded = (example.tokens + kLanes - 1) / kLanes * kLanes;
  for (int64_t start = 0; start < example.tokens; start += example.width) {
    const int64_t width = smaller(padded - start, example.width), before = start - example.place;
    const int64_t first = larger(tokens.first, before), last = smaller(tokens.last, before + width);
    if (first < last) use(first, last - first, example.products + start * features + (first - before), width);
  }
}

// scores[row, query] = scale * (keys[:, row] . queries[:, query]), of J rows and K vectors of queries. With tables of
// distances, what they have for the distance from the row to the query is added to the key, and multiplied by the key.
template <int K, int J, bool apart>
void score(const Head& head, const float* keys, int64_t key_width, const float* queries, int64_t width, int64_t distance, float* scores) {
  Vector sum[J][K] = {};
  const float* to_key = apart ? head.to_key + distance : nullptr;
  const float* to_query = apart ? head.to_query + distance : nullptr;
  for (int64_t d = 0; d < head.size; ++d, keys += key_width, queries += width) {
    Vector query[K];
    for (int k = 0; k < K; ++k) query[k] = load_vector(queries + k * kLanes);
    for (int j = 0; j < J; ++j) {
      for (int k = 0; k < K; ++k) {
        if constexpr (apart) {
          sum[j][k] += query[k] * (keys[j] + load_vector(to_key + k * kLanes - j)) + keys[j] * load_vector(to_query + k * kLanes - j);
        } else {
          sum[j][k] += keys[j] * query[k];
        }
      }
    }
    if constexpr (apart) to_key += head.stride, to_query += head.stride;
  }
  Vector* out = reinterpret_cast<Vector*>(scores);
  for (int j = 0; j < J; ++j) {
    for (int k = 0; k < K; ++k) out[j * K + k] = sum[j][k] * head.scale;
  }
}

// The scores of all keys, from `scores` on.
template <int K, bool apart>
void score_all(const Head& head, const Example& example, Tokens keys, int64_t query, const float* queries, int64_t width, float* scores) {
  each_block(example, head.features, keys, [&](int64_t first, int64_t tokens, const float* block, int64_t block_width) {
    const float* some = block + head.key * block_width;
    float* rows = scores + (first - keys.first) * K * kLanes;
    int64_t t = 0;
    for (; t + kRows <= tokens; t += kRows) {
      score<K, kRows, apart>(head, some + t, block_width, queries, width, query - first - t, rows + t * K * kLanes);
    }
    for (; t < tokens; ++t) {
      score<K, 1, apart>(head, some + t, block_width, queries, width, query - first - t, rows + t * K * kLanes);
    }
  });
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

// The greatest score of each query, after those of the head's bias for their distances are added.
template <int K>
void bias_and_greatest(const Head& head, const Example& example, Tokens keys, int64_t query, Vector* score, Vector (&greatest)[K]) {
  for (int k = 0; k < K; ++k) greatest[k] = splat(-3e38f);
  for (int64_t t = keys.first; t < keys.last; ++t, score += K) {
    if (example.kept && !example.kept[t]) continue;
    if (head.bias) {
      for (int k = 0; k < K; ++k) score[k] += load_vector(head.bias + query - t + k * kLanes);
    }
    for (int k = 0; k < K; ++k) greatest[k] = select(score[k] > greatest[k], score[k], greatest[k]);
  }
}

// scores[key, query] become e^(score - greatest), 0 for keys that are masked; inverse[query] = 1 / their sum. A query
// that may attend to nothing gets 0.
template <int K>
void exponentials(const Head& head, const Example& example, Tokens keys, int64_t query, float* scores, Vector (&inverse)[K]) {
  Vector* score = reinterpret_cast<Vector*>(scores);
  Vector greatest[K], sum[K] = {};
  bias_and_greatest<K>(head, example, keys, query, score, greatest);
  for (int64_t t = keys.first; t < keys.last; ++t, score += K) {
    const bool kept = !example.kept || example.kept[t];
    for (int k = 0; k < K; ++k) {
      score[k] = kept ? exp(score[k] - greatest[k]) : Vector{};
      sum[k] += score[k];
    }
  }
  for (int k = 0; k < K; ++k) inverse[k] = select(sum[k] == Vector{}, Vector{}, 1.0f / sum[k]);
}

// One head, K vectors of queries; `scores` has room for the example's tokens times K vectors.
template <int K>
void attend_group(const Head& head, const Example& example, Tokens tokens, const float* queries, int64_t width, float* scores, float* out) {
  const Tokens keys = keys_of(head, example, tokens);
  (head.to_key ? score_all<K, true> : score_all<K, false>)(head, example, keys, tokens.first, queries, width, scores);
  Vector inverse[K];
  exponentials<K>(head, example, keys, tokens.first, scores, inverse);
  const auto rows_from = [&](int64_t d, auto& sum) {
    each_block(example, head.features, keys, [&](int64_t first, int64_t some, const float* block, int64_t block_width) {
      mix(block + (head.value + d) * block_width, block_width, scores + (first - keys.first) * K * kLanes, some, sum);
    });
    for (auto& row : sum) {
      float* target = out + d++ * width;
      for (int k = 0; k < K; ++k) store_first(target + k * kLanes, row[k] * inverse[k], tokens.last - tokens.first - k * kLanes);
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

// Calls use(vectors, their queries, lanes before them) for up to kGroup vectors of queries at a time.
template <typename Use>
void each_group(Tokens tokens, Use use) {
  for (int64_t first = tokens.first; first < tokens.last; first += kGroup * kLanes) {
    const Tokens some = {first, smaller(tokens.last, first + kGroup * kLanes)};
    use((some.last - first + kLanes - 1) / kLanes, some, first - tokens.first);
  }
}

void attend(const Head& head, const Example& example, Tokens tokens, const float* queries, int64_t width, float* scores, float* out) {
  each_group(tokens, [&](int64_t vectors, Tokens some, int64_t before) {
    switch (vectors) {
      case 1: return attend_group<1>(head, example, some, queries + before, width, scores, out + before);
      case 2: return attend_group<2>(head, example, some, queries + before, width, scores, out + before);
      case 3: return attend_group<3>(head, example, some, queries + before, width, scores, out + before);
      default: return attend_group<kGroup>(head, example, some, queries + before, width, scores, out + before);
    }
  });
}

}  // namespace
}  // namespace mvprune
