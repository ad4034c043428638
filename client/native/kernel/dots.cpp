// The products of quads. Compiled once for each vector length and instruction (MVPRUNE_DOTS is the table it defines): with
// MVPRUNE_VNNI by vpdpbusd as AVX-512 has it, with MVPRUNE_AVXVNNI as AVX-VNNI has it, else by multiplications. All give
// the same sums. As in kernel.cpp, all but the table has internal linkage.
#include <cstring>

#include "attention.h"
#include "kernel.h"
#include "matrix.h"
#include "simd.h"

#if defined(MVPRUNE_VNNI)
#define MVPRUNE_TARGET __attribute__((target("avx512vnni,avx512vl")))
#elif defined(MVPRUNE_AVXVNNI) && MVPRUNE_HAS_AVXVNNI
#define MVPRUNE_TARGET __attribute__((target("avxvnni")))
#else
#define MVPRUNE_TARGET
#endif

// sum + the products of four bytes, unsigned in `bytes` and signed in `weights`, in each lane.
// MVPRUNE_DOT16: the same of two int16.
#if defined(MVPRUNE_VNNI) && defined(__AVX512F__)
#define MVPRUNE_DOT(sum, bytes, weights) \
  (Integers) _mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(bytes), (__m512i)(weights))
#define MVPRUNE_DOT16(sum, a, b) (Integers) _mm512_dpwssd_epi32((__m512i)(sum), (__m512i)(a), (__m512i)(b))
#elif defined(MVPRUNE_VNNI)
#define MVPRUNE_DOT(sum, bytes, weights) \
  (Integers) _mm256_dpbusd_epi32((__m256i)(sum), (__m256i)(bytes), (__m256i)(weights))
#define MVPRUNE_DOT16(sum, a, b) (Integers) _mm256_dpwssd_epi32((__m256i)(sum), (__m256i)(a), (__m256i)(b))
#elif defined(MVPRUNE_AVXVNNI) && MVPRUNE_HAS_AVXVNNI
#define MVPRUNE_DOT(sum, bytes, weights) \
  (Integers) _mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(bytes), (__m256i)(weights))
#define MVPRUNE_DOT16(sum, a, b) (Integers) _mm256_dpwssd_avx_epi32((__m256i)(sum), (__m256i)(a), (__m256i)(b))
#else
#define MVPRUNE_SLOW
#define MVPRUNE_DOT(sum, bytes, weights) multiplied(sum, bytes, weights)
#endif

#if !defined(MVPRUNE_SLOW)
#include "attention16.h"
#endif

namespace mvprune {
namespace {

#if defined(MVPRUNE_SLOW)
constexpr bool kFast = false;
constexpr Attend kAttend = nullptr;

Integers multiplied(Integers sum, Integers bytes, Integers weights) {
  for (int shift = 0; shift < 32; shift += 8) sum += (bytes >> shift & 255) * (weights << (24 - shift) >> 24);
  return sum;
}
#else
constexpr bool kFast = true;
constexpr Attend kAttend = attend16;
#endif

// Vectors whose sums are in registers together, for each of kTogether rows.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kChunk = 4;
#else
constexpr int kChunk = 2;
#endif

// As kernel.cpp's accumulate, for a quantized block. A sum of bytes is exact: no block has so many columns that it could
// leave int32. What the 128 in each byte adds to it is known.
template <int K>
MVPRUNE_TARGET void accumulate(const Product& product, int64_t band, int64_t block, const float* quantized, float* sums) {
  const Matrix& matrix = *product.matrix;
  const Rows rows = rows_of(matrix, band);
  const int64_t height = rows.last - rows.first, place = rows.first * blocks(matrix) + block * height;
  const int64_t* starts = matrix.starts + place;
  const uint8_t* order = matrix.order + place;
  const int32_t* offsets = matrix.offsets + place;
  const auto* values = static_cast<const int8_t*>(matrix.values);
  const auto* columns = reinterpret_cast<const Integers*>(quantized + K * kLanes);
  const bool last = block == blocks(matrix) - 1;
  Vector scale[K];
  for (int k = 0; k < K; ++k) scale[k] = reinterpret_cast<const Vector*>(quantized)[k];
  for (int64_t j = 0; j < height; ++j) {
    const bool empty = starts[j] == starts[j + 1];
    if (empty && block > 0 && !last) return;  // and so are the others
    Vector* out = reinterpret_cast<Vector*>(sums) + order[j] * K;
    Vector result[K];
    for (int k = 0; k < K; ++k) result[k] = block == 0 ? Vector{} : out[k];
    if (!empty) {
      Integers sum[K];
      for (int k = 0; k < K; ++k) sum[k] = Integers{} - offsets[j];
      const int64_t end = starts[j + 1];
      for (int64_t i = starts[j]; i < end; ++i) {
        const Integers* column = keep(columns + static_cast<size_t>(matrix.indices[i]) * K);
        int32_t four;
        std::memcpy(&four, values + 4 * i, sizeof four);
        const Integers weights = Integers{} + four;
        for (int k = 0; k < K; ++k) sum[k] = MVPRUNE_DOT(sum[k], column[k], weights);
      }
      for (int k = 0; k < K; ++k) result[k] = multiply_add(__builtin_convertvector(sum[k], Vector), scale[k], result[k]);
    }
    if (last) {
      const int64_t row = rows.first + order[j];
      const float bias = product.bias ? product.bias[row] : 0.0f;
      for (int k = 0; k < K; ++k) result[k] = multiply_add(result[k], splat(matrix.scales[row]), splat(bias));
    }
    for (int k = 0; k < K; ++k) out[k] = result[k];
  }
}

// Where accumulate's values of K vectors become sums: those of a row of a full matrix, kTogether rows and C vectors at once.
template <int K, int C>
MVPRUNE_TARGET inline void accumulate_tile(const int32_t* values, int64_t groups, const Integers* columns, const int32_t (&offsets)[kTogether], Integers (&sum)[kTogether][C]) {
  for (int j = 0; j < kTogether; ++j) {
    for (int c = 0; c < C; ++c) sum[j][c] = Integers{} - offsets[j];
  }
  for (int64_t i = 0; i < groups; ++i, values += kTogether, columns += K) {
    for (int j = 0; j < kTogether; ++j) {
      const Integers weights = Integers{} + values[j];
      for (int c = 0; c < C; ++c) sum[j][c] = MVPRUNE_DOT(sum[j][c], columns[c], weights);
    }
  }
}

// The same of a full matrix: what is read of a panel is used for kTogether rows.
template <int K>
MVPRUNE_TARGET void accumulate_full(const Product& product, int64_t band, int64_t block, const float* quantized, float* sums) {
  const Matrix& matrix = *product.matrix;
  const Rows rows = rows_of(matrix, band);
  const int64_t height = rows.last - rows.first, across = (matrix.columns + 3) / 4, before = block * kQuadBlock / 4;
  const int64_t groups = smaller(kQuadBlock / 4, across - before), filled = (height + kTogether - 1) / kTogether * kTogether;
  const int32_t* values = static_cast<const int32_t*>(matrix.values) + rows.first * across + filled * before;
  const int32_t* offsets = matrix.offsets + rows.first * blocks(matrix) + block * height;
  const bool last = block == blocks(matrix) - 1;
  const auto use = [&](int64_t first, int64_t row, Vector* out, auto& sum) {
    const Vector* scale = reinterpret_cast<const Vector*>(quantized) + first;
    constexpr int C = sizeof(sum[0]) / sizeof(Vector);
    for (int64_t j = 0; j < smaller(kTogether, height - row); ++j, out += K) {
      const float factor = last ? matrix.scales[rows.first + row + j] : 1.0f;
      const float bias = last && product.bias ? product.bias[rows.first + row + j] : 0.0f;
      for (int c = 0; c < C; ++c) {
        const Vector result = multiply_add(__builtin_convertvector(sum[j][c], Vector), scale[c], block == 0 ? Vector{} : out[c]);
        out[c] = last ? multiply_add(result, splat(factor), splat(bias)) : result;
      }
    }
  };
  for (int64_t row = 0; row < height; row += kTogether, values += groups * kTogether) {
    int32_t some[kTogether] = {};
    for (int64_t j = 0; j < smaller(kTogether, height - row); ++j) some[j] = offsets[row + j];
    const auto* columns = reinterpret_cast<const Integers*>(quantized) + K;
    Vector* out = reinterpret_cast<Vector*>(sums) + row * K;
    for (int first = 0; first + kChunk <= K; first += kChunk) {
      Integers sum[kTogether][kChunk];
      accumulate_tile<K>(values, groups, columns + first, some, sum);
      use(first, row, out + first, sum);
    }
    if constexpr (K % kChunk != 0) {
      Integers sum[kTogether][K % kChunk];
      accumulate_tile<K>(values, groups, columns + K / kChunk * kChunk, some, sum);
      use(K / kChunk * kChunk, row, out + K / kChunk * kChunk, sum);
    }
  }
}

template <int K = kByteVectors>
Accumulate accumulate_for(Values kind, int64_t vectors) {
  if constexpr (K > 1) {
    if (vectors < K) return accumulate_for<K - 1>(kind, vectors);
  }
  return kind == Values::full ? accumulate_full<K> : accumulate<K>;
}

}  // namespace

#if defined(__wasm__)
// Without a fast instruction no model of a page has quads.
extern const Dots MVPRUNE_DOTS = {kLanes, kFast, nullptr, kAttend};
#else
extern const Dots MVPRUNE_DOTS = {kLanes, kFast, accumulate_for<>, kAttend};
#endif

}  // namespace mvprune
