// Tensors of the weights file, unpacked: whole, by what differs from zero, or by rows as they are stored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../kernel/kernel.h"
#include "weights.h"

namespace mvprune {

// The elements of a (rows, columns) matrix that differ from zero, in row-major order.
struct Elements {
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> positions;  // row * columns + column
  std::vector<float> values;

  // How many quads have one: four columns of a row, from a multiple of four on.
  int64_t quads() const;

  // The fraction of the quads that have one.
  double filled_quads() const;
};

// Rows that tokens refer to, as the kernel reads them.
struct StoredTable {
  int64_t rows = 0, columns = 0;
  Bytes numbers;
  std::vector<float> scales;
  Values kind = Values::fp32;

  Table table() const { return {rows, numbers.data(), scales.empty() ? nullptr : scales.data(), kind}; }

  // Of a row, (columns,).
  void read_row(int64_t row, float* out) const;
};

// All elements of a tensor, as fp32.
Result<std::vector<float>> whole_tensor(const Weights& weights, const std::string& name, const Shape& shape);

// Of a matrix.
Result<Elements> nonzero_elements(const Weights& weights, const std::string& name);

Result<StoredTable> stored_table(const Weights& weights, const std::string& name);

float from_half(uint16_t bits);

inline float from_bfloat16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof(value));
  return value;
}

}  // namespace mvprune
