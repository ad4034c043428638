// The library's function for a decoder's step, for ctypes; see decoder.h.
#include "decoder.h"

#include <algorithm>
#include <atomic>

#include "pool.h"
#include "scratch.h"

namespace mvprune {
namespace {

// The vectors of the heads of all texts.
struct Strided {
  float* first;
  int64_t stride;  // floats from a text to the next
  int64_t each;    // and from a head to the next

  float* of(int64_t text, int64_t head) const { return first + text * stride + head * each; }
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

  // Those of the packed rows of query that begin there.
  Strided packed(int64_t part, int64_t rows) const {
    const int64_t size = block->size;
    if (block->goes_by_heads) return {query + part * size, block->query.matrix->rows, 3 * size};
    return {query + rows * size, block->query.matrix->rows, size};
  }

  Strided queries() const { return packed(0, 0); }

  Strided keys() const {
    if (!block->key.matrix) return packed(1, block->heads);
    return {query + step.texts * block->query.matrix->rows, block->key.matrix->rows, block->size};
  }

  Strided values() const {
    if (!block->key.matrix) return packed(2, block->heads + block->groups);
    return {keys().first + step.texts * block->key.matrix->rows, block->value.matrix->rows, block->size};
  }

  bool project(const float* in) {
    if (!multiply(block->query, in, query, nullptr)) return false;
    return !block->key.matrix || (multiply(block->key, in, keys().first, nullptr) && multiply(block->value, in, values().first, nullptr));
  }

  // A head of queries or keys: normalized and turned.
  void place(const Normal& norm, int64_t text, float* head) {
    if (norm.weight) parts.normalize(norm, 1, block->size, head, head);
    if (step.cosines) parts.rotate(step.cosines + text * block->turned, step.sines + text * block->turned, block->turned, head);
  }

  // Scratch memory of a task.
  float* scores() {
    float* scratch = take_scratch(std::max(step.length + 1, step.source) + 16);
    if (!scratch) out_of_memory = true;
    return scratch;
  }

  // A group of heads of a text: its key and value are remembered, and its queries attend.
  void attend(int64_t i) {
    float* scratch = scores();
    if (!scratch) return;
    const int64_t text = i / block->groups, group = i % block->groups, size = block->size;
    const int64_t place_of = group * step.capacity * size, each = block->heads / block->groups;
    float* all_keys = step.keys[index * step.texts + text] + place_of;
    float* all_values = step.values[index * step.texts + text] + place_of;
    float* key = keys().of(text, group);
    place(block->key_norm, text, key);
    std::copy(key, key + size, all_keys + step.length * size);
    const float* value = values().of(text, group);
    std::copy(value, value + size, all_values + step.length * size);
    const uint8_t* kept = step.kept ? step.kept + text * (step.length + 1) : nullptr;
    for (int64_t head = group * each; head < (group + 1) * each; ++head) {
      float* one = queries().of(text, head);
      place(block->query_norm, text, one);
      float* out = context + (text * block->heads + head) * size;
      const float* bias = step.bias ? step.bias + head * (step.length + 1) : nullptr;
      parts.attend(one, all_keys, all_values, kept, bias, step.length + 1, size, block->scale, scratch, out);
    }
  }

  // A group of heads of a text: its queries, which are the first rows of `query`, attend to the source.
  void attend_source(int64_t i) {
    float* scratch = scores();
    if (!scratch) return;
    const int64_t text = i / block->groups, group = i % block->groups, each = block->heads / block->groups;
    const int64_t place_of = group * step.source * block->size;
    const float* all_keys = step.cross_keys[index * step.texts + text] + place_of;
    const float* all_values = step.cross_values[index * step.texts + text] + place_of;
    const uint8_t* kept = step.source_kept ? step.source_kept + text * step.source : nullptr;
    for (int64_t head = group * each; head < (group + 1) * each; ++head) {
      const int64_t own = (text * block->heads + head) * block->size;
      parts.attend(query + own, all_keys, all_values, kept, nullptr, step.source, block->size, block->scale, scratch, context + own);
    }
  }

  template <void (Decoding::*task)(int64_t)>
  bool all_groups() {
    parallel(step.texts * block->groups, threads, [](void* call, int64_t i) { (static_cast<Decoding*>(call)->*task)(i); }, this);
    return !out_of_memory;
  }

  bool feed(const float* in) {
    const int64_t count = step.texts * block->up.matrix->rows;
    float* gate = block->gate.matrix ? inner + count : nullptr;
    if (gate && !multiply(block->gate, in, gate, nullptr)) return false;
    if (!multiply(block->up, in, inner, nullptr)) return false;
    parts.activate(block->activation, gate, inner, count);
    return multiply(block->down, inner, x, x);
  }

  // A part of a block, with the norm before or after it.
  template <typename Part>
  bool normalized(const Normal& norm, int64_t hidden, Part part) {
    if (!block->normalizes_after) parts.normalize(norm, step.texts, hidden, x, normal);
    if (!part(block->normalizes_after ? x : normal)) return false;
    if (block->normalizes_after) parts.normalize(norm, step.texts, hidden, x, x);
    return true;
  }

  bool run_parallel(int64_t hidden) {
    parts.normalize(block->attention_norm, step.texts, hidden, x, normal);
    if (!project(normal) || !all_groups<&Decoding::attend>()) return false;
    parts.normalize(block->feed_norm, step.texts, hidden, x, normal);
    return multiply(block->out, context, x, x) && feed(normal);
  }

  bool run(int64_t hidden) {
    if (block->is_parallel) return run_parallel(hidden);
    const auto attention = [&](const float* in) {
      return project(in) && all_groups<&Decoding::attend>() && multiply(block->out, context, x, x);
    };
    const auto cross = [&](const float* in) {
      return multiply(block->cross_query, in, query, nullptr) && all_groups<&Decoding::attend_source>() && multiply(block->cross_out, context, x, x);
    };
    return normalized(block->attention_norm, hidden, attention) &&
           (!block->cross_query.matrix || normalized(block->cross_norm, hidden, cross)) &&
           normalized(block->feed_norm, hidden, [&](const float* in) { return feed(in); });
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
      const Affine* const all[] = {&block->query, &block->key, &block->value, &block->out, &block->cross_query, &block->cross_out, &block->gate, &block->up, &block->down};
      for (const Affine* affine : all) {
        if (affine->matrix) memory = std::max(memory, isa.floats(*affine->matrix, kFew));
      }
    }
  }
};

}  // namespace

const DecoderIsa& decoder_isa() {
#if defined(__x86_64__)
  if (few()) return kDecoderAvx512;
  if (__atomic_load_n(&dots, __ATOMIC_RELAXED)->lanes > kBaselineDots.lanes) return kDecoderAvx2;
#endif
  return kDecoderBaseline;
}

}  // namespace mvprune

using namespace mvprune;

// y (texts, hidden) of x: all blocks, and the norm after them, if it is not null. Returns 0, 1 when there is no memory, or 3 when a number is
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
  if (last) {
    call.parts.normalize(*last, texts, hidden, panels, y);
  } else {
    std::copy(panels, normal, y);
  }
  return 0;
}
