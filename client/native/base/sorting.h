// Sorting of vectors. The code of it is there once, for all types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace mvprune {

// The order of `count` things of which is_before(things, a, b) compares two; of equal ones the first comes first.
std::vector<size_t> sorted_order(size_t count, bool (*is_before)(const void* things, size_t a, size_t b), const void* things);

// Sorts what a vector has from `first` on; equal things stay in their order.
template <typename T, typename Before>
void sort_stably(std::vector<T>& all, Before before, size_t first = 0) {
  if (all.size() < first + 2) return;
  struct Things {
    const T* some;
    const Before& before;
  } const things{all.data() + first, before};
  const auto is_before = [](const void* given, size_t a, size_t b) -> bool {
    const auto& [some, before] = *static_cast<const Things*>(given);
    return before(some[a], some[b]);
  };
  std::vector<T> sorted;
  for (const size_t i : sorted_order(all.size() - first, is_before, &things)) sorted.push_back(std::move(all[first + i]));
  std::move(sorted.begin(), sorted.end(), all.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace mvprune
