// config.json of a model that writes text: which decoder it is, and the numbers that its tensors do not tell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../base/json.h"
#include "../base/result.h"
#include "../kernel/decoder.h"

namespace mvprune {

// Where a stack of blocks keeps its parts; null where it has none.
struct StackNames {
  const char *blocks, *words, *positions, *embedding_norm, *last;
  const char *attention_norm, *query, *key, *value, *out;
  const char *feed_norm, *gate, *up, *down;
  const char *query_norm = nullptr, *key_norm = nullptr;
  const char *cross_norm = nullptr, *cross_query = nullptr, *cross_key = nullptr, *cross_value = nullptr, *cross_out = nullptr;
  const char* distances = nullptr;  // the table of what is added to scores by the distance of tokens
};

struct StackConfig {
  StackNames names{};
  int64_t hidden = 0, layers = 0, heads = 0, groups = 0, size = 0;  // size: of a head
  int64_t turned = 0;                  // of the features of a head, those that are rotated
  int64_t longest = 0;                 // tokens of a text
  int64_t first_position = 0;          // the row of a text's first token in the table of positions
  int64_t buckets = 0, reach = 0;      // of distances; reach: from which on they are all in the last bucket
  float epsilon = 0;
  float scale = 1, words_scale = 1;    // of scores, and of the rows of words
  Gate activation = Gate::gelu;
  bool is_centred = true;              // whether norms are layer norms
  bool inputs_first = false;           // whether weights are stored as (inputs, outputs)
  bool goes_by_heads = false, is_parallel = false, normalizes_after = false;
  bool is_causal = true;               // whether a token attends to none after it
  std::vector<float> frequencies;      // of the rotation, radians a token, (turned / 2,)
};

struct DecoderConfig {
  StackConfig stack;
  std::optional<StackConfig> source;  // of the encoder
  const char* head = nullptr;
  const char* head_bias = nullptr;    // (1, words)
  float scale = 1;                    // of the states that the head takes

  // Whether it is a model that writes text, whether or not it is computed here.
  static bool is_one(const Json& json);

  static Result<DecoderConfig> of(const Json& json);
};

}  // namespace mvprune
