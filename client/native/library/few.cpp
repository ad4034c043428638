#include "few.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "rounding.h"

namespace mvprune {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

int64_t filled_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

// The half-precision number that is this one; none, if it would be rounded.
std::optional<uint16_t> exact_half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000u, fraction = bits & 0x7FFFFFu;
  const int exponent = static_cast<int>(bits >> 23 & 255) - 127;
  if (value == 0) return static_cast<uint16_t>(sign);
  if (exponent > 15 || exponent < -24) return std::nullopt;
  const int lost = exponent >= -14 ? 13 : 13 - 14 - exponent;
  const uint32_t whole = exponent >= -14 ? fraction : fraction | 0x800000u;
  if (whole & ((1u << lost) - 1)) return std::nullopt;
  const uint32_t power = exponent >= -14 ? static_cast<uint32_t>(exponent + 15) << 10 : 0;
  return static_cast<uint16_t>(sign | power | whole >> lost);
}

// All of them as halves; empty, if one would be rounded.
std::vector<uint16_t> exact_halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  halves.reserve(values.size());
  for (const float value : values) {
    const auto half = exact_half(value);
    if (!half) return {};
    halves.push_back(*half);
  }
  return halves;
}

bool is_exact(const Elements& elements, const RoundedRows& rounded) {
  for (size_t i = 0; i < elements.values.size(); ++i) {
    const float scale = rounded.scales[at(elements.positions[i] / elements.columns)];
    if (static_cast<float>(rounded.numbers[i]) * scale != elements.values[i]) return false;
  }
  return true;
}

Kept smallest(const Elements& elements, double filled, double item) {
  const double places = static_cast<double>(elements.rows) * static_cast<double>(elements.columns);
  const double all = item * places, weights = item * static_cast<double>(elements.values.size()) + places / 8;
  const double quads = filled * places + places / 32;
  Kept found = weights < all ? Kept::weights : Kept::all;
  if (item == 1 && quads < std::min(all, weights)) found = Kept::quads;
  return found;
}

}  // namespace

void FewMatrix::point(int64_t rows, int64_t columns, Kept kept, Values kind) {
  values_.resize(values_.size() + kGroup * sizeof(float));
  if (!scales_.empty()) scales_.resize(at(filled_up(rows, kTileRows)));
  matrix_.rows = rows;
  matrix_.columns = columns;
  matrix_.masks = kept == Kept::all ? nullptr : masks_.data();
  matrix_.values = values_.data();
  matrix_.starts = starts_.data();
  matrix_.scales = scales_.empty() ? nullptr : scales_.data();
  matrix_.offsets = offsets_.empty() ? nullptr : offsets_.data();
  matrix_.kept = kept;
  matrix_.kind = kind;
}

// `block`: columns of one; 0: all of them, and x is not of bytes.
template <typename Number>
void FewMatrix::lay_out(const Elements& elements, const std::vector<Number>& numbers, Kept kept, int64_t block) {
  const int64_t height = filled_up(elements.rows, kTileRows), across = filled_up(elements.columns, kGroup);
  const int64_t width = kept == Kept::quads ? 4 : 1, each = block ? block : std::max<int64_t>(across, 1);
  std::vector<Number> tile(at(kTileRows * across));
  int64_t stored = 0;
  const auto keep = [&](const Number* first) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(first);
    values_.insert(values_.end(), bytes, bytes + at(width) * sizeof(Number));
    stored += width;
  };
  starts_.assign(1, 0);
  size_t next = 0;
  for (int64_t top = 0; top < height; top += kTileRows) {
    std::fill(tile.begin(), tile.end(), Number{});
    for (; next < numbers.size() && elements.positions[next] / elements.columns < top + kTileRows; ++next) {
      const int64_t position = elements.positions[next];
      tile[at((position / elements.columns - top) * across + position % elements.columns)] = numbers[next];
    }
    for (int64_t left = 0; left < across; left += each) {
      const int64_t right = std::min(across, left + each);
      for (int64_t row = 0; row < kTileRows; ++row) {
        const Number* line = tile.data() + row * across;
        for (int64_t column = left; column < right; column += 8 * width) {
          uint8_t bits = 0;
          for (int64_t i = 0; i < 8; ++i) {
            const Number* first = line + column + i * width;
            const bool is_kept = kept == Kept::all || std::any_of(first, first + width, [](Number one) { return one != Number{}; });
            if (!is_kept) continue;
            bits |= static_cast<uint8_t>(1 << i);
            keep(first);
          }
          if (kept != Kept::all) masks_.push_back(bits);
        }
        if (!block) continue;
        int32_t sum = 0;
        for (int64_t column = left; column < right; ++column) sum += static_cast<int32_t>(line[column]);
        offsets_.push_back(128 * sum);
      }
    }
    starts_.push_back(stored);
  }
}

std::unique_ptr<FewMatrix> few_of(const Elements& elements, bool rounds) {
  auto made = std::make_unique<FewMatrix>();
  const double filled = elements.filled_quads();
  const bool is_sparse = filled <= kFilled;
  const auto give_bytes = [&](RoundedRows& rounded) {
    const Kept kept = smallest(elements, filled, 1);
    made->scales_ = std::move(rounded.scales);
    made->lay_out(elements, rounded.numbers, kept, rounds ? kQuadBlock : 0);
    made->point(elements.rows, elements.columns, kept, Values::int8);
  };
  for (const bool sparse : {is_sparse, !is_sparse}) {
    RoundedRows rounded = rounded_rows(elements, sparse);
    if (!rounds && !is_exact(elements, rounded)) continue;
    give_bytes(rounded);
    return made;
  }
  const std::vector<uint16_t> halves = exact_halves(elements.values);
  const bool has_halves = halves.size() == elements.values.size();
  const Kept kept = smallest(elements, filled, has_halves ? 2 : 4);
  if (has_halves) {
    made->lay_out(elements, halves, kept, 0);
  } else {
    made->lay_out(elements, elements.values, kept, 0);
  }
  made->point(elements.rows, elements.columns, kept, has_halves ? Values::fp16 : Values::fp32);
  return made;
}

std::unique_ptr<FewMatrix> few_of(const StoredTable& table) {
  auto made = std::make_unique<FewMatrix>();
  const int64_t across = filled_up(table.columns, kGroup), tiles = (table.rows + kTileRows - 1) / kTileRows;
  std::vector<float> row(at(table.columns));
  Values kind = table.kind;
  if (kind == Values::int4) {  // groups of a row have scales of their own, which a matrix has not
    kind = Values::fp16;
    for (int64_t i = 0; i < table.rows && kind == Values::fp16; ++i) {
      table.read_row(i, row.data());
      if (exact_halves(row).size() != row.size()) kind = Values::fp32;
    }
  }
  const size_t item = kind == Values::int8 ? 1 : kind == Values::fp16 ? 2 : 4;
  made->values_.resize(at(tiles * kTileRows * across) * item);
  for (int64_t i = 0; i < table.rows; ++i) {
    uint8_t* to = made->values_.data() + at(i * across) * item;
    if (kind == table.kind) {
      std::memcpy(to, table.numbers.data() + at(i * table.columns) * item, at(table.columns) * item);
      continue;
    }
    table.read_row(i, row.data());
    const std::vector<uint16_t> halves = kind == Values::fp16 ? exact_halves(row) : std::vector<uint16_t>();
    std::memcpy(to, kind == Values::fp16 ? static_cast<const void*>(halves.data()) : row.data(), row.size() * item);
  }
  for (int64_t tile = 0; tile <= tiles; ++tile) made->starts_.push_back(tile * kTileRows * across);
  if (kind == Values::int8) made->scales_ = table.scales;
  made->point(table.rows, table.columns, Kept::all, kind);
  return made;
}

}  // namespace mvprune
