#include "layouts.h"

#include <algorithm>

#include "../base/sorting.h"
#include "rounding.h"

namespace mvprune {
namespace {

constexpr int64_t kBlocks[] = {128, 256, 512, 1024};
constexpr int64_t kRun = 10;       // non-zeros of a row in a block, on average, at least
constexpr int32_t kZero = 128;     // a byte of an activation that is zero

int64_t blocks_of(int64_t columns, int64_t block) { return std::max<int64_t>(1, (columns + block - 1) / block); }

int64_t filled_up(int64_t rows) { return (rows + kTogether - 1) / kTogether * kTogether; }

size_t at(int64_t i) { return static_cast<size_t>(i); }

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
      sort_stably(runs, [&](int64_t a, int64_t b) { return size(a) > size(b); });
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
  RoundedRows rounded = rounded_rows(elements, true);
  scales_ = std::move(rounded.scales);
  std::vector<int64_t> quads;
  std::vector<int8_t> numbers;
  for (size_t i = 0; i < elements.positions.size(); ++i) {
    const int64_t row = elements.positions[i] / elements.columns, column = elements.positions[i] % elements.columns;
    const int64_t quad = row * across + column / 4;
    if (quads.empty() || quads.back() != quad) {
      quads.push_back(quad);
      numbers.resize(numbers.size() + 4);
    }
    numbers[numbers.size() - 4 + at(column % 4)] = rounded.numbers[i];
  }
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
  RoundedRows rounded = rounded_rows(elements, false);
  scales_ = std::move(rounded.scales);
  for (size_t i = 0; i < elements.positions.size(); ++i) {
    whole[at(elements.positions[i] / elements.columns * width + elements.positions[i] % elements.columns)] = rounded.numbers[i];
  }
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
