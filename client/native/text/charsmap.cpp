#include "charsmap.h"

#include <memory>

#include "../base/utf8.h"
#include "clusters.h"

namespace mvprune {
namespace {

// None: this is not base64 with its padding.
std::optional<std::string> decode_base64(std::string_view text) {
  const auto value = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  if (text.size() % 4) return std::nullopt;
  for (int i = 0; i < 2 && !text.empty() && text.back() == '='; ++i) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int six = value(c);
    if (six < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(six);
    if ((count += 6) >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 255));
    }
  }
  if (bits & ((1U << count) - 1)) return std::nullopt;
  return bytes;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (!utf8_next(text, at)) return false;
  }
  return true;
}

// A trie of the texts that are replaced, as an array (Yata's double array, written by Darts-clone), and the texts that
// replace them, each with a zero behind it.
class Charsmap {
 public:
  static std::optional<Charsmap> read(const std::string& bytes) {
    const auto number = [&bytes](size_t at) {
      uint32_t value = 0;
      for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
      return value;
    };
    if (bytes.size() < 4) return std::nullopt;
    const size_t of_trie = number(0);
    if (of_trie % 4 || of_trie == 0 || of_trie > bytes.size() - 4) return std::nullopt;
    Charsmap map;
    map.units_.reserve(of_trie / 4);
    for (size_t at = 4; at < 4 + of_trie; at += 4) map.units_.push_back(number(at));
    map.texts_ = bytes.substr(4 + of_trie);
    if (!is_utf8(map.texts_) || !map.is_whole()) return std::nullopt;
    return map;
  }

  // What replaces the shortest text that begins the key; null: none does.
  const char* find(std::string_view key) const {
    size_t place = offset(units_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return nullptr;
      place ^= byte;
      const uint32_t unit = units_[place];
      if ((unit & (kValue | 255)) != byte) return nullptr;
      place ^= offset(unit);
      if (unit & kLeaf) return texts_.c_str() + (units_[place] & ~kValue);
    }
    return nullptr;
  }

 private:
  static constexpr uint32_t kValue = 1U << 31;  // not a node: the place of a text
  static constexpr uint32_t kLeaf = 1U << 8;    // a text ends here
  static size_t offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1U << 9) >> 6); }

  // Whether every way stays inside the arrays, also from units that no way leads to.
  bool is_whole() const {
    for (size_t i = 0; i < units_.size(); ++i) {
      if (units_[i] & kValue) continue;
      const size_t next = i ^ offset(units_[i]);
      if ((next | 255) >= units_.size()) return false;
      if (!(units_[i] & kLeaf)) continue;
      const size_t text = units_[next] & ~kValue;
      if (text > texts_.size() || (static_cast<unsigned char>(texts_.c_str()[text]) & 0xC0) == 0x80) return false;
    }
    return true;
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

// Where a text is replaced, sources are those that `tokenizers` counts: what is left out belongs to the character
// before it, and a part that is longer than what it replaces repeats the last source.
void replace(std::vector<Change>& changes, int count, const char* with) {
  const std::string_view text(with);
  int grows = -count;
  for (size_t at = 0; at < text.size(); ++grows) changes.push_back({utf8_next(text, at).value_or(0xFFFD), 0});
  for (int i = 0; i < grows; ++i) changes[changes.size() - 1 - static_cast<size_t>(i)].change = 1;
  if (grows < 0 && !changes.empty()) changes.back().change += grows;
}

void apply(const Charsmap& map, Chars& text) {
  constexpr size_t kShort = 6;  // bytes; longer clusters are only replaced character by character
  std::vector<Change> changes;
  changes.reserve(text.size());
  std::string key;
  for (size_t at = 0; at < text.size();) {
    const size_t end = cluster_end(text, at);
    key.clear();
    for (size_t i = at; i < end && key.size() < kShort; ++i) utf8_append(key, text[i].code);
    if (const char* with = key.size() < kShort ? map.find(key) : nullptr) {
      replace(changes, static_cast<int>(end - at), with);
      at = end;
    }
    for (; at < end; ++at) {
      key.clear();
      utf8_append(key, text[at].code);
      if (const char* with = map.find(key)) {
        replace(changes, 1, with);
      } else {
        changes.push_back({text[at].code, 0});
      }
    }
  }
  rewrite(text, changes);
}

}  // namespace

Result<Normalizer> read_charsmap(std::string_view base64) {
  const auto bytes = decode_base64(base64);
  auto map = bytes ? Charsmap::read(*bytes) : std::nullopt;
  if (!map) return Error{"tokenizer.json: Precompiled with a precompiled_charsmap that is broken"};
  return Normalizer([map = std::make_shared<const Charsmap>(std::move(*map))](Chars& text) { apply(*map, text); });
}

}  // namespace mvprune
