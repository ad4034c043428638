// What the files of AVX-512 share.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace mvprune {
namespace {

inline __mmask16 first_lanes(int64_t count) { return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1); }

// The sums over the lanes of 16 vectors: lane i is that of the i-th.
inline __m512i totals(const __m512i (&rows)[16]) {
  __m512i pair[8], four[4];
  for (int i = 0; i < 8; ++i) {
    pair[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]), _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]));
  }
  for (int i = 0; i < 4; ++i) {
    four[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pair[2 * i], pair[2 * i + 1]), _mm512_unpackhi_epi64(pair[2 * i], pair[2 * i + 1]));
  }
  const __m512i low = _mm512_add_epi32(_mm512_shuffle_i32x4(four[0], four[1], 0x44), _mm512_shuffle_i32x4(four[0], four[1], 0xee));
  const __m512i high = _mm512_add_epi32(_mm512_shuffle_i32x4(four[2], four[3], 0x44), _mm512_shuffle_i32x4(four[2], four[3], 0xee));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xdd));
}

inline __m512 totals(const __m512 (&rows)[16]) {
  const auto high_pair = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  const auto low_pair = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  __m512 pair[8], four[4];
  for (int i = 0; i < 8; ++i) {
    pair[i] = _mm512_add_ps(_mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]), _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]));
  }
  for (int i = 0; i < 4; ++i) four[i] = _mm512_add_ps(low_pair(pair[2 * i], pair[2 * i + 1]), high_pair(pair[2 * i], pair[2 * i + 1]));
  const __m512 low = _mm512_add_ps(_mm512_shuffle_f32x4(four[0], four[1], 0x44), _mm512_shuffle_f32x4(four[0], four[1], 0xee));
  const __m512 high = _mm512_add_ps(_mm512_shuffle_f32x4(four[2], four[3], 0x44), _mm512_shuffle_f32x4(four[2], four[3], 0xee));
  return _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
}

}  // namespace
}  // namespace mvprune
