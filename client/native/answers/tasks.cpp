#include "tasks.h"

namespace mvprune::answers {
namespace {

constexpr Field kText = {"text", true};
constexpr Field kPair = {"text_pair", true};
constexpr Field kPairIfAny = {"text_pair", false};
constexpr Field kNone = {"", false};

constexpr Task classification(std::string_view name, Field second) {
  return {name, Kind::kClassification, "classification", {kText, second}, 128, false};
}

constexpr Task questions(std::string_view name, bool allows_no_answer) {
  return {name, Kind::kQuestionAnswering, "question-answering", {{"question", true}, {"context", true}}, 384,
          allows_no_answer};
}

constexpr Task vectors(std::string_view name) {
  return {name, Kind::kEmbedding, name, {kText, {"prompt_name", false}}, 256, false};
}

constexpr Task kTasks[] = {
    classification("cola", kNone),
    classification("sst2", kNone),
    classification("mrpc", kPair),
    classification("qqp", kPair),
    classification("mnli", kPair),
    classification("qnli", kPair),
    classification("rte", kPair),
    classification("wnli", kPair),
    classification("text-classification", kPairIfAny),
    {"stsb", Kind::kRegression, "regression", {kText, kPair}, 128, false},
    {"text-regression", Kind::kRegression, "regression", {kText, kPairIfAny}, 128, false},
    {"multi-label-classification", Kind::kMultiLabel, "multi-label", {kText, kPairIfAny}, 128, false},
    {"reranking", Kind::kReranking, "reranking", {{"query", true}, {"document", true}}, 256, false},
    questions("squad", false),
    questions("squad_v2", true),
    {"ner", Kind::kTokenClassification, "token-classification", {kText, kNone}, 256, false},
    vectors("embedding"),
    vectors("retrieval"),
    vectors("sentence-similarity"),
};

constexpr WritingTask kWritingTasks[] = {
    {"summarization", "summarization", 512}, {"xsum", "summarization", 512},      {"cnn_dailymail", "summarization", 1024},
    {"samsum", "summarization", 512},        {"translation", "translation", 128},
};

}  // namespace

std::optional<WritingTask> writing_task_of(std::string_view name) {
  for (const WritingTask& task : kWritingTasks) {
    if (task.name == name) return task;
  }
  return std::nullopt;
}

const Task* task_of(std::string_view name) {
  for (const Task& task : kTasks) {
    if (task.name == name) return &task;
  }
  return nullptr;
}

}  // namespace mvprune::answers
