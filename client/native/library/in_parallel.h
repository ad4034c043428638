// Tasks by the kernel's threads.
#pragma once

#include <cstdint>

#include "../kernel/pool.h"

namespace mvprune {

// Calls task(i) for all i below count.
template <typename Task>
void in_parallel(int64_t count, int32_t threads, const Task& task) {
  parallel(count, threads, [](void* context, int64_t i) { (*static_cast<const Task*>(context))(i); }, const_cast<Task*>(&task));
}

}  // namespace mvprune
