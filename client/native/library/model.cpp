#include "model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_calls.h"

namespace mvprune {
namespace {

// The tokens of an example that are pooled: those that others may attend to.
bool is_shown(const Ids& ids, int64_t token) { return !ids.kept || ids.kept[token]; }

void add_mean(const float* states, const Ids& ids, int64_t first, int64_t length, int64_t features, float* out) {
  std::vector<double> sums(static_cast<size_t>(features));
  int64_t count = 0;
  for (int64_t token = first; token < first + length; ++token) {
    if (!is_shown(ids, token)) continue;
    ++count;
    for (int64_t i = 0; i < features; ++i) sums[static_cast<size_t>(i)] += states[token * features + i];
  }
  for (int64_t i = 0; i < features; ++i) {
    out[i] = count ? static_cast<float>(sums[static_cast<size_t>(i)] / static_cast<double>(count)) : 0.0f;
  }
}

void take_most(const float* states, const Ids& ids, int64_t first, int64_t length, int64_t features, float* out) {
  std::fill_n(out, features, std::numeric_limits<float>::lowest());
  for (int64_t token = first; token < first + length; ++token) {
    if (!is_shown(ids, token)) continue;
    for (int64_t i = 0; i < features; ++i) out[i] = std::max(out[i], states[token * features + i]);
  }
}

Result<std::vector<float>> product_of(const AffineWeights& affine, Activation activation, const std::vector<float>& x, int64_t rows, int32_t threads) {
  std::vector<float> y(static_cast<size_t>(rows * affine.weight->rows()));
  const Product product = affine.product(activation, y.data());
  if (const int status = mvprune_linear(&product, x.data(), rows, threads)) return call_error(status);
  return y;
}

}  // namespace

void scale_to_one(float* values, int64_t count) {
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += static_cast<double>(values[i]) * values[i];
  const double length = std::max(std::sqrt(squares), 1e-12);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(values[i] / length);
}

Result<std::unique_ptr<Model>> Model::open(const Source& source, Activations activations) {
  if (!instruction_set()) return Error{"MVPRUNE_KERNEL must be an instruction set of this machine; unset it", Code::kArgument};
  const Result<Artifact> artifact = Artifact::open(source);
  if (!artifact) return artifact.error();
  const Result<Json> json = artifact->read_json("config.json");
  if (!json) return json.error();
  Result<Config> config = Config::of(*json);
  if (!config) return config.error();
  Result<Bytes> file = artifact->read("weights.safetensors");
  if (!file) return file.error();
  const Result<Weights> weights = Weights::open(std::move(*file));
  if (!weights) return weights.error();
  auto model = std::make_unique<Model>();
  model->config_ = std::move(*config);
  model->density_ = artifact->density();
  const bool wants = activations == Activations::kInt8 || (activations == Activations::kAsStored && artifact->rounds_activations());
  model->rounds_ = wants && mvprune_has_dots();
  Result<std::unique_ptr<Encoder>> encoder = Encoder::read(*weights, model->config_, model->rounds_);
  if (!encoder) return encoder.error();
  model->encoder_ = std::move(*encoder);
  if (Fault fault = model->read_head(*weights)) return *fault;
  model->texts_ = Texts::of(*artifact, model->config_, model->longest());
  return model;
}

int64_t Model::longest() const {
  const int64_t places = encoder_->longest(), own = config_.most_tokens.value_or(0);
  return !places ? own : !own ? places : std::min(places, own);
}

Fault Model::read_head(const Weights& weights) {
  if (config_.task == Task::kVectors) return std::nullopt;
  const Body body = config_.body;
  const int64_t hidden = config_.hidden;
  const bool is_sequence = config_.task == Task::kSequence, is_modern = body == Body::kModernBert;
  const bool has_own = body == Body::kRoberta || body == Body::kMpnet;
  std::string dense;
  if (is_modern) dense = "head.dense";
  if (is_sequence && !is_modern) dense = has_own ? "classifier.dense" : body == Body::kDeberta ? "pooler.dense" : config_.prefix + "pooler.dense";
  has_tanh_ = !is_modern && body != Body::kDeberta;
  if (!dense.empty()) {
    Result<AffineWeights> affine = read_affine(weights, dense, hidden, hidden, false);
    if (!affine) return affine.error();
    dense_ = std::move(*affine);
  }
  if (is_modern) {
    Result<NormWeights> norm = read_norm(weights, "head.norm", hidden, config_.epsilon);
    if (!norm) return norm.error();
    norm_ = std::move(*norm);
  }
  const bool is_spans = config_.task == Task::kSpans;
  const std::string out = is_spans && !is_modern ? "qa_outputs" : is_sequence && has_own ? "classifier.out_proj" : "classifier";
  const Shape* shape = weights.shape(out + ".weight");
  const int64_t count = shape && !shape->empty() ? shape->front() : 0;
  if (count < 1 || (is_spans && count != 2)) return Error{"config.json: the model that it describes needs the tensor " + out + ".weight"};
  Result<AffineWeights> affine = read_affine(weights, out, count, hidden, false);
  if (!affine) return affine.error();
  out_ = std::move(*affine);
  for (int64_t i = 0; i < count && !is_spans; ++i) {
    const size_t at = static_cast<size_t>(i);
    labels_.push_back(at < config_.labels.size() ? config_.labels[at] : "LABEL_" + std::to_string(i));
  }
  return std::nullopt;
}

std::vector<float> Model::pooled(const std::vector<float>& hidden, const Ids& ids) const {
  const int64_t features = config_.hidden;
  const bool is_vector = config_.task == Task::kVectors;
  const Pooling pooling = is_vector ? config_.pooling : config_.pools_mean ? Pooling::kMean : Pooling::kFirst;
  std::vector<float> found(static_cast<size_t>(ids.examples * features));
  int64_t first = 0;
  for (int64_t example = 0; example < ids.examples; ++example) {
    const int64_t length = ids.lengths[example];
    float* out = found.data() + example * features;
    if (pooling == Pooling::kMean) {
      add_mean(hidden.data(), ids, first, length, features, out);
    } else if (pooling == Pooling::kMax) {
      take_most(hidden.data(), ids, first, length, features, out);
    } else {
      // Of a model with a head the very first token, of vectors the first or last that is shown.
      int64_t token = first;
      if (is_vector && pooling == Pooling::kFirst) {
        while (token + 1 < first + length && !is_shown(ids, token)) ++token;
      }
      if (pooling == Pooling::kLast) {
        for (token = first + length - 1; token > first && !is_shown(ids, token);) --token;
      }
      std::copy_n(hidden.data() + token * features, features, out);
    }
    if (is_vector && config_.normalizes) scale_to_one(out, features);
    first += length;
  }
  return found;
}

Result<Answer> Model::run(const Ids& ids, int32_t threads, bool wants_hidden) const {
  std::vector<float> hidden(static_cast<size_t>(ids.tokens * config_.hidden));
  if (Fault fault = encoder_->run(ids, threads, hidden.data())) return *fault;
  const bool by_example = config_.task == Task::kVectors || config_.task == Task::kSequence;
  Answer answer;
  answer.rows = by_example ? ids.examples : ids.tokens;
  answer.tokens = ids.tokens;
  answer.features = config_.hidden;
  if (by_example) answer.values = pooled(hidden, ids);
  if (out_.weight) {
    const std::vector<float>* x = by_example ? &answer.values : &hidden;
    std::vector<float> inner;
    if (dense_.weight) {
      Result<std::vector<float>> found = product_of(dense_, has_tanh_ ? Activation::none : config_.head_activation, *x, answer.rows, threads);
      if (!found) return found.error();
      inner = std::move(*found);
      if (has_tanh_) std::transform(inner.begin(), inner.end(), inner.begin(), [](float value) { return std::tanh(value); });
      if (!norm_.weight.empty()) norm_.apply(inner.data(), answer.rows);
      x = &inner;
    }
    Result<std::vector<float>> found = product_of(out_, Activation::none, *x, answer.rows, threads);
    if (!found) return found.error();
    answer.values = std::move(*found);
  }
  answer.columns = static_cast<int64_t>(answer.values.size()) / answer.rows;
  if (wants_hidden) answer.hidden = std::move(hidden);
  return answer;
}

}  // namespace mvprune
