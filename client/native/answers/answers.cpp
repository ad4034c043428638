#include "answers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../kernel/glibc.h"
#include "spans.h"
#include "words.h"
#include "writing.h"

namespace mvprune::answers {
namespace {

constexpr int64_t kQuestionTokens = 64;
constexpr size_t kTogether = 64;  // inputs that are computed at a time

const Json* at(const Json& json, std::initializer_list<std::string_view> path) {
  const Json* found = &json;
  for (const std::string_view name : path) {
    if (!found) return nullptr;
    found = found->find(name);
  }
  return found;
}

Result<std::vector<double>> thresholds_of(const Json& config, size_t labels) {
  std::vector<double> found(labels, 0.5);
  const Json* given = config.find("label_thresholds");
  if (!given || given->is_null()) return found;
  if (!given->items() || given->items()->size() != labels) {
    return Error{"config.json: label_thresholds must be a list with a number for each label"};
  }
  for (size_t i = 0; i < labels; ++i) {
    const auto number = (*given->items())[i].number();
    if (!number) return Error{"config.json: label_thresholds must be numbers"};
    found[i] = *number;
  }
  return found;
}

// Of transformers' pipeline: the class is found by its name.
Result<size_t> entailment_of(const std::vector<std::string>& labels) {
  std::vector<size_t> found;
  for (size_t i = 0; i < labels.size(); ++i) {
    std::string name;
    for (const char c : labels[i]) name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    const size_t begin = std::min(name.find_first_not_of(" \t\n\r"), name.size());
    if (name.compare(begin, 6, "entail") == 0) found.push_back(i);
  }
  if (found.size() == 1) return found.front();
  return Error{"the model must have one class called entailment, as models of natural language inference have"};
}

Result<Hypotheses> hypotheses_of(const Json& given, const std::vector<std::string>& classes) {
  Hypotheses made;
  const auto entailment = entailment_of(classes);
  if (!entailment) return entailment.error();
  made.entailment = *entailment;
  const Json* labels = given.find("labels");
  for (const Json& label : labels && labels->items() ? *labels->items() : Json::Items()) {
    if (label.text()) made.labels.push_back(*label.text());
  }
  if (made.labels.size() < 2) return Error{"candidate labels must be two or more texts"};
  if (const Json* text = given.find("template"); text && text->text()) made.text = *text->text();
  const size_t place = made.text.find("{}");
  if (place == std::string::npos || made.text.find("{}", place + 1) != std::string::npos) {
    return Error{"the template of hypotheses must have {} once, in the place of a label, got " + made.text};
  }
  return made;
}

float sigmoid(float x) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x)))); }

std::vector<float> softmax(const float* logits, size_t count) {
  std::vector<double> powers(count);
  const double largest = *std::max_element(logits, logits + count);
  std::transform(logits, logits + count, powers.begin(), [&](float x) { return std::exp(x - largest); });
  const double sum = std::accumulate(powers.begin(), powers.end(), 0.0);
  std::vector<float> found(count);
  std::transform(powers.begin(), powers.end(), found.begin(), [&](double p) { return static_cast<float>(p / sum); });
  return found;
}

// The logit of the relevance, from one logit or from those of classes that are the grades 0 to C - 1 with probabilities
// p: log of the sum of c p_c, minus log of the sum of (C - 1 - c) p_c.
float relevance(const float* logits, size_t count) {
  if (count == 1) return logits[0];
  const double largest = *std::max_element(logits, logits + count);
  double high = 0, low = 0;
  for (size_t i = 0; i < count; ++i) {
    const double power = std::exp(logits[i] - largest);
    high += static_cast<double>(i) * power;
    low += static_cast<double>(count - 1 - i) * power;
  }
  return static_cast<float>(std::log(high) - std::log(low));
}

size_t largest_of(const float* values, size_t count) {
  return static_cast<size_t>(std::max_element(values, values + count) - values);
}

void write_scores(Writing& json, const std::vector<std::string>& labels, const std::vector<float>& scores) {
  json.name("scores").open('{');
  for (size_t i = 0; i < labels.size(); ++i) json.name(labels[i]).number(scores[i]);
  json.close('}');
}

// Whether the outputs are those that a model with these classes has.
Fault check_width(const Answer& outputs, size_t wanted, size_t rows) {
  if (outputs.columns == static_cast<int64_t>(wanted) && outputs.values.size() == wanted * rows) return std::nullopt;
  return Error{"the model gives " + std::to_string(outputs.columns) + " numbers, not one for each of its " +
               std::to_string(wanted) + " classes"};
}

size_t tokens_of(const std::vector<Encoding>& inputs) {
  size_t count = 0;
  for (const Encoding& one : inputs) count += one.ids.size();
  return count;
}

}  // namespace

// A part at a time: what lies between the layers of all inputs of a call is in memory at once.
Result<Answer> run_all(const std::vector<Encoding>& inputs, const Network& network) {
  Answer all;
  for (size_t first = 0; first < inputs.size(); first += kTogether) {
    const auto begin = inputs.begin() + static_cast<ptrdiff_t>(first);
    const auto end = inputs.begin() + static_cast<ptrdiff_t>(std::min(inputs.size(), first + kTogether));
    auto found = network.run({begin, end});
    if (!found) return found.error();
    all.columns = found->columns;
    all.rows += found->rows;
    all.values.insert(all.values.end(), found->values.begin(), found->values.end());
  }
  return all;
}

Result<Answer> Network::run(const std::vector<Encoding>& inputs) const {
  std::vector<int64_t> ids, types, lengths;
  for (const Encoding& one : inputs) {
    ids.insert(ids.end(), one.ids.begin(), one.ids.end());
    types.insert(types.end(), one.types.begin(), one.types.end());
    lengths.push_back(static_cast<int64_t>(one.ids.size()));
  }
  const auto examples = static_cast<int64_t>(lengths.size()), tokens = static_cast<int64_t>(ids.size());
  return model.run({ids.data(), types.data(), nullptr, lengths.data(), examples, tokens}, threads, false);
}

Result<Answers> Answers::open(const Artifact& artifact, const Model& model, const Json& hypotheses) {
  if (Fault fault = model.texts().fault()) return *fault;
  const auto config = artifact.read_json("config.json");
  if (!config) return config.error();
  const Json* name = at(artifact.manifest(), {"dataset", "name"});
  const Task* task = name && name->text() ? task_of(*name->text()) : nullptr;
  if (!task) {
    const std::string found = name && name->text() ? *name->text() : "?";
    return Error{"models of the task " + found + " are not answered here", Code::kUnsupported};
  }
  Answers made(*task, model);
  const Json* given = at(artifact.manifest(), {"spec", "training", "max_length"});
  const int64_t trained = given ? given->whole().value_or(0) : 0, longest = model.texts().longest();
  made.max_length_ = trained > 0 ? trained : task->max_length;
  if (longest > 0) made.max_length_ = std::min(made.max_length_, longest);
  made.labels_ = model.config().labels;
  if (made.labels_.empty()) made.labels_ = {"LABEL_0", "LABEL_1"};  // what a config without names means
  const Json* problem = config->find("problem_type");
  made.is_probability_ =
      made.labels_.size() == 1 && !(problem && problem->text() && *problem->text() == "regression");
  if (task->kind == Kind::kMultiLabel) {
    auto thresholds = thresholds_of(*config, made.labels_.size());
    if (!thresholds) return thresholds.error();
    made.thresholds_ = std::move(*thresholds);
  }
  if (!hypotheses.is_null()) {
    if (task->kind != Kind::kClassification) {
      return Error{"the model must be one of natural language inference, got one for " + std::string(task->kind_name)};
    }
    auto found = hypotheses_of(hypotheses, made.labels_);
    if (!found) return found.error();
    made.hypotheses_ = std::move(*found);
  }
  return made;
}

std::vector<Field> Answers::fields() const {
  if (has_hypotheses()) return {{"text", true}};
  return {task_->fields, task_->fields + task_->field_count()};
}

std::string Answers::facts() const {
  Writing json;
  json.open('{').name("task").text(task_->name).name("kind").text(task_->kind_name).name("fields").open('[');
  for (const Field& field : fields()) {
    json.open('{').name("name").text(field.name).name("required").flag(field.is_required).close('}');
  }
  json.close(']').name("labels").open('[');
  for (const std::string& label : has_hypotheses() ? hypotheses_.labels : labels_) json.text(label);
  json.close(']').name("prompts").open('[');
  for (const auto& [name, _] : model_->config().prompts) json.text(name);
  return json.close(']').name("max_length").whole(max_length_).close('}').done();
}

Result<std::vector<Answers::Input>> Answers::read(const Json& inputs) const {
  if (!inputs.items()) return Error{"inputs must be a list of objects", Code::kArgument};
  const auto fields = this->fields();
  std::vector<Input> read;
  for (const Json& given : *inputs.items()) {
    const std::string place = "inputs[" + std::to_string(read.size()) + "]";
    if (!given.members()) return Error{place + " must be an object", Code::kArgument};
    Input& input = read.emplace_back(2, nullptr);
    for (const JsonMember& member : *given.members()) {
      const auto field = std::find_if(fields.begin(), fields.end(), [&](auto& one) { return one.name == member.name; });
      if (field == fields.end()) return Error{place + "." + member.name + " must be left out: there is no such field", Code::kArgument};
      if (!member.value.text()) return Error{place + "." + member.name + " must be a text", Code::kArgument};
      input[static_cast<size_t>(field - fields.begin())] = member.value.text();
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].is_required && !input[i]) return Error{place + "." + std::string(fields[i].name) + " must be a text, got nothing", Code::kArgument};
    }
  }
  return read;
}

Result<std::string> Answers::answer(const Json& given, const Network& network) const {
  const auto inputs = read(given);
  if (!inputs) return inputs.error();
  if (inputs->empty()) return std::string("[]");
  switch (task_->kind) {
    case Kind::kQuestionAnswering:
      return spans(*inputs, network);
    case Kind::kTokenClassification:
      return tags(*inputs, network);
    case Kind::kEmbedding:
      return embeddings(*inputs, network);
    default:
      return rows(*inputs, network);
  }
}

Result<std::string> Answers::rows(const std::vector<Input>& inputs, const Network& network) const {
  std::vector<Encoding> encodings;
  for (const Input& input : inputs) {
    std::vector<std::string> seconds;
    for (const std::string& label : hypotheses_.labels) {
      seconds.push_back(std::string(hypotheses_.text).replace(hypotheses_.text.find("{}"), 2, label));
    }
    if (!has_hypotheses() && input[1]) seconds.push_back(*input[1]);
    for (size_t i = 0; i < std::max<size_t>(1, seconds.size()); ++i) {
      const auto second = seconds.empty() ? std::nullopt : std::optional<std::string_view>(seconds[i]);
      auto encoding = texts_->cut(*input[0], second, Truncate::kLongest, max_length_);
      if (!encoding) return encoding.error();
      encodings.push_back(std::move(*encoding));
    }
  }
  auto outputs = run_all(encodings, network);
  if (!outputs) return outputs.error();
  if (const Fault wrong = check_width(*outputs, labels_.size(), encodings.size())) return *wrong;
  const std::vector<std::string>& classes = has_hypotheses() ? hypotheses_.labels : labels_;
  if (has_hypotheses()) {  // of each text the logits of entailment
    std::vector<float> entailed;
    for (size_t i = 0; i < encodings.size(); ++i) {
      entailed.push_back(outputs->values[i * labels_.size() + hypotheses_.entailment]);
    }
    outputs->values = std::move(entailed);
  }
  Writing json;
  json.open('[');
  for (size_t number = 0; number < inputs.size(); ++number) {
    const float* logits = outputs->values.data() + number * classes.size();
    const float logit = classes.size() == 1 && is_probability_ ? sigmoid(logits[0]) : logits[0];
    json.open('{');
    if (task_->kind == Kind::kRegression) {
      json.name("value").number(logit);
    } else if (task_->kind == Kind::kReranking) {
      const float found = relevance(logits, classes.size());
      const bool is_value = classes.size() == 1 && !is_probability_;
      json.name("score").number(is_value ? found : sigmoid(found)).name("logit").number(found);
    } else if (task_->kind == Kind::kMultiLabel) {
      std::vector<float> scores(classes.size());
      std::transform(logits, logits + classes.size(), scores.begin(), sigmoid);
      json.name("labels").open('[');
      for (size_t i = 0; i < classes.size(); ++i) {
        if ((1 + std::tanh(static_cast<double>(logits[i]) / 2)) / 2 >= thresholds_[i]) json.text(classes[i]);
      }
      write_scores(json.close(']'), classes, scores);
    } else {
      const auto scores = softmax(logits, classes.size());
      const size_t best = largest_of(scores.data(), scores.size());
      write_scores(json.name("label").text(classes[best]).name("score").number(scores[best]), classes, scores);
    }
    json.close('}');
  }
  return json.close(']').done();
}

Result<std::string> Answers::spans(const std::vector<Input>& inputs, const Network& network) const {
  std::vector<Encoding> windows;
  std::vector<size_t> counts;
  // A question takes a third of a window at most and the overlap a third: the last third is new text.
  const int64_t third = max_length_ / 3;
  for (const Input& input : inputs) {
    const auto question = texts_->shortened(*input[0], std::min(kQuestionTokens, third));
    if (!question) return question.error();
    auto found = texts_->windows(*question, *input[1], max_length_, third);
    if (!found) return found.error();
    counts.push_back(found->size());
    std::move(found->begin(), found->end(), std::back_inserter(windows));
  }
  const auto outputs = run_all(windows, network);
  if (!outputs) return outputs.error();
  if (const Fault wrong = check_width(*outputs, 2, tokens_of(windows))) return *wrong;
  Writing json;
  json.open('[');
  const float* logits = outputs->values.data();
  auto window = windows.begin();
  for (size_t number = 0; number < inputs.size(); ++number) {
    BestSpan spans;
    for (size_t i = 0; i < counts[number]; ++i, ++window) {
      spans.add(*window, logits);
      logits += 2 * window->ids.size();
    }
    const Span best = spans.best(task_->allows_no_answer);
    const std::string& context = *inputs[number][1];
    const size_t begin = byte_of(context, best.begin), end = byte_of(context, best.end);
    json.open('{').name("answer").text(std::string_view(context).substr(begin, end - begin)).name("score");
    best.is_found ? json.number(best.score) : json.null();
    json.name("start").whole(best.begin).name("end").whole(best.end).close('}');
  }
  return json.close(']').done();
}

Result<std::string> Answers::tags(const std::vector<Input>& inputs, const Network& network) const {
  std::vector<Encoding> pieces;
  std::vector<std::vector<Word>> words;
  std::vector<size_t> counts;
  for (const Input& input : inputs) {
    words.push_back(words_of(*input[0]));
    auto found = texts_->windows(joined(words.back()), std::nullopt, max_length_, 0);
    if (!found) return found.error();
    counts.push_back(found->size());
    std::move(found->begin(), found->end(), std::back_inserter(pieces));
  }
  const auto outputs = run_all(pieces, network);
  if (!outputs) return outputs.error();
  if (const Fault wrong = check_width(*outputs, labels_.size(), tokens_of(pieces))) return *wrong;
  // A word that the tokenizer drops is outside of all entities.
  const auto outside = std::find_if(labels_.begin(), labels_.end(), [](auto& name) { return name == "O" || name == "o"; });
  const size_t nothing = outside == labels_.end() ? 0 : static_cast<size_t>(outside - labels_.begin());
  Writing json;
  json.open('[');
  const float* logits = outputs->values.data();
  auto piece = pieces.begin();
  for (size_t number = 0; number < inputs.size(); ++number) {
    std::vector<size_t> tags(words[number].size(), nothing);
    FirstTokens firsts(words[number]);
    for (size_t i = 0; i < counts[number]; ++i, ++piece) {
      for (const int64_t word : firsts.next(*piece)) {
        if (word >= 0) tags[static_cast<size_t>(word)] = largest_of(logits, labels_.size());
        logits += labels_.size();
      }
    }
    json.open('{').name("words").open('[');
    for (size_t i = 0; i < tags.size(); ++i) {
      const Word& word = words[number][i];
      json.open('{').name("word").text(word.text).name("tag").text(labels_[tags[i]]);
      json.name("start").whole(word.begin).name("end").whole(word.end).close('}');
    }
    json.close(']').close('}');
  }
  return json.close(']').done();
}

}  // namespace mvprune::answers
