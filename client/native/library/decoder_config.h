// config.json of a model that writes text: which decoder it is, and the numbers that its tensors do not tell.
#pragma once

#include <string>
#include <vector>

#include "../base/json.h"
#include "../base/result.h"
#include "../kernel/decoder.h"

namespace mvprune {

// Where a decoder keeps its parts; null where it has none.
struct DecoderNames {
  const char *blocks, *words, *positions, *last, *head;
  const char *attention_norm, *query, *key, *value, *out, *feed_norm, *gate, *up, *down, *query_norm, *key_norm;
};

struct DecoderConfig {
  const DecoderNames* names = nullptr;
  int64_t hidden = 0, layers = 0, heads = 0, groups = 0, size = 0;  // size: of a head
  int64_t turned = 0;   // of the features of a head, those that are rotated
  int64_t longest = 0;  // tokens of a text
  int64_t first_position = 0;  // the row of a text's first token in the table of positions
  float epsilon = 0;
  Gate activation = Gate::gelu;
  bool is_centred = true;          // whether norms are layer norms
  bool inputs_first = false;       // whether weights are stored as (inputs, outputs)
  bool goes_by_heads = false, is_parallel = false;
  std::vector<float> frequencies;  // of the rotation, radians a token, (turned / 2,)
  int64_t end = -1;                // the token that ends a text; -1: not known

  // Whether it is a model that writes text, whether or not it is computed here.
  static bool is_one(const Json& json);

  static Result<DecoderConfig> of(const Json& json);
};

}  // namespace mvprune
