// The vectors of texts.

#include <algorithm>

#include "answers.h"
#include "writing.h"

namespace mvprune::answers {
Result<Encoding> Answers::with_prompt(std::string_view text, const std::string& name) const {
  const std::string* prompt = texts_->prompt(name);
  if (!prompt) {
    std::string known;
    for (const auto& [one, _] : model_->config().prompts) known += ", " + one;
    const std::string rule = known.empty() ? "unset: the model has none" : "one of the model's prompts" + known;
    return Error{"prompt_name must be " + rule + ", got " + name, Code::kArgument};
  }
  return texts_->cut(*prompt + std::string(text), std::nullopt, Truncate::kLongest, max_length_);
}

Result<Answer> Answers::vectors(const std::vector<std::string_view>& texts, const std::string& prompt,
                                int64_t dimensions, const Network& network) const {
  if (task_->kind != Kind::kEmbedding) {
    return Error{"the model makes no vectors: it is for " + std::string(task_->kind_name), Code::kArgument};
  }
  std::vector<Encoding> encodings;
  for (const std::string_view text : texts) {
    auto encoding = with_prompt(text, prompt);
    if (!encoding) return encoding.error();
    encodings.push_back(std::move(*encoding));
  }
  auto found = run_all(encodings, network);
  if (!found || !dimensions) return found;
  const int64_t width = model_->config().hidden;
  if (dimensions < 0 || dimensions > width) {
    return Error{"dimensions must be from 1 to " + std::to_string(width) + ", got " + std::to_string(dimensions),
                 Code::kArgument};
  }
  for (int64_t row = 0; row < found->rows; ++row) {
    float* vector = found->values.data() + row * dimensions;  // what is before it has been read
    std::copy_n(found->values.data() + row * width, dimensions, vector);
    if (model_->config().normalizes) scale_to_one(vector, dimensions);
  }
  found->values.resize(static_cast<size_t>(found->rows * dimensions));
  found->columns = dimensions;
  return found;
}

Result<std::string> Answers::embeddings(const std::vector<Input>& inputs, const Network& network) const {
  std::vector<Encoding> encodings;
  for (const Input& input : inputs) {
    auto encoding = with_prompt(*input[0], input[1] ? *input[1] : "");
    if (!encoding) return encoding.error();
    encodings.push_back(std::move(*encoding));
  }
  const auto found = run_all(encodings, network);
  if (!found) return found.error();
  Writing json;
  json.open('[');
  const float* vector = found->values.data();
  for (const Encoding& one : encodings) {
    json.open('{').name("embedding").open('[');
    for (int64_t i = 0; i < found->columns; ++i) json.number(*vector++);
    json.close(']').name("tokens").whole(static_cast<int64_t>(one.ids.size())).close('}');
  }
  return json.close(']').done();
}

}  // namespace mvprune::answers
