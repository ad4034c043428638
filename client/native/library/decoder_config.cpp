#include "decoder_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "../kernel/glibc.h"
#include "artifact.h"
#include "fields.h"

namespace mvprune {
namespace {

constexpr StackNames kGpt2 = {"transformer.h.", "transformer.wte", "transformer.wpe", nullptr, "transformer.ln_f",
                              "ln_1", "attn.c_attn", nullptr, nullptr, "attn.c_proj",
                              "ln_2", nullptr, "mlp.c_fc", "mlp.c_proj"};
constexpr StackNames kLlama = {"model.layers.", "model.embed_tokens", nullptr, nullptr, "model.norm",
                               "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                               "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};
constexpr StackNames kQwen3 = {"model.layers.", "model.embed_tokens", nullptr, nullptr, "model.norm",
                               "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                               "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "self_attn.q_norm", "self_attn.k_norm"};
constexpr StackNames kNeox = {"gpt_neox.layers.", "gpt_neox.embed_in", nullptr, nullptr, "gpt_neox.final_layer_norm",
                              "input_layernorm", "attention.query_key_value", nullptr, nullptr, "attention.dense",
                              "post_attention_layernorm", nullptr, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"};
constexpr StackNames kOpt = {"model.decoder.layers.", "model.decoder.embed_tokens", "model.decoder.embed_positions", nullptr, "model.decoder.final_layer_norm",
                             "self_attn_layer_norm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj",
                             "final_layer_norm", nullptr, "fc1", "fc2"};
// Of the stacks of BART and its like; some have no norm after the embeddings or after the blocks.
constexpr StackNames kBartEncoder = {"model.encoder.layers.", "model.encoder.embed_tokens", "model.encoder.embed_positions", "model.encoder.layernorm_embedding", "model.encoder.layer_norm",
                                     "self_attn_layer_norm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj",
                                     "final_layer_norm", nullptr, "fc1", "fc2"};
constexpr StackNames kBartDecoder = {"model.decoder.layers.", "model.decoder.embed_tokens", "model.decoder.embed_positions", "model.decoder.layernorm_embedding", "model.decoder.layer_norm",
                                     "self_attn_layer_norm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj",
                                     "final_layer_norm", nullptr, "fc1", "fc2", nullptr, nullptr,
                                     "encoder_attn_layer_norm", "encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj", "encoder_attn.out_proj"};
// Of T5, with a gate.
constexpr StackNames kT5Encoder = {"encoder.block.", "encoder.embed_tokens", nullptr, nullptr, "encoder.final_layer_norm",
                                   "layer.0.layer_norm", "layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v", "layer.0.SelfAttention.o",
                                   "layer.1.layer_norm", "layer.1.DenseReluDense.wi_0", "layer.1.DenseReluDense.wi_1", "layer.1.DenseReluDense.wo", nullptr, nullptr,
                                   nullptr, nullptr, nullptr, nullptr, nullptr,
                                   "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"};
constexpr StackNames kT5Decoder = {"decoder.block.", "decoder.embed_tokens", nullptr, nullptr, "decoder.final_layer_norm",
                                   "layer.0.layer_norm", "layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v", "layer.0.SelfAttention.o",
                                   "layer.2.layer_norm", "layer.2.DenseReluDense.wi_0", "layer.2.DenseReluDense.wi_1", "layer.2.DenseReluDense.wo", nullptr, nullptr,
                                   "layer.1.layer_norm", "layer.1.EncDecAttention.q", "layer.1.EncDecAttention.k", "layer.1.EncDecAttention.v", "layer.1.EncDecAttention.o",
                                   "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"};

enum class Kind { kGpt2, kLlama, kQwen3, kNeox, kOpt, kBart, kMbart, kPegasus, kMarian, kT5, kMt5 };

struct Known {
  std::string_view name;
  Kind kind;
  const StackNames* names;
};

constexpr Known kKnown[] = {
    {"GPT2LMHeadModel", Kind::kGpt2, &kGpt2},
    {"LlamaForCausalLM", Kind::kLlama, &kLlama},
    {"MistralForCausalLM", Kind::kLlama, &kLlama},
    {"Qwen2ForCausalLM", Kind::kLlama, &kLlama},
    {"Qwen3ForCausalLM", Kind::kQwen3, &kQwen3},
    {"GPTNeoXForCausalLM", Kind::kNeox, &kNeox},
    {"OPTForCausalLM", Kind::kOpt, &kOpt},
    {"BartForConditionalGeneration", Kind::kBart, &kBartDecoder},
    {"MBartForConditionalGeneration", Kind::kMbart, &kBartDecoder},
    {"PegasusForConditionalGeneration", Kind::kPegasus, &kBartDecoder},
    {"MarianMTModel", Kind::kMarian, &kBartDecoder},
    {"T5ForConditionalGeneration", Kind::kT5, &kT5Decoder},
    {"MT5ForConditionalGeneration", Kind::kMt5, &kT5Decoder},
};

std::optional<Gate> gate_of(std::string_view name) {
  if (name == "gelu" || name == "gelu_python") return Gate::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Gate::gelu_tanh;
  if (name == "relu") return Gate::relu;
  if (name == "silu" || name == "swish") return Gate::silu;
  return std::nullopt;
}

Fault read_gate(const std::string& name, StackConfig& config) {
  const auto gate = gate_of(name);
  if (!gate) return unsupported("the activation must be gelu, gelu_new, gelu_pytorch_tanh, relu or silu");
  config.activation = *gate;
  return std::nullopt;
}

std::string class_of(const Json& json) {
  const Json* classes = json.find("architectures");
  if (!classes || !classes->items() || classes->items()->size() != 1 || !classes->items()->front().text()) return "";
  return *classes->items()->front().text();
}

// The frequencies of transformers' `ROPE_INIT_FUNCTIONS`.
Fault read_rotation(const Json& json, StackConfig& config, bool is_neox) {
  const Json* given = member(json, "rope_parameters");
  if (!given) given = member(json, "rope_scaling");
  const Json nothing;
  const Json& own = given ? *given : nothing;
  const auto of = [&](std::string_view name, std::string_view old, double otherwise) {
    return number(own, name, number(json, old, otherwise));
  };
  const double theta = of("rope_theta", is_neox ? "rotary_emb_base" : "rope_theta", 10000);
  const double part = of("partial_rotary_factor", is_neox ? "rotary_pct" : "partial_rotary_factor", is_neox ? 0.25 : 1);
  if (!(theta > 1 && theta < 1e12)) return wrong("rope_theta must be above 1");
  if (!(part > 0 && part <= 1)) return wrong("partial_rotary_factor must be above 0 and at most 1");
  const auto features = static_cast<int64_t>(static_cast<double>(config.size) * part);
  const int64_t half = (features + 1) / 2;
  config.turned = 2 * half;
  if (config.turned > config.size) return wrong("head_dim must be even");
  for (int64_t i = 0; i < half; ++i) {
    const float share = static_cast<float>(2 * i) / static_cast<float>(features);
    config.frequencies.push_back(1.0f / std::pow(static_cast<float>(theta), share));
  }
  const std::string kind = text(own, "rope_type", text(own, "type", "default"));
  if (kind == "default") return std::nullopt;
  const double factor = number(own, "factor", 0);
  if (kind != "linear" && kind != "llama3") return unsupported("rope_type must be default, linear or llama3, got " + shown(kind));
  if (!(factor >= 1 && factor < 1e6)) return wrong("the factor of rope_type must be at least 1");
  const double low = number(own, "low_freq_factor", 1), high = number(own, "high_freq_factor", 4);
  const double old = number(own, "original_max_position_embeddings", 8192);
  if (kind == "llama3" && !(low > 0 && high > low && old >= 1)) return wrong("high_freq_factor must be above low_freq_factor");
  for (float& one : config.frequencies) {
    const double length = 2 * 3.14159265358979323846 / static_cast<double>(one), between = (old / length - low) / (high - low);
    const double mixed = static_cast<double>(one) * ((1 - between) / factor + between);
    one = kind == "linear" || length > old / low ? static_cast<float>(static_cast<double>(one) / factor) : length < old / high ? one : static_cast<float>(mixed);
  }
  return std::nullopt;
}

// What the kernel does not have.
Fault check_kind(const Json& json, const StackConfig& config) {
  constexpr std::pair<std::string_view, bool> kFlags[] = {
      {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}, {"_remove_final_layer_norm", false},
      {"do_layer_norm_before", true},             {"scale_attn_weights", true},   {"layer_norm_elementwise_affine", true},
  };
  for (const auto& [name, usual] : kFlags) {
    if (flag(json, name, usual) != usual) return unsupported(std::string(name) + " must be " + (usual ? "true" : "false"));
  }
  const Json* window = member(json, "sliding_window");
  // One that a text cannot leave hides nothing.
  const bool is_wide = window && window->whole().value_or(0) >= config.longest;
  if (window && !is_wide && flag(json, "use_sliding_window", true)) return unsupported("sliding_window must be null, or at least max_position_embeddings");
  if (const Json* kinds = member(json, "layer_types"); kinds && kinds->items()) {
    for (const Json& kind : *kinds->items()) {
      if (!kind.text() || *kind.text() != "full_attention") return unsupported("layer_types must be full_attention");
    }
  }
  const double width = number(json, "word_embed_proj_dim", static_cast<double>(config.hidden));
  if (width != static_cast<double>(config.hidden)) return unsupported("word_embed_proj_dim must be hidden_size");
  return std::nullopt;
}

// A decoder without an encoder.
Fault read_single(const Json& json, Kind kind, StackConfig& config) {
  const bool is_gpt2 = kind == Kind::kGpt2, is_neox = kind == Kind::kNeox, is_opt = kind == Kind::kOpt;
  const bool has_rms = kind == Kind::kLlama || kind == Kind::kQwen3;
  const auto hidden = whole(json, is_gpt2 ? "n_embd" : "hidden_size", 1, kMostFeatures);
  const auto layers = whole(json, is_gpt2 ? "n_layer" : "num_hidden_layers", 1, kMostLayers);
  const auto longest = whole(json, is_gpt2 ? "n_positions" : "max_position_embeddings", 1, kMostPositions);
  for (const auto* one : {&hidden, &layers, &longest}) {
    if (!*one) return one->error();
  }
  const auto heads = whole(json, is_gpt2 ? "n_head" : "num_attention_heads", 1, *hidden);
  if (!heads) return heads.error();
  const auto groups = whole(json, "num_key_value_heads", 1, *heads, *heads);
  if (!groups) return groups.error();
  const auto size = whole(json, "head_dim", 1, kMostFeatures, *hidden / *heads);
  if (!size) return size.error();
  if (*heads % *groups) return wrong("num_key_value_heads must divide num_attention_heads");
  config.hidden = *hidden;
  config.layers = *layers;
  config.longest = *longest;
  config.heads = *heads;
  config.groups = has_rms ? *groups : *heads;
  config.size = has_rms ? *size : *hidden / *heads;
  if (!has_rms && *hidden % *heads) return wrong("num_attention_heads must divide hidden_size");
  config.scale = 1 / std::sqrt(static_cast<float>(config.size));
  config.is_centred = !has_rms;
  const char* epsilon = is_gpt2 ? "layer_norm_epsilon" : is_neox ? "layer_norm_eps" : is_opt ? "" : "rms_norm_eps";
  config.epsilon = static_cast<float>(number(json, epsilon, has_rms ? 1e-6 : 1e-5));
  const char* activation = is_gpt2 || is_opt ? "activation_function" : "hidden_act";
  if (Fault fault = read_gate(text(json, activation, is_gpt2 ? "gelu_new" : is_opt ? "relu" : is_neox ? "gelu" : "silu"), config)) return fault;
  config.inputs_first = is_gpt2;
  config.goes_by_heads = is_neox;
  config.is_parallel = is_neox && flag(json, "use_parallel_residual", true);
  config.first_position = is_opt ? 2 : 0;
  if (Fault fault = check_kind(json, config)) return fault;
  if (is_neox || has_rms) {
    if (Fault fault = read_rotation(json, config, is_neox)) return fault;
  }
  return std::nullopt;
}

// A stack of BART and its like.
Fault read_bart(const Json& json, Kind kind, bool reads, StackConfig& config) {
  config.names = reads ? kBartEncoder : kBartDecoder;
  if (kind == Kind::kPegasus || kind == Kind::kMarian) config.names.embedding_norm = nullptr;
  config.normalizes_after = kind == Kind::kBart || kind == Kind::kMarian;
  if (config.normalizes_after) config.names.last = nullptr;
  const auto hidden = whole(json, "d_model", 1, kMostFeatures), layers = whole(json, reads ? "encoder_layers" : "decoder_layers", 1, kMostLayers);
  const auto longest = whole(json, "max_position_embeddings", 1, kMostPositions);
  for (const auto* one : {&hidden, &layers, &longest}) {
    if (!*one) return one->error();
  }
  const char* name = reads ? "encoder_attention_heads" : "decoder_attention_heads";
  const auto heads = whole(json, name, 1, *hidden);
  if (!heads) return heads.error();
  if (*hidden % *heads) return wrong(std::string(name) + " must divide d_model");
  config.hidden = *hidden;
  config.layers = *layers;
  config.longest = *longest;
  config.heads = config.groups = *heads;
  config.size = *hidden / *heads;
  config.scale = 1 / std::sqrt(static_cast<float>(config.size));
  config.epsilon = 1e-5f;
  if (flag(json, "scale_embedding", false)) config.words_scale = std::sqrt(static_cast<float>(*hidden));
  config.first_position = kind == Kind::kBart || kind == Kind::kMbart ? 2 : 0;
  return read_gate(text(json, "activation_function", kind == Kind::kPegasus ? "relu" : "gelu"), config);
}

// A stack of T5.
Fault read_t5(const Json& json, bool reads, StackConfig& config) {
  config.names = reads ? kT5Encoder : kT5Decoder;
  const auto hidden = whole(json, "d_model", 1, kMostFeatures), layers = whole(json, "num_layers", 1, kMostLayers);
  const auto size = whole(json, "d_kv", 1, kMostFeatures), buckets = whole(json, "relative_attention_num_buckets", 4, 1 << 16, 32);
  for (const auto* one : {&hidden, &layers, &size, &buckets}) {
    if (!*one) return one->error();
  }
  const auto own_layers = whole(json, "num_decoder_layers", 1, kMostLayers, *layers), heads = whole(json, "num_heads", 1, kMostFeatures);
  const auto reach = whole(json, "relative_attention_max_distance", *buckets, kMostPositions, 128);
  for (const auto* one : {&own_layers, &heads, &reach}) {
    if (!*one) return one->error();
  }
  config.hidden = *hidden;
  config.layers = reads ? *layers : *own_layers;
  config.longest = kMostPositions;
  config.heads = config.groups = *heads;
  config.size = *size;
  config.buckets = *buckets;
  config.reach = *reach;
  config.epsilon = static_cast<float>(number(json, "layer_norm_epsilon", 1e-6));
  config.is_centred = false;
  constexpr std::string_view gated = "gated-";
  std::string feed = text(json, "feed_forward_proj", "relu");
  const bool has_gate = feed.compare(0, gated.size(), gated) == 0;
  if (!has_gate) {
    config.names.gate = nullptr;
    config.names.up = reads ? "layer.1.DenseReluDense.wi" : "layer.2.DenseReluDense.wi";
  }
  return read_gate(feed == "gated-gelu" ? "gelu_new" : has_gate ? feed.substr(gated.size()) : feed, config);
}

}  // namespace

bool DecoderConfig::is_one(const Json& json) {
  const std::string name = class_of(json);
  const auto ends = [&](std::string_view ending) {
    return name.size() >= ending.size() && std::string_view(name).substr(name.size() - ending.size()) == ending;
  };
  return ends("ForCausalLM") || ends("LMHeadModel") || ends("ForConditionalGeneration") || ends("MTModel");
}

Result<DecoderConfig> DecoderConfig::of(const Json& json) {
  const std::string name = class_of(json);
  const auto known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& one) { return one.name == name; });
  if (known == std::end(kKnown)) {
    return unsupported("a model that writes text must be GPT-2, Llama, Mistral, Qwen2, Qwen3, GPT-NeoX, OPT, T5, mT5, BART, mBART, Pegasus or Marian, got " + shown(name) +
                       "; mvprune.load opens other models in Python");
  }
  DecoderConfig config;
  config.stack.names = *known->names;
  config.head = "lm_head";
  const bool is_t5 = known->kind == Kind::kT5 || known->kind == Kind::kMt5;
  if (!known->names->cross_query) {
    if (Fault fault = read_single(json, known->kind, config.stack)) return *fault;
    return config;
  }
  config.source.emplace();
  config.source->is_causal = false;
  for (const bool reads : {true, false}) {
    StackConfig& stack = reads ? *config.source : config.stack;
    if (Fault fault = is_t5 ? read_t5(json, reads, stack) : read_bart(json, known->kind, reads, stack)) return *fault;
  }
  if (!is_t5) config.head_bias = "final_logits_bias";
  // Whether T5's head has what the embeddings have; transformers before 5 said it by the other member.
  const bool is_scaled = flag(json, "scale_decoder_outputs", flag(json, "tie_word_embeddings", true));
  if (known->kind == Kind::kT5 && is_scaled) config.scale = 1 / std::sqrt(static_cast<float>(config.stack.hidden));
  return config;
}

}  // namespace mvprune
