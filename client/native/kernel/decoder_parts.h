// The parts of decoder.h that are the same for every instruction set. As in kernel.cpp, all has internal linkage.
#pragma once

#include "decoder.h"
#include "simd.h"

namespace mvprune {
namespace {

void rotate(const float* cosines, const float* sines, int64_t size, float* x) {
  const int64_t half = size / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float low = x[i], high = x[half + i];
    x[i] = low * cosines[i] - high * sines[i];
    x[half + i] = high * cosines[half + i] + low * sines[half + i];
  }
}

inline Vector silu(Vector x) {
  const Vector less = exp(-absolute(x)), sigmoid = select(x < Vector{}, less, splat(1)) / (less + 1.0f);
  return x * sigmoid;
}

template <Vector (*function)(Vector)>
void apply(const float* gate, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vector own = load_first(y + i, count - i), value = function(gate ? load_first(gate + i, count - i) : own);
    store_first(y + i, gate ? value * own : value, count - i);
  }
}

void activate(Gate activation, const float* gate, float* y, int64_t count) {
  switch (activation) {
    case Gate::gelu: return apply<gelu>(gate, y, count);
    case Gate::gelu_tanh: return apply<gelu_tanh>(gate, y, count);
    case Gate::relu: return apply<relu>(gate, y, count);
    case Gate::silu: return apply<silu>(gate, y, count);
  }
}

}  // namespace
}  // namespace mvprune
