// What kernel/api.cpp, decoder_api.cpp and masked_api.cpp export and this library calls.
#pragma once

#include <cstdint>

#include "../kernel/decoder.h"
#include "../kernel/kernel.h"

extern "C" {
const char* mvprune_choose(const char* name);
int mvprune_has_dots();
int mvprune_linear(const mvprune::Product* product, const float* x, int64_t tokens, int32_t threads);
int mvprune_embed(const mvprune::Embedding* embedding, const int64_t* const* ids, float* y, int64_t tokens);
int mvprune_layers(const mvprune::Layer* layers, int64_t count, const mvprune::Embedding* embedding, const int64_t* const* ids, const mvprune::Norm* last, const float* x, const uint8_t* kept, const int64_t* lengths, float* y, int64_t examples, int32_t threads);
int mvprune_has_few();
int mvprune_few(const mvprune::MaskedMatrix* matrix, const float* x, const float* bias, float* y, int64_t tokens, int32_t threads);
int mvprune_decode(const mvprune::Block* blocks, int64_t count, const mvprune::Normal* last, const mvprune::Step* step, const float* x, float* y, int32_t threads);
}

namespace mvprune {

// Chooses the instruction set once: that of $MVPRUNE_KERNEL, else the best one of this machine. Its name; null if this
// machine has not the one that is asked for.
const char* instruction_set();

}  // namespace mvprune
