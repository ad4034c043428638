// The library's functions for ctypes: no state but the threads, the scratch memory and the chosen instruction set.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernel.h"
#include "matrix.h"
#include "pass.h"
#include "pool.h"
#include "scratch.h"

namespace mvprune {
namespace {

bool supported(const Isa& isa) {
#if defined(__x86_64__)
  if (&isa == &kAvx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  }
  if (&isa == &kAvx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return &isa == &kBaseline;
}

const Isa* const kIsas[] = {
#if defined(__x86_64__)
    &kAvx512,
    &kAvx2,
#endif
    &kBaseline,
};

std::atomic<const Isa*> chosen{nullptr};

bool supported(const Dots& some) {
#if defined(__x86_64__)
  if (&some == &kAvx512Vnni || &some == &kAvx512VlVnni) {
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl");
  }
#if MVPRUNE_HAS_AVXVNNI
  if (&some == &kAvxVnni) return __builtin_cpu_supports("avxvnni");
#endif
#endif
  return !some.fast;
}

// The fastest first.
const Dots* const kDots[] = {
#if defined(__x86_64__)
    &kAvx512Vnni,
    &kAvxVnni,
    &kAvx512VlVnni,
    &kAvx512Dots,
    &kAvx2Dots,
#endif
    &kBaselineDots,
};

const Dots* dots_for(const Isa& isa) {
  for (const Dots* some : kDots) {
    if (some->lanes == isa.lanes && supported(*some)) return some;
  }
  return nullptr;  // not reached: each instruction set has a slow one
}

// How x is cut: every block of tokens is whole vectors, as even as can be, and as many as there are threads if possible.
struct Cut {
  int64_t tokens, lanes, vectors, blocks;

  Cut(const Isa& isa, int64_t most, int64_t tokens, int threads) : tokens(tokens), lanes(isa.lanes) {
    vectors = (tokens + lanes - 1) / lanes;
    blocks = std::max((vectors + most - 1) / most, std::min<int64_t>(threads, vectors));
  }

  Tokens block(int64_t i) const {
    return {vectors * i / blocks * lanes, std::min(tokens, vectors * (i + 1) / blocks * lanes)};
  }

  int64_t widest() const { return (vectors + blocks - 1) / blocks; }
};

// One call: what its tasks need.
struct Call {
  const Isa& isa;
  const Product& product;
  const Product* up;  // null unless a feed-forward
  const float* x;
  Cut cut;
  int64_t parts;
  std::atomic<bool> out_of_memory{false};

  void task(int64_t i) {
    float* memory = take_scratch(isa.scratch(*product.matrix, up ? up->matrix : nullptr, cut.widest()));
    if (!memory) {
      out_of_memory = true;
    } else if (up) {
      isa.feed_forward(*up, product, x, cut.block(i), memory);
    } else {
      isa.linear(product, x, cut.block(i / parts), i % parts, parts, memory);
    }
  }

  int run(int threads) {
    if (cut.tokens > 0) {
      parallel(cut.blocks * parts, threads, [](void* call, int64_t i) { static_cast<Call*>(call)->task(i); }, this);
    }
    return out_of_memory ? 1 : 0;
  }
};

// The gradient of a matrix's non-zeros: each task has some of the rows, and reads all tokens in their order.
struct SampleCall {
  const Isa& isa;
  const Matrix& matrix;
  const float* grad;
  const float* x;
  float* values;
  Cut cut;
  int64_t parts;
  std::atomic<bool> out_of_memory{false};

  void task(int64_t part) {
    float* memory = take_scratch(isa.scratch(matrix, nullptr, cut.widest()));
    if (!memory) {
      out_of_memory = true;
      return;
    }
    for (int64_t i = 0; i < cut.blocks; ++i) {
      isa.sample(matrix, grad, x, cut.block(i), part, parts, values, memory);
    }
  }

  int run(int threads) {
    if (cut.tokens > 0) {
      parallel(parts, threads, [](void* call, int64_t i) { static_cast<SampleCall*>(call)->task(i); }, this);
    }
    return out_of_memory ? 1 : 0;
  }
};

constexpr int64_t kMasked = 1 << 16;  // weights of a task, whole bytes of bits

// The masked weights of a matrix, by one of the functions of an instruction set.
template <typename Out>
struct MaskCall {
  void (*const pass)(const float* weight, const uint8_t* bits, Out* out, int64_t count);
  const float* weight;
  const uint8_t* bits;
  Out* out;
  int64_t count;

  void task(int64_t i) {
    const int64_t first = i * kMasked;
    pass(weight + first, bits + first / 8, out + first, std::min(kMasked, count - first));
  }

  void run(int32_t threads) {
    parallel((count + kMasked - 1) / kMasked, threads, [](void* call, int64_t i) { static_cast<MaskCall*>(call)->task(i); }, this);
  }
};

bool all_rows_exist(const Embedding& embedding, const int64_t* const* ids, int64_t tokens) {
  for (int64_t k = 0; k < embedding.count; ++k) {
    for (int64_t token = 0; token < tokens; ++token) {
      if (ids[k][token] < 0 || ids[k][token] >= embedding.tables[k].rows) return false;
    }
  }
  return true;
}

}  // namespace

const Dots* dots = nullptr;

}  // namespace mvprune

using namespace mvprune;

#define MVPRUNE_EXPORT extern "C" __attribute__((visibility("default")))

// Chooses the instruction set by name, or the best one by "". Returns its name; null if this machine has none such.
MVPRUNE_EXPORT const char* mvprune_choose(const char* name) {
  for (const Isa* isa : kIsas) {
    if (supported(*isa) && (!*name || !std::strcmp(name, isa->name))) {
      chosen = isa;
      __atomic_store_n(&dots, dots_for(*isa), __ATOMIC_RELAXED);
      return isa->name;
    }
  }
  return nullptr;
}

// Whether the chosen instruction set has an instruction for the products of quads.
MVPRUNE_EXPORT int mvprune_has_dots() {
  return dots->fast;
}

// y of x (tokens, columns). Returns 0, or 1 when there is no memory.
MVPRUNE_EXPORT int mvprune_linear(const Product* product, const float* x, int64_t tokens, int32_t threads) {
  const Isa& isa = *chosen.load();
  const Cut cut(isa, most_vectors(isa, {product}), tokens, threads);
  // Where tokens are too few for the threads, rows are shared out too.
  const int64_t parts = cut.blocks ? (threads + cut.blocks - 1) / cut.blocks : 1;
  return Call{isa, *product, nullptr, x, cut, parts}.run(threads);
}

// values += the gradients of the matrix's non-zeros, for grad (tokens, rows) and x (tokens, columns). Returns as above.
MVPRUNE_EXPORT int mvprune_sample(const Matrix* matrix, const float* grad, const float* x, float* values, int64_t tokens, int32_t threads) {
  const Isa& isa = *chosen.load();
  // Blocks of tokens do not depend on the threads, so the sums do not either.
  return SampleCall{isa, *matrix, grad, x, values, Cut(isa, isa.vectors, tokens, 1), threads}.run(threads);
}

// down(activation(up(x))): the feed-forward block of a Transformer. Returns as above.
MVPRUNE_EXPORT int mvprune_feed_forward(const Product* up, const Product* down, const float* x, int64_t tokens, int32_t threads) {
  const Isa& isa = *chosen.load();
  return Call{isa, *down, up, x, Cut(isa, most_vectors(isa, {up, down}), tokens, threads), 1}.run(threads);
}

// y (tokens, columns): the sum of the tokens' rows, normalized. Returns as above, or 2 when there is no such row.
MVPRUNE_EXPORT int mvprune_embed(const Embedding* embedding, const int64_t* const* ids, float* y, int64_t tokens) {
  if (!all_rows_exist(*embedding, ids, tokens)) return 2;
  chosen.load()->embed(*embedding, ids, {0, tokens}, y);
  return 0;
}

// y of x (tokens, hidden), or of an embedding's sums if that is not null: `count` layers, one after another, and a norm after
// the last. The tokens are those of all examples, one behind the other; each has its length. `kept` is (tokens,), or null.
// Returns as above.
MVPRUNE_EXPORT int mvprune_layers(const Layer* layers, int64_t count, const Embedding* embedding, const int64_t* const* ids, const Norm* last, const float* x, const uint8_t* kept, const int64_t* lengths, float* y, int64_t examples, int32_t threads) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < examples; ++i) tokens += lengths[i];
  if (tokens <= 0) return 0;
  if (embedding && !all_rows_exist(*embedding, ids, tokens)) return 2;
  const int64_t hidden = layers->down.matrix->rows;
  return Pass{*chosen.load(), embedding, ids, *last, x, kept, lengths, y, examples, hidden, threads}.run(layers, count);
}

// One thread: callers share out the matrices.
MVPRUNE_EXPORT void mvprune_share_gradient(float* grad, const float* weight, const uint8_t* bits, float* of_scores, const Penalty* penalty, int64_t count) {
  chosen.load()->share_gradient(grad, weight, bits, of_scores, *penalty, count);
}

// out = the weights times their bits.
MVPRUNE_EXPORT void mvprune_mask_weights(const float* weight, const uint8_t* bits, float* out, int64_t count, int32_t threads) {
  MaskCall<float>{chosen.load()->mask_weights, weight, bits, out, count}.run(threads);
}

// The same, rounded to bf16.
MVPRUNE_EXPORT void mvprune_mask_to_bf16(const float* weight, const uint8_t* bits, uint16_t* out, int64_t count, int32_t threads) {
  MaskCall<uint16_t>{chosen.load()->mask_to_bf16, weight, bits, out, count}.run(threads);
}

MVPRUNE_EXPORT void mvprune_use_openmp(void* parallel) { use_openmp(reinterpret_cast<OpenMpParallel>(parallel)); }

MVPRUNE_EXPORT void mvprune_select_above(Bracket* bracket) { chosen.load()->select_above(*bracket); }
