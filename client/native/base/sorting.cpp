#include "sorting.h"

namespace mvprune {

std::vector<size_t> sorted_order(size_t count, bool (*is_before)(const void* things, size_t a, size_t b), const void* things) {
  std::vector<size_t> order(count), merged(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t begin = 0; begin < count; begin += 2 * width) {
      const size_t middle = std::min(begin + width, count), end = std::min(begin + 2 * width, count);
      size_t left = begin, right = middle;
      for (size_t at = begin; at < end; ++at) {
        const bool is_right = left == middle || (right < end && is_before(things, order[right], order[left]));
        merged[at] = order[is_right ? right++ : left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace mvprune
