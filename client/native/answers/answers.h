// The answers of a model to texts, as JSON: those of `mvpctl serve`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../base/json.h"
#include "../library/model.h"
#include "tasks.h"

namespace mvprune::answers {

// A model, and on how many cores it computes.
struct Network {
  const Model& model;
  int32_t threads;

  // A row of numbers for each input, or for each of its tokens where the model tags or marks them.
  Result<Answer> run(const std::vector<Encoding>& inputs) const;
};

// Labels that are chosen from by a model of natural language inference (Yin et al. 2019,
// https://arxiv.org/abs/1909.00161).
struct Hypotheses {
  std::vector<std::string> labels;
  std::string text = "This example is {}.";  // with {} in the place of a label
  size_t entailment = 0;                     // the class that says that the text entails it
};

// A part of the inputs at a time.
Result<Answer> run_all(const std::vector<Encoding>& inputs, const Network& network);

class Answers {
 public:
  // By the files of an artifact whose model is open. `hypotheses` is null, or an object with `labels` and perhaps
  // `template`.
  static Result<Answers> open(const Artifact& artifact, const Model& model, const Json& hypotheses);

  // The answers to a list of objects of texts, in its order, as a list of objects.
  Result<std::string> answer(const Json& inputs, const Network& network) const;

  // The vectors of texts; only of a model of vectors. `prompt` is the name of one, "" for the
  // default one. `dimensions`: the first numbers of each vector, of length 1 again if the model's are; 0: all.
  Result<Answer> vectors(const std::vector<std::string_view>& texts, const std::string& prompt, int64_t dimensions,
                         const Network& network) const;

  // What is said of it, as a JSON object.
  std::string facts() const;

  const Task& task() const { return *task_; }
  const std::vector<std::string>& labels() const { return labels_; }
  int64_t max_length() const { return max_length_; }
  bool has_hypotheses() const { return !hypotheses_.labels.empty(); }

  // The fields of an input.
  std::vector<Field> fields() const;

 private:
  using Input = std::vector<const std::string*>;  // texts by the order of the fields; null where there is none

  Answers(const Task& task, const Model& model) : task_(&task), model_(&model), texts_(&model.texts()) {}

  Result<std::vector<Input>> read(const Json& inputs) const;
  Result<std::string> rows(const std::vector<Input>& inputs, const Network& network) const;
  Result<std::string> spans(const std::vector<Input>& inputs, const Network& network) const;
  Result<std::string> tags(const std::vector<Input>& inputs, const Network& network) const;
  Result<std::string> embeddings(const std::vector<Input>& inputs, const Network& network) const;
  Result<Encoding> with_prompt(std::string_view text, const std::string& prompt) const;

  const Task* task_;
  const Model* model_;  // lives longer
  const Texts* texts_;
  std::vector<std::string> labels_;
  std::vector<double> thresholds_;  // of several labels
  bool is_probability_ = false;  // the one output is the logit of one
  int64_t max_length_ = 0;
  Hypotheses hypotheses_;
};

}  // namespace mvprune::answers
