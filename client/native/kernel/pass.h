// Layers one after another, for all examples of a call. Included by api.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <initializer_list>

#include "kernel.h"
#include "matrix.h"
#include "pool.h"
#include "scratch.h"

namespace mvprune {
namespace {

// Vectors of tokens in a block, at most.
int64_t most_vectors(const Isa& isa, std::initializer_list<const Product*> products) {
  const bool bytes = std::all_of(products.begin(), products.end(), [](const Product* one) { return !one->matrix || takes_bytes(*one->matrix); });
  return bytes ? isa.byte_vectors : isa.vectors;
}

// x stays transposed, (hidden, tokens) for each block of tokens: `panels` has it for all examples, `products` the query, key
// and value of a group of packs: as many as there are threads, whose values and weights of a layer stay in cache. All blocks
// are projected before one attends to the others.
struct Pass {
  const Isa& isa;
  const Embedding* embedding;  // null: x is given
  const int64_t* const* ids;
  const Norm& last;
  const float* x;
  const uint8_t* kept;
  const int64_t* lengths;
  float* y;
  int64_t examples;
  int64_t hidden;
  int threads;
  int64_t most = 0;  // vectors in a block
  int64_t longest = 0;
  const Layer* layer = nullptr;
  Pack* packs = nullptr;
  int64_t count = 0;
  int64_t first = 0, behind = 0;  // packs of the group
  float* panels = nullptr;
  float* products = nullptr;
  std::atomic<bool> out_of_memory{false};

  int64_t padded(int64_t tokens) const { return (tokens + isa.lanes - 1) / isa.lanes * isa.lanes; }

  // Examples that follow each other share a block while it has room, and while there are blocks for all threads.
  void make_packs() {
    int64_t total = 0;
    for (int64_t i = 0; i < examples; ++i) total += lengths[i];
    const int64_t room = std::min(most * isa.lanes, padded((total + threads - 1) / threads));
    Pack pack{};
    for (int64_t i = 0; i < examples; ++i) {
      if (i && pack.tokens + lengths[i] > room) {
        packs[count++] = pack;
        pack = {pack.first + pack.tokens, 0, 0, 0, i, 0, pack.place + padded(pack.tokens)};
      }
      pack.tokens += lengths[i];
      ++pack.examples;
      longest = std::max(longest, lengths[i]);
    }
    packs[count++] = pack;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t together = std::min<int64_t>(threads, count - i / threads * threads);  // packs of its group
      const int64_t vectors = padded(packs[i].tokens) / isa.lanes, wanted = packs[i].examples > 1 ? 1 : (threads + together - 1) / together;
      const int64_t blocks = std::max(std::min(wanted, vectors), (vectors + most - 1) / most);
      packs[i].width = blocks ? (vectors + blocks - 1) / blocks * isa.lanes : 0;
      packs[i].blocks = blocks ? (packs[i].tokens + packs[i].width - 1) / packs[i].width : 0;
    }
  }

  struct Place {
    const Pack& pack;
    int64_t block;
    Tokens tokens;  // of the call
    float* panel;
    float* products;  // of the pack
  };

  // Where the i-th block of the group is.
  Place place_of(int64_t i) const {
    int64_t at = first;
    while (i >= packs[at].blocks) i -= packs[at++].blocks;
    const Pack& pack = packs[at];
    const int64_t before = i * pack.width, features = layer ? 3 * attended_rows(*layer) : 0;
    const Tokens tokens = {pack.first + before, pack.first + std::min(pack.tokens, before + pack.width)};
    return {pack, i, tokens, panels + (pack.place + before) * hidden, products + (pack.place - packs[first].place) * features};
  }

  void enter(int64_t i) {
    const Place at = place_of(i);
    const float* in = x;
    if (embedding) {
      isa.embed(*embedding, ids, at.tokens, y);
      in = y;
    }
    isa.enter(in + at.tokens.first * hidden, hidden, {0, at.tokens.last - at.tokens.first}, at.panel);
  }

  float* memory_for(const Place& at) {
    float* memory = take_scratch(isa.layer_scratch(*layer, longest, at.pack.width / isa.lanes));
    if (!memory) out_of_memory = true;
    return memory;
  }

  void project(int64_t i) {
    const Place at = place_of(i);
    if (float* memory = memory_for(at)) {
      const int64_t before = at.block * at.pack.width * 3 * attended_rows(*layer);
      isa.project(*layer, at.pack, lengths + at.pack.example, at.block, at.panel, at.products + before, memory);
    }
  }

  void finish(int64_t i) {
    const Place at = place_of(i);
    if (float* memory = memory_for(at)) {
      const uint8_t* shown = kept ? kept + at.pack.first : nullptr;
      isa.finish(*layer, at.pack, lengths + at.pack.example, shown, at.block, at.products, at.panel, memory);
    }
  }

  void leave(int64_t i) {
    const Place at = place_of(i);
    isa.leave(last, at.panel, hidden, {0, at.tokens.last - at.tokens.first}, y + at.tokens.first * hidden);
  }

  template <void (Pass::*task)(int64_t)>
  void all_blocks() {
    int64_t blocks = 0;
    for (int64_t i = first; i < behind; ++i) blocks += packs[i].blocks;
    parallel(blocks, threads, [](void* pass, int64_t i) { (static_cast<Pass*>(pass)->*task)(i); }, this);
  }

  // Calls use() for each group.
  template <typename Use>
  void each_group(Use use) {
    for (first = 0; first < count; first = behind) {
      behind = std::min<int64_t>(count, first + threads);
      use();
    }
  }

  int run_packs(const Layer* layers, int64_t number, int64_t widest) {
    const int64_t all = packs[count - 1].place + padded(packs[count - 1].tokens);
    int64_t largest = 0;  // group
    each_group([&] { largest = std::max(largest, packs[behind - 1].place + padded(packs[behind - 1].tokens) - packs[first].place); });
    panels = take_panels(all * hidden + largest * 3 * widest + isa.lanes);
    if (!panels) return 1;
    products = panels + all * hidden;
    each_group([this] { all_blocks<&Pass::enter>(); });
    for (layer = layers; layer < layers + number && !out_of_memory; ++layer) {
      each_group([this] {
        all_blocks<&Pass::project>();
        all_blocks<&Pass::finish>();
      });
    }
    layer = nullptr;
    each_group([this] { all_blocks<&Pass::leave>(); });
    release_large_panels();
    return out_of_memory ? 1 : 0;
  }

  int run(const Layer* layers, int64_t number) {
    int64_t widest = 0;
    most = isa.byte_vectors;
    for (const Layer* one = layers; one < layers + number; ++one) {
      widest = std::max(widest, attended_rows(*one));
      most = std::min(most, most_vectors(isa, {&one->query, &one->key, &one->value, &one->out, &one->up, &one->down}));
    }
    packs = static_cast<Pack*>(std::malloc(static_cast<size_t>(examples) * sizeof(Pack)));
    if (!packs) return 1;
    make_packs();
    const int status = run_packs(layers, number, widest);
    std::free(packs);
    return status;
  }
};

}  // namespace
}  // namespace mvprune
