// The entropy coding of zstd (RFC 8878, section 4): bits read backwards, FSE tables and Huffman codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mvprune {

struct Span {
  const uint8_t *begin, *end;
  size_t size() const { return static_cast<size_t>(end - begin); }
};

inline int bit_length(uint32_t x) { return x ? 32 - __builtin_clz(x) : 0; }

// Bits from the last to the first. The last byte's highest set bit only marks where they begin.
class Backwards {
 public:
  explicit Backwards(Span bytes) : bytes_(bytes.begin) {
    const size_t size = bytes.size();
    if (size && bytes.end[-1]) left_ = static_cast<int64_t>(8 * size) - 9 + bit_length(bytes.end[-1]);
  }

  bool valid() const { return left_ >= 0; }

  // Bits that are left; below 0: more were read than there are, and those were zeros.
  int64_t left() const { return left_; }

  // At least 57 of the next bits, the first one on top; zeros follow the last.
  uint64_t window() const {
    if (left_ <= 0) return 0;
    const int64_t first = (left_ + 7) / 8 - 8;
    uint64_t bits = 0;
    if (first >= 0) {
      std::memcpy(&bits, bytes_ + first, 8);
      return bits << (8 * first + 64 - left_);
    }
    for (int64_t i = 0; i < first + 8; ++i) bits |= uint64_t{bytes_[i]} << (8 * i);
    return bits << (64 - left_);
  }

  void skip(int bits) { left_ -= bits; }

  // At most 57 bits.
  uint32_t read(int bits) {
    const uint64_t next = window();
    left_ -= bits;
    return bits ? static_cast<uint32_t>(next >> (64 - bits)) : 0;
  }

 private:
  const uint8_t* bytes_;
  int64_t left_ = -1;
};

struct FseEntry {
  uint8_t symbol, bits;
  uint16_t base;
};

constexpr int kMostSymbols = 256;
constexpr int kMostFseBits = 9;

// What differs between the three tables of sequences: 3.1.1.3.2.1.
struct FseKind {
  int most_bits, symbols, default_bits, defaults;
  const int8_t* default_counts;
};

struct FseTable {
  explicit FseTable(const FseKind& kind) : kind(kind) {}

  const FseKind& kind;
  int bits = -1;  // -1: no table yet
  FseEntry table[1 << kMostFseBits];

  // 4.1.1: the distribution, from its description, which is taken off the bytes.
  bool read_description(Span& bytes, int most_bits, int symbols) {
    int16_t counts[kMostSymbols] = {};
    size_t at = 0;  // bits
    const size_t end = 8 * bytes.size();
    const auto peek = [&](int count) {
      uint32_t value = 0;
      for (size_t i = 0; i < 4 && at / 8 + i < bytes.size(); ++i) value |= uint32_t{bytes.begin[at / 8 + i]} << (8 * i);
      return value >> (at % 8) & ((uint32_t{1} << count) - 1);
    };
    const int wanted = static_cast<int>(peek(4)) + 5;
    at += 4;
    if (wanted > most_bits) return false;
    int left = 1 << wanted, symbol = 0;
    while (left > 0) {
      if (symbol >= symbols || at > end) return false;
      const int most = left + 1, width = bit_length(static_cast<uint32_t>(most));
      const int short_ones = (1 << width) - 1 - most;  // values that take a bit less
      int value = static_cast<int>(peek(width - 1));
      if (value < short_ones) {
        at += static_cast<size_t>(width) - 1;
      } else {
        value = static_cast<int>(peek(width));
        at += static_cast<size_t>(width);
        if (value >= 1 << (width - 1)) value -= short_ones;
      }
      counts[symbol++] = static_cast<int16_t>(value - 1);
      left -= value ? value - 1 : 1;
      if (value != 1) continue;
      for (int zeros = 3; zeros == 3;) {
        zeros = static_cast<int>(peek(2));
        at += 2;
        symbol += zeros;
        if (symbol > symbols || at > end) return false;
      }
    }
    if (at > end) return false;
    bytes.begin += (at + 7) / 8;
    build(counts, symbol, wanted);
    return true;
  }

  // 4.1.1: from the distribution; -1 is a probability below 1.
  template <typename Count>
  void build(const Count* counts, int symbols, int wanted) {
    bits = wanted;
    const uint32_t size = uint32_t{1} << wanted;
    uint32_t high = size, next[kMostSymbols];
    for (int i = 0; i < symbols; ++i) {
      next[i] = counts[i] < 0 ? 1 : static_cast<uint32_t>(counts[i]);
      if (counts[i] < 0) table[--high].symbol = static_cast<uint8_t>(i);
    }
    uint32_t place = 0;
    for (int i = 0; i < symbols; ++i) {
      for (int j = 0; j < counts[i]; ++j) {
        table[place].symbol = static_cast<uint8_t>(i);
        do {
          place = (place + (size >> 1) + (size >> 3) + 3) & (size - 1);
        } while (place >= high);
      }
    }
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t state = next[table[i].symbol]++;
      table[i].bits = static_cast<uint8_t>(wanted + 1 - bit_length(state));
      table[i].base = static_cast<uint16_t>((state << table[i].bits) - size);
    }
  }

  // One of the modes of 3.1.1.3.2.1.
  bool read(int mode, Span& bytes) {
    if (mode == 0) {
      build(kind.default_counts, kind.defaults, kind.default_bits);
    } else if (mode == 1) {
      if (bytes.size() < 1 || *bytes.begin >= kind.symbols) return false;
      bits = 0;
      table[0] = {*bytes.begin++, 0, 0};
    } else if (mode == 2) {
      return read_description(bytes, kind.most_bits, kind.symbols);
    }
    return bits >= 0;
  }
};

// 3.1.1.3.2.1.1 and 3.1.1.3.2.2: lengths of literals and of matches by their codes, and the default distributions.
inline constexpr int8_t kLengthCounts[] = {
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
inline constexpr int8_t kMatchCounts[] = {
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
inline constexpr int8_t kOffsetCounts[] = {
    1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
inline constexpr uint32_t kLengthBase[] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 128, 256, 512,
    1024, 2048, 4096, 8192, 16384, 32768, 65536};
inline constexpr uint8_t kLengthBits[] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    16};
inline constexpr uint32_t kMatchBase[] = {
    3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
    33, 34, 35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539};
inline constexpr uint8_t kMatchBits[] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2,
    2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
inline constexpr FseKind kLengths{9, 36, 6, 36, kLengthCounts};
inline constexpr FseKind kMatches{9, 53, 6, 53, kMatchCounts};
inline constexpr FseKind kOffsets{8, 32, 5, 29, kOffsetCounts};
inline constexpr FseKind kWeights{6, 13, 0, 0, nullptr};

// 4.2: codes of at most 11 bits.
class Huffman {
 public:
  // 4.2.1: the tree's description, which is taken off the bytes.
  bool read(Span& bytes) {
    bits_ = 0;
    uint8_t weights[kMostSymbols];
    int count = 0;
    if (bytes.size() < 1) return false;
    const int header = *bytes.begin++;
    if (header >= 128) {
      count = header - 127;
      if (bytes.size() < static_cast<size_t>(count + 1) / 2) return false;
      for (int i = 0; i < count; ++i) weights[i] = i % 2 ? bytes.begin[i / 2] & 15 : bytes.begin[i / 2] >> 4;
      bytes.begin += (count + 1) / 2;
    } else {
      if (bytes.size() < static_cast<size_t>(header)) return false;
      Span packed{bytes.begin, bytes.begin + header};
      bytes.begin = packed.end;
      count = read_weights(packed, weights);
      if (!count) return false;
    }
    return build(weights, count);
  }

  bool decode(Span stream, uint8_t* out, size_t count) const {
    if (!bits_) return false;
    Backwards bits(stream);
    if (!bits.valid()) return false;
    const int drop = 64 - bits_;
    const uint8_t* const end = out + count;
    while (end - out >= 5 && bits.left() >= 57) {
      uint64_t next = bits.window();
      int taken = 0;
      for (int i = 0; i < 5; ++i) {  // of at most 11 bits each
        const Code code = codes_[next >> drop];
        *out++ = code.symbol;
        next <<= code.bits;
        taken += code.bits;
      }
      bits.skip(taken);
    }
    while (out < end && bits.left() > 0) {
      const Code code = codes_[bits.window() >> drop];
      *out++ = code.symbol;
      bits.skip(code.bits);
    }
    return out == end && bits.left() == 0;
  }

 private:
  static constexpr int kMostBits = 11;

  struct Code {
    uint8_t symbol, bits;
  };

  // 4.2.1.2: two states take turns. The number of weights, or 0.
  static int read_weights(Span packed, uint8_t* weights) {
    FseTable fse(kWeights);
    if (!fse.read_description(packed, kWeights.most_bits, kWeights.symbols)) return 0;
    Backwards bits(packed);
    if (!bits.valid()) return 0;
    uint32_t states[2];
    states[0] = bits.read(fse.bits);
    states[1] = bits.read(fse.bits);
    if (bits.left() < 0) return 0;
    int count = 0;
    for (int turn = 0; count < kMostSymbols - 2; turn ^= 1) {
      const FseEntry entry = fse.table[states[turn]];
      weights[count++] = entry.symbol;
      if (bits.left() < entry.bits) {
        weights[count++] = fse.table[states[turn ^ 1]].symbol;
        return count;
      }
      states[turn] = entry.base + bits.read(entry.bits);
    }
    return 0;
  }

  // 4.2.1.3: the last symbol's weight is what is missing to a power of two.
  bool build(uint8_t* weights, int count) {
    uint32_t sum = 0;
    for (int i = 0; i < count; ++i) {
      if (weights[i] > kMostBits) return false;
      sum += weights[i] ? uint32_t{1} << (weights[i] - 1) : 0;
    }
    const int bits = bit_length(sum);
    if (!sum || bits > kMostBits) return false;
    const uint32_t rest = (uint32_t{1} << bits) - sum;
    if (rest & (rest - 1)) return false;
    weights[count++] = static_cast<uint8_t>(bit_length(rest));
    size_t place = 0;
    for (int weight = 1; weight <= bits; ++weight) {
      for (int i = 0; i < count; ++i) {
        if (weights[i] != weight) continue;
        const Code code{static_cast<uint8_t>(i), static_cast<uint8_t>(bits + 1 - weight)};
        for (size_t j = 0; j < size_t{1} << (weight - 1); ++j) codes_[place++] = code;
      }
    }
    bits_ = bits;
    return true;
  }

  int bits_ = 0;  // 0: no tree yet
  Code codes_[1 << kMostBits];
};

}  // namespace mvprune
