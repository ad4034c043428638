#include "pieces.h"

#include <algorithm>

#include "../base/utf8.h"
#include "normalizers.h"

namespace mvprune {
namespace {

// Where a piece ends that begins at `at`, and whether it is dropped.
struct Cut {
  size_t end;
  bool drop = false;
};

// Cuts every piece that is no added token: next(text, at) → Cut.
template <typename Next>
void cut(Pieces& pieces, Next next) {
  Pieces to;
  for (Piece& piece : pieces) {
    if (piece.id >= 0) {
      to.push_back(std::move(piece));
      continue;
    }
    const Chars& text = piece.text;
    for (size_t at = 0; at < text.size();) {
      const Cut found = next(text, at);
      const auto begin = text.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end = text.begin() + static_cast<std::ptrdiff_t>(found.end);
      if (!found.drop) to.push_back({Chars(begin, end)});
      at = found.end;
    }
  }
  pieces = std::move(to);
}

template <typename Belongs>
size_t run(const Chars& text, size_t at, Belongs belongs) {
  while (at < text.size() && belongs(text[at].code)) ++at;
  return at;
}

Cut next_of_words(const Chars& text, size_t at) {
  const auto space = [](uint32_t code) { return is(code, kSpace); };
  if (space(text[at].code)) return {at + 1, true};
  return {run(text, at, [&](uint32_t code) { return !space(code); })};
}

// \w+|[^\w\s]+
Cut next_of_whitespace(const Chars& text, size_t at) {
  const uint32_t flags = flags_of(text[at].code);
  if (flags & kWord) return {run(text, at, [](uint32_t code) { return is(code, kWord); })};
  if (flags & kSpace) return {at + 1, true};
  return {run(text, at, [](uint32_t code) { return !(flags_of(code) & (kWord | kSpace)); })};
}

Cut next_of_punctuation(const Chars& text, size_t at) {
  if (is(text[at].code, kPunctuation)) return {at + 1};
  return {run(text, at, [](uint32_t code) { return !is(code, kPunctuation); })};
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
Cut next_of_gpt2(const Chars& text, size_t at) {
  const auto code = [&](size_t i) { return i < text.size() ? text[i].code : 0; };
  if (code(at) == '\'') {
    const uint32_t first = code(at + 1), second = code(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return {at + 2};
    if ((second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l')) return {at + 3};
  }
  const size_t from = at + (code(at) == ' ' && at + 1 < text.size());
  constexpr uint32_t kKinds = kSpace | kLetter | kNumber;
  const uint32_t kind = flags_of(code(from)) & kKinds;
  if (!(kind & kSpace)) return {run(text, from, [kind](uint32_t one) { return (flags_of(one) & kKinds) == kind; })};
  const size_t end = run(text, at, [](uint32_t one) { return is(one, kSpace); });
  return {end < text.size() && end > at + 1 ? end - 1 : end};
}

// What GPT-4, Llama 3 and Qwen 2 cut by: most_digits is 3, 3 and 1.
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
Cut next_of_gpt4(const Chars& text, size_t at, size_t most_digits) {
  const auto code = [&](size_t i) { return i < text.size() ? text[i].code : 0; };
  const auto small = [&](size_t i) { return code(i) == 0x17F ? 's' : code(i) < 128 ? code(i) | 32 : 0; };
  if (code(at) == '\'') {
    const uint32_t first = small(at + 1), second = small(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return {at + 2};
    if ((second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l')) return {at + 3};
  }
  const auto is_line = [](uint32_t one) { return one == '\r' || one == '\n'; };
  const auto kind = [&](size_t i) { return flags_of(code(i)) & (kSpace | kLetter | kNumber); };
  const bool in_front = !is_line(code(at)) && !(kind(at) & (kLetter | kNumber));
  if (in_front ? at + 1 < text.size() && kind(at + 1) & kLetter : kind(at) & kLetter) {
    return {run(text, at + 1, [](uint32_t one) { return is(one, kLetter); })};
  }
  if (kind(at) & kNumber) {
    const size_t end = run(text, at, [](uint32_t one) { return is(one, kNumber); });
    return {std::min(end, at + most_digits)};
  }
  const size_t from = at + (code(at) == ' ');
  if (from < text.size() && !kind(from)) {
    const size_t end = run(text, from, [](uint32_t one) { return !(flags_of(one) & (kSpace | kLetter | kNumber)); });
    return {run(text, end, is_line)};
  }
  const size_t end = run(text, at, [](uint32_t one) { return is(one, kSpace); });
  for (size_t last = end; last > at; --last) {
    if (is_line(text[last - 1].code)) return {last};
  }
  return {end < text.size() && end > at + 1 ? end - 1 : end};
}

struct ByteLevel {
  bool prefix, regex;

  void operator()(Pieces& pieces) const {
    for (Piece& piece : pieces) {
      if (prefix && piece.id < 0 && !piece.text.empty() && piece.text.front().code != ' ') prepend(piece.text, " ");
    }
    if (regex) cut(pieces, next_of_gpt2);
    for (Piece& piece : pieces) {
      if (piece.id >= 0) continue;
      Chars bytes;
      bytes.reserve(piece.text.size());
      for (const Char& one : piece.text) {
        std::string encoded;
        utf8_append(encoded, one.code);
        for (const char byte : encoded) bytes.push_back({byte_char(static_cast<uint8_t>(byte)), one.begin, one.end});
      }
      piece.text = std::move(bytes);
    }
  }
};

struct Metaspace {
  enum Prepend { kAlways, kFirst, kNever };
  uint32_t mark;
  Prepend prepends;
  bool split;

  void operator()(Pieces& pieces) const {
    std::string front;
    utf8_append(front, mark);
    for (Piece& piece : pieces) {
      if (piece.id >= 0 || piece.text.empty()) continue;
      for (Char& one : piece.text) one.code = one.code == ' ' ? mark : one.code;
      const Char first = piece.text.front();
      if (first.code != mark && (prepends == kAlways || (prepends == kFirst && first.begin == 0))) {
        prepend(piece.text, front);
      }
    }
    if (!split) return;
    cut(pieces, [this](const Chars& text, size_t at) {
      return Cut{run(text, at + 1, [this](uint32_t code) { return code != mark; })};
    });
  }
};

Result<PreTokenizer> read_metaspace(Settings& settings) {
  const Chars mark = to_chars(settings.text("replacement", "\u2581"));
  const char* const usual = settings.flag("add_prefix_space", true) ? "always" : "never";
  const std::string scheme = settings.text("prepend_scheme", usual);
  const bool split = settings.flag("split", true);
  if (settings.wrong()) return *settings.wrong();
  if (mark.size() != 1) return settings.unknown("its replacement");
  for (const auto& [name, value] : {std::pair("always", Metaspace::kAlways), std::pair("first", Metaspace::kFirst),
                                    std::pair("never", Metaspace::kNever)}) {
    if (scheme == name) return PreTokenizer(Metaspace{mark.front().code, value, split});
  }
  return settings.unknown(scheme);
}

// Only patterns that leave nothing between two matches: then it does not matter which of both are pieces.
Result<PreTokenizer> read_split(Settings& settings) {
  const Json* const regex = settings.of("pattern").find("Regex");
  if (!regex || !regex->text()) return settings.unknown("a pattern that is no regular expression");
  const bool invert = settings.flag("invert", false);
  const std::string behavior = settings.text("behavior", "");
  if (settings.wrong()) return *settings.wrong();
  if (behavior != (invert ? "Removed" : "Isolated")) {
    return settings.unknown(behavior + (invert ? " of an inverted pattern" : ""));
  }
  const std::string& pattern = *regex->text();
  if (pattern == R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)") {
    return PreTokenizer([](Pieces& pieces) { cut(pieces, next_of_gpt2); });
  }
  // The same with other words: possessive where nothing is given back, one line of several.
  constexpr std::string_view kBegins[] = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|", "'(?i:[sdmt]|ll|ve|re)|"};
  constexpr std::string_view kWords[] = {R"([^\r\n\p{L}\p{N}]?\p{L}+|)", R"([^\r\n\p{L}\p{N}]?+\p{L}+|)"};
  constexpr std::string_view kRests[] = {R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                                         R"(| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
  const auto cuts = [&](std::string_view digits) {
    std::string_view rest = pattern;
    const auto take = [&rest](std::string_view part) {
      const bool begins = rest.substr(0, part.size()) == part;
      if (begins) rest.remove_prefix(part.size());
      return begins;
    };
    return (take(kBegins[0]) || take(kBegins[1])) && (take(kWords[0]) || take(kWords[1])) && take(digits) &&
           (rest == kRests[0] || rest == kRests[1]);
  };
  for (const auto& [digits, most] : {std::pair(R"(\p{N}{1,3})", size_t{3}), std::pair(R"(\p{N})", size_t{1})}) {
    if (!cuts(digits)) continue;
    return PreTokenizer([most = most](Pieces& pieces) {
      cut(pieces, [most](const Chars& text, size_t at) { return next_of_gpt4(text, at, most); });
    });
  }
  return settings.unknown("the regular expression " + pattern);
}

Result<PreTokenizer> read_sequence(const Json& list, const Settings& settings) {
  if (!list.items()) return settings.unknown("its list");
  std::vector<PreTokenizer> parts;
  for (const Json& item : *list.items()) {
    auto part = read_pre_tokenizer(item);
    if (!part) return part.error();
    parts.push_back(std::move(*part));
  }
  return PreTokenizer([parts = std::move(parts)](Pieces& pieces) {
    for (const PreTokenizer& part : parts) part(pieces);
  });
}

}  // namespace

Result<PreTokenizer> read_pre_tokenizer(const Json& json) {
  if (json.is_null()) return PreTokenizer([](Pieces&) {});
  Settings settings(json, "pre-tokenizer");
  const std::string_view type = settings.type();
  if (type == "Sequence") return read_sequence(settings.of("pretokenizers"), settings);
  if (type == "Metaspace") return read_metaspace(settings);
  if (type == "Split") return read_split(settings);
  if (type == "Whitespace") return PreTokenizer([](Pieces& pieces) { cut(pieces, next_of_whitespace); });
  if (type == "WhitespaceSplit") return PreTokenizer([](Pieces& pieces) { cut(pieces, next_of_words); });
  if (type == "BertPreTokenizer") {
    return PreTokenizer([](Pieces& pieces) {
      cut(pieces, next_of_words);
      cut(pieces, next_of_punctuation);
    });
  }
  if (type == "Punctuation") {
    const std::string behavior = settings.text("behavior", "Isolated");
    if (settings.wrong() || behavior != "Isolated") return settings.unknown(behavior);
    return PreTokenizer([](Pieces& pieces) { cut(pieces, next_of_punctuation); });
  }
  if (type == "ByteLevel") {
    const ByteLevel bytes{settings.flag("add_prefix_space", true), settings.flag("use_regex", true)};
    if (settings.wrong()) return *settings.wrong();
    return PreTokenizer(bytes);
  }
  return settings.unknown(type);
}

uint32_t byte_char(uint8_t byte) {
  if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173)) return byte;
  return 256 + (byte < 33 ? byte : byte < 161 ? uint32_t{byte} - 127 + 33 : 67);
}

}  // namespace mvprune
