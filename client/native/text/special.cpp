#include "special.h"

#include <algorithm>

#include "normalizers.h"

namespace mvprune {
namespace {

// Of ["[SEP]", 102].
std::optional<int32_t> id_of_pair(const Json& json) {
  if (!json.items() || json.items()->size() != 2) return std::nullopt;
  const auto id = json.items()->back().whole();
  return id && *id >= 0 && *id <= INT32_MAX ? std::optional<int32_t>(static_cast<int32_t>(*id)) : std::nullopt;
}

std::optional<int32_t> small(const Json* json) {
  const auto value = json ? json->whole() : std::nullopt;
  return value && *value >= 0 && *value <= INT32_MAX ? std::optional<int32_t>(static_cast<int32_t>(*value))
                                                     : std::nullopt;
}

}  // namespace

Result<SpecialTokens> SpecialTokens::read(const Json& json) {
  SpecialTokens tokens;
  if (json.is_null()) return tokens;
  const auto added = tokens.add(json);
  if (!added) return added.error();
  return tokens;
}

Result<bool> SpecialTokens::add(const Json& json) {
  Settings settings(json, "post-processor");
  const std::string_view type = settings.type();
  if (type == "Sequence") {
    const Json& list = settings.of("processors");
    if (!list.items()) return settings.unknown("its list");
    for (const Json& item : *list.items()) {
      if (const auto added = add(item); !added) return added.error();
    }
    return true;
  }
  if (type == "ByteLevel" || type == "RobertaProcessing") {
    const bool prefix = settings.flag("add_prefix_space", true);
    if (settings.flag("trim_offsets", true)) trims_.push_back(prefix);
    if (settings.wrong()) return *settings.wrong();
    if (type == "ByteLevel") return true;
  }
  if (has_template_) return settings.unknown("another one before it that adds tokens");
  has_template_ = true;
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const auto cls = id_of_pair(settings.of("cls")), sep = id_of_pair(settings.of("sep"));
    if (!cls || !sep) return settings.unknown("its tokens");
    const bool roberta = type == "RobertaProcessing";
    const int32_t second = roberta ? 0 : 1;
    one_ = {{*cls, -1, 0}, {-1, 0, 0}, {*sep, -1, 0}};
    two_ = one_;
    if (roberta) two_.push_back({*sep, -1, 0});
    two_.push_back({-1, 1, second});
    two_.push_back({*sep, -1, second});
    types_without_special_ = roberta;
    return true;
  }
  if (type != "TemplateProcessing") return settings.unknown(type);
  auto one = read_parts(settings.of("single"), settings.of("special_tokens"), false);
  if (!one) return one.error();
  auto two = read_parts(settings.of("pair"), settings.of("special_tokens"), true);
  if (!two) return two.error();
  one_ = std::move(*one);
  two_ = std::move(*two);
  types_without_special_ = true;
  return true;
}

Result<SpecialTokens::Parts> SpecialTokens::read_parts(const Json& list, const Json& special, bool two) const {
  const Error wrong{"tokenizer.json: a post-processor's template that is not known here", Code::kUnsupported};
  if (!list.items()) return wrong;
  Parts parts;
  int texts[2] = {};
  for (const Json& item : *list.items()) {
    const Json *const token = item.find("SpecialToken"), *const text = item.find("Sequence");
    const Json* const part = token ? token : text;
    const Json* const name = part ? part->find("id") : nullptr;
    const auto type = part ? small(part->find("type_id")) : std::nullopt;
    if (!name || !name->text() || !type) return wrong;
    if (text) {
      const int which = *name->text() == "B";
      if ((!which && *name->text() != "A") || ++texts[which] > 1) return wrong;
      parts.push_back({-1, which, *type});
      continue;
    }
    const Json* const known = special.find(*name->text());
    const Json* const ids = known ? known->find("ids") : nullptr;
    if (!ids || !ids->items()) return wrong;
    for (const Json& one : *ids->items()) {
      const auto id = small(&one);
      if (!id) return wrong;
      parts.push_back({*id, -1, *type});
    }
  }
  if (texts[0] != 1 || texts[1] != two) return wrong;
  return parts;
}

int64_t SpecialTokens::count(bool two) const {
  const Parts& parts = two ? two_ : one_;
  return std::count_if(parts.begin(), parts.end(), [](const Part& part) { return part.text < 0; });
}

std::vector<int32_t> SpecialTokens::before() const {
  std::vector<int32_t> ids;
  for (auto part = one_.begin(); part != one_.end() && part->text < 0; ++part) ids.push_back(part->id);
  return ids;
}

void SpecialTokens::trim(TextTokens& tokens) const {
  for (const bool prefix : trims_) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      TextToken& token = tokens[i];
      int64_t leading = token.leading;
      if (leading == 1 && prefix && (i == 0 || token.begin == 0)) leading = 0;  // a single one counts as the added one
      token.begin = std::min(token.begin + leading, token.end);
      if (token.trailing && token.end >= token.trailing) token.end = std::max(token.end - token.trailing, token.begin);
    }
  }
}

Encoding SpecialTokens::assemble(TextTokens first, std::optional<TextTokens> second, bool special) const {
  trim(first);
  if (second) trim(*second);
  Encoding encoding;
  for (const Part& part : second ? two_ : one_) {
    if (part.text < 0) {
      if (!special) continue;
      encoding.ids.push_back(part.id);
      encoding.types.push_back(part.type);
      encoding.places.emplace_back();
      continue;
    }
    for (const TextToken& token : part.text ? *second : first) {
      encoding.ids.push_back(token.id);
      encoding.types.push_back(special || types_without_special_ ? part.type : part.text);
      encoding.places.push_back({token.begin, token.end, part.text});
    }
  }
  return encoding;
}

}  // namespace mvprune
