// Tables of places for the kernel: those of mvprune.runtime._places.
#include <algorithm>
#include <cmath>

#include "../kernel/glibc.h"
#include "encoder.h"
#include "kernel_calls.h"
#include "places.h"

namespace mvprune {
namespace {

constexpr float kHidden = -3e38f;  // a score whose exponential is 0
constexpr int64_t kRelativeBuckets = 32, kRelativeReach = 128;  // of MPNet

size_t at(int64_t i) { return static_cast<size_t>(i); }

// DeBERTa's bucket of a distance.
int64_t log_bucket(int64_t distance, int64_t buckets, int64_t reach) {
  const int64_t middle = buckets / 2, size = std::abs(distance) < middle ? middle - 1 : std::abs(distance);
  if (size <= middle) return distance;
  const float wide = static_cast<float>(static_cast<double>(reach - 1) / static_cast<double>(middle));
  const float share = std::log(static_cast<float>(size) / static_cast<float>(middle)) / std::log(wide);
  const int64_t bucket = static_cast<int64_t>(std::ceil(share * static_cast<float>(middle - 1))) + middle;
  return distance < 0 ? -bucket : bucket;
}

}  // namespace

int64_t relative_bucket(int64_t distance, int64_t buckets, int64_t reach, bool goes_both_ways) {
  if (goes_both_ways) buckets /= 2;
  const int64_t first = goes_both_ways && distance < 0 ? buckets : 0, exact = buckets / 2;
  const int64_t size = goes_both_ways ? std::abs(distance) : std::max<int64_t>(distance, 0);
  if (size < exact) return first + size;
  const float share = std::log(static_cast<float>(size) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(reach) / static_cast<double>(exact)));
  return first + std::min(exact + static_cast<int64_t>(share * static_cast<float>(buckets - exact)), buckets - 1);
}

Fault Encoder::make_places(Placed& made, int32_t threads) const {
  if (config_.body == Body::kMpnet) make_relative(made);
  if (config_.body == Body::kModernBert) make_turned(made);
  if (config_.body == Body::kDeberta) return make_disentangled(made, threads);
  return std::nullopt;
}

void Encoder::make_relative(Placed& made) const {
  const int64_t span = made.span;
  std::vector<float> bias(at(config_.heads * 2 * span)), row(at(config_.heads));
  for (int64_t i = 0; i < 2 * span; ++i) {
    places_.read_row(relative_bucket(i - span, kRelativeBuckets, kRelativeReach, true), row.data());
    for (int64_t head = 0; head < config_.heads; ++head) bias[at(head * 2 * span + i)] = row[at(head)];
  }
  made.held.push_back(std::move(bias));
  Places places{};
  places.span = span;
  places.bias = made.held.back().data();
  places.bias_stride = 2 * span;
  made.places.assign(blocks_.size(), places);
}

void Encoder::make_turned(Placed& made) const {
  const int64_t span = made.span, size = config_.hidden / config_.heads, half = size / 2;
  const auto turns = [&](double theta) {
    std::vector<float> table(at(size * span));
    for (int64_t i = 0; i < half; ++i) {
      const float share = static_cast<float>(2 * i) / static_cast<float>(size);
      const float frequency = 1.0f / std::pow(static_cast<float>(theta), share);
      for (int64_t place = 0; place < span; ++place) {
        const float angle = static_cast<float>(place) * frequency;
        table[at(i * span + place)] = std::cos(angle);
        table[at((half + i) * span + place)] = std::sin(angle);
      }
    }
    return table;
  };
  std::vector<float> bias(at(2 * span));
  for (int64_t i = 0; i < 2 * span; ++i) bias[at(i)] = std::abs(i - span) <= config_.window ? 0.0f : kHidden;
  made.held = {turns(config_.far_theta), turns(config_.near_theta), std::move(bias)};
  for (const bool near : config_.sees_near) {
    Places places{};
    places.span = span;
    places.turns = made.held[near ? 1 : 0].data();
    if (near) {
      places.window = config_.window;
      places.bias = made.held[2].data();
    }
    made.places.push_back(places);
  }
}

Fault Encoder::make_disentangled(Placed& made, int32_t threads) const {
  const int64_t span = made.span, hidden = config_.hidden, size = hidden / config_.heads;
  const int64_t reach = config_.buckets ? config_.buckets : config_.reach, rows = 2 * reach;
  std::vector<float> embeddings(at(rows * hidden));
  for (int64_t row = 0; row < rows; ++row) places_.read_row(row, embeddings.data() + row * hidden);
  if (!places_norm_.weight.empty()) places_norm_.apply(embeddings.data(), rows);
  std::vector<int64_t> columns(at(2 * span));
  for (int64_t i = 0; i < 2 * span; ++i) {
    const int64_t distance = config_.buckets ? log_bucket(i - span, config_.buckets, config_.reach) : i - span;
    columns[at(i)] = std::clamp<int64_t>(distance + reach, 0, rows - 1);
  }
  std::vector<float> projected(at(rows * hidden));
  for (const Block& block : blocks_) {
    std::vector<float> most(at(2 * config_.heads));
    const bool shares = config_.shares_projections;
    const AffineWeights* projections[] = {shares ? &block.key : &block.key_places, shares ? &block.query : &block.query_places};
    for (int64_t which = 0; which < 2; ++which) {
      const Product product = projections[which]->product(Activation::none, projected.data());
      if (const int status = mvprune_linear(&product, embeddings.data(), rows, threads)) return call_error(status);
      std::vector<float> table(at(hidden * 2 * span));
      for (int64_t feature = 0; feature < hidden; ++feature) {
        for (int64_t i = 0; i < 2 * span; ++i) table[at(feature * 2 * span + i)] = projected[at(columns[at(i)] * hidden + feature)];
        float& largest = most[at(feature / size * 2 + which)];
        for (int64_t row = 0; row < rows; ++row) largest = std::max(largest, std::fabs(projected[at(row * hidden + feature)]));
      }
      made.held.push_back(std::move(table));
    }
    made.held.push_back(std::move(most));
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Places places{};
    places.span = span;
    places.to_key = made.held[3 * i].data();
    places.to_query = made.held[3 * i + 1].data();
    places.most = made.held[3 * i + 2].data();
    made.places.push_back(places);
  }
  return std::nullopt;
}

}  // namespace mvprune
