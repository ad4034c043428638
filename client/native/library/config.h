// config.json: which model it is, and the numbers that its tensors do not tell.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../base/json.h"
#include "../base/result.h"
#include "../kernel/kernel.h"

namespace mvprune {

enum class Body { kBert, kRoberta, kMpnet, kModernBert, kDeberta };

enum class Task { kVectors, kSequence, kTokens, kSpans };

enum class Pooling { kMean, kFirst, kMax, kLast };

struct Config {
  Body body;
  Task task;
  std::string prefix;  // of the names of the body's tensors
  int64_t hidden = 0, layers = 0, heads = 0;
  float epsilon = 0;
  Activation activation = Activation::none, head_activation = Activation::gelu;
  int64_t padding = 0;  // the id of padding, where positions are counted without it
  std::vector<std::string> labels;  // as far as the file names them
  bool is_multi_label = false;

  // Of a model of vectors.
  Pooling pooling = Pooling::kMean;
  bool normalizes = false;
  std::optional<int64_t> most_tokens;
  std::vector<std::pair<std::string, std::string>> prompts;  // name and text
  std::string default_prompt;                                // its text

  // Of ModernBERT.
  std::vector<bool> sees_near;  // each block
  int64_t window = 0;
  double far_theta = 0, near_theta = 0;
  bool pools_mean = false;  // before the head

  // Of DeBERTa.
  int64_t buckets = 0, reach = 0;  // 0 buckets: each distance has its own row; reach: distances beyond count as it
  bool shares_projections = false, normalizes_places = false;

  static Result<Config> of(const Json& json);
};

}  // namespace mvprune
