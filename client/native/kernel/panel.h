// Panels: tokens beside each other, for each column. In and out of the order of a batch.
#pragma once

#include "kernel.h"
#include "matrix.h"
#include "simd.h"

namespace mvprune {
namespace {

// Rows transposed back together.
constexpr int64_t kTile = kLanes;

// Floats in a row of the panel.
int64_t width_for(Tokens tokens) { return (tokens.last - tokens.first + kLanes - 1) / kLanes * kLanes; }

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

}  // namespace
}  // namespace mvprune
