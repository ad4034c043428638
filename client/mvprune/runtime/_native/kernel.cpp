// The products for one instruction set. Compiled once for each (MVPRUNE_ISA is the table it defines), with that set's
// flags. All but the table has internal linkage, and nothing is taken from the standard library: the linker keeps one copy
// of an inline function, and it might keep the one that other machines cannot run.
#include "kernel.h"

#include <cstring>

#include "attention.h"
#include "embedding.h"
#include "matrix.h"
#include "panel.h"
#include "passes.h"
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

int64_t scratch(const Matrix& matrix, const Matrix* up, int64_t vectors) {
  const int64_t width = vectors * kLanes;
  if (!up) return (matrix.columns + smaller(matrix.rows, kBand)) * width + input_floats(matrix, matrix.columns, width);
  return (up->columns + inner_rows(*up) + matrix.rows) * width + input_floats(*up, up->columns, width) +
         input_floats(matrix, inner_rows(*up), width);
}

void linear(const Product& product, const float* x, Tokens tokens, int64_t part, int64_t parts, float* scratch) {
  const Matrix& matrix = *product.matrix;
  const int64_t width = width_for(tokens), last = bands(matrix) * (part + 1) / parts;
  float* sums = scratch + matrix.columns * width;
  float* bytes = sums + smaller(matrix.rows, kBand) * width;
  transpose_in(x, matrix.columns, matrix.columns, tokens, width, scratch);
  const float* input = input_for(matrix, scratch, matrix.columns, width, bytes);
  for (int64_t band = bands(matrix) * part / parts; band < last; ++band) {
    multiply(product, band, input, width / kLanes, sums);
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

void feed_forward(const Product& up, const Product& down, const float* x, Tokens tokens, float* scratch) {
  const int64_t width = width_for(tokens);
  float* inner = scratch + up.matrix->columns * width;
  float* sums = inner + inner_rows(*up.matrix) * width;
  transpose_in(x, up.matrix->columns, up.matrix->columns, tokens, width, scratch);
  multiply_both(up, down, scratch, width / kLanes, inner, sums, sums + down.matrix->rows * width);
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

// Floats for the inputs of a layer's products: two at a time.
int64_t layer_inputs(const Layer& layer, int64_t width) {
  const int64_t hidden = layer.down.matrix->rows, attended = layer.query.matrix->rows, inner = inner_rows(*layer.up.matrix);
  int64_t first = larger(input_floats(*layer.out.matrix, attended, width), input_floats(*layer.up.matrix, hidden, width));
  const Product* const all[] = {&layer.query, &layer.key, &layer.value};
  for (const Product* product : all) {
    first = larger(first, input_floats(*product->matrix, hidden, width));
  }
  return first + input_floats(*layer.down.matrix, inner, width);
}

// What computes a layer's attention: in int16 where what it is made of was rounded to int8 already.
Attend attend_of(const Layer& layer) {
  const Attend rounding = __atomic_load_n(&dots, __ATOMIC_RELAXED)->attend;
  const bool bytes = takes_bytes(*layer.query.matrix) && takes_bytes(*layer.key.matrix) && takes_bytes(*layer.value.matrix);
  const bool fits = layer.query.matrix->rows <= 512 * layer.heads;  // sums of a head's features
  return bytes && fits && rounding ? rounding : attend;
}

// Floats that it needs.
int64_t attend_floats(const Layer& layer, int64_t length, int64_t vectors) {
  const int64_t size = layer.query.matrix->rows / layer.heads;
  return attend_of(layer) == attend ? attention_floats(length, vectors) : attention16_floats(size, length, vectors);
}

int64_t layer_scratch(const Layer& layer, int64_t length, int64_t vectors) {
  const int64_t rows = layer.query.matrix->rows + layer.down.matrix->rows + inner_rows(*layer.up.matrix);
  return rows * vectors * kLanes + attend_floats(layer, length, vectors) + layer_inputs(layer, vectors * kLanes);
}

void enter(const float* x, int64_t columns, Tokens tokens, float* panel) {
  transpose_in(x, columns, columns, tokens, width_for(tokens), panel);
}

void leave(const float* panel, int64_t columns, Tokens tokens, float* y) {
  transpose_out(nullptr, y, columns, {0, columns}, panel, tokens, width_for(tokens));
}

void project(const Layer& layer, const float* panel, Tokens tokens, float* products, float* scratch) {
  const int64_t width = width_for(tokens);
  const Product* const all[] = {&layer.query, &layer.key, &layer.value};
  bool quantized = false;  // once for all
  for (const Product* product : all) {
    const Matrix& matrix = *product->matrix;
    const bool bytes = takes_bytes(matrix);
    const float* input = bytes && quantized ? scratch : input_for(matrix, panel, matrix.columns, width, scratch);
    quantized |= bytes;
    multiply_all(*product, input, width / kLanes, products);
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
  float* memory = inner + inner_rows(*layer.up.matrix) * width;
  const Attend attend_head = attend_of(layer);
  for (int64_t row = 0; row < attended; row += size) {
    const Head head = {features, attended + row, 2 * attended + row, size, layer.scale};
    attend_head(head, example, queries + row * width, width, memory, context + row * width);
  }
  float* bytes = memory + attend_floats(layer, example.length, vectors);
  multiply_all(layer.out, input_for(*layer.out.matrix, context, attended, width, bytes), vectors, attention);
  add_and_normalize(layer.attention_norm, hidden, width, panel, attention);
  multiply_both(layer.up, layer.down, attention, vectors, inner, panel, bytes);
  add_and_normalize(layer.output_norm, hidden, width, attention, panel);
}

}  // namespace

extern const Isa MVPRUNE_ISA = {kName, kLanes, kVectors, kByteVectors, scratch, linear, sample, feed_forward, layer_scratch, embed, enter, leave, project, finish, share_gradient, mask_weights<float>, mask_weights<uint16_t>, select_above};

}  // namespace mvprune
