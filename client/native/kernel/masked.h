// Products of few tokens, as decoding has them: bound by the bytes of the weights, which are a mask's bits and the values
// that are kept. Lanes are columns. Only for AVX-512 with VBMI2 and VNNI.
#pragma once

#include <cstdint>

#include "kernel.h"

namespace mvprune {

// What a bit of the mask keeps: there is no mask, a weight, or four columns from a multiple of four on.
enum class Kept : int32_t { all = 0, weights = 1, quads = 2 };

// Rows of a tile, whose sums are made together.
constexpr int64_t kTileRows = 16;

// Columns that a step of the product takes; rows are filled up to a multiple of them, and a quantized block is eight.
constexpr int64_t kGroup = 64;

// Tokens of x that share what is read of a matrix, at most.
constexpr int64_t kFew = 8;

// A (rows, columns) matrix. Masks and values lie tile by tile, in it block of columns by block (of kQuadBlock columns if x
// is of bytes, else all of them), in it row by row, and from the left to the right. Rows of zeros fill up the last tile. 64
// bytes that are never used follow the values. Laid out as masked.py's Structure.
struct MaskedMatrix {
  int64_t rows;
  int64_t columns;
  const void* masks;       // for each group of a row 64 bits, of quads 16; null if all is kept
  const void* values;
  const int64_t* starts;   // of each tile, in values
  const float* scales;     // one a row of the tiles; null: none
  const int32_t* offsets;  // one for each row of each block: 128 times the sum of its values; null unless x is of bytes
  Kept kept;
  Values kind;             // fp32, fp16 or int8; int8 if x is of bytes
};

// y = x W^T + bias + residual, for some tokens.
struct MaskedProduct {
  const MaskedMatrix* matrix;
  const float* bias;      // null: none
  const float* residual;  // (tokens, rows), or null
  float* y;               // (tokens, rows)
};

// The product with a vocabulary: its rows are rounded to int8, and those that can be among the first are computed exactly.
// Laid out as vocabulary.py's _Rounded.
struct RoundedVocabulary {
  const MaskedMatrix* rounded;  // takes bytes
  const float* weight;          // (rows, columns)
  const float* bias;            // null: none
  const float* errors;          // (rows), the norm of what rounding took from a row
  const float* sizes;           // (rows), the norm of what it left
};

// The functions of the one instruction set.
struct FewIsa {
  // Floats of memory that `prepare` writes for up to kFew tokens, and of those the ones of a token.
  int64_t (*floats)(const MaskedMatrix& matrix, int64_t tokens);
  int64_t (*stride)(const MaskedMatrix& matrix);
  // x (tokens, columns) as the matrix takes it: bytes with a scale for each block, as those of quads.h, or floats. False if a number is not finite.
  bool (*prepare)(const MaskedMatrix& matrix, const float* x, int64_t tokens, float* memory);
  // Some tiles of a product, for what `prepare` made of x.
  void (*multiply)(const MaskedProduct& product, const float* memory, int64_t tokens, int64_t first, int64_t last);
  // rest = x - the numbers that `prepare` made of x (columns) in the token at that memory, for a matrix that takes bytes.
  void (*subtract)(const MaskedMatrix& matrix, const float* x, const float* memory, float* rest);
  // The inner product of two arrays.
  float (*dot)(const float* a, const float* b, int64_t count);
};

inline int64_t tiles(const MaskedMatrix& matrix) { return (matrix.rows + kTileRows - 1) / kTileRows; }

#if defined(__x86_64__)
extern const FewIsa kFewAvx512;
#endif

}  // namespace mvprune
