// Names and sections are those of RFC 8878.
#include "zstd.h"

#include <cstring>
#include <memory>

#include "zstd_tables.h"

namespace mvprune {
namespace {

constexpr uint32_t kMagic = 0xFD2FB528;
constexpr size_t kMostOfBlock = 128 << 10;

uint64_t little_endian(const uint8_t* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint64_t{bytes[i]} << (8 * i);
  return value;
}

// 3.1.1.1.
struct FrameHeader {
  size_t bytes = 0;  // 0: not a header that this decoder knows
  bool has_checksum = false;
  std::optional<uint64_t> size;
};

FrameHeader read_header(const uint8_t* frame, size_t bytes) {
  FrameHeader header;
  if (bytes < 5 || little_endian(frame, 4) != kMagic) return header;
  const int descriptor = frame[4];
  const bool single = descriptor >> 5 & 1;
  if (descriptor & 8) return header;  // reserved
  static constexpr uint8_t kDictionaryBytes[] = {0, 1, 2, 4}, kSizeBytes[] = {0, 2, 4, 8};
  const size_t dictionary = kDictionaryBytes[descriptor & 3];
  const size_t size = descriptor >> 6 ? kSizeBytes[descriptor >> 6] : single;
  const size_t end = 5 + !single + dictionary + size;
  if (end > bytes || little_endian(frame + 5 + !single, dictionary)) return header;
  if (size) header.size = little_endian(frame + end - size, size) + (size == 2 ? 256 : 0);
  header.has_checksum = descriptor >> 2 & 1;
  header.bytes = end;
  return header;
}

// XXH64 with the seed 0: what the checksum of a frame is taken from.
uint64_t xxh64(const uint8_t* bytes, size_t count) {
  constexpr uint64_t k1 = 0x9E3779B185EBCA87, k2 = 0xC2B2AE3D27D4EB4F, k3 = 0x165667B19E3779F9;
  constexpr uint64_t k4 = 0x85EBCA77C2B2AE63, k5 = 0x27D4EB2F165667C5;
  const auto turn = [](uint64_t x, int bits) { return x << bits | x >> (64 - bits); };
  const auto round = [&](uint64_t sum, uint64_t x) { return turn(sum + x * k2, 31) * k1; };
  const uint8_t *at = bytes, *const end = bytes + count;
  uint64_t hash = k5;
  if (count >= 32) {
    uint64_t sums[4] = {k1 + k2, k2, 0, uint64_t{0} - k1};
    for (; end - at >= 32; at += 32) {
      for (int i = 0; i < 4; ++i) sums[i] = round(sums[i], little_endian(at + 8 * i, 8));
    }
    hash = turn(sums[0], 1) + turn(sums[1], 7) + turn(sums[2], 12) + turn(sums[3], 18);
    for (uint64_t sum : sums) hash = (hash ^ round(0, sum)) * k1 + k4;
  }
  hash += count;
  for (; end - at >= 8; at += 8) hash = turn(hash ^ round(0, little_endian(at, 8)), 27) * k1 + k4;
  if (end - at >= 4) {
    hash = turn(hash ^ little_endian(at, 4) * k1, 23) * k2 + k3;
    at += 4;
  }
  for (; at < end; ++at) hash = turn(hash ^ *at * k5, 11) * k1;
  hash = (hash ^ hash >> 33) * k2;
  hash = (hash ^ hash >> 29) * k3;
  return hash ^ hash >> 32;
}

// Decodes the blocks of one frame, each with the tables that those before it left.
class Frame {
 public:
  Frame(uint8_t* out, size_t size) : begin_(out), out_(out), end_(out + size) {}

  const char* blocks(const uint8_t*& at, const uint8_t* end) {
    for (bool last = false; !last;) {
      if (end - at < 3) return "a block is cut off";
      const uint64_t header = little_endian(at, 3);
      at += 3;
      last = header & 1;
      const size_t size = header >> 3;
      const int type = header >> 1 & 3;
      if (type == 3) return "a block has a reserved type";
      if (size > kMostOfBlock) return "a block is too large";
      const size_t stored = type == 1 ? 1 : size;
      if (static_cast<size_t>(end - at) < stored) return "a block is cut off";
      if (type != 2) {
        if (static_cast<size_t>(end_ - out_) < size) return kTooMuch;
        if (type == 0 && size) std::memcpy(out_, at, size);
        if (type == 1 && size) std::memset(out_, *at, size);
        out_ += size;
      } else if (const char* wrong = compressed_block({at, at + size})) {
        return wrong;
      }
      at += stored;
    }
    return out_ == end_ ? nullptr : "it has less content than its size says";
  }

 private:
  static constexpr const char* kTooMuch = "it has more content than its size says";
  static constexpr const char* kLiterals = "its literals are broken";
  static constexpr const char* kSequences = "its sequences are broken";

  const char* compressed_block(Span block) {
    const uint8_t* literals = nullptr;
    size_t count = 0;
    if (!read_literals(block, literals, count)) return kLiterals;
    return read_sequences(block, literals, count);
  }

  // 3.1.1.3.1. Takes the section off the block.
  bool read_literals(Span& block, const uint8_t*& literals, size_t& count) {
    if (block.size() < 1) return false;
    const int type = block.begin[0] & 3, format = block.begin[0] >> 2 & 3;
    if (type < 2) {
      const size_t header = format == 3 ? 3 : format == 1 ? 2 : 1;
      if (block.size() < header) return false;
      count = little_endian(block.begin, header) >> (format & 1 ? 4 : 3);
      block.begin += header;
      const size_t stored = type == 1 ? 1 : count;
      if (count > kMostOfBlock || block.size() < stored) return false;
      literals = block.begin;
      if (type == 1) literals = static_cast<const uint8_t*>(std::memset(literals_, *block.begin, count));
      block.begin += stored;
      return true;
    }
    const size_t header = format < 2 ? 3 : static_cast<size_t>(format) + 2;
    const int bits = format < 2 ? 10 : format == 2 ? 14 : 18;
    if (block.size() < header) return false;
    const uint64_t sizes = little_endian(block.begin, header) >> 4;
    count = sizes & ((1 << bits) - 1);
    const size_t stored = sizes >> bits;
    block.begin += header;
    if (count > kMostOfBlock || block.size() < stored) return false;
    Span streams{block.begin, block.begin + stored};
    block.begin += stored;
    literals = literals_;
    if (type == 2 && !huffman_.read(streams)) return false;
    if (format == 0) return huffman_.decode(streams, literals_, count);
    if (streams.size() < 6) return false;
    const uint8_t* const jumps = streams.begin;
    streams.begin += 6;
    const size_t part = (count + 3) / 4;
    if (3 * part > count) return false;
    for (size_t i = 0; i < 4; ++i) {
      const size_t bytes = i < 3 ? little_endian(jumps + 2 * i, 2) : streams.size();
      if (bytes > streams.size()) return false;
      const Span stream{streams.begin, streams.begin + bytes};
      if (!huffman_.decode(stream, literals_ + i * part, i < 3 ? part : count - 3 * part)) return false;
      streams.begin += bytes;
    }
    return true;
  }

  // 3.1.1.3.2 and 3.1.1.4.
  const char* read_sequences(Span block, const uint8_t* literals, size_t left) {
    if (block.size() < 1) return kSequences;
    size_t sequences = *block.begin++;
    if (sequences >= 128) {
      const size_t more = sequences == 255 ? 2 : 1;
      if (block.size() < more) return kSequences;
      const size_t value = little_endian(block.begin, more);
      sequences = more == 2 ? value + 0x7F00 : ((sequences - 128) << 8) + value;
      block.begin += more;
    }
    // A block of 128 KiB bounds what it writes, and so the work that a small frame can ask for.
    uint8_t* const most = static_cast<size_t>(end_ - out_) > kMostOfBlock ? out_ + kMostOfBlock : end_;
    if (sequences) {
      if (block.size() < 1) return kSequences;
      const int modes = *block.begin++;
      if (modes & 3) return kSequences;
      if (!lengths_.read(modes >> 6, block) || !offsets_.read(modes >> 4 & 3, block) ||
          !matches_.read(modes >> 2 & 3, block)) {
        return kSequences;
      }
      Backwards bits(block);
      if (!bits.valid()) return kSequences;
      uint32_t length = bits.read(lengths_.bits), offset = bits.read(offsets_.bits), match = bits.read(matches_.bits);
      while (true) {
        const FseEntry of_length = lengths_.table[length], of_offset = offsets_.table[offset];
        const FseEntry of_match = matches_.table[match];
        const uint64_t distance = (uint64_t{1} << of_offset.symbol) + bits.read(of_offset.symbol);
        const size_t copied = kMatchBase[of_match.symbol] + bits.read(kMatchBits[of_match.symbol]);
        const size_t plain = kLengthBase[of_length.symbol] + bits.read(kLengthBits[of_length.symbol]);
        const bool last = --sequences == 0;
        if (!last) {
          length = of_length.base + bits.read(of_length.bits);
          match = of_match.base + bits.read(of_match.bits);
          offset = of_offset.base + bits.read(of_offset.bits);
        }
        if (bits.left() < 0) return kSequences;
        if (plain > left) return kSequences;
        if (plain + copied > static_cast<size_t>(most - out_)) return most == end_ ? kTooMuch : kSequences;
        if (plain) std::memcpy(out_, literals, plain);
        literals += plain;
        left -= plain;
        out_ += plain;
        const uint64_t back = resolve(distance, plain == 0);
        if (!back || back > static_cast<size_t>(out_ - begin_)) return kSequences;
        copy_match(static_cast<size_t>(back), copied);
        if (last) break;
      }
      if (bits.left()) return kSequences;
    } else if (block.size()) {
      return kSequences;
    }
    if (left > static_cast<size_t>(most - out_)) return most == end_ ? kTooMuch : kLiterals;
    if (left) std::memcpy(out_, literals, left);
    out_ += left;
    return nullptr;
  }

  // 3.1.1.5: the first three values stand for the last distances.
  uint64_t resolve(uint64_t value, bool no_literals) {
    uint64_t distance;
    uint64_t place = value - 1 + no_literals;  // 3: one less than the last
    if (value > 3) {
      distance = value - 3;
      place = 3;
    } else {
      distance = place < 3 ? repeated_[place] : repeated_[0] - 1;
    }
    if (place > 1) repeated_[2] = repeated_[1];
    if (place > 0) repeated_[1] = repeated_[0];
    repeated_[0] = distance;
    return distance;
  }

  void copy_match(size_t back, size_t count) {
    const uint8_t* from = out_ - back;
    if (back >= count) {
      std::memcpy(out_, from, count);
      out_ += count;
    } else {
      for (uint8_t* const end = out_ + count; out_ < end;) *out_++ = *from++;
    }
  }

  uint8_t* const begin_;
  uint8_t* out_;
  uint8_t* const end_;
  uint64_t repeated_[3] = {1, 4, 8};
  Huffman huffman_;
  FseTable lengths_{kLengths}, offsets_{kOffsets}, matches_{kMatches};
  uint8_t literals_[kMostOfBlock];
};

}  // namespace

std::optional<uint64_t> zstd_size(const uint8_t* frame, size_t bytes) { return read_header(frame, bytes).size; }

const char* zstd_unpack(const uint8_t* frame, size_t bytes, uint8_t* out, size_t size) {
  const FrameHeader header = read_header(frame, bytes);
  if (!header.bytes) return "it does not begin like a zstd frame without a dictionary";
  if (header.size && *header.size != size) return "its size is not the expected one";
  const uint8_t *at = frame + header.bytes, *const end = frame + bytes;
  const auto decoder = std::make_unique<Frame>(out, size);
  if (const char* wrong = decoder->blocks(at, end)) return wrong;
  if (header.has_checksum) {
    if (end - at < 4 || little_endian(at, 4) != (xxh64(out, size) & 0xFFFFFFFF)) return "its checksum is wrong";
    at += 4;
  }
  return at == end ? nullptr : "there are bytes behind its end";
}

}  // namespace mvprune
