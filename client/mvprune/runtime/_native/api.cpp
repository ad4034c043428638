// The library's functions for ctypes: no state but the threads, the scratch memory and the chosen instruction set.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "glibc.h"
#include "kernel.h"
#include "pool.h"

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

// Aligned memory, kept between calls.
class Scratch {
 public:
  // Null only when there is no memory: a request for nothing takes one number.
  float* take(int64_t floats) {
    floats = std::max<int64_t>(floats, 1);
    if (floats > size_) {
      release();
      const size_t bytes = (static_cast<size_t>(floats) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
      memory_ = std::aligned_alloc(kAlignment, bytes);
      if (!memory_) return nullptr;
      size_ = floats;
    }
    return static_cast<float*>(memory_);
  }

  void release() {
    std::free(memory_);
    memory_ = nullptr;
    size_ = 0;
  }

 private:
  static constexpr size_t kAlignment = 4096;
  void* memory_ = nullptr;
  int64_t size_ = 0;
};

// What a thread holds until it ends.
struct Held {
  Scratch scratch;
  Scratch panels;  // of a whole call, for all its threads
};

thread_local Held held;

pthread_once_t once = PTHREAD_ONCE_INIT;
pthread_key_t at_thread_end;
bool has_key = false;

// This thread's memory; null when what frees it at the thread's end has no memory itself.
Held* own() {
  pthread_once(&once, [] {
    has_key = !pthread_key_create(&at_thread_end, [](void* memory) {
      static_cast<Held*>(memory)->scratch.release();
      static_cast<Held*>(memory)->panels.release();
    });
  });
  return has_key && !pthread_setspecific(at_thread_end, &held) ? &held : nullptr;
}

float* take_scratch(int64_t floats) {
  Held* const memory = own();
  return memory ? memory->scratch.take(floats) : nullptr;
}

float* take_panels(int64_t floats) {
  Held* const memory = own();
  return memory ? memory->panels.take(floats) : nullptr;
}

// How x is cut: every block of tokens is whole vectors, as even as can be, and as many as there are threads if possible.
struct Cut {
  int64_t tokens, lanes, vectors, blocks;

  Cut(const Isa& isa, int64_t tokens, int threads) : tokens(tokens), lanes(isa.lanes) {
    vectors = (tokens + lanes - 1) / lanes;
    blocks = std::max((vectors + isa.vectors - 1) / isa.vectors, std::min<int64_t>(threads, vectors));
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

// A layer for some examples: all blocks are projected before one attends to the others.
struct LayerCall {
  const Isa& isa;
  const Layer& layer;
  const float* x;
  const uint8_t* kept;
  float* y;
  int64_t length;
  int64_t width;   // tokens in a block
  int64_t blocks;  // of an example
  int64_t features = layer.down.matrix->rows + 3 * layer.query.matrix->rows;
  float* storage = nullptr;
  std::atomic<bool> out_of_memory{false};

  LayerCall(const Isa& isa, const Layer& layer, const float* x, const uint8_t* kept, float* y, int64_t examples, int64_t length, int threads)
      : isa(isa), layer(layer), x(x), kept(kept), y(y), length(length) {
    const int64_t vectors = (length + isa.lanes - 1) / isa.lanes;
    const int64_t wanted = std::min((threads + examples - 1) / examples, vectors);
    const int64_t block = (vectors + wanted - 1) / wanted;
    width = std::min(block, isa.vectors) * isa.lanes;
    blocks = (length + width - 1) / width;
  }

  int64_t padded() const { return (length + isa.lanes - 1) / isa.lanes * isa.lanes; }

  float* panels_of(int64_t example) const { return storage + example * padded() * features; }

  Tokens block(int64_t i) const { return {i * width, std::min(length, (i + 1) * width)}; }

  void project(int64_t i) {
    const int64_t example = i / blocks;
    const Tokens tokens = block(i % blocks);
    const float* in = x + example * length * layer.query.matrix->columns;
    isa.project(layer, in, tokens, panels_of(example) + tokens.first * features);
  }

  void finish(int64_t i) {
    float* memory = take_scratch(isa.layer_scratch(layer, length, width / isa.lanes));
    if (!memory) {
      out_of_memory = true;
      return;
    }
    const int64_t example = i / blocks;
    const Example seen = {panels_of(example), length, width, kept ? kept + example * length : nullptr};
    isa.finish(layer, seen, block(i % blocks), y + example * length * layer.down.matrix->rows, memory);
  }

  int run(int64_t examples, int threads) {
    storage = take_panels(examples * padded() * features);
    if (!storage) return 1;
    parallel(examples * blocks, threads, [](void* call, int64_t i) { static_cast<LayerCall*>(call)->project(i); }, this);
    parallel(examples * blocks, threads, [](void* call, int64_t i) { static_cast<LayerCall*>(call)->finish(i); }, this);
    return out_of_memory ? 1 : 0;
  }
};

}  // namespace
}  // namespace mvprune

using namespace mvprune;

#define MVPRUNE_EXPORT extern "C" __attribute__((visibility("default")))

// Chooses the instruction set by name, or the best one by "". Returns its name; null if this machine has none such.
MVPRUNE_EXPORT const char* mvprune_choose(const char* name) {
  for (const Isa* isa : kIsas) {
    if (supported(*isa) && (!*name || !std::strcmp(name, isa->name))) {
      chosen = isa;
      return isa->name;
    }
  }
  return nullptr;
}

// y of x (tokens, columns). Returns 0, or 1 when there is no memory.
MVPRUNE_EXPORT int mvprune_linear(const Product* product, const float* x, int64_t tokens, int32_t threads) {
  const Isa& isa = *chosen.load();
  const Cut cut(isa, tokens, threads);
  // Where tokens are too few for the threads, rows are shared out too.
  const int64_t parts = cut.blocks ? (threads + cut.blocks - 1) / cut.blocks : 1;
  return Call{isa, *product, nullptr, x, cut, parts}.run(threads);
}

// values += the gradients of the matrix's non-zeros, for grad (tokens, rows) and x (tokens, columns). Returns as above.
MVPRUNE_EXPORT int mvprune_sample(const Matrix* matrix, const float* grad, const float* x, float* values, int64_t tokens, int32_t threads) {
  const Isa& isa = *chosen.load();
  // Blocks of tokens do not depend on the threads, so the sums do not either.
  return SampleCall{isa, *matrix, grad, x, values, Cut(isa, tokens, 1), threads}.run(threads);
}

// down(activation(up(x))): the feed-forward block of a Transformer. Returns as above.
MVPRUNE_EXPORT int mvprune_feed_forward(const Product* up, const Product* down, const float* x, int64_t tokens, int32_t threads) {
  const Isa& isa = *chosen.load();
  return Call{isa, *down, up, x, Cut(isa, tokens, threads), 1}.run(threads);
}

// y of x (examples, length, hidden): a whole layer. `kept` is (examples, length), or null. Returns as above.
MVPRUNE_EXPORT int mvprune_layer(const Layer* layer, const float* x, const uint8_t* kept, float* y, int64_t examples, int64_t length, int32_t threads) {
  const Isa& isa = *chosen.load();
  const int64_t hidden = layer->down.matrix->rows;
  int status = 0;
  // As many examples at a time as there are threads: what they need stays small, and in cache.
  for (int64_t first = 0, count; first < examples && length > 0 && !status; first += count) {
    count = std::min<int64_t>(threads, examples - first);
    const int64_t tokens = first * length;
    LayerCall call(isa, *layer, x + tokens * hidden, kept ? kept + tokens : nullptr, y + tokens * hidden, count, length, threads);
    status = call.run(count, threads);
  }
  return status;
}

// One thread: callers share out the matrices.
MVPRUNE_EXPORT void mvprune_share_gradient(float* grad, const float* weight, float* masked, const Penalty* penalty, int64_t count) {
  chosen.load()->share_gradient(grad, weight, masked, *penalty, count);
}

MVPRUNE_EXPORT void mvprune_select_above(Bracket* bracket) { chosen.load()->select_above(*bracket); }
