// A block of a Transformer, for one block of tokens. All is transposed, and stays so from layer to layer.
#pragma once

#include <cstring>

#include "attention.h"
#include "kernel.h"
#include "matrix.h"
#include "panel.h"
#include "products.h"
#include "simd.h"

namespace mvprune {
namespace {

// values = norm(values + residual) over the rows, for K vectors of tokens; the residual may be null. The sums are written
// to `sums` too, unless that is null; it may be the residual.
template <int K>
void add_and_normalize(const Norm& norm, int64_t rows, int64_t width, const float* residual, float* values, float* sums) {
  const auto row_of = [&](int64_t row) { return reinterpret_cast<Vector*>(values + row * width); };
  Vector mean[K] = {}, scale[K] = {};
  for (int64_t row = 0; row < rows; ++row) {
    Vector* value = row_of(row);
    for (int k = 0; k < K; ++k) {
      if (residual) value[k] += reinterpret_cast<const Vector*>(residual + row * width)[k];
      if (sums) reinterpret_cast<Vector*>(sums + row * width)[k] = value[k];
      mean[k] += value[k];
    }
  }
  if (!norm.weight) return;
  for (int k = 0; k < K; ++k) mean[k] /= static_cast<float>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const Vector* value = row_of(row);
    for (int k = 0; k < K; ++k) {
      const Vector difference = value[k] - mean[k];
      scale[k] += difference * difference;
    }
  }
  for (Vector& one : scale) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      one[lane] = 1 / __builtin_sqrtf(one[lane] / static_cast<float>(rows) + norm.epsilon);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    Vector* value = row_of(row);
    const float bias = norm.bias ? norm.bias[row] : 0.0f;
    for (int k = 0; k < K; ++k) value[k] = (value[k] - mean[k]) * scale[k] * norm.weight[row] + bias;
  }
}

// The same for all tokens of a block.
void add_and_normalize(const Norm& norm, int64_t rows, int64_t width, const float* residual, float* values, float* sums = nullptr) {
  constexpr int together = 4;
  const auto at = [](auto* array, int64_t first) { return array ? array + first : nullptr; };
  int64_t first = 0;
  for (; first + together * kLanes <= width; first += together * kLanes) {
    add_and_normalize<together>(norm, rows, width, at(residual, first), values + first, at(sums, first));
  }
  for (; first < width; first += kLanes) add_and_normalize<1>(norm, rows, width, at(residual, first), values + first, at(sums, first));
}

void add(const float* more, int64_t floats, float* values) {
  for (int64_t i = 0; i < floats; i += kLanes) store_vector(values + i, load_vector(values + i) + load_vector(more + i));
}

// Floats for the inputs of a layer's products: two at a time.
int64_t layer_inputs(const Layer& layer, int64_t width) {
  const int64_t hidden = layer.down.matrix->rows, inner = layer.is_gated ? layer.down.matrix->columns : inner_rows(*layer.up.matrix);
  int64_t first = larger(input_floats(*layer.out.matrix, attended_rows(layer), width), input_floats(*layer.up.matrix, hidden, width));
  const Product* const all[] = {&layer.query, &layer.key, &layer.value};
  for (const Product* product : all) {
    if (product->matrix) first = larger(first, input_floats(*product->matrix, hidden, width));
  }
  return first + input_floats(*layer.down.matrix, inner, width);
}

// What computes a layer's attention: in int16 where what it is made of was rounded to int8 already.
Attend attend_of(const Layer& layer) {
  const Attend rounding = __atomic_load_n(&dots, __ATOMIC_RELAXED)->attend;
  const bool one = takes_bytes(*layer.query.matrix), apart = layer.places && layer.places->to_key;
  const bool bytes = one && (!layer.key.matrix || (takes_bytes(*layer.key.matrix) && takes_bytes(*layer.value.matrix)));
  const bool fits = attended_rows(layer) <= (apart ? 256 : 512) * layer.heads;  // sums of a head's features
  return bytes && fits && rounding ? rounding : attend;
}

// Floats that it needs.
int64_t attend_floats(const Layer& layer, int64_t length, int64_t vectors) {
  const bool apart = layer.places && layer.places->to_key;
  if (attend_of(layer) == attend) return attention_floats(length, vectors);
  return attention16_floats(attended_rows(layer) / layer.heads, length, vectors, apart);
}

// Rows of the inner values that are kept at once.
int64_t inner_rows(const Layer& layer) { return layer.is_gated ? layer.up.matrix->rows : inner_rows(*layer.up.matrix); }

// Rows of the context, whose memory the sums of `down` take where the block's sums are needed after them.
int64_t context_rows(const Layer& layer) { return larger(attended_rows(layer), layer.down.matrix->rows); }

int64_t layer_scratch(const Layer& layer, int64_t length, int64_t vectors) {
  const int64_t rows = context_rows(layer) + layer.down.matrix->rows + inner_rows(layer);
  return rows * vectors * kLanes + attend_floats(layer, length, vectors) + layer_inputs(layer, vectors * kLanes);
}

void enter(const float* x, int64_t columns, Tokens tokens, float* panel) {
  transpose_in(x, columns, columns, tokens, width_for(tokens), panel);
}

void leave(const Norm& norm, float* panel, int64_t columns, Tokens tokens, float* y) {
  const int64_t width = width_for(tokens);
  if (norm.weight) add_and_normalize(norm, columns, width, nullptr, panel);
  transpose_out(nullptr, y, columns, {0, columns}, panel, tokens, width);
}

// The tokens of a pack's block.
Tokens block_of(const Pack& pack, int64_t block) { return {block * pack.width, smaller(pack.tokens, (block + 1) * pack.width)}; }

// Calls use(number of the example, its place in the pack, its tokens that are in the block) for each that has some.
template <typename Use>
void each_example(const Pack& pack, const int64_t* lengths, Tokens tokens, Use use) {
  for (int64_t i = 0, place = 0; i < pack.examples; place += lengths[i++]) {
    const Tokens own = {larger(0, tokens.first - place), smaller(lengths[i], tokens.last - place)};
    if (own.first < own.last) use(i, place, own);
  }
}

// Turns the features of each head's query and key by their token's angles.
void turn(const Places& places, int64_t rows, int64_t size, int64_t width, const float* angles, float* products) {
  const int64_t half = size / 2;
  for (int64_t row = 0; row < 2 * rows; row += size) {
    for (int64_t d = 0; d < half; ++d) {
      float *low = products + (row + d) * width, *high = low + half * width;
      const float *cosine = angles + d * width, *sine = cosine + half * width;
      for (int64_t t = 0; t < width; t += kLanes) {
        const Vector x = load_vector(low + t), y = load_vector(high + t), c = load_vector(cosine + t), s = load_vector(sine + t);
        store_vector(low + t, x * c - y * s);
        store_vector(high + t, y * c + x * s);
      }
    }
  }
}

void project(const Layer& layer, const Pack& pack, const int64_t* lengths, int64_t block, const float* panel, float* products, float* scratch) {
  const Tokens tokens = block_of(pack, block);
  const int64_t width = width_for(tokens), hidden = layer.down.matrix->rows, attended = attended_rows(layer);
  float* bytes = scratch + hidden * width;
  if (layer.normalizes_before && layer.attention_norm.weight) {
    std::memcpy(scratch, panel, static_cast<size_t>(hidden * width) * sizeof(float));
    add_and_normalize(layer.attention_norm, hidden, width, nullptr, scratch);
    panel = scratch;
  }
  const Product* const all[] = {&layer.query, &layer.key, &layer.value};
  float* out = products;
  bool quantized = false;  // once for all
  for (const Product* product : all) {
    if (!product->matrix) continue;
    const Matrix& matrix = *product->matrix;
    const bool some = takes_bytes(matrix);
    const float* input = some && quantized ? bytes : input_for(matrix, panel, matrix.columns, width, bytes);
    quantized |= some;
    multiply_all(*product, input, width / kLanes, out);
    out += matrix.rows * width;
  }
  if (layer.places && layer.places->turns) {
    const int64_t size = attended / layer.heads, span = layer.places->span;
    std::memset(scratch, 0, static_cast<size_t>(size * width) * sizeof(float));
    each_example(pack, lengths, tokens, [&](int64_t, int64_t place, Tokens own) {
      for (int64_t d = 0; d < size; ++d) {
        float* angles = scratch + d * width + (place + own.first - tokens.first);
        std::memcpy(angles, layer.places->turns + d * span + own.first, static_cast<size_t>(own.last - own.first) * sizeof(float));
      }
    });
    turn(*layer.places, attended, size, width, scratch, products);
  }
}

// A head of a layer, with what it adds to its scores.
Head head_of(const Layer& layer, int64_t number) {
  const int64_t attended = attended_rows(layer), size = attended / layer.heads, row = number * size;
  Head head{3 * attended, attended + row, 2 * attended + row, size, layer.scale, 0, nullptr, nullptr, nullptr, 0, 0, 0};
  if (const Places* places = layer.places) {
    head.window = places->window;
    head.stride = 2 * places->span;
    if (places->bias) head.bias = places->bias + number * places->bias_stride + places->span;
    if (places->to_key) {
      head.to_key = places->to_key + row * head.stride + places->span;
      head.to_query = places->to_query + row * head.stride + places->span;
      head.most_of_key = places->most[2 * number], head.most_of_query = places->most[2 * number + 1];
    }
  }
  return head;
}

// The context of all heads, of a block's tokens. Lanes without a token are 0.
void attend_all(const Layer& layer, const Pack& pack, const int64_t* lengths, const uint8_t* kept, Tokens tokens, const float* products, int64_t width, float* memory, float* context) {
  const int64_t attended = attended_rows(layer), size = attended / layer.heads, filled = tokens.last - tokens.first;
  const float* queries = products + tokens.first * 3 * attended;
  const Attend attend_head = attend_of(layer);
  for (int64_t row = 0; filled < width && row < attended; ++row) {
    std::memset(context + row * width + filled, 0, static_cast<size_t>(width - filled) * sizeof(float));
  }
  for (int64_t number = 0; number < layer.heads; ++number) {
    const Head head = head_of(layer, number);
    each_example(pack, lengths, tokens, [&](int64_t i, int64_t place, Tokens own) {
      const Example example = {products, pack.tokens, pack.width, place, lengths[i], kept ? kept + place : nullptr};
      const int64_t at = number * size * width + (place + own.first - tokens.first);
      attend_head(head, example, own, queries + at, width, memory, context + at);
    });
  }
}

// sums = down(activation(up(panel))), or that of a gated part.
void feed(const Layer& layer, const float* panel, int64_t vectors, float* inner, float* sums, float* bytes) {
  const int64_t width = vectors * kLanes;
  if (!layer.is_gated) return multiply_both(layer.up, layer.down, panel, vectors, inner, sums, bytes);
  const int64_t rows = layer.down.matrix->columns;
  Product halves = layer.up;
  halves.activation = Activation::none;
  multiply_all(halves, input_for(*layer.up.matrix, panel, layer.up.matrix->columns, width, bytes), vectors, inner);
  activate(layer.up.activation, inner, rows * vectors);
  Vector* value = reinterpret_cast<Vector*>(inner);
  for (int64_t i = 0; i < rows * vectors; ++i) value[i] *= value[rows * vectors + i];
  multiply_all(layer.down, input_for(*layer.down.matrix, inner, rows, width, bytes), vectors, sums);
}

void finish(const Layer& layer, const Pack& pack, const int64_t* lengths, const uint8_t* kept, int64_t block, const float* products, float* panel, float* scratch) {
  const Tokens tokens = block_of(pack, block);
  const int64_t width = width_for(tokens), vectors = width / kLanes;
  const int64_t hidden = layer.down.matrix->rows, attended = attended_rows(layer);
  float* context = scratch;
  float* attention = context + context_rows(layer) * width;
  float* inner = attention + hidden * width;
  float* memory = inner + inner_rows(layer) * width;
  int64_t longest = 0;
  for (int64_t i = 0; i < pack.examples; ++i) longest = larger(longest, lengths[i]);
  float* bytes = memory + attend_floats(layer, longest, vectors);
  attend_all(layer, pack, lengths, kept, tokens, products, width, memory, context);
  multiply_all(layer.out, input_for(*layer.out.matrix, context, attended, width, bytes), vectors, attention);
  if (layer.normalizes_before) {
    add_and_normalize(layer.output_norm, hidden, width, panel, attention, panel);
    feed(layer, attention, vectors, inner, context, bytes);
    add(context, hidden * width, panel);
  } else {
    add_and_normalize(layer.attention_norm, hidden, width, panel, attention);
    feed(layer, attention, vectors, inner, panel, bytes);
    add_and_normalize(layer.output_norm, hidden, width, attention, panel);
  }
}

}  // namespace
}  // namespace mvprune
