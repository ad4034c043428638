// The scratch memory of api.cpp's threads.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdlib>

#include "glibc.h"

namespace mvprune {
namespace {

constexpr int64_t kLargestKept = 4 << 20;  // floats

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

  void release_above(int64_t floats) {
    if (size_ > floats) release();
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

// Many examples at once need memory that the next call may not need.
void release_large_panels() {
  if (Held* const memory = own()) memory->panels.release_above(kLargestKept);
}

}  // namespace
}  // namespace mvprune
