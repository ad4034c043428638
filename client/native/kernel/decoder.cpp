// The parts of decoder.h, for AVX-512. As in kernel.cpp, all but the table has internal linkage.
#include "decoder_parts.h"
#include "lanes.h"

namespace mvprune {
namespace {

constexpr int64_t kKeys = 16;  // whose scores are made together

inline __m512 some(const float* in, int64_t count) { return (__m512)load_first(in, count); }

void normalize(const Normal& norm, int64_t rows, int64_t columns, const float* x, float* y) {
  for (int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const float count = static_cast<float>(columns);
    float mean = 0;
    if (norm.is_centred) {
      __m512 sum = _mm512_setzero_ps();
      for (int64_t i = 0; i < columns; i += kLanes) sum = _mm512_add_ps(sum, some(x + i, columns - i));
      mean = _mm512_reduce_add_ps(sum) / count;
    }
    const __m512 centre = _mm512_set1_ps(mean);
    __m512 squares = _mm512_setzero_ps();
    for (int64_t i = 0; i < columns; i += kLanes) {
      const __m512 difference = _mm512_maskz_sub_ps(first_lanes(columns - i), some(x + i, columns - i), centre);
      squares = _mm512_fmadd_ps(difference, difference, squares);
    }
    const __m512 scale = _mm512_set1_ps(1 / __builtin_sqrtf(_mm512_reduce_add_ps(squares) / count + norm.epsilon));
    for (int64_t i = 0; i < columns; i += kLanes) {
      const __m512 value = _mm512_mul_ps(_mm512_sub_ps(some(x + i, columns - i), centre), scale);
      const __m512 bias = norm.bias ? some(norm.bias + i, columns - i) : _mm512_setzero_ps();
      _mm512_mask_storeu_ps(y + i, first_lanes(columns - i), _mm512_fmadd_ps(value, some(norm.weight + i, columns - i), bias));
    }
  }
}

// The scores of up to kKeys keys that follow each other; those without a key are minus infinity.
__m512 scores_of(const float* query, const float* keys, int64_t count, int64_t size, float scale, const uint8_t* kept, const float* bias) {
  __m512 sums[kKeys];
  for (__m512& one : sums) one = _mm512_setzero_ps();
  for (int64_t i = 0; i < size; i += kLanes) {
    const __m512 part = some(query + i, size - i);
    for (int64_t j = 0; j < kKeys; ++j) {
      sums[j] = _mm512_fmadd_ps(part, some(keys + (j < count ? j : 0) * size + i, size - i), sums[j]);
    }
  }
  __mmask16 shown = first_lanes(count);
  for (int64_t j = 0; kept && j < kKeys && j < count; ++j) {
    if (!kept[j]) shown &= static_cast<__mmask16>(~(1u << j));
  }
  const __m512 added = bias ? some(bias, count) : _mm512_setzero_ps();
  return _mm512_mask_add_ps(_mm512_set1_ps(-__builtin_inff()), shown, _mm512_mul_ps(totals(sums), _mm512_set1_ps(scale)), added);
}

void attend(const float* query, const float* keys, const float* values, const uint8_t* kept, const float* bias, int64_t length, int64_t size, float scale, float* scratch, float* context) {
  __m512 most = _mm512_set1_ps(-__builtin_inff());
  for (int64_t first = 0; first < length; first += kKeys) {
    const __m512 scores = scores_of(query, keys + first * size, length - first, size, scale, kept ? kept + first : nullptr, bias ? bias + first : nullptr);
    _mm512_storeu_ps(scratch + first, scores);
    most = _mm512_max_ps(most, scores);
  }
  const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
  __m512 sum = _mm512_setzero_ps();
  for (int64_t first = 0; first < length; first += kKeys) {
    const __m512 weights = (__m512)exp((Vector)_mm512_sub_ps(_mm512_loadu_ps(scratch + first), largest));
    _mm512_storeu_ps(scratch + first, weights);
    sum = _mm512_add_ps(sum, weights);
  }
  const __m512 inverse = _mm512_set1_ps(1 / _mm512_reduce_add_ps(sum));
  constexpr int64_t chunk = 4;  // vectors of a value in registers together, two sums each
  for (int64_t left = 0; left < size; left += chunk * kLanes) {
    __m512 even[chunk], odd[chunk];
    for (int64_t i = 0; i < chunk; ++i) even[i] = odd[i] = _mm512_setzero_ps();
    const auto add = [&](int64_t token, __m512 (&sums)[chunk]) {
      const __m512 weight = _mm512_set1_ps(scratch[token]);
      const float* value = values + token * size + left;
      for (int64_t i = 0; i < chunk; ++i) {
        if (left + i * kLanes < size) sums[i] = _mm512_fmadd_ps(weight, some(value + i * kLanes, size - left - i * kLanes), sums[i]);
      }
    };
    for (int64_t token = 0; token < length; ++token) add(token, token % 2 ? odd : even);
    for (int64_t i = 0; i < chunk && left + i * kLanes < size; ++i) {
      const __m512 whole = _mm512_mul_ps(_mm512_add_ps(even[i], odd[i]), inverse);
      _mm512_mask_storeu_ps(context + left + i * kLanes, first_lanes(size - left - i * kLanes), whole);
    }
  }
}

float dot(const float* a, const float* b, int64_t count) {
  __m512 even = _mm512_setzero_ps(), odd = even;
  for (int64_t i = 0; i < count; i += 2 * kLanes) {
    even = _mm512_fmadd_ps(some(a + i, count - i), some(b + i, count - i), even);
    const int64_t left = count - i - kLanes;
    if (left > 0) odd = _mm512_fmadd_ps(some(a + i + kLanes, left), some(b + i + kLanes, left), odd);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

}  // namespace

extern const DecoderIsa kDecoderAvx512 = {normalize, rotate, attend, activate, dot};

}  // namespace mvprune
