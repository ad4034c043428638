// Matrices for products with one token or few: the same bytes as those of mvprune.runtime.masked.Masked.
#pragma once

#include <memory>
#include <vector>

#include "../kernel/masked.h"
#include "tensors.h"

namespace mvprune {

// A matrix and its memory.
class FewMatrix {
 public:
  FewMatrix() = default;
  FewMatrix(const FewMatrix&) = delete;
  FewMatrix& operator=(const FewMatrix&) = delete;

  const MaskedMatrix* matrix() const { return &matrix_; }

 private:
  friend std::unique_ptr<FewMatrix> few_of(const Elements& elements, bool rounds);
  friend std::unique_ptr<FewMatrix> few_of(const StoredTable& table);
  template <typename Number>
  void lay_out(const Elements& elements, const std::vector<Number>& numbers, Kept kept, int64_t block);
  void point(int64_t rows, int64_t columns, Kept kept, Values kind);

  MaskedMatrix matrix_{};
  std::vector<uint8_t> masks_, values_;
  std::vector<int64_t> starts_;
  std::vector<float> scales_;
  std::vector<int32_t> offsets_;
};

// By the non-zeros, in the layout with the fewest bytes. `rounds`: for activations in int8.
std::unique_ptr<FewMatrix> few_of(const Elements& elements, bool rounds);

// The rows of a table, all of which are stored.
std::unique_ptr<FewMatrix> few_of(const StoredTable& table);

}  // namespace mvprune
