// The products of masked.h. As in kernel.cpp, all but the table has internal linkage. Sums of bytes are those of dots.cpp,
// bit for bit: the same rounding of x, exact sums of a block, and the sums of the blocks added in the same order.
#include "masked.h"

#include <cstring>

#include "lanes.h"

namespace mvprune {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kBlockGroups = kQuadBlock / kGroup;
constexpr uint32_t kInfinite = 0x7f800000;

int64_t groups(const MaskedMatrix& matrix) { return (matrix.columns + kGroup - 1) / kGroup; }

int64_t byte_blocks(const MaskedMatrix& matrix) { return (groups(matrix) + kBlockGroups - 1) / kBlockGroups; }

bool takes_bytes(const MaskedMatrix& matrix) { return matrix.offsets != nullptr; }

// Floats of a token: its bytes and then its scales, or its columns.
int64_t stride(const MaskedMatrix& matrix) {
  const int64_t columns = groups(matrix) * kGroup;
  return takes_bytes(matrix) ? columns / 4 + (byte_blocks(matrix) + kLanes - 1) / kLanes * kLanes : columns;
}

// Tokens as the templates take them: what is filled up is zero.
int64_t width(int64_t tokens) { return tokens <= 2 ? tokens : tokens <= 4 ? 4 : kFew; }

int64_t floats(const MaskedMatrix& matrix, int64_t tokens) { return width(tokens) * stride(matrix); }

// The greatest magnitude as bits, which are in the order of the numbers, infinity and NaN last.
uint32_t greatest(const float* x, int64_t count) {
  __m512i most = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int64_t i = 0; i < count; i += kLanes) {
    most = _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(_mm512_maskz_loadu_ps(first_lanes(count - i), x + i)), magnitude));
  }
  return static_cast<uint32_t>(_mm512_reduce_max_epi32(most));
}

// One block of a token: the bytes and the scale of quads.h. What is filled up meets weights of zero.
void quantize(const float* x, int64_t count, uint32_t bits, uint8_t* bytes, float* scale) {
  float most;
  std::memcpy(&most, &bits, sizeof most);
  const bool some = most >= 1e-30f;
  *scale = some ? most / 127.0f : 0.0f;
  const __m512 inverse = _mm512_set1_ps(some ? 127.0f / most : 0.0f);
  for (int64_t i = 0; i < count; i += kLanes) {
    const __m512 product = _mm512_mul_ps(_mm512_maskz_loadu_ps(first_lanes(count - i), x + i), inverse);
    const __m512i number = _mm512_add_epi32(_mm512_cvtps_epi32(product), _mm512_set1_epi32(128));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + i), _mm512_cvtepi32_epi8(number));
  }
}

bool prepare(const MaskedMatrix& matrix, const float* x, int64_t tokens, float* memory) {
  const int64_t columns = matrix.columns, filled = groups(matrix) * kGroup;
  std::memset(memory, 0, static_cast<size_t>(floats(matrix, tokens)) * sizeof *memory);
  for (int64_t token = 0; token < tokens; ++token, x += columns, memory += stride(matrix)) {
    if (!takes_bytes(matrix)) {
      if (greatest(x, columns) >= kInfinite) return false;
      std::memcpy(memory, x, static_cast<size_t>(columns) * sizeof *x);
      continue;
    }
    for (int64_t block = 0; block < byte_blocks(matrix); ++block) {
      const int64_t first = block * kQuadBlock, count = columns - first < kQuadBlock ? columns - first : kQuadBlock;
      const uint32_t bits = greatest(x + first, count);
      if (bits >= kInfinite) return false;
      quantize(x + first, count, bits, reinterpret_cast<uint8_t*>(memory) + first, memory + filled / 4 + block);
    }
  }
  return true;
}

// 64 bytes in a register: an expansion that reads memory itself takes several times as long on AMD's processors.
__m512i loaded(const void* memory) {
  __m512i taken = _mm512_loadu_si512(memory);
  asm("" : "+v"(taken));
  return taken;
}

// Where the kept values lie, and how 64 columns of them are read. `at` of int8 gives 64 bytes.
template <Kept kept>
struct Reader;

template <>
struct Reader<Kept::all> {
  Reader(const MaskedMatrix&, int64_t) {}
  __m512i bytes(const int8_t*& values) {
    const __m512i taken = _mm512_loadu_si512(values);
    values += kGroup;
    return taken;
  }
  uint64_t next() { return ~uint64_t{0}; }
};

template <>
struct Reader<Kept::weights> {
  const uint64_t* mask;
  Reader(const MaskedMatrix& matrix, int64_t tile)
      : mask(static_cast<const uint64_t*>(matrix.masks) + tile * kTileRows * groups(matrix)) {}
  uint64_t next() { return *mask++; }
  __m512i bytes(const int8_t*& values) {
    const uint64_t bits = next();
    const __m512i taken = _mm512_maskz_expand_epi8(bits, loaded(values));
    values += _mm_popcnt_u64(bits);
    return taken;
  }
};

template <>
struct Reader<Kept::quads> {
  const uint16_t* mask;
  Reader(const MaskedMatrix& matrix, int64_t tile)
      : mask(static_cast<const uint16_t*>(matrix.masks) + tile * kTileRows * groups(matrix)) {}
  __m512i bytes(const int8_t*& values) {
    const uint32_t bits = *mask++;
    const __m512i taken = _mm512_maskz_expand_epi32(static_cast<__mmask16>(bits), loaded(values));
    values += 4 * _mm_popcnt_u32(bits);
    return taken;
  }
};

// y of a tile for T vectors of its rows' sums, of which the first `tokens` are used.
template <int T>
void finish(const MaskedProduct& product, int64_t tile, int64_t tokens, const __m512 (&sums)[T]) {
  const MaskedMatrix& matrix = *product.matrix;
  const int64_t row = tile * kTileRows;
  const __mmask16 lanes = first_lanes(matrix.rows - row);
  const __m512 scale = matrix.scales ? _mm512_loadu_ps(matrix.scales + row) : _mm512_set1_ps(1);
  const __m512 bias = product.bias ? _mm512_maskz_loadu_ps(lanes, product.bias + row) : _mm512_setzero_ps();
  for (int64_t token = 0; token < tokens; ++token) {
    const int64_t place = token * matrix.rows + row;
    __m512 result = _mm512_fmadd_ps(sums[token], scale, bias);
    if (product.residual) result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(lanes, product.residual + place));
    _mm512_mask_storeu_ps(product.y + place, lanes, result);
  }
}

template <Kept kept, int T>
void multiply_bytes(const MaskedProduct& product, const float* memory, int64_t tokens, int64_t first, int64_t last) {
  const MaskedMatrix& matrix = *product.matrix;
  const int64_t count = groups(matrix), blocks = byte_blocks(matrix), token_floats = stride(matrix);
  for (int64_t tile = first; tile < last; ++tile) {
    Reader<kept> reader(matrix, tile);
    const int8_t* values = static_cast<const int8_t*>(matrix.values) + matrix.starts[tile];
    __m512 result[T];
    for (__m512& one : result) one = _mm512_setzero_ps();
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t left = block * kBlockGroups, some = count - left < kBlockGroups ? count - left : kBlockGroups;
      __m512i rows[T][kTileRows];
      for (int64_t row = 0; row < kTileRows; ++row) {
        __m512i sum[T];
        for (__m512i& one : sum) one = _mm512_setzero_si512();
        const float* x = memory + left * kLanes;
        const auto take = [&](int64_t group) {
          const __m512i weights = reader.bytes(values);
          for (int t = 0; t < T; ++t) {
            sum[t] = _mm512_dpbusd_epi32(sum[t], _mm512_loadu_si512(x + t * token_floats + group * kLanes), weights);
          }
        };
        if (some == kBlockGroups) {
#pragma GCC unroll 8
          for (int64_t group = 0; group < kBlockGroups; ++group) take(group);
        } else {
          for (int64_t group = 0; group < some; ++group) take(group);
        }
        for (int t = 0; t < T; ++t) rows[t][row] = sum[t];
      }
      const __m512i offset = _mm512_loadu_si512(matrix.offsets + (tile * blocks + block) * kTileRows);
      for (int t = 0; t < T; ++t) {
        const __m512 exact = _mm512_cvtepi32_ps(_mm512_sub_epi32(totals(rows[t]), offset));
        const float scale = memory[t * token_floats + count * kLanes + block];
        result[t] = _mm512_fmadd_ps(exact, _mm512_set1_ps(scale), result[t]);
      }
    }
    finish<T>(product, tile, tokens, result);
  }
}

// 64 columns of values as four vectors of floats.
template <Values kind, Kept kept>
struct Floats {
  const int8_t* values;
  Floats(const MaskedMatrix& matrix, int64_t tile) : values(static_cast<const int8_t*>(matrix.values) + matrix.starts[tile]) {}
  void take(Reader<kept>& reader, __m512 (&weights)[4]) {
    const __m512i bytes = reader.bytes(values);
    weights[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_castsi512_si128(bytes)));
    weights[1] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 1)));
    weights[2] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 2)));
    weights[3] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(bytes, 3)));
  }
};

template <Kept kept>
struct Floats<Values::fp32, kept> {
  const float* values;
  Floats(const MaskedMatrix& matrix, int64_t tile) : values(static_cast<const float*>(matrix.values) + matrix.starts[tile]) {}
  void take(Reader<kept>& reader, __m512 (&weights)[4]) {
    const uint64_t bits = reader.next();
    for (int i = 0; i < 4; ++i) {
      const auto some = static_cast<__mmask16>(bits >> (16 * i));
      weights[i] = _mm512_maskz_expand_ps(some, _mm512_castsi512_ps(loaded(values)));
      values += _mm_popcnt_u32(some);
    }
  }
};

template <Kept kept>
struct Floats<Values::fp16, kept> {
  const uint16_t* values;
  Floats(const MaskedMatrix& matrix, int64_t tile) : values(static_cast<const uint16_t*>(matrix.values) + matrix.starts[tile]) {}
  void take(Reader<kept>& reader, __m512 (&weights)[4]) {
    const uint64_t bits = reader.next();
    for (int i = 0; i < 4; ++i) {
      const auto some = static_cast<__mmask16>(bits >> (16 * i));
      const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
      weights[i] = _mm512_maskz_expand_ps(some, _mm512_cvtph_ps(halves));
      values += _mm_popcnt_u32(some);
    }
  }
};

template <Values kind, Kept kept, int T>
void multiply_floats(const MaskedProduct& product, const float* memory, int64_t tokens, int64_t first, int64_t last) {
  const MaskedMatrix& matrix = *product.matrix;
  const int64_t count = groups(matrix), token_floats = stride(matrix);
  for (int64_t tile = first; tile < last; ++tile) {
    Reader<kept> reader(matrix, tile);
    Floats<kind, kept> values(matrix, tile);
    __m512 rows[T][kTileRows];
    for (int64_t row = 0; row < kTileRows; ++row) {
      __m512 even[T], odd[T];
      for (int t = 0; t < T; ++t) even[t] = odd[t] = _mm512_setzero_ps();
      for (int64_t group = 0; group < count; ++group) {
        __m512 weights[4];
        values.take(reader, weights);
        for (int t = 0; t < T; ++t) {
          const float* x = memory + t * token_floats + group * kGroup;
          for (int i = 0; i < 4; i += 2) {
            even[t] = _mm512_fmadd_ps(weights[i], _mm512_loadu_ps(x + i * kLanes), even[t]);
            odd[t] = _mm512_fmadd_ps(weights[i + 1], _mm512_loadu_ps(x + (i + 1) * kLanes), odd[t]);
          }
        }
      }
      for (int t = 0; t < T; ++t) rows[t][row] = _mm512_add_ps(even[t], odd[t]);
    }
    __m512 result[T];
    for (int t = 0; t < T; ++t) result[t] = totals(rows[t]);
    finish<T>(product, tile, tokens, result);
  }
}

using Multiply = void (*)(const MaskedProduct&, const float*, int64_t, int64_t, int64_t);

template <Kept kept, int T>
Multiply multiply_for(const MaskedMatrix& matrix) {
  if (takes_bytes(matrix)) return multiply_bytes<kept, T>;
  if (matrix.kind == Values::int8) return multiply_floats<Values::int8, kept, T>;
  if constexpr (kept != Kept::quads) {
    if (matrix.kind == Values::fp16) return multiply_floats<Values::fp16, kept, T>;
    return multiply_floats<Values::fp32, kept, T>;
  }
  return nullptr;  // masked.py makes none such
}

template <int T>
Multiply multiply_for(const MaskedMatrix& matrix) {
  switch (matrix.kept) {
    case Kept::weights: return multiply_for<Kept::weights, T>(matrix);
    case Kept::quads: return multiply_for<Kept::quads, T>(matrix);
    default: return multiply_for<Kept::all, T>(matrix);
  }
}

void multiply(const MaskedProduct& product, const float* memory, int64_t tokens, int64_t first, int64_t last) {
  switch (width(tokens)) {
    case 1: return multiply_for<1>(*product.matrix)(product, memory, tokens, first, last);
    case 2: return multiply_for<2>(*product.matrix)(product, memory, tokens, first, last);
    case 4: return multiply_for<4>(*product.matrix)(product, memory, tokens, first, last);
    default: return multiply_for<kFew>(*product.matrix)(product, memory, tokens, first, last);
  }
}

void subtract(const MaskedMatrix& matrix, const float* x, const float* memory, float* rest) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(memory);
  const float* scales = memory + groups(matrix) * kGroup / 4;
  for (int64_t i = 0; i < matrix.columns; i += kLanes) {
    const __mmask16 lanes = first_lanes(matrix.columns - i);
    const __m512i number = _mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i))), _mm512_set1_epi32(128));
    const __m512 taken = _mm512_cvtepi32_ps(number), scale = _mm512_set1_ps(scales[i / kQuadBlock]);
    _mm512_mask_storeu_ps(rest + i, lanes, _mm512_fnmadd_ps(taken, scale, _mm512_maskz_loadu_ps(lanes, x + i)));
  }
}

float dot(const float* a, const float* b, int64_t count) {
  __m512 even = _mm512_setzero_ps(), odd = even;
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    even = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), even);
    odd = _mm512_fmadd_ps(_mm512_loadu_ps(a + i + kLanes), _mm512_loadu_ps(b + i + kLanes), odd);
  }
  for (; i < count; i += kLanes) {
    const __mmask16 lanes = first_lanes(count - i);
    even = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, a + i), _mm512_maskz_loadu_ps(lanes, b + i), even);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

}  // namespace

extern const FewIsa kFewAvx512 = {floats, stride, prepare, multiply, subtract, dot};

}  // namespace mvprune
