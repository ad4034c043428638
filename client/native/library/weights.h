// The weights file: its header, read without trust. docs/artifact-format.md describes the bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../base/json.h"
#include "source.h"

namespace mvprune {

using Shape = std::vector<int64_t>;

// Elements of a tensor of that shape.
int64_t elements_of(const Shape& shape, size_t first_axis = 0);

std::string shown(const Shape& shape);

// An entry of the file: bytes [begin, end) of its data.
struct Entry {
  std::string dtype;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

enum class Layout { kGap, kMask, kGap4, kMask4, kRows, kFull };

// A tensor in parts.
struct PackedTensor {
  Layout layout;
  Shape shape;
  std::string dtype;  // of the values
  int64_t count = 0;    // values that are stored
  int64_t nonzero = 0;  // of these, those that are not zero
  std::optional<Entry> positions, scales;
  Entry values;

  bool is_sparse() const { return layout != Layout::kRows && layout != Layout::kFull; }
  bool in_blocks() const { return layout == Layout::kGap4 || layout == Layout::kMask4; }
  bool has_scales() const { return dtype == "I8" || dtype == "I4"; }
  int64_t row() const { return elements_of(shape, 1); }
  int64_t stored_rows() const;

  // Scales of a stored row: one, but of int4 that is not sparse one for each 64 numbers.
  int64_t groups() const;
};

class Weights {
 public:
  // Checks the header. Tensors of a base model are refused.
  static Result<Weights> open(Bytes file);

  // The name under which a tensor is stored: its own, or that which it is an alias of.
  const std::string& stored_name(const std::string& name) const;

  const Entry* plain(const std::string& stored) const;
  const PackedTensor* packed(const std::string& stored) const;

  // The shape of a tensor, null if there is none.
  const Shape* shape(const std::string& name) const;

  const uint8_t* data(const Entry& entry) const { return file_.data() + start_ + entry.begin; }

 private:
  Fault assemble(const Json& metadata);
  Fault check_elements() const;

  Bytes file_;
  size_t start_ = 0;
  std::map<std::string, Entry> plain_;
  std::map<std::string, PackedTensor> packed_;
  std::map<std::string, std::string> aliases_;
};

}  // namespace mvprune
