// Matrices as the kernel reads them: the same bytes as those of mvprune.runtime.kernel.Packed, quads.Quads and quads.Full.
#pragma once

#include <memory>
#include <vector>

#include "tensors.h"

namespace mvprune {

// A matrix and its memory.
class LaidOut {
 public:
  LaidOut() = default;
  LaidOut(const LaidOut&) = delete;
  LaidOut& operator=(const LaidOut&) = delete;

  const Matrix* matrix() const { return &matrix_; }
  int64_t rows() const { return matrix_.rows; }
  int64_t columns() const { return matrix_.columns; }

 private:
  friend std::unique_ptr<LaidOut> laid_out(const Elements& elements);
  friend std::unique_ptr<LaidOut> laid_out_for_bytes(const Elements& elements);
  void lay_out(int64_t rows, int64_t columns, int64_t block, const std::vector<int64_t>& positions);
  void point(Values kind, int64_t columns, int64_t block);
  void make_quads(const Elements& elements);
  void make_full(const Elements& elements);

  Matrix matrix_{};
  std::vector<int64_t> starts_, stored_;  // stored_: which of the given elements is stored where; only while it is made
  std::vector<uint8_t> order_;
  std::vector<uint16_t> indices_;
  std::vector<float> values_, scales_;
  std::vector<int8_t> numbers_;
  std::vector<int32_t> offsets_;
};

// For activations in fp32.
std::unique_ptr<LaidOut> laid_out(const Elements& elements);

// For activations in int8, as it is the fastest: by quads, or full.
std::unique_ptr<LaidOut> laid_out_for_bytes(const Elements& elements);

}  // namespace mvprune
