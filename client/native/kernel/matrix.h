// How a matrix is cut: bands of rows, blocks of columns.
#pragma once

#include "kernel.h"

namespace mvprune {
namespace {

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

inline int64_t blocks(const Matrix& matrix) { return larger(1, (matrix.columns + matrix.block - 1) / matrix.block); }

inline int64_t bands(const Matrix& matrix) { return (matrix.rows + kBand - 1) / kBand; }

// Whether it takes activations in int8.
inline bool takes_bytes(const Matrix& matrix) { return matrix.kind == Values::quads || matrix.kind == Values::full; }

inline Rows rows_of(const Matrix& matrix, int64_t band) {
  return {band * kBand, smaller((band + 1) * kBand, matrix.rows)};
}

}  // namespace
}  // namespace mvprune
