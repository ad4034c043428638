// The tasks whose models answer texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mvprune::answers {

enum class Kind {
  kClassification,
  kMultiLabel,
  kRegression,
  kReranking,
  kQuestionAnswering,
  kTokenClassification,
  kEmbedding,
};

// One part of an input: a text.
struct Field {
  std::string_view name;
  bool is_required;
};

struct Task {
  std::string_view name;
  Kind kind;
  std::string_view kind_name;
  Field fields[2];   // the second may have no name: there is one
  int64_t max_length;  // tokens of an input, where the artifact does not say it
  bool allows_no_answer;  // of question answering

  int field_count() const { return fields[1].name.empty() ? 1 : 2; }
};

// A task of models that write text.
struct WritingTask {
  std::string_view name = "causal-lm", kind = "causal-lm";
  int64_t max_length = 0;  // tokens of a text that an encoder reads, where the artifact does not say it
};

// Of models with an encoder; none: there is no task of this name.
std::optional<WritingTask> writing_task_of(std::string_view name);

// Null: no task that is answered here has this name.
const Task* task_of(std::string_view name);

}  // namespace mvprune::answers
