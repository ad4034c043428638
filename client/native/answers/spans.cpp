#include "spans.h"

#include <algorithm>
#include <cmath>

#include "../base/sorting.h"

namespace mvprune::answers {
namespace {

constexpr int64_t kMostTokens = 30;
constexpr size_t kCandidates = 20;

// The tokens of the passage with the largest logits, the largest first; of equal ones the first.
std::vector<int64_t> largest(const Encoding& window, const float* logits) {
  std::vector<int64_t> found;
  for (size_t i = 0; i < window.places.size(); ++i) {
    if (window.places[i].text == 1) found.push_back(static_cast<int64_t>(i));
  }
  // NaN is the smallest: an order needs that it equals itself.
  const auto value = [&](int64_t i) { return std::isnan(logits[2 * i]) ? -INFINITY : logits[2 * i]; };
  sort_stably(found, [&](int64_t a, int64_t b) { return value(a) > value(b); });
  found.resize(std::min(found.size(), kCandidates));
  return found;
}

}  // namespace

void BestSpan::add(const Encoding& window, const float* logits) {
  if (window.ids.empty()) return;
  const float null = logits[0] + logits[1];
  null_ = has_windows_ ? std::min(null_, null) : null;
  has_windows_ = true;
  const auto lasts = largest(window, logits + 1);
  for (const int64_t first : largest(window, logits)) {
    for (const int64_t last : lasts) {
      const int64_t tokens = last - first + 1;
      const float score = logits[2 * first] + logits[2 * last + 1];
      if (tokens < 1 || tokens > kMostTokens || !std::isfinite(score)) continue;
      if (!best_.is_found || score > best_.score) {
        best_ = {score, window.places[first].begin, window.places[last].end, true};
      }
    }
  }
}

Span BestSpan::best(bool allows_no_answer) const {
  if (allows_no_answer && has_windows_ && (!best_.is_found || null_ > best_.score)) return {null_, 0, 0, true};
  return best_;
}

}  // namespace mvprune::answers
