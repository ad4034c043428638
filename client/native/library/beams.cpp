#include "beams.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../kernel/glibc.h"

namespace mvprune {
namespace {

constexpr float kLow = -1e9f;  // the score of what is not a text yet, as in transformers

// Logarithms of probabilities in place of logits.
void normalize(Logits logits) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - most));
  const auto shift = static_cast<float>(std::log(sum));
  for (float& logit : logits) logit = logit - most - shift;
}

}  // namespace

Beams::Beams(const Decoder& decoder, const Generation& settings, Remembered remembered, std::vector<int64_t> tokens, int64_t most)
    : decoder_(decoder), settings_(settings), given_(tokens.size()), most_(most), width_(static_cast<size_t>(settings.num_beams)) {
  remembered_.push_back(std::move(remembered));
  for (size_t i = 0; i < width_; ++i) running_.push_back({tokens, i ? kLow : 0.0f});
}

float Beams::by_length(float score, int64_t length) const {
  return score / static_cast<float>(std::pow(static_cast<double>(length), settings_.length_penalty));
}

// The scores of all words after a text.
Logits Beams::scores_of(size_t text) {
  const int64_t words = decoder_.words();
  return {scores_.data() + source_of(text) * static_cast<size_t>(words), words};
}

// Those of all texts.
Fault Beams::weigh_all(int32_t threads) {
  Batch texts;
  std::vector<int64_t> unread;
  for (size_t i = 0; i < remembered_.size(); ++i) {
    const std::vector<int64_t>& tokens = running_[i].tokens;
    unread.insert(unread.end(), tokens.begin() + static_cast<std::ptrdiff_t>(remembered_[i].length), tokens.end());
    texts.push_back(&remembered_[i]);
  }
  scores_.resize(texts.size() * static_cast<size_t>(decoder_.words()));
  if (Fault fault = decoder_.run(texts, unread, threads, scores_.data())) return fault;
  for (size_t i = 0; i < texts.size(); ++i) {
    normalize(scores_of(i));
    weigh(settings_, running_[i].tokens, static_cast<int64_t>(given_), most_, scores_of(i));
  }
  return std::nullopt;
}

// Enough of them, the best first, that as many go on as there are texts, whatever ends.
std::vector<Beams::Candidate> Beams::best_candidates() {
  const size_t wanted = std::max<size_t>(2, 1 + settings_.ends.size()) * width_;
  const auto is_better = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.text != b.text ? a.text < b.text : a.token < b.token;
  };
  std::vector<Candidate> found;  // a heap, the worst first
  for (size_t i = 0; i < running_.size(); ++i) {
    const Logits scores = scores_of(i);
    for (size_t word = 0; word < scores.size(); ++word) {
      const Candidate one{scores[word] + running_[i].score, i, static_cast<int64_t>(word)};
      if (!(one.score > -std::numeric_limits<float>::infinity())) continue;
      if (found.size() == wanted) {
        if (!is_better(one, found.front())) continue;
        std::pop_heap(found.begin(), found.end(), is_better);
        found.pop_back();
      }
      found.push_back(one);
      std::push_heap(found.begin(), found.end(), is_better);
    }
  }
  std::sort_heap(found.begin(), found.end(), is_better);
  return found;
}

// Takes those that end among the best as texts, and goes on with others; false: there are none.
bool Beams::divide(const std::vector<Candidate>& candidates) {
  std::vector<Candidate> others;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& one = candidates[i];
    std::vector<int64_t> tokens = running_[one.text].tokens;
    tokens.push_back(one.token);
    const bool is_end = std::find(settings_.ends.begin(), settings_.ends.end(), one.token) != settings_.ends.end();
    if (!is_end && static_cast<int64_t>(tokens.size()) < most_) {
      if (others.size() < width_) others.push_back(one);
    } else if (i < width_) {
      const auto length = static_cast<int64_t>(tokens.size() - given_);
      ended_.push_back({std::move(tokens), by_length(one.score, length)});
    }
  }
  std::stable_sort(ended_.begin(), ended_.end(), [](const Text& a, const Text& b) { return a.score > b.score; });
  if (ended_.size() > width_) ended_.erase(ended_.begin() + static_cast<std::ptrdiff_t>(width_), ended_.end());
  if (others.empty()) return false;
  move_on(others);
  return true;
}

// Each text with a token more, and what is remembered of it.
void Beams::move_on(const std::vector<Candidate>& candidates) {
  std::vector<Text> running;
  std::vector<Remembered> remembered;
  for (auto one = candidates.begin(); one != candidates.end(); ++one) {
    running.push_back({running_[one->text].tokens, one->score});
    running.back().tokens.push_back(one->token);
    const bool is_last = std::none_of(one + 1, candidates.end(), [&](const Candidate& other) { return source_of(other.text) == source_of(one->text); });
    Remembered& own = remembered_[source_of(one->text)];
    if (is_last) {
      remembered.push_back(std::move(own));
    } else {
      remembered.push_back(own);
    }
  }
  running_.swap(running);
  remembered_.swap(remembered);
}

// Whether a text that is running may become better than those that have ended, as transformers estimates it.
bool Beams::may_improve() const {
  if (ended_.size() < width_) return true;
  const bool is_long = settings_.stopping == Stopping::kNever && settings_.length_penalty > 0;
  const int64_t length = (is_long ? most_ : static_cast<int64_t>(running_.front().tokens.size())) - static_cast<int64_t>(given_);
  return by_length(running_.front().score, length) > ended_.back().score;
}

Result<bool> Beams::step(int32_t threads) {
  if (Fault fault = weigh_all(threads)) return *fault;
  const bool goes_on = divide(best_candidates());
  const bool is_enough = settings_.stopping == Stopping::kFull && ended_.size() == width_;
  return goes_on && !is_enough && may_improve();
}

const std::vector<int64_t>& Beams::best() const {
  const Text* found = ended_.empty() ? nullptr : &ended_.front();
  for (const Text& one : running_) {
    const auto length = static_cast<int64_t>(one.tokens.size() - given_);
    // One that has ended is the answer of a search that has ended; else any may be the best.
    if (!found && length) found = &one;
  }
  return found ? found->tokens : running_.front().tokens;
}

}  // namespace mvprune
