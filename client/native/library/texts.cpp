#include "texts.h"

#include <algorithm>
#include <iterator>

#include "../base/utf8.h"

namespace mvprune {
namespace {

constexpr char kTokenizer[] = "tokenizer.json", kSettings[] = "tokenizer_config.json", kConfig[] = "config.json";
constexpr double kAnyLength = 1e9;  // what transformers writes for no limit is larger

// Classes of tokenizers whose tokens have a type, where `model_input_names` does not say it.
constexpr std::string_view kTyped[] = {"Bert", "DebertaV2", "Deberta", "Electra", "Funnel", "ConvBert", "MobileBert"};

bool gives_types(const Json& settings) {
  if (const Json* names = settings.find("model_input_names"); names && names->items()) {
    const auto& items = *names->items();
    return std::any_of(items.begin(), items.end(),
                       [](const Json& name) { return name.text() && *name.text() == "token_type_ids"; });
  }
  const Json* given = settings.find("tokenizer_class");
  std::string_view name = given && given->text() ? std::string_view(*given->text()) : std::string_view();
  for (const std::string_view ending : {"Fast", "Tokenizer"}) {
    if (name.size() >= ending.size() && name.substr(name.size() - ending.size()) == ending) {
      name.remove_suffix(ending.size());
    }
  }
  return std::find(std::begin(kTyped), std::end(kTyped), name) != std::end(kTyped);
}

}  // namespace

Texts Texts::of(const Artifact& artifact, const Config& config, int64_t longest) {
  Texts texts;
  texts.prompts_ = config.prompts;
  texts.default_prompt_ = config.default_prompt;
  if (config.task == Task::kSpans) texts.truncate_ = Truncate::kSecond;
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
  if (!tokenizer) return tokenizer.error();
  longest_ = longest;
  if (artifact.has(kSettings)) {
    const Result<Json> settings = artifact.read_json(kSettings), config = artifact.read_json(kConfig);
    if (!settings) return settings.error();
    if (!config) return config.error();
    const Json *most = settings->find("model_max_length"), *side = settings->find("truncation_side");
    const double length = most ? most->number().value_or(0) : 0;
    if (length >= 1 && length < kAnyLength) {
      const auto own = static_cast<int64_t>(length);
      longest_ = longest_ ? std::min(longest_, own) : own;
    }
    if (side && side->text() && *side->text() != "right") {
      return Error{std::string(kSettings) + ": truncation_side must be right: give ids", Code::kUnsupported};
    }
    const Json* types = config->find("type_vocab_size");
    has_types_ = (!types || types->whole().value_or(0) > 1) && gives_types(*settings);
  }
  tokenizer_ = std::move(*tokenizer);
  return std::nullopt;
}

Result<std::vector<Encoding>> Texts::encode(std::string_view first, std::optional<std::string_view> second,
                                            const EncodeOptions& options) const {
  if (!tokenizer_) return error_;
  auto found = tokenizer_->encode(first, second, options);
  if (!found) return Error{found.error().text, Code::kArgument};
  for (Encoding& one : *found) {
    if (!has_types_) std::fill(one.types.begin(), one.types.end(), 0);
  }
  return found;
}

Result<Encoding> Texts::cut(std::string_view first, std::optional<std::string_view> second, Truncate truncate,
                            int64_t max_length) const {
  EncodeOptions options;
  options.max_length = max_length;
  options.truncate = second ? truncate : Truncate::kLongest;
  auto found = encode(first, second, options);
  if (!found) return found.error();
  if (found->empty() || found->front().ids.empty()) return Error{"a text must have tokens, got none", Code::kArgument};
  return std::move(found->front());
}

Result<std::vector<Encoding>> Texts::windows(std::string_view first, std::optional<std::string_view> second,
                                             int64_t max_length, int64_t stride) const {
  EncodeOptions options;
  options.max_length = max_length;
  options.truncate = second ? Truncate::kSecond : Truncate::kLongest;
  options.windows = true;
  options.stride = stride;
  return encode(first, second, options);
}

Result<std::string> Texts::shortened(std::string_view text, int64_t tokens) const {
  EncodeOptions options;
  options.special = false;
  const auto found = encode(text, std::nullopt, options);
  if (!found) return found.error();
  if (found->empty() || static_cast<int64_t>(found->front().places.size()) <= tokens) return std::string(text);
  return std::string(text.substr(0, byte_of(text, found->front().places[static_cast<size_t>(tokens - 1)].end)));
}

const std::string* Texts::prompt(std::string_view name) const {
  if (name.empty()) return &default_prompt_;
  const auto named = std::find_if(prompts_.begin(), prompts_.end(), [&](const auto& one) { return one.first == name; });
  return named == prompts_.end() ? nullptr : &named->second;
}

Fault Texts::add(const char* first, const char* second, const char* prompt_name, TokenizedTexts& found) const {
  if (!tokenizer_) return error_;
  const std::string* before = prompt(prompt_name ? prompt_name : "");
  if (!before) return Error{"the model has no prompt named " + shown(prompt_name), Code::kArgument};
  const auto pair = second ? std::optional<std::string_view>(second) : std::nullopt;
  const Result<Encoding> encoding = cut(*before + first, pair, truncate_, longest_);
  if (!encoding) return encoding.error();
  found.lengths.push_back(static_cast<int64_t>(encoding->ids.size()));
  found.ids.insert(found.ids.end(), encoding->ids.begin(), encoding->ids.end());
  found.types.insert(found.types.end(), encoding->types.begin(), encoding->types.end());
  for (const Encoding::Place& place : encoding->places) {
    found.begins.push_back(place.begin);
    found.ends.push_back(place.end);
    found.texts.push_back(place.text);
  }
  return std::nullopt;
}

size_t byte_of(std::string_view text, int64_t character) {
  size_t at = 0;
  for (int64_t i = 0; i < character && at < text.size(); ++i) {
    if (!utf8_next(text, at)) ++at;
  }
  return at;
}

}  // namespace mvprune
