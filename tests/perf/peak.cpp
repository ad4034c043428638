// What a core does at most, for runtime_parts.py: multiply-adds in registers, and with one operand from a cache.
#include <cstdint>

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

namespace {

constexpr int kSums = 12;  // more than hide a multiply-add's latency, and few enough for 16 registers

float total(const Vector (&sums)[kSums]) {
  Vector sum{};
  for (const Vector& one : sums) sum += one;
  return sum[0];
}

}  // namespace

// kSums * LANES * rounds multiply-adds.
extern "C" float in_registers(int64_t rounds) {
  Vector sums[kSums];
  for (int k = 0; k < kSums; ++k) sums[k] = Vector{} + static_cast<float>(k);
  const Vector factor = Vector{} + 0.999f, more = Vector{} + 0.001f;
  for (int64_t i = 0; i < rounds; ++i) {
    for (Vector& sum : sums) sum = sum * factor + more;
  }
  return total(sums);
}

// kSums * LANES * blocks * rounds of them; reads as many floats.
extern "C" float from_memory(const float* memory, int64_t blocks, int64_t rounds) {
  Vector sums[kSums] = {};
  Vector factor = Vector{} + 0.999f;
  for (int64_t i = 0; i < rounds; ++i) {
    const Vector* block = reinterpret_cast<const Vector*>(memory);
    asm("" : "+r"(block));  // so that each round reads anew
    for (int64_t b = 0; b < blocks; ++b, block += kSums) {
      for (int k = 0; k < kSums; ++k) sums[k] += block[k] * factor;
    }
  }
  return total(sums);
}
