// The pool of a library with one thread: WebAssembly's.
#include "pool.h"

namespace mvprune {

void use_openmp(OpenMpParallel) {}

void parallel(int64_t count, int, void (*task)(void*, int64_t), void* context) {
  for (int64_t i = 0; i < count; ++i) task(context, i);
}

}  // namespace mvprune
