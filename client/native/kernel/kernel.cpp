// The products for one instruction set. Compiled once for each (MVPRUNE_ISA is the table it defines), with that set's
// flags. All but the table has internal linkage, and nothing is taken from the standard library: the linker keeps one copy
// of an inline function, and it might keep the one that other machines cannot run.
#include "kernel.h"

#include "embedding.h"
#include "layer.h"
#include "matrix.h"
#include "panel.h"
#include "passes.h"
#include "products.h"
#include "simd.h"

namespace mvprune {
namespace {

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

void feed_forward(const Product& up, const Product& down, const float* x, Tokens tokens, float* scratch) {
  const int64_t width = width_for(tokens);
  float* inner = scratch + up.matrix->columns * width;
  float* sums = inner + inner_rows(*up.matrix) * width;
  transpose_in(x, up.matrix->columns, up.matrix->columns, tokens, width, scratch);
  multiply_both(up, down, scratch, width / kLanes, inner, sums, sums + down.matrix->rows * width);
  transpose_out(down, {0, down.matrix->rows}, sums, tokens, width);
}

}  // namespace

#if defined(__wasm__)
// A page does not train, and computes whole layers.
extern const Isa MVPRUNE_ISA = {kName, kLanes, kVectors, kByteVectors, scratch, linear, nullptr, nullptr, layer_scratch, embed, enter, leave, project, finish, nullptr, nullptr, nullptr, nullptr};
#else
extern const Isa MVPRUNE_ISA = {kName, kLanes, kVectors, kByteVectors, scratch, linear, sample, feed_forward, layer_scratch, embed, enter, leave, project, finish, share_gradient, mask_weights<float>, mask_weights<uint16_t>, select_above};
#endif

}  // namespace mvprune
