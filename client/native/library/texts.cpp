#include "texts.h"

#include <algorithm>
#include <cstring>

namespace mvprune {
namespace {

constexpr char kTokenizer[] = "tokenizer.json", kSettings[] = "tokenizer_config.json";
constexpr double kAnyLength = 1e9;  // what transformers writes for no limit is larger

}  // namespace

Texts Texts::of(const Artifact& artifact, const Config& config, int64_t longest) {
  Texts texts;
  texts.prompts_ = config.prompts;
  texts.default_prompt_ = config.default_prompt;
  if (config.task == Task::kSpans) texts.options_.truncate = Truncate::kSecond;
  if (Fault fault = texts.read(artifact, longest)) {
    texts.tokenizer_.reset();
    texts.error_ = *fault;
  }
  return texts;
}

Fault Texts::read(const Artifact& artifact, int64_t longest) {
  if (!artifact.has(kTokenizer)) return Error{"the artifact has no tokenizer.json: give ids", Code::kUnsupported};
  const Result<Bytes> content = artifact.read(kTokenizer);
  if (!content) return content.error();
  Result<Tokenizer> tokenizer = Tokenizer::open(text_of(*content));
  if (!tokenizer) return Error{std::string(kTokenizer) + ": " + tokenizer.error().text, tokenizer.error().code};
  options_.max_length = longest;
  if (artifact.has(kSettings)) {
    const Result<Json> settings = artifact.read_json(kSettings);
    if (!settings) return settings.error();
    const Json *most = settings->find("model_max_length"), *side = settings->find("truncation_side");
    const double length = most ? most->number().value_or(0) : 0;
    if (length >= 1 && length < kAnyLength) {
      const auto own = static_cast<int64_t>(length);
      options_.max_length = options_.max_length ? std::min(options_.max_length, own) : own;
    }
    if (side && side->text() && *side->text() != "right") {
      return Error{std::string(kSettings) + ": truncation_side must be right: give ids", Code::kUnsupported};
    }
  }
  tokenizer_ = std::move(*tokenizer);
  return std::nullopt;
}

Fault Texts::add(const char* first, const char* second, const char* prompt_name, TokenizedTexts& found) const {
  if (!tokenizer_) return error_;
  std::string text = default_prompt_;
  if (prompt_name) {
    const auto named = std::find_if(prompts_.begin(), prompts_.end(), [&](const auto& prompt) { return prompt.first == prompt_name; });
    if (named == prompts_.end()) return Error{"the model has no prompt named " + shown(prompt_name), Code::kArgument};
    text = named->second;
  }
  text += first;
  EncodeOptions options = options_;
  std::optional<std::string_view> pair;
  if (second) {
    pair = second;
  } else {
    options.truncate = Truncate::kLongest;
  }
  const Result<std::vector<Encoding>> encodings = tokenizer_->encode(text, pair, options);
  if (!encodings) return Error{encodings.error().text, Code::kArgument};
  if (encodings->empty() || encodings->front().ids.empty()) return Error{"a text must have tokens, got none", Code::kArgument};
  const Encoding& encoding = encodings->front();
  found.lengths.push_back(static_cast<int64_t>(encoding.ids.size()));
  found.ids.insert(found.ids.end(), encoding.ids.begin(), encoding.ids.end());
  found.types.insert(found.types.end(), encoding.types.begin(), encoding.types.end());
  for (const Encoding::Place& place : encoding.places) {
    found.begins.push_back(place.begin);
    found.ends.push_back(place.end);
    found.texts.push_back(place.text);
  }
  return std::nullopt;
}

}  // namespace mvprune
