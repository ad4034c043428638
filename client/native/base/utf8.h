// UTF-8, one character at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mvprune {

// The character at byte `at`, which moves behind it. None, and `at` stays: the bytes there are not UTF-8.
inline std::optional<uint32_t> utf8_next(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  if (at >= text.size()) return std::nullopt;
  const uint32_t first = byte(at);
  if (first < 0x80) {
    ++at;
    return first;
  }
  const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4 || text.size() - at <= more) return std::nullopt;
  uint32_t code = first & (0x3F >> more);
  for (size_t i = 1; i <= more; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return std::nullopt;
    code = code << 6 | (byte(at + i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (code < kLeast[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return std::nullopt;
  at += more + 1;
  return code;
}

// Of a character, not a surrogate.
inline void utf8_append(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

}  // namespace mvprune
