// Products of matrices with panels: a band of rows, all of them, and those of a feed-forward part.
#pragma once

#include <cstring>

#include "kernel.h"
#include "matrix.h"
#include "panel.h"
#include "quads.h"
#include "simd.h"

namespace mvprune {
namespace {

template <Values>
struct Stored;
template <>
struct Stored<Values::fp32> {
  using Type = float;
  static float load(const float* value) { return *value; }
};
template <>
struct Stored<Values::bf16> {
  using Type = uint16_t;
  static float load(const uint16_t* value) {
    const uint32_t bits = static_cast<uint32_t>(*value) << 16;
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
  }
};
template <>
struct Stored<Values::int8> {
  using Type = int8_t;
  static float load(const int8_t* value) { return static_cast<float>(*value); }
};

// sums[K vectors a row] (+)= W[one band of rows, one block of columns] panel, for the panel of that block; with the last
// block they are scaled and biased too. The sums of a row stay in registers over its non-zeros.
template <Values kind, int K>
void accumulate(const Product& product, int64_t band, int64_t block, const float* panel, float* sums) {
  using Load = Stored<kind>;
  const Matrix& matrix = *product.matrix;
  const auto* values = static_cast<const typename Load::Type*>(matrix.values);
  const Rows rows = rows_of(matrix, band);
  const int64_t height = rows.last - rows.first, place = rows.first * blocks(matrix) + block * height;
  const int64_t* starts = matrix.starts + place;
  const uint8_t* order = matrix.order + place;
  const Vector* columns = reinterpret_cast<const Vector*>(panel);
  const bool last = block == blocks(matrix) - 1;
  for (int64_t j = 0; j < height; ++j) {
    if (starts[j] == starts[height] && block > 0 && !last) return;  // the rest is empty
    Vector* out = reinterpret_cast<Vector*>(sums) + order[j] * K;
    Vector sum[K];
    for (int k = 0; k < K; ++k) sum[k] = block == 0 ? Vector{} : out[k];
    const int64_t end = starts[j + 1];
    for (int64_t i = starts[j]; i < end; ++i) {
      const Vector* column = keep(columns + static_cast<size_t>(matrix.indices[i]) * K);
      const float value = Load::load(values + i);
      for (int k = 0; k < K; ++k) sum[k] += value * column[k];
    }
    if (last) {
      const int64_t row = rows.first + order[j];
      const float scale = kind == Values::int8 ? matrix.scales[row] : 1.0f;
      const float bias = product.bias ? product.bias[row] : 0.0f;
      for (int k = 0; k < K; ++k) sum[k] = sum[k] * scale + bias;
    }
    for (int k = 0; k < K; ++k) out[k] = sum[k];
  }
}

template <Values kind, int K = kVectors>
Accumulate accumulate_for(int64_t vectors) {
  if constexpr (K > 1) {
    if (vectors < K) return accumulate_for<kind, K - 1>(vectors);
  }
  return accumulate<kind, K>;
}

Accumulate accumulate_for(Values kind, int64_t vectors) {
  switch (kind) {
    case Values::bf16: return accumulate_for<Values::bf16>(vectors);
    case Values::int8: return accumulate_for<Values::int8>(vectors);
    case Values::quads:
    case Values::full: return __atomic_load_n(&dots, __ATOMIC_RELAXED)->accumulate_for(kind, vectors);
    default: return accumulate_for<Values::fp32>(vectors);
  }
}

template <Vector (*function)(Vector)>
void apply(float* sums, int64_t count) {
  Vector* vectors = reinterpret_cast<Vector*>(sums);
  for (int64_t i = 0; i < count; ++i) vectors[i] = function(vectors[i]);
}

// sums = activation(sums), of `count` vectors.
void activate(Activation activation, float* sums, int64_t count) {
  switch (activation) {
    case Activation::gelu: return apply<gelu>(sums, count);
    case Activation::gelu_tanh: return apply<gelu_tanh>(sums, count);
    case Activation::relu: return apply<relu>(sums, count);
    case Activation::none: return;
  }
}

// The same, to the y of a product.
void transpose_out(const Product& product, Rows rows, const float* sums, Tokens tokens, int64_t width) {
  transpose_out(product.residual, product.y, product.matrix->rows, rows, sums, tokens, width);
}

// Floats of a block of the input that a matrix takes: of its panel, or of the panel in bytes.
int64_t block_floats(const Matrix& matrix, int64_t width) {
  return takes_bytes(matrix) ? quantized_block(width) : matrix.block * width;
}

// Floats that `input_for` needs for a panel.
int64_t input_floats(const Matrix& matrix, int64_t columns, int64_t width) {
  return takes_bytes(matrix) ? quantized_floats(columns, width) : 0;
}

// The input that a matrix takes, of a panel: itself, or what is then written to `bytes`.
const float* input_for(const Matrix& matrix, const float* panel, int64_t columns, int64_t width, float* bytes) {
  if (!takes_bytes(matrix)) return panel;
  quantize(panel, columns, width, bytes);
  return bytes;
}

// Finished sums of one band, for one input.
void multiply(const Product& product, int64_t band, const float* input, int64_t vectors, float* sums) {
  const Matrix& matrix = *product.matrix;
  const Accumulate accumulate_band = accumulate_for(matrix.kind, vectors);
  for (int64_t block = 0; block < blocks(matrix); ++block) {
    accumulate_band(product, band, block, input + block * block_floats(matrix, vectors * kLanes), sums);
  }
  const Rows rows = rows_of(matrix, band);
  activate(product.activation, sums, (rows.last - rows.first) * vectors);
}

// Of the first product of a feed-forward part, those that are kept at once.
int64_t inner_rows(const Matrix& up) { return smaller(up.rows, kWidestBlock); }

// Finished sums of all bands.
void multiply_all(const Product& product, const float* input, int64_t vectors, float* sums) {
  for (int64_t band = 0; band < bands(*product.matrix); ++band) {
    multiply(product, band, input, vectors, sums + band * kBand * vectors * kLanes);
  }
}

// Finished sums of down for the panel of up. The inner values are made for some blocks of the second product at a time,
// which it takes while they are in cache. `bytes` has room for the inputs of both.
void multiply_both(const Product& up, const Product& down, const float* panel, int64_t vectors, float* inner, float* sums, float* bytes) {
  const Matrix& matrix = *down.matrix;
  const int64_t width = vectors * kLanes;
  const int64_t bands_at_once = kWidestBlock / kBand, blocks_at_once = kWidestBlock / matrix.block;
  const Accumulate accumulate_down = accumulate_for(matrix.kind, vectors);
  const float* input = input_for(*up.matrix, panel, up.matrix->columns, width, bytes);
  float* inner_bytes = bytes + input_floats(*up.matrix, up.matrix->columns, width);
  for (int64_t step = 0; step * blocks_at_once < blocks(matrix); ++step) {
    const int64_t first_band = step * bands_at_once, first_block = step * blocks_at_once;
    for (int64_t band = first_band; band < smaller(first_band + bands_at_once, bands(*up.matrix)); ++band) {
      multiply(up, band, input, vectors, inner + (band - first_band) * kBand * width);
    }
    const int64_t rows = smaller(kWidestBlock, matrix.columns - step * kWidestBlock);
    const float* inner_input = input_for(matrix, inner, rows, width, inner_bytes);
    for (int64_t band = 0; band < bands(matrix); ++band) {
      for (int64_t block = first_block; block < smaller(first_block + blocks_at_once, blocks(matrix)); ++block) {
        const float* some = inner_input + (block - first_block) * block_floats(matrix, width);
        accumulate_down(down, band, block, some, sums + band * kBand * width);
      }
    }
  }
}

}  // namespace
}  // namespace mvprune
