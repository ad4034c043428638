// Threads of the process's OpenMP, else of the library's own.
#pragma once

#include <cstdint>

namespace mvprune {

// Calls task(context, i) for every i in [0, count), on the calling thread and up to threads - 1 others, and returns when
// all are done. Any number of threads may call at once; a forked child starts threads of its own.
void parallel(int64_t count, int threads, void (*task)(void* context, int64_t i), void* context);

// GOMP_parallel: calls function(data) on each of `threads` threads.
using OpenMpParallel = void (*)(void (*function)(void*), void* data, unsigned threads, unsigned flags);

// From now on, one call of `parallel` at a time runs on OpenMP's threads. torch computes on them too. After its work, a
// thread of OpenMP spins for some milliseconds, and would take the core from a thread of another pool.
void use_openmp(OpenMpParallel parallel);

}  // namespace mvprune
