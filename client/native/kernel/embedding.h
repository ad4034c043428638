// Rows of numbers that tokens refer to, added and normalized. Lanes are columns here.
#pragma once

#include <cstring>

#include "kernel.h"
#include "simd.h"

namespace mvprune {
namespace {

// kLanes numbers as floats. A type of its own for each kind of a byte or more: its size, and the conversion.
template <Values>
struct Numbers;
template <>
struct Numbers<Values::fp32> {
  using Type = float;
  static Vector load(const float* numbers) {
    Vector value;
    std::memcpy(&value, numbers, sizeof value);
    return value;
  }
};
template <>
struct Numbers<Values::fp16> {
  using Type = uint16_t;
  typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
  // Exponent and mantissa move into place; a product with 2^112 makes up for the other bias, for subnormals too.
  static Vector load(const uint16_t* numbers) {
    Halves halves;
    std::memcpy(&halves, numbers, sizeof halves);
    const Bits bits = __builtin_convertvector(halves, Bits);
    const Vector size = (Vector)((bits & 0x7fffu) << 13) * 5.192296858534828e33f;
    return (Vector)((Bits)size | (bits & 0x8000u) << 16);
  }
};
template <>
struct Numbers<Values::int8> {
  using Type = int8_t;
  typedef int8_t Bytes __attribute__((vector_size(kLanes)));
  static Vector load(const int8_t* numbers) {
    Bytes bytes;
    std::memcpy(&bytes, numbers, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, Integers), Vector);
  }
};

// A row of a table: kLanes of its columns as floats, or the last ones, too few for a vector.
template <Values kind>
class Row {
 public:
  Row(const Table& table, int64_t row, int64_t columns)
      : numbers_(static_cast<const Type*>(table.numbers) + row * columns),
        scale_(table.scales ? table.scales[row] : 1.0f) {}

  Vector load(int64_t column) const { return Numbers<kind>::load(numbers_ + column) * scale_; }

  Vector load(int64_t column, int64_t count) const {
    Type in[kLanes] = {};
    std::memcpy(in, numbers_ + column, count * sizeof(Type));
    return Numbers<kind>::load(in) * scale_;
  }

 private:
  using Type = typename Numbers<kind>::Type;
  const Type* numbers_;
  float scale_;
};

template <>
class Row<Values::int4> {
 public:
  Row(const Table& table, int64_t row, int64_t columns)
      : bytes_(static_cast<const uint8_t*>(table.numbers) + row * runs(columns, 2 * kHalf) * kHalf),
        scales_(table.scales + row * runs(columns, kScaled)) {}

  Vector load(int64_t column) const {
    typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
    Bytes bytes;
    std::memcpy(&bytes, bytes_ + column / (2 * kHalf) * kHalf + column % kHalf, sizeof bytes);
    const int shift = column % (2 * kHalf) < kHalf ? 0 : 4;
    const Integers numbers = ((__builtin_convertvector(bytes, Integers) >> shift) & 15) - 8;
    return __builtin_convertvector(numbers, Vector) * scales_[column / kScaled];
  }

  Vector load(int64_t column, int64_t) const { return load(column); }  // the row is filled up

 private:
  static int64_t runs(int64_t columns, int64_t size) { return (columns + size - 1) / size; }

  const uint8_t* bytes_;
  const float* scales_;
};

// out (+)= row of a table.
template <Values kind>
void add_row(const Table& table, int64_t row, int64_t columns, bool first, float* out) {
  const Row<kind> values(table, row, columns);
  for (int64_t column = 0; column < columns; column += kLanes) {
    const int64_t filled = columns - column < kLanes ? columns - column : kLanes;
    Vector sum{};
    if (filled == kLanes) {
      if (!first) std::memcpy(&sum, out + column, sizeof sum);
      sum += values.load(column);
      std::memcpy(out + column, &sum, sizeof sum);
    } else {
      if (!first) std::memcpy(&sum, out + column, filled * sizeof(float));
      sum += values.load(column, filled);
      std::memcpy(out + column, &sum, filled * sizeof(float));
    }
  }
}

// values = norm(values), of one token.
void normalize_row(const Norm& norm, int64_t columns, float* values) {
  const int64_t whole = columns / kLanes * kLanes;
  const auto sum_of = [&](auto each) {
    Vector sum{};
    float total = 0;
    for (int64_t column = 0; column < whole; column += kLanes) {
      Vector value;
      std::memcpy(&value, values + column, sizeof value);
      sum += each(value);
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) total += sum[lane];
    for (int64_t column = whole; column < columns; ++column) total += each(values[column]);
    return total / static_cast<float>(columns);
  };
  const float mean = sum_of([](auto value) { return value; });
  const float variance = sum_of([mean](auto value) { return (value - mean) * (value - mean); });
  const float scale = 1 / __builtin_sqrtf(variance + norm.epsilon);
  for (int64_t column = 0; column < columns; ++column) {
    values[column] = (values[column] - mean) * scale * norm.weight[column] + (norm.bias ? norm.bias[column] : 0.0f);
  }
}

void embed(const Embedding& embedding, const int64_t* const* ids, Tokens tokens, float* y) {
  const int64_t columns = embedding.columns;
  for (int64_t token = tokens.first; token < tokens.last; ++token) {
    float* out = y + token * columns;
    for (int64_t k = 0; k < embedding.count; ++k) {
      const Table& table = embedding.tables[k];
      switch (table.kind) {
        case Values::int8: add_row<Values::int8>(table, ids[k][token], columns, k == 0, out); break;
        case Values::int4: add_row<Values::int4>(table, ids[k][token], columns, k == 0, out); break;
        case Values::fp16: add_row<Values::fp16>(table, ids[k][token], columns, k == 0, out); break;
        default: add_row<Values::fp32>(table, ids[k][token], columns, k == 0, out);
      }
    }
    if (embedding.norm) normalize_row(*embedding.norm, columns, out);
  }
}

}  // namespace
}  // namespace mvprune
