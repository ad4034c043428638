// The products for one instruction set. Compiled once for each (MVPRUNE_ISA is the table it defines), with that set's
// flags. All but the table has internal linkage, and nothing is taken from the standard library: the linker keeps one copy
// of an inline function, and it might keep the one that other machines cannot run.
#include "kernel.h"

#include <cstring>

#include "attention.h"
#include "embedding.h"
#include "passes.h"
#include "simd.h"

namespace mvprune {
namespace {

// Rows transposed back together.
constexpr int64_t kTile = kLanes;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t blocks(const Matrix& matrix) { return larger(1, (matrix.columns + matrix.block - 1) / matrix.block); }

int64_t bands(const Matrix& matrix) { return (matrix.rows + kBand - 1) / kBand; }

Rows rows_of(const Matrix& matrix, int64_t band) { return {band * kBand, smaller((band + 1) * kBand, matrix.rows)}; }

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

using Accumulate = void (*)(const Product&, int64_t, int64_t, const float*, float*);

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

// panel[column, token] = x[token, column], where a token has `stride` columns; lanes without a token are zero.
void transpose_in(const float* x, int64_t stride, int64_t columns, Tokens tokens, int64_t width, float* panel) {
  for (int64_t first = 0; first < width; first += kLanes) {
    const int64_t filled = smaller(kLanes, tokens.last - tokens.first - first);
    const float* in = x + (tokens.first + first) * stride;
    int64_t column = 0;
    if (filled == kLanes) {
      for (; column + kTile <= columns; column += kTile) {
        transpose_tile(in + column, stride, panel + column * width + first, width);
      }
    }
    for (; column < columns; ++column) {
      float* out = panel + column * width + first;
      for (int64_t token = 0; token < filled; ++token) out[token] = in[token * stride + column];
      for (int64_t token = filled; token < kLanes; ++token) out[token] = 0;
    }
  }
}

// y[token, row] = sums[row, token] + residual[token, row] for some rows of y (tokens, stride); the residual may be null.
void transpose_out(const float* residual, float* y, int64_t stride, Rows rows, const float* sums, Tokens tokens, int64_t width) {
  for (int64_t row = rows.first; row < rows.last; row += kTile, sums += kTile * width) {
    const int64_t filled_rows = smaller(kTile, rows.last - row);
    for (int64_t token = tokens.first; token < tokens.last; token += kLanes) {
      const int64_t filled = smaller(kLanes, tokens.last - token);
      const float* in = sums + (token - tokens.first);
      float* out = y + token * stride + row;
      const float* add = residual ? residual + token * stride + row : nullptr;
      if (filled == kLanes && filled_rows == kTile) {
        if (add) {
          transpose_tile_and_add(in, width, out, stride, add);
        } else {
          transpose_tile(in, width, out, stride);
        }
        continue;
      }
      for (int64_t t = 0; t < filled; ++t) {
        for (int64_t r = 0; r < filled_rows; ++r) {
          out[t * stride + r] = in[r * width + t] + (add ? add[t * stride + r] : 0.0f);
        }
      }
    }
  }
}

// The same, to the y of a product.
void transpose_out(const Product& product, Rows rows, const float* sums, Tokens tokens, int64_t width) {
  transpose_out(product.residual, product.y, product.matrix->rows, rows, sums, tokens, width);
}

// Finished sums of one band, for one panel.
void multiply(const Product& product, int64_t band, const float* panel, int64_t vectors, float* sums) {
  const Matrix& matrix = *product.matrix;
  const Accumulate accumulate_band = accumulate_for(matrix.kind, vectors);
  for (int64_t block = 0; block < blocks(matrix); ++block) {
    accumulate_band(product, band, block, panel + block * matrix.block * vectors * kLanes, sums);
  }
  const Rows rows = rows_of(matrix, band);
  activate(product.activation, sums, (rows.last - rows.first) * vectors);
}

// Floats in a row of the panel.
int64_t width_for(Tokens tokens) { return (tokens.last - tokens.first + kLanes - 1) / kLanes * kLanes; }

// Of the first product of a feed-forward part, those that are kept at once.
int64_t inner_rows(const Matrix& up) { return smaller(up.rows, kWidestBlock); }

int64_t scratch(const Matrix& matrix, const Matrix* up, int64_t vectors) {
  const int64_t rows = up ? up->columns + inner_rows(*up) + matrix.rows : matrix.columns + smaller(matrix.rows, kBand);
  return rows * vectors * kLanes;
}

void linear(const Product& product, const float* x, Tokens tokens, int64_t part, int64_t parts, float* scratch) {
  const Matrix& matrix = *product.matrix;
  const int64_t width = width_for(tokens), last = bands(matrix) * (part + 1) / parts;
  float* sums = scratch + matrix.columns * width;
  transpose_in(x, matrix.columns, matrix.columns, tokens, width, scratch);
  for (int64_t band = bands(matrix) * part / parts; band < last; ++band) {
    multiply(product, band, scratch, width / kLanes, sums);
    transpose_out(product, rows_of(matrix, band), sums, tokens, width);
  }
}

// values[lane] += sums over the lanes of products[lane], for the first `count` lanes.
void add_sums(const float* products, int64_t count, float* values) {
  Register tile[kLanes];
  load_transposed(products, kLanes, tile);
  alignas(sizeof(Vector)) float sums[kLanes];
  Vector sum{};
  for (int64_t lane = 0; lane < kLanes; ++lane) sum += (Vector)tile[lane];
  *reinterpret_cast<Vector*>(sums) = sum;
  for (int64_t lane = 0; lane < count; ++lane) values[lane] += sums[lane];
}

// The gradients of the non-zeros in one band of rows and one block of columns, for their panels. As many as a vector has
// lanes are summed over the lanes together: non-zeros follow each other in memory across rows.
template <int K>
void sample_block(const Matrix& matrix, int64_t band, int64_t block, const float* x, const float* grad, float* values) {
  const Rows rows = rows_of(matrix, band);
  const int64_t height = rows.last - rows.first, place = rows.first * blocks(matrix) + block * height;
  const int64_t* starts = matrix.starts + place;
  const uint8_t* order = matrix.order + place;
  const Vector* columns = reinterpret_cast<const Vector*>(x);
  alignas(sizeof(Vector)) float products[kLanes * kLanes] = {};
  int64_t filled = 0;
  for (int64_t j = 0; j < height && starts[j] < starts[height]; ++j) {
    const Vector* row = reinterpret_cast<const Vector*>(grad) + order[j] * K;
    Vector factor[K];
    for (int k = 0; k < K; ++k) factor[k] = row[k];
    for (int64_t i = starts[j]; i < starts[j + 1]; ++i) {
      const Vector* column = keep(columns + static_cast<size_t>(matrix.indices[i]) * K);
      Vector sum = factor[0] * column[0];
      for (int k = 1; k < K; ++k) sum += factor[k] * column[k];
      reinterpret_cast<Vector*>(products)[filled] = sum;
      if (++filled == kLanes) {
        add_sums(products, kLanes, values + i + 1 - kLanes);
        filled = 0;
      }
    }
  }
  add_sums(products, filled, values + starts[height] - filled);
}

using SampleBlock = void (*)(const Matrix&, int64_t, int64_t, const float*, const float*, float*);

template <int K = kVectors>
SampleBlock sample_for(int64_t vectors) {
  if constexpr (K > 1) {
    if (vectors < K) return sample_for<K - 1>(vectors);
  }
  return sample_block<K>;
}

void sample(const Matrix& matrix, const float* grad, const float* x, Tokens tokens, int64_t part, int64_t parts, float* values, float* scratch) {
  const int64_t width = width_for(tokens), last = bands(matrix) * (part + 1) / parts;
  const SampleBlock sample_one = sample_for(width / kLanes);
  float* grads = scratch + matrix.columns * width;
  transpose_in(x, matrix.columns, matrix.columns, tokens, width, scratch);
  for (int64_t band = bands(matrix) * part / parts; band < last; ++band) {
    const Rows rows = rows_of(matrix, band);
    transpose_in(grad + rows.first, matrix.rows, rows.last - rows.first, tokens, width, grads);
    for (int64_t block = 0; block < blocks(matrix); ++block) {
      sample_one(matrix, band, block, scratch + block * matrix.block * width, grads, values);
    }
  }
}

// Finished sums of all bands.
void multiply_all(const Product& product, const float* panel, int64_t vectors, float* sums) {
  for (int64_t band = 0; band < bands(*product.matrix); ++band) {
    multiply(product, band, panel, vectors, sums + band * kBand * vectors * kLanes);
  }
}

// Finished sums of down for the panel of up. The inner values are made for some blocks of the second product at a time,
// which it takes while they are in cache.
void multiply_both(const Product& up, const Product& down, const float* panel, int64_t vectors, float* inner, float* sums) {
  const Matrix& matrix = *down.matrix;
  const int64_t width = vectors * kLanes;
  const int64_t bands_at_once = kWidestBlock / kBand, blocks_at_once = kWidestBlock / matrix.block;
  const Accumulate accumulate_down = accumulate_for(matrix.kind, vectors);
  for (int64_t step = 0; step * blocks_at_once < blocks(matrix); ++step) {
    const int64_t first_band = step * bands_at_once, first_block = step * blocks_at_once;
    for (int64_t band = first_band; band < smaller(first_band + bands_at_once, bands(*up.matrix)); ++band) {
      multiply(up, band, panel, vectors, inner + (band - first_band) * kBand * width);
    }
    for (int64_t band = 0; band < bands(matrix); ++band) {
      for (int64_t block = first_block; block < smaller(first_block + blocks_at_once, blocks(matrix)); ++block) {
        accumulate_down(down, band, block, inner + (block - first_block) * matrix.block * width, sums + band * kBand * width);
      }
    }
  }
}

void feed_forward(const Product& up, const Product& down, const float* x, Tokens tokens, float* scratch) {
  const int64_t width = width_for(tokens);
  float* inner = scratch + up.matrix->columns * width;
  float* sums = inner + inner_rows(*up.matrix) * width;
  transpose_in(x, up.matrix->columns, up.matrix->columns, tokens, width, scratch);
  multiply_both(up, down, scratch, width / kLanes, inner, sums);
  transpose_out(down, {0, down.matrix->rows}, sums, tokens, width);
}

// values = norm(values + residual) over the rows, for K vectors of tokens.
template <int K>
void add_and_normalize(const Norm& norm, int64_t rows, int64_t width, const float* residual, float* values) {
  const auto row_of = [&](int64_t row) { return reinterpret_cast<Vector*>(values + row * width); };
  Vector mean[K] = {}, scale[K] = {};
  for (int64_t row = 0; row < rows; ++row) {
    Vector* value = row_of(row);
    const Vector* added = reinterpret_cast<const Vector*>(residual + row * width);
    for (int k = 0; k < K; ++k) {
      value[k] += added[k];
      mean[k] += value[k];
    }
  }
  for (int k = 0; k < K; ++k) mean[k] /= static_cast<float>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const Vector* value = row_of(row);
    for (int k = 0; k < K; ++k) {
      const Vector difference = value[k] - mean[k];
      scale[k] += difference * difference;
    }
  }
  for (Vector& one : scale) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      one[lane] = 1 / __builtin_sqrtf(one[lane] / static_cast<float>(rows) + norm.epsilon);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    Vector* value = row_of(row);
    for (int k = 0; k < K; ++k) value[k] = (value[k] - mean[k]) * scale[k] * norm.weight[row] + norm.bias[row];
  }
}

// The same for all tokens of a block.
void add_and_normalize(const Norm& norm, int64_t rows, int64_t width, const float* residual, float* values) {
  constexpr int together = 4;
  int64_t first = 0;
  for (; first + together * kLanes <= width; first += together * kLanes) {
    add_and_normalize<together>(norm, rows, width, residual + first, values + first);
  }
  for (; first < width; first += kLanes) add_and_normalize<1>(norm, rows, width, residual + first, values + first);
}

int64_t layer_scratch(const Layer& layer, int64_t length, int64_t vectors) {
  const int64_t rows = layer.query.matrix->rows + layer.down.matrix->rows + inner_rows(*layer.up.matrix);
  return (rows * vectors + length * smaller(vectors, kGroup)) * kLanes;
}

void enter(const float* x, int64_t columns, Tokens tokens, float* panel) {
  transpose_in(x, columns, columns, tokens, width_for(tokens), panel);
}

void leave(const float* panel, int64_t columns, Tokens tokens, float* y) {
  transpose_out(nullptr, y, columns, {0, columns}, panel, tokens, width_for(tokens));
}

void project(const Layer& layer, const float* panel, Tokens tokens, float* products) {
  const int64_t width = width_for(tokens);
  const Product* const all[] = {&layer.query, &layer.key, &layer.value};
  for (const Product* product : all) {
    multiply_all(*product, panel, width / kLanes, products);
    products += product->matrix->rows * width;
  }
}

void finish(const Layer& layer, const Example& example, Tokens tokens, float* panel, float* scratch) {
  const int64_t width = width_for(tokens), vectors = width / kLanes;
  const int64_t hidden = layer.down.matrix->rows, attended = layer.query.matrix->rows, size = attended / layer.heads;
  const int64_t features = 3 * attended;
  const float* queries = example.products + tokens.first * features;
  float* context = scratch;
  float* attention = context + attended * width;
  float* inner = attention + hidden * width;
  float* scores = inner + inner_rows(*layer.up.matrix) * width;
  for (int64_t row = 0; row < attended; row += size) {
    const Head head = {features, attended + row, 2 * attended + row, size, layer.scale};
    attend(head, example, queries + row * width, width, scores, context + row * width);
  }
  multiply_all(layer.out, context, vectors, attention);
  add_and_normalize(layer.attention_norm, hidden, width, panel, attention);
  multiply_both(layer.up, layer.down, attention, vectors, inner, panel);
  add_and_normalize(layer.output_norm, hidden, width, attention, panel);
}

}  // namespace

extern const Isa MVPRUNE_ISA = {kName, kLanes, kVectors, scratch, linear, sample, feed_forward, layer_scratch, embed, enter, leave, project, finish, share_gradient, mask_weights, select_above};

}  // namespace mvprune
