// Vectors of floats for the instruction set this file is compiled for: arithmetic by the compiler's vector extensions
// (GCC and Clang), tiles by intrinsics where that pays.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernel.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mvprune {
namespace {

#if defined(__AVX512F__)
constexpr char kName[] = "avx512";
constexpr int64_t kLanes = 16;
constexpr int64_t kVectors = 4;  // a panel of 64 tokens and 768 columns leaves L2 room for the weights
constexpr int64_t kByteVectors = 8;
#elif defined(__AVX2__)
constexpr char kName[] = "avx2";
constexpr int64_t kLanes = 8;
constexpr int64_t kVectors = 8;
constexpr int64_t kByteVectors = kVectors;
#else
#if defined(__aarch64__)
constexpr char kName[] = "neon";
#else
constexpr char kName[] = "generic";
#endif
constexpr int64_t kLanes = 4;
constexpr int64_t kVectors = 8;
constexpr int64_t kByteVectors = kVectors;
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes), may_alias));
typedef int32_t Integers __attribute__((vector_size(4 * kLanes), may_alias));
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes), may_alias));
typedef uint16_t Halves __attribute__((vector_size(2 * kLanes), may_alias));

// The pointer itself, in a register of its own: operands of base and index cost the front end twice as much.
template <typename T>
inline T* keep(T* pointer) {
  asm("" : "+r"(pointer));
  return pointer;
}

inline Vector splat(float value) { return value - Vector{}; }

inline Vector load_vector(const float* in) {
  Vector value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

inline void store_vector(float* out, Vector value) { std::memcpy(out, &value, sizeof value); }

// Up to kLanes numbers, and zeros behind them.
inline Vector load_first(const float* in, int64_t count) {
#if defined(__AVX512F__)
  return (Vector)_mm512_maskz_loadu_ps(count < kLanes ? static_cast<__mmask16>((1u << count) - 1) : 0xffff, in);
#else
  if (count >= kLanes) return load_vector(in);
  Vector value{};
  for (int64_t i = 0; i < count; ++i) value[i] = in[i];
  return value;
#endif
}

// The first `count` lanes; all if there are not so many.
inline void store_first(float* out, Vector value, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(out, count < kLanes ? static_cast<__mmask16>((1u << count) - 1) : 0xffff, (__m512)value);
#else
  if (count >= kLanes) return store_vector(out, value);
  for (int64_t lane = 0; lane < count; ++lane) out[lane] = value[lane];
#endif
}

// a b + c, rounded once where the instruction set can. The compiler decides by the code around a product and a sum.
inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

inline Vector select(Integers mask, Vector yes, Vector no) { return mask ? yes : no; }

// The vector as memory would give it back: the compiler does not join the operations around it to one with less rounding.
inline Vector rounded(Vector x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#else
  asm("" : "+m"(x));
#endif
  return x;
}

inline Vector absolute(Vector x) { return (Vector)((Bits)x & (Bits{} + 0x7fffffffu)); }

inline Integers greater(Integers a, Integers b) { return a > b ? a : b; }

inline Vector clamp(Vector x, float low, float high) {
  x = select(x < splat(low), splat(low), x);
  return select(x > splat(high), splat(high), x);
}

// Even and odd powers apart: half as long a chain of operations.
template <int N>
inline Vector polynomial(Vector x, const float (&coefficients)[N]) {
  const Vector square = x * x;
  Vector high = splat(coefficients[N - 1]), low = splat(coefficients[N - 2]);
  for (int i = N - 3; i >= 0; i -= 2) {
    high = high * square + coefficients[i];
    if (i > 0) low = low * square + coefficients[i - 1];
  }
  return N % 2 ? high + x * low : low + x * high;
}

#if defined(__AVX512F__)

// out[i, j] = in[j, i] for 16 x 16 floats: quarters of rows are loaded into place, then 4 x 4 in each quarter.
inline void load_transposed(const float* in, int64_t stride, __m512 (&tile)[16]) {
  for (int i = 0; i < 4; ++i) {
    __m512 row[4];
    for (int j = 0; j < 4; ++j) {
      const float* source = in + j * stride + 4 * i;
      row[j] = _mm512_castps128_ps512(_mm_loadu_ps(source));
      row[j] = _mm512_mask_broadcast_f32x4(row[j], 0x00f0, _mm_loadu_ps(source + 4 * stride));
      row[j] = _mm512_mask_broadcast_f32x4(row[j], 0x0f00, _mm_loadu_ps(source + 8 * stride));
      row[j] = _mm512_mask_broadcast_f32x4(row[j], 0xf000, _mm_loadu_ps(source + 12 * stride));
    }
    const __m512 a = _mm512_unpacklo_ps(row[0], row[1]), b = _mm512_unpackhi_ps(row[0], row[1]);
    const __m512 c = _mm512_unpacklo_ps(row[2], row[3]), d = _mm512_unpackhi_ps(row[2], row[3]);
    tile[4 * i] = _mm512_shuffle_ps(a, c, 0x44);
    tile[4 * i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    tile[4 * i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    tile[4 * i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
}

inline void store(float* out, __m512 value) { _mm512_storeu_ps(out, value); }
inline __m512 load(const float* in) { return _mm512_loadu_ps(in); }

#elif defined(__AVX2__)

// The same for 8 x 8 floats, in halves of rows.
inline void load_transposed(const float* in, int64_t stride, __m256 (&tile)[8]) {
  for (int i = 0; i < 2; ++i) {
    __m256 row[4];
    for (int j = 0; j < 4; ++j) {
      const float* source = in + j * stride + 4 * i;
      row[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(source)), _mm_loadu_ps(source + 4 * stride), 1);
    }
    const __m256 a = _mm256_unpacklo_ps(row[0], row[1]), b = _mm256_unpackhi_ps(row[0], row[1]);
    const __m256 c = _mm256_unpacklo_ps(row[2], row[3]), d = _mm256_unpackhi_ps(row[2], row[3]);
    tile[4 * i] = _mm256_shuffle_ps(a, c, 0x44);
    tile[4 * i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    tile[4 * i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    tile[4 * i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
}

inline void store(float* out, __m256 value) { _mm256_storeu_ps(out, value); }
inline __m256 load(const float* in) { return _mm256_loadu_ps(in); }

#else

inline void load_transposed(const float* in, int64_t stride, Vector (&tile)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    Vector column{};
    for (int j = 0; j < kLanes; ++j) column[j] = in[j * stride + i];
    tile[i] = column;
  }
}

inline void store(float* out, Vector value) { std::memcpy(out, &value, sizeof value); }
inline Vector load(const float* in) {
  Vector value;
  std::memcpy(&value, in, sizeof value);
  return value;
}

#endif

using Register = decltype(load(nullptr));

// out[i, j] = in[j, i] for kLanes x kLanes floats; strides in floats.
inline void transpose_tile(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  Register tile[kLanes];
  load_transposed(in, in_stride, tile);
  for (int i = 0; i < kLanes; ++i) store(out + i * out_stride, tile[i]);
}

// The same plus add[i, j], which lies as out does.
inline void transpose_tile_and_add(const float* in, int64_t in_stride, float* out, int64_t out_stride, const float* add) {
  Register tile[kLanes];
  load_transposed(in, in_stride, tile);
  for (int i = 0; i < kLanes; ++i) store(out + i * out_stride, tile[i] + load(add + i * out_stride));
}

// e^x for x <= 0, within 2e-7 of it; 0 where that is no normal number.
inline Vector exp(Vector x) {
  static constexpr float p[] = {1.0f, 1.0f, 0.500000012f, 0.166666655f, 0.0416657959f, 0.00833345191f, 0.00139819995f, 0.000198756915f};
  constexpr float least = -87.0f, rounder = 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer, in the low bits
  const Vector rounded = x * 1.44269504f + rounder, power = rounded - rounder;
  const Vector rest = x - power * 0.693359375f + power * 2.12194440e-4f;
  const Bits result = (Bits)polynomial(rest, p) + ((Bits)rounded << 23);  // times 2^power
  return select(x < splat(least), Vector{}, (Vector)result);
}

// value, and beyond +-end the limits -1 and 1 that erf and tanh have there.
inline Vector saturate(Vector x, float end, Vector value) {
  return select(x >= splat(end), splat(1), select(x <= splat(-end), splat(-1), value));
}

// Within 4e-7: x P(x^2) / Q(x^2); P and Q by Lawson's algorithm.
inline Vector tanh(Vector x) {
  static constexpr float p[] = {0.999999881f, 0.133731961f, 0.00348658022f, 2.04718017e-05f, 1.31841853e-08f};
  static constexpr float q[] = {1.0f, 0.467064917f, 0.0258419719f, 0.000327138258f, 7.7026476e-07f};
  constexpr float end = 9.0f;
  const Vector inside = clamp(x, -end, end), square = inside * inside;
  return saturate(x, end, inside * polynomial(square, p) / polynomial(square, q));
}

inline Vector relu(Vector x) { return select(x < Vector{}, Vector{}, x); }  // NaN stays

// x Phi(x), within 1e-6: Phi(x) = 1/2 + x P(u) with u in [-1, 1] up to the x from where on Phi is 0 or 1 in single
// precision; P by Lawson's algorithm.
inline Vector gelu(Vector x) {
  static constexpr float p[] = {
      0.128192797f, -0.0639972314f, 0.0476197265f, -0.038719669f, 0.032070484f,
      -0.0261620078f, 0.0203802194f, -0.0147733921f, 0.010593568f, -0.00783186592f,
      0.00433042878f, -0.00123018771f, 0.00104685361f, -0.00142930611f, 0.000564298593f};
  constexpr float end = 2 * 3.9f * 3.9f;
  const Vector square = x * x;
  const Vector inside = x * (0.5f + x * polynomial(square * (2 / end) - 1.0f, p));
  return select(square >= splat(end), relu(x), inside);
}

inline Vector gelu_tanh(Vector x) {
  return x * (0.5f + 0.5f * tanh(0.79788456f * (x + 0.044715f * x * x * x)));
}

}  // namespace
}  // namespace mvprune
