// Weights as whole numbers with a scale for each row: those of mvprune.artifact.values.encode_values.
#pragma once

#include <cstdint>
#include <vector>

#include "tensors.h"

namespace mvprune {

// From this fraction of filled quads on, a matrix for activations in int8 is stored full.
constexpr double kFilled = 0.55;

struct RoundedRows {
  std::vector<int8_t> numbers;  // of each element
  std::vector<float> scales;    // of each row
};

// is_sparse: the scales of rows are that of the largest magnitude, divided by powers of 4; else each row has its own.
RoundedRows rounded_rows(const Elements& elements, bool is_sparse);

}  // namespace mvprune
