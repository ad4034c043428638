#include "source.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace mvprune {
namespace {

Error unreadable(const std::string& name, const char* why) {
  return {name + ": cannot be read (" + why + ")", Code::kUnreadable};
}

Error too_large(const std::string& name, uint64_t limit) {
  return {name + ": must have at most " + std::to_string(limit) + " bytes, got more"};
}

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

}  // namespace

Result<Bytes> Folder::read(const std::string& name, uint64_t limit) const {
  const std::string path = path_ + "/" + name;
  // Not blocking: opening a pipe may never end.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_NONBLOCK)};
  if (file.number < 0) return unreadable(name, std::strerror(errno));
  // Pipes have no end, a folder has nothing to read, and a device is read although its size is 0. fstat would say so too,
  // but since glibc 2.33 it has a name that an older one lacks.
  const off_t size = lseek(file.number, 0, SEEK_END);
  const bool is_seekable = size >= 0 && lseek(file.number, 0, SEEK_SET) == 0;
  uint8_t first;
  const ssize_t there = is_seekable ? ::read(file.number, &first, 1) : 0;
  if (!is_seekable || (there < 0 && errno == EISDIR) || (there > 0 && !size)) return unreadable(name, "not a regular file");
  if (there < 0) return unreadable(name, std::strerror(errno));
  if (static_cast<uint64_t>(size) > limit) return too_large(name, limit);
  if (lseek(file.number, 0, SEEK_SET) < 0) return unreadable(name, std::strerror(errno));
  Bytes bytes(static_cast<size_t>(size));
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more = ::read(file.number, bytes.data() + got, bytes.size() - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return unreadable(name, std::strerror(errno));
    if (more == 0) break;
    got += static_cast<size_t>(more);
  }
  bytes.resize(got);
  return bytes;
}

Result<Bytes> InMemory::read(const std::string& name, uint64_t limit) const {
  const auto found = files_.find(name);
  if (found == files_.end()) return unreadable(name, "it is not among the files");
  if (found->second.second > limit) return too_large(name, limit);
  const auto [data, bytes] = found->second;
  return bytes ? Bytes(data, data + bytes) : Bytes();
}

namespace {

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#if defined(__x86_64__)
// Whether the processor has instructions for SHA-256, and those of SSE that go with them.
bool has_sha() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_SHA)) return false;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSSE3) && (c & bit_SSE4_1);
}

// As digest_blocks, four rounds at a time: Intel's "SHA Extensions", 2013, with the state as ABEF and CDGH.
__attribute__((target("sha,ssse3,sse4.1"))) void digest_by_sha(const uint8_t* bytes, size_t blocks, uint32_t* state) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const auto at = [](const uint32_t* words) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(words)); };
  const __m128i cdab = _mm_shuffle_epi32(at(state), 0xB1), efgh = _mm_shuffle_epi32(at(state + 4), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; blocks; --blocks, bytes += 64) {
    const __m128i before_abef = abef, before_cdgh = cdgh;
    __m128i words[4];  // the last 16 of the schedule
    for (int i = 0; i < 16; ++i) {
      __m128i& next = words[i % 4];
      if (i < 4) {
        next = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i), order);
      } else {
        const __m128i last = words[(i + 3) % 4], third = words[(i + 2) % 4];
        next = _mm_add_epi32(_mm_sha256msg1_epu32(next, words[(i + 1) % 4]), _mm_alignr_epi8(last, third, 4));
        next = _mm_sha256msg2_epu32(next, last);
      }
      const __m128i given = _mm_add_epi32(next, at(kRound + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, given);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(given, 0x0E));
    }
    abef = _mm_add_epi32(abef, before_abef);
    cdgh = _mm_add_epi32(cdgh, before_cdgh);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

uint32_t turned(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

void digest_block(const uint8_t* block, uint32_t* state) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 | block[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[i - 7] + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
  }
  uint32_t s[8];
  std::memcpy(s, state, sizeof(s));
  for (int i = 0; i < 64; ++i) {
    const uint32_t chosen = (s[4] & s[5]) ^ (~s[4] & s[6]), most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    const uint32_t first = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) + chosen + kRound[i] + w[i];
    const uint32_t second = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) + most;
    for (int k = 7; k > 0; --k) s[k] = s[k - 1];
    s[4] += first;
    s[0] = first + second;
  }
  for (int k = 0; k < 8; ++k) state[k] += s[k];
}

void digest_blocks(const uint8_t* bytes, size_t blocks, uint32_t* state) {
#if defined(__x86_64__)
  static const bool is_quick = has_sha();
  if (is_quick) return digest_by_sha(bytes, blocks, state);
#endif
  for (size_t i = 0; i < blocks; ++i) digest_block(bytes + 64 * i, state);
}

}  // namespace

std::string sha256(const Bytes& bytes) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = bytes.size() / 64 * 64;
  digest_blocks(bytes.data(), whole / 64, state);
  uint8_t last[128] = {};
  const size_t rest = bytes.size() - whole, filled = rest < 56 ? 64 : 128;
  if (rest) std::memcpy(last, bytes.data() + whole, rest);
  last[rest] = 0x80;
  for (int i = 0; i < 8; ++i) last[filled - 1 - i] = static_cast<uint8_t>(uint64_t{bytes.size()} * 8 >> 8 * i);
  digest_blocks(last, filled / 64, state);
  std::string text;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

}  // namespace mvprune
