#include "layouts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace mvprune {
namespace {

constexpr int64_t kBlocks[] = {128, 256, 512, 1024};
constexpr int64_t kRun = 10;       // non-zeros of a row in a block, on average, at least
constexpr double kFilled = 0.55;   // from this fraction of filled quads on, all of them are stored
constexpr float kSmallestScale = 0x1p-126f;
constexpr float kSteps[] = {7, 11, 15, 23, 31, 47, 63, 95, 127};
constexpr int32_t kZero = 128;     // a byte of an activation that is zero

int64_t blocks_of(int64_t columns, int64_t block) { return std::max<int64_t>(1, (columns + block - 1) / block); }

int64_t filled_up(int64_t rows) { return (rows + kTogether - 1) / kTogether * kTogether; }

size_t at(int64_t i) { return static_cast<size_t>(i); }

// The nearest bfloat16 number, ties to even.
float rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

float largest(const float* values, size_t count) {
  float found = 0;
  for (size_t i = 0; i < count; ++i) found = std::max(found, std::fabs(values[i]));
  return found;
}

int floor_half(int number) { return number >= 0 ? number / 2 : -((1 - number) / 2); }

// The exponent of the largest power of 4 up to a ratio.
int powers_of_4(double ratio) {
  int exponent;
  std::frexp(ratio, &exponent);
  return floor_half(exponent - 1);
}

// The scale of the largest magnitude of a sparse matrix; 0 where it is too small.
float unit_of(const std::vector<float>& values) {
  const float most = largest(values.data(), values.size()) / 127.0f;
  return most >= kSmallestScale && most < std::numeric_limits<float>::infinity() ? rounded(most) : 0.0f;
}

// The smallest of unit, unit / 4, unit / 16, … that is not below a factor.
float shared(float factor, float unit) {
  if (!unit || !(factor > 0)) return 0;
  const int most = powers_of_4(static_cast<double>(unit) / kSmallestScale);
  const int steps = std::clamp(powers_of_4(static_cast<double>(unit) / factor), 0, most);
  return std::ldexp(unit, -2 * steps);
}

float scale_of(float factor) { return factor < kSmallestScale ? 0.0f : rounded(factor); }

// The fewest steps with which none of a row's numbers is rounded, else 127.
float fewest_steps(const float* values, size_t count, float most) {
  for (const float steps : kSteps) {
    const float scale = rounded(most / steps);
    if (!(most / steps >= kSmallestScale) || scale * steps != most) continue;
    if (std::all_of(values, values + count, [&](float value) { return std::nearbyint(value / scale) * scale == value; })) return steps;
  }
  return 127;
}

int8_t quantized(float value, float scale) {
  if (!scale) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(value / scale), -127.0f, 127.0f));
}

// Calls each(row, first, last) for the elements of each row.
template <typename Each>
void for_rows(const Elements& elements, Each each) {
  size_t first = 0;
  for (int64_t row = 0; row < elements.rows; ++row) {
    size_t last = first;
    while (last < elements.positions.size() && elements.positions[last] / elements.columns == row) ++last;
    each(row, first, last);
    first = last;
  }
}

}  // namespace

// Elements in row-major order: by bands of rows, blocks of columns, rows (the fullest first), columns.
void LaidOut::lay_out(int64_t rows, int64_t columns, int64_t block, const std::vector<int64_t>& positions) {
  const int64_t across = blocks_of(columns, block);
  // A run holds the elements that a row has in a block; they follow each other.
  std::vector<int64_t> ends(at(rows * across + 1));
  for (const int64_t position : positions) ++ends[at(position / columns * across + position % columns / block + 1)];
  for (size_t run = 1; run < ends.size(); ++run) ends[run] += ends[run - 1];
  const auto size = [&](int64_t run) { return ends[at(run + 1)] - ends[at(run)]; };
  starts_.assign(1, 0);
  std::vector<int64_t> runs;
  for (int64_t top = 0; top < rows; top += kBand) {
    for (int64_t left = 0; left < across; ++left) {
      runs.clear();
      for (int64_t row = top; row < std::min(rows, top + kBand); ++row) runs.push_back(row * across + left);
      std::stable_sort(runs.begin(), runs.end(), [&](int64_t a, int64_t b) { return size(a) > size(b); });
      for (const int64_t run : runs) {
        order_.push_back(static_cast<uint8_t>(run / across % kBand));
        for (int64_t i = ends[at(run)]; i < ends[at(run + 1)]; ++i) {
          stored_.push_back(i);
          indices_.push_back(static_cast<uint16_t>(positions[at(i)] % columns % block));
        }
        starts_.push_back(static_cast<int64_t>(stored_.size()));
      }
    }
  }
}

void LaidOut::point(Values kind, int64_t columns, int64_t block) {
  std::vector<int64_t>().swap(stored_);
  const bool is_full = kind == Values::full;
  matrix_.columns = columns;
  matrix_.block = block;
  matrix_.starts = is_full ? nullptr : starts_.data();
  matrix_.order = is_full ? nullptr : order_.data();
  matrix_.indices = is_full ? nullptr : indices_.data();
  matrix_.values = kind == Values::fp32 ? static_cast<const void*>(values_.data()) : numbers_.data();
  matrix_.scales = kind == Values::fp32 ? nullptr : scales_.data();
  matrix_.offsets = kind == Values::fp32 ? nullptr : offsets_.data();
  matrix_.kind = kind;
}

void LaidOut::make_quads(const Elements& elements) {
  const int64_t across = (elements.columns + 3) / 4;
  const float unit = unit_of(elements.values);
  scales_.resize(at(elements.rows));
  std::vector<int64_t> quads;
  std::vector<int8_t> numbers;
  for_rows(elements, [&](int64_t row, size_t first, size_t last) {
    const float most = largest(elements.values.data() + first, last - first);
    const float scale = scales_[at(row)] = scale_of(shared(most / 127.0f, unit));
    for (size_t i = first; i < last; ++i) {
      const int64_t column = elements.positions[i] % elements.columns, quad = row * across + column / 4;
      if (quads.empty() || quads.back() != quad) {
        quads.push_back(quad);
        numbers.resize(numbers.size() + 4);
      }
      numbers[numbers.size() - 4 + at(column % 4)] = quantized(elements.values[i], scale);
    }
  });
  lay_out(elements.rows, std::max<int64_t>(across, 1), kQuadBlock / 4, quads);
  numbers_.reserve(numbers.size());
  for (const int64_t i : stored_) numbers_.insert(numbers_.end(), &numbers[at(4 * i)], &numbers[at(4 * i)] + 4);
  for (size_t run = 0; run + 1 < starts_.size(); ++run) {
    int32_t sum = 0;
    for (int64_t i = 4 * starts_[run]; i < 4 * starts_[run + 1]; ++i) sum += numbers_[at(i)];
    offsets_.push_back(kZero * sum);
  }
}

void LaidOut::make_full(const Elements& elements) {
  const int64_t height = filled_up(elements.rows), width = (elements.columns + 3) / 4 * 4;
  std::vector<int8_t> whole(at(height * width));
  scales_.resize(at(elements.rows));
  for_rows(elements, [&](int64_t row, size_t first, size_t last) {
    const float* values = elements.values.data() + first;
    const float most = largest(values, last - first);
    const float scale = scales_[at(row)] = scale_of(most / fewest_steps(values, last - first, most));
    for (size_t i = first; i < last; ++i) {
      whole[at(row * width + elements.positions[i] % elements.columns)] = quantized(elements.values[i], scale);
    }
  });
  numbers_.reserve(whole.size());
  for (int64_t top = 0; top < elements.rows; top += kBand) {
    const int64_t end = std::min(height, top + kBand);
    for (int64_t left = 0; left < std::max<int64_t>(1, width); left += kQuadBlock) {
      const int64_t right = std::min(width, left + kQuadBlock);
      for (int64_t tile = top; tile < end; tile += kTogether) {
        for (int64_t column = left; column < right; column += 4) {
          for (int64_t row = tile; row < tile + kTogether; ++row) {
            const int8_t* quad = whole.data() + row * width + column;
            numbers_.insert(numbers_.end(), quad, quad + 4);
          }
        }
      }
      for (int64_t row = top; row < std::min(end, elements.rows); ++row) {
        int32_t sum = 0;
        for (int64_t column = left; column < right; ++column) sum += whole[at(row * width + column)];
        offsets_.push_back(kZero * sum);
      }
    }
  }
}

std::unique_ptr<LaidOut> laid_out(const Elements& elements) {
  auto made = std::make_unique<LaidOut>();
  const int64_t count = static_cast<int64_t>(elements.values.size()), size = elements.rows * elements.columns;
  const auto fits = [&](int64_t block) { return block * count >= kRun * size; };
  const int64_t* found = std::find_if(std::begin(kBlocks), std::end(kBlocks), fits);
  const int64_t block = found == std::end(kBlocks) ? kWidestBlock : *found;
  made->lay_out(elements.rows, elements.columns, block, elements.positions);
  made->values_.reserve(elements.values.size());
  for (const int64_t i : made->stored_) made->values_.push_back(elements.values[at(i)]);
  made->matrix_.rows = elements.rows;
  made->point(Values::fp32, elements.columns, block);
  return made;
}

std::unique_ptr<LaidOut> laid_out_for_bytes(const Elements& elements) {
  auto made = std::make_unique<LaidOut>();
  const bool is_full = elements.filled_quads() > kFilled;
  if (is_full) {
    made->make_full(elements);
  } else {
    made->make_quads(elements);
  }
  made->matrix_.rows = elements.rows;
  made->point(is_full ? Values::full : Values::quads, elements.columns, kQuadBlock);
  return made;
}

}  // namespace mvprune
