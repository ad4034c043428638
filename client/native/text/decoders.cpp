#include "decoders.h"

#include <algorithm>
#include <array>

#include "../base/utf8.h"
#include "normalizers.h"
#include "pieces.h"

namespace mvprune {
namespace {

constexpr char kUnknown[] = "\xEF\xBF\xBD";  // U+FFFD

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

bool begins(const std::string& text, std::string_view start) { return text.compare(0, start.size(), start) == 0; }

// Bytes from `at` on that begin a character without ending it, or are none: at least one.
size_t broken_bytes(const std::string& bytes, size_t at) {
  const auto byte = [&](size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0u; };
  const unsigned first = byte(at), second = byte(at + 1);
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80, high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (first < 0xE0 || first > 0xF4 || second < low || second > high) return 1;
  return first >= 0xF0 && (byte(at + 2) & 0xC0) == 0x80 ? 3 : 2;
}

// A vocabulary of bytes: each character stands for one.
void join_bytes(TokenTexts& tokens) {
  constexpr size_t kCodes = 324;
  static const std::array<int16_t, kCodes> byte_of = [] {
    std::array<int16_t, kCodes> made{};
    made.fill(-1);
    for (int byte = 0; byte < 256; ++byte) made[byte_char(static_cast<uint8_t>(byte))] = static_cast<int16_t>(byte);
    return made;
  }();
  std::string bytes;
  for (const std::string& token : tokens) {
    std::string own;
    for (size_t at = 0; at < token.size();) {
      const auto code = utf8_next(token, at);
      if (!code || *code >= kCodes || byte_of[*code] < 0) {
        own = token;
        break;
      }
      own.push_back(static_cast<char>(byte_of[*code]));
    }
    bytes += own;
  }
  tokens = {as_utf8(bytes)};
}

// A byte that a vocabulary writes as <0x0A>; -1: it is another token.
int byte_in(const std::string& token) {
  if (token.size() != 6 || !begins(token, "<0x") || token[5] != '>') return -1;
  int byte = 0;
  for (const char c : {token[3], token[4]}) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return -1;
    byte = 16 * byte + digit;
  }
  return byte;
}

void fall_back_to_bytes(TokenTexts& tokens) {
  TokenTexts made;
  std::string bytes;
  const auto end = [&] {
    if (bytes.empty()) return;
    std::string text = as_utf8(bytes);
    if (text != bytes) {
      text.clear();
      for (size_t i = 0; i < bytes.size(); ++i) text += kUnknown;
    }
    made.push_back(std::move(text));
    bytes.clear();
  };
  for (std::string& token : tokens) {
    const int byte = byte_in(token);
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    end();
    made.push_back(std::move(token));
  }
  end();
  tokens = std::move(made);
}

struct WordPieces {
  std::string prefix;
  bool cleans;

  void operator()(TokenTexts& tokens) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i) tokens[i] = !prefix.empty() && begins(tokens[i], prefix) ? tokens[i].substr(prefix.size()) : " " + tokens[i];
      if (!cleans) continue;
      remove_blanks(tokens[i]);
      replace_all(tokens[i], " do not", " don't");
    }
  }
};

struct Stripped {
  std::string content;
  int64_t start, stop;

  void operator()(TokenTexts& tokens) const {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start && begins(token, content); ++i) token.erase(0, content.size());
      for (int64_t i = 0; i < stop && token.size() >= content.size() && token.compare(token.size() - content.size(), content.size(), content) == 0; ++i) {
        token.resize(token.size() - content.size());
      }
    }
  }
};

Result<TextDecoder> read_sequence(const Settings& settings) {
  const Json& list = settings.of("decoders");
  if (!list.items()) return settings.unknown("its list");
  std::vector<TextDecoder> parts;
  for (const Json& item : *list.items()) {
    auto part = read_decoder(item);
    if (!part) return part.error();
    parts.push_back(std::move(*part));
  }
  return TextDecoder([parts = std::move(parts)](TokenTexts& tokens) {
    for (const TextDecoder& part : parts) part(tokens);
  });
}

Result<TextDecoder> read_metaspace(Settings& settings) {
  const std::string mark = settings.text("replacement", "\u2581");
  const bool adds = settings.flag("add_prefix_space", true);
  const bool is_prepended = settings.text("prepend_scheme", adds ? "always" : "never") != "never";
  if (settings.wrong()) return *settings.wrong();
  if (mark.empty()) return settings.unknown("its replacement");
  return TextDecoder([mark, is_prepended](TokenTexts& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], mark, i || !is_prepended ? " " : "");
  });
}

}  // namespace

Result<TextDecoder> read_decoder(const Json& json) {
  if (json.is_null()) {
    return TextDecoder([](TokenTexts& tokens) {
      for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
    });
  }
  Settings settings(json, "decoder");
  const std::string_view type = settings.type();
  if (type == "Sequence") return read_sequence(settings);
  if (type == "ByteLevel") return TextDecoder(join_bytes);
  if (type == "ByteFallback") return TextDecoder(fall_back_to_bytes);
  if (type == "Metaspace") return read_metaspace(settings);
  if (type == "Fuse") {
    return TextDecoder([](TokenTexts& tokens) {
      std::string whole;
      for (const std::string& token : tokens) whole += token;
      tokens = {whole};
    });
  }
  if (type == "WordPiece") {
    const WordPieces made{settings.text("prefix", "##"), settings.flag("cleanup", true)};
    if (settings.wrong()) return *settings.wrong();
    return TextDecoder(made);
  }
  if (type == "Replace") {
    const Json* pattern = settings.of("pattern").find("String");
    const std::string content = settings.text("content", "");
    if (settings.wrong() || !pattern || !pattern->text()) return settings.unknown("its pattern");
    return TextDecoder([from = *pattern->text(), content](TokenTexts& tokens) {
      for (std::string& token : tokens) replace_all(token, from, content);
    });
  }
  if (type == "Strip") {
    const Stripped made{settings.text("content", " "), settings.of("start").whole().value_or(0), settings.of("stop").whole().value_or(0)};
    if (settings.wrong() || made.content.empty()) return settings.unknown("its content");
    return TextDecoder(made);
  }
  return settings.unknown(type);
}

void remove_blanks(std::string& text) {
  constexpr std::string_view kChanged[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"},
                                              {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kChanged) replace_all(text, from, to);
}

std::string as_utf8(const std::string& bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const size_t before = at;
    if (utf8_next(bytes, at)) {
      text.append(bytes, before, at - before);
    } else {
      text += kUnknown;
      at += broken_bytes(bytes, at);
    }
  }
  return text;
}

}  // namespace mvprune
