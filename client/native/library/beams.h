// Beam search: several texts go on together, and the most probable one is written.
#pragma once

#include <vector>

#include "decoder.h"
#include "generation.h"

namespace mvprune {

class Beams {
 public:
  // `tokens` are given, and what `remembered` has is before them; of a text of at most `most` tokens in all. Decoder and
  // settings live longer.
  Beams(const Decoder& decoder, const Generation& settings, Remembered remembered, std::vector<int64_t> tokens, int64_t most);

  // Goes on by a token; false: the search has ended.
  Result<bool> step(int32_t threads);

  // The tokens of the best text so far, with those that were given.
  const std::vector<int64_t>& best() const;

 private:
  struct Text {
    std::vector<int64_t> tokens;
    float score;  // the sum of the logarithms of its tokens' probabilities; of one that has ended, divided by its length
  };

  // A text and a token more.
  struct Candidate {
    float score;
    size_t text;
    int64_t token;
  };

  // Which one of what is remembered is a running text's: at first all are the same.
  size_t source_of(size_t text) const { return remembered_.size() == 1 ? 0 : text; }

  Logits scores_of(size_t text);
  Fault weigh_all(int32_t threads);
  std::vector<Candidate> best_candidates();
  bool divide(const std::vector<Candidate>& candidates);
  void move_on(const std::vector<Candidate>& candidates);
  bool may_improve() const;
  float by_length(float score, int64_t length) const;

  const Decoder& decoder_;
  const Generation& settings_;
  const size_t given_;
  const int64_t most_;
  const size_t width_;               // texts
  std::vector<Text> running_, ended_;
  std::vector<Remembered> remembered_;  // of each that is running; of all the first one, until there are differences
  std::vector<float> scores_;           // of each of those, (words,)
};

}  // namespace mvprune
