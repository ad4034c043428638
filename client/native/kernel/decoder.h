// One more token of some texts through the blocks of a decoder, with the keys and values of those before it.
#pragma once

#include <cstdint>

#include "masked.h"

namespace mvprune {

enum class Gate : int32_t { gelu = 1, gelu_tanh = 2, relu = 3, silu = 4 };

// x - mean(x), or x itself, divided by the root of its mean square plus epsilon, times weight, plus bias. Laid out as
// decoder.py's _Normal.
struct Normal {
  const float* weight;
  const float* bias;  // null: none
  float epsilon;
  int32_t is_centred;
};

struct Affine {
  const MaskedMatrix* matrix;
  const float* bias;  // null: none
};

// Parts one after another: attention, cross-attention if there is one, and feed-forward. Each adds to x what it makes of
// norm(x), or of x, and then normalizes the sum: out(attention(query(n), key(n), value(n))), cross_out(attention(
// cross_query(n), the keys and values of the source)), down(activation(gate(n)) * up(n)). Laid out as decoder.py's _Block.
struct Block {
  Normal attention_norm, cross_norm, feed_norm;
  Affine query, key, value;  // key.matrix null: the rows of query are those of all three, one after the other
  Affine out;
  Affine cross_query, cross_out;  // matrix null: no cross-attention
  Affine gate;  // matrix null: down(activation(up(m)))
  Affine up, down;
  Normal query_norm, key_norm;  // of each head; weight null: none
  int64_t heads;
  int64_t groups;  // heads of keys and values
  int64_t size;    // of a head
  int64_t turned;  // of its features, those that are rotated: the first
  float scale;     // of the scores
  Gate activation;
  int32_t normalizes_after;
  int32_t goes_by_heads;  // whether the rows of query are those of all three for one head after the other
  int32_t is_parallel;    // whether the feed-forward part takes what attention takes; without cross-attention
};

// Laid out as decoder.py's _Step.
struct Step {
  int64_t texts;
  int64_t length;         // tokens before this one
  int64_t capacity;       // tokens that the keys and values have room for
  float* const* keys;     // of each block and text, (groups, capacity, size); those of this token are written
  float* const* values;   // as keys
  const float* cosines;   // (texts, turned), or null: no rotation
  const float* sines;     // as cosines
  const uint8_t* kept;    // (texts, length + 1), whether a token is attended to, or null: all
  int64_t source;         // tokens of the source
  const float* const* cross_keys;    // of each block and text, (groups, source, size)
  const float* const* cross_values;  // as cross_keys
  const uint8_t* source_kept;        // (texts, source), or null: all
  const float* bias;                 // (heads, length + 1), added to the scores of tokens, or null: none
};

// What a block needs that is no product.
struct DecoderIsa {
  // y = norm(x), both (rows, columns).
  void (*normalize)(const Normal& norm, int64_t rows, int64_t columns, const float* x, float* y);
  // x, one head, turned by its position in the text.
  void (*rotate)(const float* cosines, const float* sines, int64_t size, float* x);
  // The context of one head of one text; `bias`, (length,) or null, is added to the scores. Scratch memory has room for
  // `length` floats and 16 more.
  void (*attend)(const float* query, const float* keys, const float* values, const uint8_t* kept, const float* bias, int64_t length, int64_t size, float scale, float* scratch, float* context);
  // y = activation(y), or activation(gate) * y.
  void (*activate)(Gate activation, const float* gate, float* y, int64_t count);
  // The inner product of two arrays.
  float (*dot)(const float* a, const float* b, int64_t count);
};

// Of the chosen instruction set. `few` and with it `mvprune_decode` are there on fewer machines.
const DecoderIsa& decoder_isa();

// A call's product of some tokens; false if a number of x is not finite. `memory` has room for what FewIsa::floats says of
// kFew tokens.
bool multiply_few(const FewIsa& isa, const MaskedProduct& product, const float* x, int64_t tokens, int32_t threads, float* memory);

// The instruction set of few tokens, or null.
const FewIsa* few();

extern const DecoderIsa kDecoderBaseline;
#if defined(__x86_64__)
extern const DecoderIsa kDecoderAvx2;
extern const DecoderIsa kDecoderAvx512;
#endif

}  // namespace mvprune
