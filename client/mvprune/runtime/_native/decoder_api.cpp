// The library's function for a decoder's step, for ctypes; see decoder.h.
#include "decoder.h"

#include <algorithm>
#include <atomic>

#include "pool.h"
#include "scratch.h"

namespace mvprune {
namespace {

const DecoderIsa& decoder_isa() {
#if defined(__x86_64__)
  return kDecoderAvx512;
#else
  __builtin_unreachable();  // few() is null
#endif
}

// One head's vectors of all texts.
struct Strided {
  float* first;
  int64_t stride;  // floats from a text to the next

  float* of(int64_t text, int64_t offset) const { return first + text * stride + offset; }
};

// A call: x (texts, hidden) goes from block to block.
struct Decoding {
  const FewIsa& isa;
  const DecoderIsa& parts;
  const Step& step;
  int32_t threads;
  float* x;
  float* normal;   // (texts, hidden)
  float* query;    // (texts, rows of query), and then keys and values unless those are among the rows
  float* context;  // (texts, rows of query)
  float* inner;    // (texts, inner), twice if there is a gate
  float* memory;   // of multiply_few
  const Block* block = nullptr;
  int64_t index = 0;
  std::atomic<bool> out_of_memory{false};

  bool multiply(const Affine& affine, const float* in, float* out, const float* residual) {
    return multiply_few(isa, {affine.matrix, affine.bias, residual, out}, in, step.texts, threads, memory);
  }

  Strided queries() const { return {query, block->query.matrix->rows}; }

  Strided keys() const {
    if (!block->key.matrix) return {query + block->heads * block->size, block->query.matrix->rows};
    return {query + step.texts * block->query.matrix->rows, block->key.matrix->rows};
  }

  Strided values() const {
    if (!block->key.matrix) return {keys().first + block->groups * block->size, block->query.matrix->rows};
    return {keys().first + step.texts * block->key.matrix->rows, block->value.matrix->rows};
  }

  bool project() {
    if (!multiply(block->query, normal, query, nullptr)) return false;
    return !block->key.matrix || (multiply(block->key, normal, keys().first, nullptr) && multiply(block->value, normal, values().first, nullptr));
  }

  // A head of queries or keys: normalized and turned.
  void place(const Normal& norm, int64_t text, float* head) {
    if (norm.weight) parts.normalize(norm, 1, block->size, head, head);
    if (step.cosines) parts.rotate(step.cosines + text * block->size, step.sines + text * block->size, block->size, head);
  }

  // A group of heads of a text: its key and value are remembered, and its queries attend.
  void attend(int64_t i) {
    float* scratch = take_scratch(step.length + 1 + 16);
    if (!scratch) {
      out_of_memory = true;
      return;
    }
    const int64_t text = i / block->groups, group = i % block->groups, size = block->size;
    const int64_t place_of = i * step.capacity * size, each = block->heads / block->groups;
    float* all_keys = step.keys[index] + place_of;
    float* all_values = step.values[index] + place_of;
    float* key = keys().of(text, group * size);
    place(block->key_norm, text, key);
    std::copy(key, key + size, all_keys + step.length * size);
    const float* value = values().of(text, group * size);
    std::copy(value, value + size, all_values + step.length * size);
    const uint8_t* kept = step.kept ? step.kept + text * (step.length + 1) : nullptr;
    for (int64_t head = group * each; head < (group + 1) * each; ++head) {
      float* one = queries().of(text, head * size);
      place(block->query_norm, text, one);
      float* out = context + (text * block->heads + head) * size;
      parts.attend(one, all_keys, all_values, kept, step.length + 1, size, block->scale, scratch, out);
    }
  }

  bool feed() {
    const int64_t count = step.texts * block->up.matrix->rows;
    float* gate = block->gate.matrix ? inner + count : nullptr;
    if (gate && !multiply(block->gate, normal, gate, nullptr)) return false;
    if (!multiply(block->up, normal, inner, nullptr)) return false;
    parts.activate(block->activation, gate, inner, count);
    return multiply(block->down, inner, x, x);
  }

  bool run(int64_t hidden) {
    parts.normalize(block->attention_norm, step.texts, hidden, x, normal);
    if (!project()) return false;
    parallel(step.texts * block->groups, threads, [](void* call, int64_t i) { static_cast<Decoding*>(call)->attend(i); }, this);
    if (out_of_memory || !multiply(block->out, context, x, x)) return false;
    parts.normalize(block->feed_norm, step.texts, hidden, x, normal);
    return feed();
  }
};

// The most floats that the parts of any block need, for each of them.
struct Needed {
  int64_t query = 0, context = 0, inner = 0, memory = 0;

  Needed(const FewIsa& isa, const Block* blocks, int64_t count) {
    for (const Block* block = blocks; block < blocks + count; ++block) {
      const int64_t rows = block->query.matrix->rows, others = block->key.matrix ? 2 * block->groups * block->size : 0;
      query = std::max(query, rows + others);
      context = std::max(context, block->heads * block->size);
      inner = std::max(inner, block->up.matrix->rows * (block->gate.matrix ? 2 : 1));
      const Affine* const all[] = {&block->query, &block->key, &block->value, &block->out, &block->gate, &block->up, &block->down};
      for (const Affine* affine : all) {
        if (affine->matrix) memory = std::max(memory, isa.floats(*affine->matrix, kFew));
      }
    }
  }
};

}  // namespace
}  // namespace mvprune

using namespace mvprune;

// y (texts, hidden) of x: all blocks, and the norm after them. Returns 0, 1 when there is no memory, or 3 when a number is
// not finite; y, and keys and values of this token, then hold nothing.
extern "C" __attribute__((visibility("default"))) int mvprune_decode(const Block* blocks, int64_t count, const Normal* last, const Step* step, const float* x, float* y, int32_t threads) {
  const FewIsa& isa = *few();
  const Needed needed(isa, blocks, count);
  const int64_t hidden = blocks->down.matrix->rows, texts = step->texts;
  float* panels = take_panels(texts * (2 * hidden + needed.query + needed.context + needed.inner) + needed.memory);
  if (!panels) return 1;
  float* normal = panels + texts * hidden;
  float* query = normal + texts * hidden;
  float* context = query + texts * needed.query;
  float* inner = context + texts * needed.context;
  Decoding call{isa, decoder_isa(), *step, threads, panels, normal, query, context, inner, inner + texts * needed.inner};
  std::copy(x, x + texts * hidden, panels);
  for (; call.index < count; ++call.index) {
    call.block = blocks + call.index;
    if (!call.run(hidden)) return call.out_of_memory ? 1 : 3;
  }
  call.parts.normalize(*last, texts, hidden, panels, y);
  return 0;
}
