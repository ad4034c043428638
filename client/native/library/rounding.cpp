#include "rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace mvprune {
namespace {

constexpr float kSmallestScale = 0x1p-126f;
constexpr float kSteps[] = {7, 11, 15, 23, 31, 47, 63, 95, 127};

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

}  // namespace

RoundedRows rounded_rows(const Elements& elements, bool is_sparse) {
  RoundedRows made;
  made.numbers.reserve(elements.values.size());
  made.scales.reserve(static_cast<size_t>(elements.rows));
  const float unit = is_sparse ? unit_of(elements.values) : 0;
  size_t first = 0;
  for (int64_t row = 0; row < elements.rows; ++row) {
    size_t last = first;
    while (last < elements.positions.size() && elements.positions[last] / elements.columns == row) ++last;
    const float* values = elements.values.data() + first;
    const float most = largest(values, last - first);
    const float scale = scale_of(is_sparse ? shared(most / 127.0f, unit) : most / fewest_steps(values, last - first, most));
    made.scales.push_back(scale);
    for (; first < last; ++first) made.numbers.push_back(quantized(elements.values[first], scale));
  }
  return made;
}

}  // namespace mvprune
