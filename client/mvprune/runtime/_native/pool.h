// Threads of the library's own.
#pragma once

#include <cstdint>

namespace mvprune {

// Calls task(context, i) for every i in [0, count), on the calling thread and up to threads - 1 others, and returns when
// all are done. Any number of threads may call at once; a forked child starts threads of its own.
void parallel(int64_t count, int threads, void (*task)(void* context, int64_t i), void* context);

}  // namespace mvprune
