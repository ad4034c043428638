// The parts of decoder.h for any instruction set, once for each file that this is compiled to: MVPRUNE_DECODER is its
// name. As in kernel.cpp, all but the table has internal linkage.
#include "decoder_parts.h"

namespace mvprune {
namespace {

inline float total(Vector sums) {
  float sum = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  return sum;
}

void normalize(const Normal& norm, int64_t rows, int64_t columns, const float* x, float* y) {
  const float count = static_cast<float>(columns);
  for (int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    float mean = 0;
    if (norm.is_centred) {
      Vector sums{};
      for (int64_t i = 0; i < columns; i += kLanes) sums += load_first(x + i, columns - i);
      mean = total(sums) / count;
    }
    Vector squares{};
    float rest = 0;
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) {
      const Vector difference = load_vector(x + i) - mean;
      squares += difference * difference;
    }
    for (; i < columns; ++i) rest += (x[i] - mean) * (x[i] - mean);
    const float scale = 1 / __builtin_sqrtf((total(squares) + rest) / count + norm.epsilon);
    for (i = 0; i < columns; ++i) y[i] = (x[i] - mean) * scale * norm.weight[i] + (norm.bias ? norm.bias[i] : 0.0f);
  }
}

float dot(const float* a, const float* b, int64_t count) {
  Vector even{}, odd{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    even = multiply_add(load_vector(a + i), load_vector(b + i), even);
    odd = multiply_add(load_vector(a + i + kLanes), load_vector(b + i + kLanes), odd);
  }
  for (; i < count; i += kLanes) even = multiply_add(load_first(a + i, count - i), load_first(b + i, count - i), even);
  return total(even + odd);
}

void attend(const float* query, const float* keys, const float* values, const uint8_t* kept, const float* bias, int64_t length, int64_t size, float scale, float* scratch, float* context) {
  float most = -__builtin_inff();
  for (int64_t token = 0; token < length; ++token) {
    scratch[token] = kept && !kept[token] ? -__builtin_inff() : dot(query, keys + token * size, size) * scale + (bias ? bias[token] : 0.0f);
    most = scratch[token] > most ? scratch[token] : most;
  }
  float sum = 0;
  for (int64_t first = 0; first < length; first += kLanes) {
    Vector weights = exp(load_first(scratch + first, length - first) - most);
    for (int64_t i = first; i < length && i < first + kLanes; ++i) sum += scratch[i] = weights[i - first];
  }
  for (int64_t i = 0; i < size; ++i) context[i] = 0;
  for (int64_t token = 0; token < length; ++token, values += size) {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      store_vector(context + i, multiply_add(splat(scratch[token]), load_vector(values + i), load_vector(context + i)));
    }
    for (; i < size; ++i) context[i] += scratch[token] * values[i];
  }
  for (int64_t i = 0; i < size; ++i) context[i] /= sum;
}

}  // namespace

extern const DecoderIsa MVPRUNE_DECODER = {normalize, rotate, attend, activate, dot};

}  // namespace mvprune
