// The products of quads. Compiled once for each vector length and instruction (MVPRUNE_DOTS is the table it defines): with
// MVPRUNE_VNNI by vpdpbusd as AVX-512 has it, with MVPRUNE_AVXVNNI as AVX-VNNI has it, else by multiplications. All give
// the same sums. As in kernel.cpp, all but the table has internal linkage.
#include <cstring>

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
#if defined(MVPRUNE_VNNI) && defined(__AVX512F__)
#define MVPRUNE_DOT(sum, bytes, weights) \
  (Integers) _mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(bytes), (__m512i)(weights))
#elif defined(MVPRUNE_VNNI)
#define MVPRUNE_DOT(sum, bytes, weights) \
  (Integers) _mm256_dpbusd_epi32((__m256i)(sum), (__m256i)(bytes), (__m256i)(weights))
#elif defined(MVPRUNE_AVXVNNI) && MVPRUNE_HAS_AVXVNNI
#define MVPRUNE_DOT(sum, bytes, weights) \
  (Integers) _mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(bytes), (__m256i)(weights))
#else
#define MVPRUNE_SLOW
#define MVPRUNE_DOT(sum, bytes, weights) multiplied(sum, bytes, weights)
#endif

namespace mvprune {
namespace {

#if defined(MVPRUNE_SLOW)
constexpr bool kFast = false;

Integers multiplied(Integers sum, Integers bytes, Integers weights) {
  for (int shift = 0; shift < 32; shift += 8) sum += (bytes >> shift & 255) * (weights << (24 - shift) >> 24);
  return sum;
}
#else
constexpr bool kFast = true;
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
      for (int k = 0; k < K; ++k) result[k] += __builtin_convertvector(sum[k], Vector) * scale[k];
    }
    if (last) {
      const int64_t row = rows.first + order[j];
      const float bias = product.bias ? product.bias[row] : 0.0f;
      for (int k = 0; k < K; ++k) result[k] = result[k] * matrix.scales[row] + bias;
    }
    for (int k = 0; k < K; ++k) out[k] = result[k];
  }
}

template <int K = kVectors>
Accumulate accumulate_for(int64_t vectors) {
  if constexpr (K > 1) {
    if (vectors < K) return accumulate_for<K - 1>(vectors);
  }
  return accumulate<K>;
}

}  // namespace

extern const Dots MVPRUNE_DOTS = {kLanes, kFast, accumulate_for<>};

}  // namespace mvprune
