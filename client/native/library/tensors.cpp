#include "tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../base/zstd.h"
#include "artifact.h"

namespace mvprune {
namespace {

constexpr uint64_t kMostRatio = 255;
constexpr int64_t kEscape = 255, kBlock = 4, kGroup = 64;

using Positions = std::vector<int64_t>;

// One whole frame that states its size, at most `most`.
Result<Bytes> unpacked(const uint8_t* frame, size_t bytes, uint64_t least, uint64_t most, const char* what) {
  const auto size = zstd_size(frame, bytes);
  if (!size) return Error{std::string("the ") + what + " must be one zstd frame that states its unpacked size"};
  if (*size > most || *size < least) {
    return Error{std::string("the ") + what + " must have at most " + std::to_string(most) + " bytes unpacked, got " + std::to_string(*size)};
  }
  Bytes content(static_cast<size_t>(*size));
  if (const char* why = zstd_unpack(frame, bytes, content.data(), content.size())) {
    return Error{std::string("the ") + what + " must be one zstd frame, got another (" + why + ")"};
  }
  return content;
}

size_t length_of(const Entry& entry) { return static_cast<size_t>(entry.end - entry.begin); }

// `count` numbers of `item` bytes, of an entry that has them as they are or as a frame of byte planes.
Result<Bytes> numbers_of(const Weights& weights, const Entry& entry, int64_t count, int64_t item, const char* what) {
  const uint8_t* data = weights.data(entry);
  if (entry.dtype != "U8") return Bytes(data, data + length_of(entry));
  const uint64_t size = static_cast<uint64_t>(count) * static_cast<uint64_t>(item);
  if (size > kMostRatio * length_of(entry)) return Error{std::string("the frame must be large enough for ") + std::to_string(count) + " " + what};
  Result<Bytes> planes = unpacked(data, length_of(entry), size, size, what);
  if (!planes || item == 1) return planes;
  Bytes numbers(planes->size());
  const size_t each = static_cast<size_t>(count), bytes = static_cast<size_t>(item);
  for (size_t plane = 0; plane < bytes; ++plane) {
    for (size_t i = 0; i < each; ++i) numbers[i * bytes + plane] = (*planes)[plane * each + i];
  }
  return numbers;
}

Result<Positions> positions_in_gaps(const Bytes& stream, int64_t count, int64_t elements) {
  Positions positions;
  positions.reserve(static_cast<size_t>(count));
  int64_t at = -1, gap = 0;
  for (const uint8_t byte : stream) {
    gap += byte;
    if (byte == kEscape) continue;
    at += gap + 1;
    gap = 0;
    if (static_cast<int64_t>(positions.size()) == count || at >= elements) return Error{"the positions must be one for each value, less than the elements"};
    positions.push_back(at);
  }
  if (!stream.empty() && stream.back() == kEscape) return Error{"the gaps must end with a position, got an escape at their end"};
  if (static_cast<int64_t>(positions.size()) != count) return Error{"the positions must be one for each value"};
  return positions;
}

Result<Positions> positions_in_mask(const Bytes& stream, int64_t count, int64_t elements) {
  if (static_cast<int64_t>(stream.size()) != (elements + 7) / 8) return Error{"the mask must have one bit for each element"};
  Positions positions;
  positions.reserve(static_cast<size_t>(count));
  for (size_t i = 0; i < stream.size(); ++i) {
    for (uint8_t bits = stream[i]; bits; bits &= static_cast<uint8_t>(bits - 1)) {
      const int64_t at = static_cast<int64_t>(i) * 8 + __builtin_ctz(bits);
      if (static_cast<int64_t>(positions.size()) == count || at >= elements) return Error{"the mask must have one bit for each value"};
      positions.push_back(at);
    }
  }
  if (static_cast<int64_t>(positions.size()) != count) return Error{"the mask must have one bit for each value"};
  return positions;
}

// Of what is stored, ascending: elements, or rows.
Result<Positions> positions_of(const Weights& weights, const PackedTensor& tensor) {
  const bool is_mask = tensor.layout == Layout::kMask || tensor.layout == Layout::kMask4;
  const bool of_rows = tensor.layout == Layout::kRows;
  const int64_t size = tensor.in_blocks() ? kBlock : 1;
  const int64_t count = of_rows ? tensor.stored_rows() : tensor.count / size;
  const int64_t elements = of_rows ? tensor.shape[0] : elements_of(tensor.shape) / size;
  if (is_mask && count < (elements + 3) / 4) return Error{"a mask must not be larger than gaps would be"};
  const int64_t most = is_mask ? (elements + 7) / 8 : count + elements / kEscape;
  const Entry& entry = *tensor.positions;
  const Result<Bytes> stream = unpacked(weights.data(entry), length_of(entry), 0, static_cast<uint64_t>(most), "positions");
  if (!stream) return stream.error();
  Result<Positions> found = is_mask ? positions_in_mask(*stream, count, elements) : positions_in_gaps(*stream, count, elements);
  if (!found || size == 1) return found;
  Positions all;
  all.reserve(found->size() * static_cast<size_t>(size));
  for (const int64_t block : *found) {
    for (int64_t i = 0; i < size; ++i) all.push_back(block * size + i);
  }
  return all;
}

// What a file stores of a packed tensor.
struct Stored {
  Bytes numbers;
  std::vector<float> scales;
  Positions positions;
};

int64_t item_of(const PackedTensor& tensor) {
  return tensor.dtype == "F32" ? 4 : tensor.has_scales() ? 1 : 2;
}

enum class Number { kFp32, kFp16, kBf16, kInt8 };

Number number_of(const std::string& dtype) {
  if (dtype == "F32") return Number::kFp32;
  if (dtype == "I8" || dtype == "I4") return Number::kInt8;
  return dtype == "F16" ? Number::kFp16 : Number::kBf16;
}

float number_at(Number kind, const uint8_t* numbers, size_t i) {
  if (kind == Number::kInt8) return static_cast<int8_t>(numbers[i]);
  if (kind == Number::kFp32) {
    float value;
    std::memcpy(&value, numbers + 4 * i, sizeof(value));
    return value;
  }
  const auto bits = static_cast<uint16_t>(numbers[2 * i] | numbers[2 * i + 1] << 8);
  return kind == Number::kFp16 ? from_half(bits) : from_bfloat16(bits);
}

Result<Stored> stored_parts(const Weights& weights, const PackedTensor& tensor) {
  Stored stored;
  Result<Bytes> numbers = numbers_of(weights, tensor.values, tensor.count, item_of(tensor), "values");
  if (!numbers) return numbers.error();
  stored.numbers = std::move(*numbers);
  if (tensor.scales) {
    const int64_t count = tensor.stored_rows() * tensor.groups();
    const Result<Bytes> bits = numbers_of(weights, *tensor.scales, count, 2, "scales");
    if (!bits) return bits.error();
    stored.scales.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < stored.scales.size(); ++i) {
      const float scale = stored.scales[i] = number_at(Number::kBf16, bits->data(), i);
      if (!std::isfinite(scale) || scale < 0) return Error{"scales must be finite numbers of at least 0"};
    }
    const int most = tensor.dtype == "I4" ? 7 : 127;
    for (const uint8_t byte : stored.numbers) {
      const int number = static_cast<int8_t>(byte);
      if (number < -most || number > most) return Error{"values must be from -" + std::to_string(most) + " to " + std::to_string(most)};
    }
  }
  if (tensor.layout != Layout::kFull) {
    Result<Positions> positions = positions_of(weights, tensor);
    if (!positions) return positions.error();
    stored.positions = std::move(*positions);
  }
  if (tensor.in_blocks()) {
    int64_t nonzero = 0;
    const Number kind = number_of(tensor.dtype);
    for (size_t i = 0; i < static_cast<size_t>(tensor.count); ++i) nonzero += number_at(kind, stored.numbers.data(), i) != 0;
    if (nonzero != tensor.nonzero) return Error{"the values must have as many non-zeros as the header says"};
  }
  return stored;
}

// Calls take(i, value) for the stored values in fp32, which are finite.
template <typename Take>
Fault for_values(const PackedTensor& tensor, const Stored& stored, Take take) {
  const int64_t row = std::max<int64_t>(tensor.row(), 1), groups = tensor.groups();
  const Number kind = number_of(tensor.dtype);
  for (size_t i = 0; i < static_cast<size_t>(tensor.count); ++i) {
    float value = number_at(kind, stored.numbers.data(), i);
    if (!stored.scales.empty()) {
      const int64_t at = tensor.is_sparse() ? stored.positions[i] : static_cast<int64_t>(i);
      value *= stored.scales[static_cast<size_t>(at / row * groups + (groups > 1 ? at % row / kGroup : 0))];
    }
    if (!std::isfinite(value)) return Error{"values must be finite"};
    take(i, value);
  }
  return std::nullopt;
}

Result<std::vector<float>> decoded(const PackedTensor& tensor, const Stored& stored) {
  std::vector<float> values(static_cast<size_t>(tensor.count));
  if (Fault fault = for_values(tensor, stored, [&](size_t i, float value) { values[i] = value; })) return *fault;
  const size_t size = tensor.in_blocks() ? kBlock : 1;
  for (size_t i = 0; tensor.is_sparse() && i < values.size(); i += size) {
    const bool is_zero = std::all_of(&values[i], &values[i] + size, [](float value) { return value == 0; });
    if (is_zero) return Error{"stored values must not be zero, nor whole blocks of them"};
  }
  return values;
}

Error of_tensor(const std::string& name, const Error& error) {
  return {"weights.safetensors: tensor '" + shown(std::string_view(name)) + "': " + error.text, error.code};
}

Error missing(const std::string& name, const std::string& what) {
  return {"config.json: the model that it describes needs the tensor " + name + what};
}

Result<std::vector<float>> plain_tensor(const Weights& weights, const Entry& entry) {
  const size_t count = static_cast<size_t>(elements_of(entry.shape));
  if (entry.dtype != "F32" && entry.dtype != "F16" && entry.dtype != "BF16") return Error{"must be of floats, got " + entry.dtype};
  const uint8_t* data = weights.data(entry);
  const Number kind = number_of(entry.dtype);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = number_at(kind, data, i);
    if (!std::isfinite(values[i])) return Error{"values must be finite"};
  }
  return values;
}

Result<std::vector<float>> unpacked_whole(const Weights& weights, const PackedTensor& tensor) {
  const Result<Stored> stored = stored_parts(weights, tensor);
  if (!stored) return stored.error();
  Result<std::vector<float>> values = decoded(tensor, *stored);
  if (!values || tensor.layout == Layout::kFull) return values;
  std::vector<float> whole(static_cast<size_t>(elements_of(tensor.shape)));
  const size_t each = tensor.layout == Layout::kRows ? static_cast<size_t>(tensor.row()) : 1;
  for (size_t i = 0; i < stored->positions.size(); ++i) {
    const auto from = values->begin() + static_cast<std::ptrdiff_t>(i * each);
    std::copy(from, from + static_cast<std::ptrdiff_t>(each), whole.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(stored->positions[i]) * each));
  }
  return whole;
}

// int4 numbers of a row, two in a byte: of each 32 columns, those of the first 16 are the low bits, plus 8.
void join(const uint8_t* numbers, int64_t columns, uint8_t* out) {
  for (int64_t left = 0; left < columns; left += 2 * kHalf, out += kHalf) {
    for (int64_t i = 0; i < kHalf; ++i) {
      const auto at = [&](int64_t column) { return column < columns ? static_cast<int8_t>(numbers[column]) + 8 : 8; };
      out[i] = static_cast<uint8_t>(at(left + i) | at(left + kHalf + i) << 4);
    }
  }
}

}  // namespace

int64_t Elements::quads() const {
  const int64_t across = (columns + 3) / 4;
  int64_t found = 0, last = -1;
  for (const int64_t position : positions) {
    const int64_t quad = position / columns * across + position % columns / 4;
    found += quad != last;
    last = quad;
  }
  return found;
}

double Elements::filled_quads() const {
  if (static_cast<int64_t>(values.size()) == rows * columns && !values.empty()) return 1;
  return static_cast<double>(quads()) / static_cast<double>(std::max<int64_t>(1, rows * ((columns + 3) / 4)));
}

float from_half(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3FFu;
  if (exponent == 0) return (sign ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
  const uint32_t wide = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

Result<std::vector<float>> whole_tensor(const Weights& weights, const std::string& name, const Shape& shape) {
  const Shape* found = weights.shape(name);
  if (!found || *found != shape) return missing(name, " of shape " + shown(shape));
  const std::string& stored = weights.stored_name(name);
  const PackedTensor* packed = weights.packed(stored);
  Result<std::vector<float>> whole = packed ? unpacked_whole(weights, *packed) : plain_tensor(weights, *weights.plain(stored));
  if (!whole) return of_tensor(name, whole.error());
  return whole;
}

Result<Elements> nonzero_elements(const Weights& weights, const std::string& name) {
  const Shape* shape = weights.shape(name);
  if (!shape || shape->size() != 2) return missing(name, ", a matrix");
  Elements elements;
  elements.rows = (*shape)[0];
  elements.columns = (*shape)[1];
  const PackedTensor* packed = weights.packed(weights.stored_name(name));
  if (packed && packed->is_sparse()) {
    Result<Stored> stored = stored_parts(weights, *packed);
    if (!stored) return of_tensor(name, stored.error());
    Result<std::vector<float>> values = decoded(*packed, *stored);
    if (!values) return of_tensor(name, values.error());
    elements.positions = std::move(stored->positions);
    elements.values = std::move(*values);
  } else {
    Result<std::vector<float>> values = whole_tensor(weights, name, *shape);
    if (!values) return values.error();
    elements.values = std::move(*values);
    elements.positions.resize(elements.values.size());
    for (size_t i = 0; i < elements.positions.size(); ++i) elements.positions[i] = static_cast<int64_t>(i);
  }
  size_t kept = 0;
  for (size_t i = 0; i < elements.values.size(); ++i) {
    if (elements.values[i] == 0) continue;
    elements.values[kept] = elements.values[i];
    elements.positions[kept++] = elements.positions[i];
  }
  elements.values.resize(kept);
  elements.positions.resize(kept);
  return elements;
}

Result<StoredTable> stored_table(const Weights& weights, const std::string& name) {
  const Shape* shape = weights.shape(name);
  if (!shape || shape->size() != 2) return missing(name, ", a matrix");
  StoredTable table;
  table.rows = (*shape)[0];
  table.columns = (*shape)[1];
  const PackedTensor* packed = weights.packed(weights.stored_name(name));
  if (!packed || packed->is_sparse() || packed->dtype == "F32" || packed->dtype == "BF16") {
    const Result<std::vector<float>> values = whole_tensor(weights, name, *shape);
    if (!values) return values.error();
    table.numbers.resize(values->size() * sizeof(float));
    if (!values->empty()) std::memcpy(table.numbers.data(), values->data(), table.numbers.size());
    return table;
  }
  Result<Stored> stored = stored_parts(weights, *packed);
  if (!stored) return of_tensor(name, stored.error());
  if (const Fault fault = for_values(*packed, *stored, [](size_t, float) {})) return of_tensor(name, *fault);
  table.kind = packed->dtype == "F16" ? Values::fp16 : packed->dtype == "I8" ? Values::int8 : Values::int4;
  const size_t groups = static_cast<size_t>(packed->groups()), columns = static_cast<size_t>(table.columns);
  const size_t from = columns * static_cast<size_t>(item_of(*packed));
  const size_t to = table.kind == Values::int4 ? (columns + 2 * kHalf - 1) / (2 * kHalf) * kHalf : from;
  if (packed->layout == Layout::kFull && table.kind != Values::int4) {  // it lies as the kernel reads it
    table.numbers = std::move(stored->numbers);
    table.scales = std::move(stored->scales);
    return table;
  }
  const uint8_t zero = table.kind == Values::int4 ? 0x88 : 0;
  table.numbers.assign(to * static_cast<size_t>(table.rows), zero);
  if (packed->has_scales()) table.scales.assign(groups * static_cast<size_t>(table.rows), 0);
  const size_t rows = static_cast<size_t>(packed->stored_rows());
  for (size_t i = 0; i < rows && from; ++i) {
    const size_t row = packed->layout == Layout::kRows ? static_cast<size_t>(stored->positions[i]) : i;
    const uint8_t* numbers = stored->numbers.data() + i * from;
    if (table.kind == Values::int4) {
      join(numbers, table.columns, table.numbers.data() + row * to);
    } else {
      std::memcpy(table.numbers.data() + row * to, numbers, from);
    }
    if (packed->has_scales()) std::copy_n(stored->scales.data() + i * groups, groups, table.scales.data() + row * groups);
  }
  return table;
}

void StoredTable::read_row(int64_t row, float* out) const {
  const size_t width = static_cast<size_t>(columns), at = static_cast<size_t>(row);
  if (kind == Values::int4) {
    const size_t bytes = (width + 2 * kHalf - 1) / (2 * kHalf) * kHalf, groups = (width + kGroup - 1) / kGroup;
    for (size_t i = 0; i < width; ++i) {
      const uint8_t byte = numbers[at * bytes + i / (2 * kHalf) * kHalf + i % kHalf];
      out[i] = static_cast<float>((i % (2 * kHalf) < kHalf ? byte & 15 : byte >> 4) - 8) * scales[at * groups + i / kGroup];
    }
    return;
  }
  const Number stored = kind == Values::fp32 ? Number::kFp32 : kind == Values::fp16 ? Number::kFp16 : Number::kInt8;
  for (size_t i = 0; i < width; ++i) out[i] = number_at(stored, numbers.data(), at * width + i) * (scales.empty() ? 1.0f : scales[at]);
}

}  // namespace mvprune
