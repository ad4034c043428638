// The answer to a question, from the logits of all windows of its passage.
#pragma once

#include <cstdint>
#include <vector>

#include "../text/tokenizer.h"

namespace mvprune::answers {

// The characters [begin, end) of a passage; its score is the sum of the logits of its first and last token.
struct Span {
  float score = 0;
  int64_t begin = 0, end = 0;
  bool is_found = false;
};

// Finds the best answer while windows come, one after the other. Spans have at most 30 tokens, from the 20 best starts
// to the 20 best ends (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 4.2). Of equal ones the first wins.
class BestSpan {
 public:
  // `logits` are (tokens, 2): to be the first token of the answer, and the last one.
  void add(const Encoding& window, const float* logits);

  // That there is no answer is one too, where that is allowed: its score is the lowest sum of the logits of the first
  // tokens of windows, since one window with an answer suffices.
  Span best(bool allows_no_answer) const;

 private:
  Span best_;
  float null_ = 0;
  bool has_windows_ = false;
};

}  // namespace mvprune::answers
