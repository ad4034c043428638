#include "config.h"

#include <algorithm>
#include <string_view>

#include "artifact.h"
#include "fields.h"

namespace mvprune {
namespace {

constexpr int64_t kMostLabels = 1 << 20;

struct Family {
  std::string_view name, prefix;
  Body body;
};

constexpr Family kFamilies[] = {
    {"Bert", "bert.", Body::kBert},
    {"Roberta", "roberta.", Body::kRoberta},
    {"XLMRoberta", "roberta.", Body::kRoberta},
    {"Camembert", "roberta.", Body::kRoberta},
    {"MPNet", "mpnet.", Body::kMpnet},
    {"ModernBert", "model.", Body::kModernBert},
    {"DebertaV2", "deberta.", Body::kDeberta},
};

struct Ending {
  std::string_view name;
  Task task;
};

constexpr Ending kEndings[] = {
    {"Model", Task::kVectors},
    {"ForSequenceClassification", Task::kSequence},
    {"ForTokenClassification", Task::kTokens},
    {"ForQuestionAnswering", Task::kSpans},
};

std::optional<Activation> activation_of(std::string_view name) {
  if (name == "gelu" || name == "gelu_python") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  return std::nullopt;
}

Fault read_labels(const Json& json, Config& config) {
  const Json* names = member(json, "id2label");
  if (!names) return std::nullopt;
  if (!names->members() || static_cast<int64_t>(names->members()->size()) > kMostLabels) return wrong("id2label must be an object");
  config.labels.resize(names->members()->size());
  for (size_t i = 0; i < config.labels.size(); ++i) {
    const Json* label = names->find(std::to_string(i));
    if (!label || !label->text()) return wrong("id2label must name each class from 0 on");
    config.labels[i] = *label->text();
  }
  return std::nullopt;
}

Fault read_vectors(const Json& json, Config& config) {
  const Json* how = member(json, "sentence_embedding");
  if (!how || !how->members()) return unsupported("sentence_embedding must say how vectors are made of a model without a head");
  const std::string mode = text(*how, "pooling_mode", "mean");
  constexpr std::string_view kModes[] = {"mean", "cls", "max", "lasttoken"};
  const auto found = std::find(std::begin(kModes), std::end(kModes), mode);
  if (found == std::end(kModes)) return wrong("pooling_mode must be one of mean, cls, max, lasttoken, got " + shown(mode));
  config.pooling = static_cast<Pooling>(found - std::begin(kModes));
  config.normalizes = flag(*how, "normalize", false);
  if (member(*how, "max_seq_length")) {
    const auto most = whole(*how, "max_seq_length", 1, kMostPositions);
    if (!most) return most.error();
    config.most_tokens = *most;
  }
  const Json *prompts = member(*how, "prompts"), *usual = member(*how, "default_prompt_name");
  const std::string name = usual && usual->text() ? *usual->text() : "";
  bool is_known = !usual;
  if (prompts && !prompts->members()) return wrong("prompts must be an object of texts");
  for (const JsonMember& one : prompts ? *prompts->members() : Json::Members()) {
    if (!one.value.text()) return wrong("prompts must be an object of texts");
    config.prompts.emplace_back(one.name, *one.value.text());
    if (usual && one.name == name) {
      config.default_prompt = *one.value.text();
      is_known = true;
    }
  }
  if (!is_known) return wrong("default_prompt_name must be one of the prompts");
  return std::nullopt;
}

Fault read_modern(const Json& json, Config& config) {
  const auto every = whole(json, "global_attn_every_n_layers", 1, kMostLayers, 3);
  const auto window = whole(json, "local_attention", 1, kMostPositions, 128);
  if (!every) return every.error();
  if (!window) return window.error();
  config.window = *window / 2;
  const Json* kinds = member(json, "layer_types");
  for (int64_t i = 0; i < config.layers; ++i) config.sees_near.push_back(i % *every != 0);
  if (kinds) {
    if (!kinds->items() || static_cast<int64_t>(kinds->items()->size()) != config.layers) return wrong("layer_types must be one for each layer");
    for (size_t i = 0; i < config.sees_near.size(); ++i) {
      const std::string* kind = (*kinds->items())[i].text();
      if (!kind || (*kind != "full_attention" && *kind != "sliding_attention")) return unsupported("layer_types must be full_attention or sliding_attention");
      config.sees_near[i] = *kind == "sliding_attention";
    }
  }
  const Json* angles = member(json, "rope_parameters");
  const auto theta = [&](std::string_view kind, std::string_view old, double otherwise) -> Result<double> {
    const Json* own = angles ? member(*angles, kind) : nullptr;
    if (own && text(*own, "rope_type", "default") != "default") return unsupported("rope_type must be default");
    const double found = own ? number(*own, "rope_theta", otherwise) : number(json, old, otherwise);
    if (!(found > 1 && found < 1e12)) return wrong("rope_theta must be above 1");
    return found;
  };
  const auto far = theta("full_attention", "global_rope_theta", 160000), near = theta("sliding_attention", "local_rope_theta", 10000);
  if (!far) return far.error();
  if (!near) return near.error();
  config.far_theta = *far;
  config.near_theta = *near;
  config.pools_mean = text(json, "classifier_pooling", "cls") == "mean";
  return std::nullopt;
}

Fault read_deberta(const Json& json, Config& config) {
  std::string kinds;
  if (const Json* given = member(json, "pos_att_type")) {
    if (given->text()) kinds = *given->text();
    for (const Json& kind : given->items() ? *given->items() : Json::Items()) kinds += kind.text() ? "|" + *kind.text() : "";
  }
  const bool has_both = kinds.find("c2p") != std::string::npos && kinds.find("p2c") != std::string::npos;
  if (!flag(json, "relative_attention", false) || !has_both || kinds.find("p2p") != std::string::npos) {
    return unsupported("a DeBERTa must have relative_attention with pos_att_type c2p and p2c");
  }
  if (number(json, "conv_kernel_size", 0) > 0) return unsupported("conv_kernel_size must be 0");
  if (number(json, "embedding_size", static_cast<double>(config.hidden)) != static_cast<double>(config.hidden)) {
    return unsupported("embedding_size must be hidden_size");
  }
  if (number(json, "z_steps", 0) > 1) return unsupported("z_steps must be at most 1");
  const auto buckets = whole(json, "position_buckets", -1, kMostPositions, -1);
  const auto positions = whole(json, "max_position_embeddings", 1, kMostPositions, 512);
  const auto most = whole(json, "max_relative_positions", -1, kMostPositions, -1);
  if (!buckets) return buckets.error();
  if (!positions) return positions.error();
  if (!most) return most.error();
  config.reach = *most < 1 ? *positions : *most;
  config.buckets = std::max<int64_t>(*buckets, 0);
  config.shares_projections = flag(json, "share_att_key", false);
  config.normalizes_places = text(json, "norm_rel_ebd", "none").find("layer_norm") != std::string::npos;
  return std::nullopt;
}

double usual_epsilon(Body body) { return body == Body::kDeberta ? 1e-7 : body == Body::kModernBert ? 1e-5 : 1e-12; }

}  // namespace

Result<Config> Config::of(const Json& json) {
  const Json* classes = json.find("architectures");
  if (!classes || !classes->items() || classes->items()->size() != 1 || !classes->items()->front().text()) {
    return wrong("architectures must be a list of one class name");
  }
  const std::string& name = *classes->items()->front().text();
  Config config{};
  bool is_known = false;
  for (const Family& family : kFamilies) {
    for (const Ending& ending : kEndings) {
      if (name != std::string(family.name) + std::string(ending.name)) continue;
      is_known = true;
      config.body = family.body;
      config.task = ending.task;
      config.prefix = ending.task == Task::kVectors ? "" : std::string(family.prefix);
    }
  }
  if (!is_known) {
    return unsupported("the model must be BERT, RoBERTa, XLM-RoBERTa, CamemBERT, MPNet, ModernBERT or DeBERTa-v2 that classifies, "
                       "tags, answers questions or makes vectors, got " + shown(name) + "; mvprune.load opens other models in Python");
  }
  if (flag(json, "is_decoder", false)) return unsupported("is_decoder must be false: a decoder is not computed here");
  if (text(json, "position_embedding_type", "absolute") != "absolute") return unsupported("position_embedding_type must be absolute");
  const auto hidden = whole(json, "hidden_size", 1, kMostFeatures), layers = whole(json, "num_hidden_layers", 1, kMostLayers);
  if (!hidden) return hidden.error();
  if (!layers) return layers.error();
  const auto heads = whole(json, "num_attention_heads", 1, *hidden);
  if (!heads) return heads.error();
  if (*hidden % *heads) return wrong("num_attention_heads must divide hidden_size");
  config.hidden = *hidden;
  config.layers = *layers;
  config.heads = *heads;
  const bool is_modern = config.body == Body::kModernBert;
  config.epsilon = static_cast<float>(number(json, is_modern ? "norm_eps" : "layer_norm_eps", usual_epsilon(config.body)));
  const auto activation = activation_of(text(json, is_modern ? "hidden_activation" : "hidden_act", "gelu"));
  const auto own = activation_of(text(json, is_modern ? "classifier_activation" : "pooler_hidden_act", "gelu"));
  if (!activation || !own) return unsupported("the activation must be gelu, gelu_new, gelu_pytorch_tanh or relu");
  config.activation = *activation;
  config.head_activation = *own;
  const auto padding = whole(json, "pad_token_id", 0, int64_t{1} << 40, config.body == Body::kMpnet || config.body == Body::kRoberta ? 1 : 0);
  if (!padding) return padding.error();
  config.padding = config.body == Body::kMpnet ? 1 : *padding;
  config.is_multi_label = text(json, "problem_type", "") == "multi_label_classification";
  if (Fault fault = read_labels(json, config)) return *fault;
  if (config.task == Task::kVectors) {
    if (Fault fault = read_vectors(json, config)) return *fault;
  }
  if (is_modern) {
    if (Fault fault = read_modern(json, config)) return *fault;
  }
  if (config.body == Body::kDeberta) {
    if (Fault fault = read_deberta(json, config)) return *fault;
  }
  return config;
}

}  // namespace mvprune
