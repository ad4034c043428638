// What the parts of the library share: the matrices, the products asked for, one table of functions per instruction set.
#pragma once

#include <cstdint>

namespace mvprune {

enum class Values : int32_t { fp32 = 0, bf16 = 1, int8 = 2 };

enum class Activation : int32_t { none = 0, gelu = 1, gelu_tanh = 2, relu = 3 };

// Rows are stored in bands of this many, whose sums stay in L2; a row within its band fits uint8.
constexpr int64_t kBand = 256;

// The widest block of columns; every block divides it. Its indices fit uint16.
constexpr int64_t kWidestBlock = 1024;

// A sparse (rows, columns) matrix. The non-zeros lie band of rows by band, block of columns by block within a band, and
// within a block row by row, the fullest rows first: then rows of as many non-zeros follow each other, and the processor
// foresees the end of their loops. The i-th of the rows there is order[i]; its non-zeros are starts[i] up to starts[i + 1].
// Laid out as kernel.py's _Matrix.
struct Matrix {
  int64_t rows;
  int64_t columns;
  int64_t block;  // columns in one
  const int64_t* starts;
  const uint8_t* order;  // row within its band
  const uint16_t* indices;  // column within its block
  const void* values;
  const float* scales;  // one a row; null unless int8
  Values kind;
};

// y = activation(x W^T + bias) + residual. Laid out as kernel.py's _Product.
struct Product {
  const Matrix* matrix;
  const float* bias;      // null: none
  const float* residual;  // null: none
  float* y;
  Activation activation;
};

// Rows [first, last) of a matrix.
struct Rows {
  int64_t first;
  int64_t last;
};

// Tokens [first, last) of x, at most `lanes * vectors` of them.
struct Tokens {
  int64_t first;
  int64_t last;
};

// One instruction set. All functions work on one block of tokens and use the scratch memory they are given.
struct Isa {
  const char* name;
  int64_t lanes;    // floats in a vector
  int64_t vectors;  // vectors of tokens in a block, at most
  // Floats of scratch memory that the functions below need for a block of `vectors` vectors.
  int64_t (*scratch)(const Matrix& matrix, const Matrix* up, int64_t vectors);
  // The part-th of `parts` equal ranges of rows, for one block of tokens of x.
  void (*linear)(const Product& product, const float* x, Tokens tokens, int64_t part, int64_t parts, float* scratch);
  // down(activation(up(x))), for one block of tokens; the inner values stay transposed.
  void (*feed_forward)(const Product& up, const Product& down, const float* x, Tokens tokens, float* scratch);
};

extern const Isa kBaseline;
extern const Isa kAvx2;
extern const Isa kAvx512;

}  // namespace mvprune
