#include "normalizers.h"

#include <algorithm>

#include "../base/utf8.h"
#include "charsmap.h"

namespace mvprune {
namespace {

const Json kNull;

template <typename Keep>
void keep_if(Chars& text, Keep keep) {
  text.erase(std::remove_if(text.begin(), text.end(), [&](const Char& one) { return !keep(one.code); }), text.end());
}

bool is_chinese(uint32_t code) {
  constexpr uint32_t kRanges[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                                     {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [code](const uint32_t(&range)[2]) { return code >= range[0] && code <= range[1]; });
}

struct Bert {
  bool clean, chinese, strip, lowercase;

  void operator()(Chars& text) const {
    if (clean) {
      keep_if(text, [](uint32_t code) { return !is(code, kControl); });
      for (Char& one : text) one.code = is(one.code, kSpace) ? ' ' : one.code;
    }
    if (chinese && std::any_of(text.begin(), text.end(), [](const Char& one) { return is_chinese(one.code); })) {
      Chars apart;
      for (const Char& one : text) {
        if (is_chinese(one.code)) apart.push_back({' ', one.begin, one.end});
        apart.push_back(one);
        if (is_chinese(one.code)) apart.push_back({' ', one.begin, one.end});
      }
      text = std::move(apart);
    }
    if (strip) {
      decompose(text, false);
      keep_if(text, [](uint32_t code) { return !is(code, kAccent); });
    }
    if (lowercase) lower(text);
  }
};

// Runs of the pattern become the content, which has the source of the run's last character.
struct Replace {
  Chars pattern, content;
  size_t least = 0;  // not 0: the pattern is that many spaces, or more

  size_t match(const Chars& text, size_t at) const {
    size_t count = 0;
    if (least) {
      while (at + count < text.size() && text[at + count].code == ' ') ++count;
      return count >= least ? count : 0;
    }
    while (count < pattern.size() && at + count < text.size() && text[at + count].code == pattern[count].code) ++count;
    return count == pattern.size() ? count : 0;
  }

  void operator()(Chars& text) const {
    Chars to;
    to.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const size_t count = match(text, at);
      if (count) {
        for (const Char& one : content) to.push_back({one.code, text[at + count - 1].begin, text[at + count - 1].end});
        at += count;
      } else {
        to.push_back(text[at++]);
      }
    }
    text = std::move(to);
  }
};

void strip(Chars& text, bool left, bool right) {
  size_t from = 0, to = text.size();
  while (left && from < to && is(text[from].code, kSpace)) ++from;
  while (right && to > from && is(text[to - 1].code, kSpace)) --to;
  text = Chars(text.begin() + static_cast<std::ptrdiff_t>(from), text.begin() + static_cast<std::ptrdiff_t>(to));
}

Result<Normalizer> read_replace(Settings& settings) {
  const Json& pattern = settings.of("pattern");
  Replace replace{{}, to_chars(settings.text("content", "")), 0};
  if (const Json* text = pattern.find("String"); text && text->text() && !text->text()->empty()) {
    replace.pattern = to_chars(*text->text());
  } else if (const Json* regex = pattern.find("Regex"); regex && regex->text()) {
    if (*regex->text() != " {2,}") return settings.unknown("the regular expression " + *regex->text());
    replace.least = 2;
  } else {
    return settings.unknown("its pattern");
  }
  if (settings.wrong()) return *settings.wrong();
  return Normalizer(std::move(replace));
}

Result<Normalizer> read_sequence(const Json& list, const Settings& settings) {
  if (!list.items()) return settings.unknown("its list");
  std::vector<Normalizer> parts;
  for (const Json& item : *list.items()) {
    auto part = read_normalizer(item);
    if (!part) return part.error();
    parts.push_back(std::move(*part));
  }
  return Normalizer([parts = std::move(parts)](Chars& text) {
    for (const Normalizer& part : parts) part(text);
  });
}

}  // namespace

Result<Normalizer> read_normalizer(const Json& json) {
  if (json.is_null()) return Normalizer([](Chars&) {});
  Settings settings(json, "normalizer");
  const std::string_view type = settings.type();
  Normalizer found;
  if (type == "Sequence") return read_sequence(settings.of("normalizers"), settings);
  if (type == "Replace") return read_replace(settings);
  if (type == "Precompiled") {
    const std::string map = settings.text("precompiled_charsmap", "");
    return settings.wrong() ? Result<Normalizer>(*settings.wrong()) : read_charsmap(map);
  }
  if (type == "BertNormalizer") {
    const bool lowercase = settings.flag("lowercase", true);
    const bool strips = settings.flag("strip_accents", lowercase);
    found = Bert{settings.flag("clean_text", true), settings.flag("handle_chinese_chars", true), strips, lowercase};
  } else if (type == "Lowercase") {
    found = lower;
  } else if (type == "NFD" || type == "NFKD") {
    found = [compatible = type == "NFKD"](Chars& text) { decompose(text, compatible); };
  } else if (type == "NFC" || type == "NFKC") {
    found = [compatible = type == "NFKC"](Chars& text) { compose(text, compatible); };
  } else if (type == "StripAccents") {
    found = [](Chars& text) { keep_if(text, [](uint32_t code) { return !is(code, kMark); }); };
  } else if (type == "Strip") {
    const bool left = settings.flag("strip_left", true), right = settings.flag("strip_right", true);
    found = [left, right](Chars& text) { strip(text, left, right); };
  } else if (type == "Prepend") {
    found = [front = settings.text("prepend", "")](Chars& text) { prepend(text, front); };
  } else {
    return settings.unknown(type);
  }
  if (settings.wrong()) return *settings.wrong();
  return found;
}

Chars to_chars(std::string_view text) {
  Chars chars;
  chars.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto code = utf8_next(text, at);
    at += !code;
    const auto place = static_cast<int32_t>(chars.size());
    chars.push_back({code.value_or(0xFFFD), place, place + 1});
  }
  return chars;
}

std::string to_text(const Chars& chars, size_t from, size_t to) {
  std::string text;
  for (size_t i = from; i < to; ++i) utf8_append(text, chars[i].code);
  return text;
}

void prepend(Chars& text, std::string_view front) {
  if (text.empty()) return;
  Chars more = to_chars(front);
  for (Char& one : more) {
    one.begin = text.front().begin;
    one.end = text.front().end;
  }
  text.insert(text.begin(), more.begin(), more.end());
}

std::string_view Settings::type() const {
  const Json* type = json_.find("type");
  return type && type->text() ? std::string_view(*type->text()) : std::string_view("without a type");
}

const Json& Settings::of(const char* name) const {
  const Json* found = json_.find(name);
  return found ? *found : kNull;
}

bool Settings::flag(const char* name, bool without) {
  const Json& found = of(name);
  if (found.is_null()) return without;
  if (found.boolean()) return *found.boolean();
  wrong_ = unknown(name);
  return without;
}

std::string Settings::text(const char* name, std::string_view without) {
  const Json& found = of(name);
  if (found.is_null()) return std::string(without);
  if (found.text()) return *found.text();
  wrong_ = unknown(name);
  return std::string(without);
}

Error Settings::unknown(std::string_view what) const {
  const std::string type(this->type());
  const std::string more = what == type ? "" : " with " + std::string(what);
  return {"tokenizer.json: a " + std::string(part_) + " that is not known here: " + type + more, Code::kUnsupported};
}

}  // namespace mvprune
