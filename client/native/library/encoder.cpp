#include "encoder.h"

#include <algorithm>
#include <cmath>

#include "artifact.h"
#include "kernel_calls.h"

namespace mvprune {
namespace {

constexpr int64_t kSpare = 32, kStep = 64;  // by which spans exceed the tokens of an example, and grow

// Where a block keeps its parts.
struct Names {
  const char *blocks, *query, *key, *value, *out, *attention_norm, *up, *down, *output_norm;
};

constexpr Names kBert = {"encoder.layer.", "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
                         "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"};
constexpr Names kMpnet = {"encoder.layer.", "attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o",
                          "attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"};
constexpr Names kDeberta = {"encoder.layer.", "attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense",
                            "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"};
constexpr Names kModernBert = {"layers.", "attn.Wqkv", nullptr, nullptr, "attn.Wo", "attn_norm", "mlp.Wi", "mlp.Wo", "mlp_norm"};

const Names& names_of(Body body) {
  return body == Body::kMpnet ? kMpnet : body == Body::kDeberta ? kDeberta : body == Body::kModernBert ? kModernBert : kBert;
}

// The length of an axis of a matrix; 0 if there is none.
int64_t axis(const Weights& weights, const std::string& name, size_t number) {
  const Shape* shape = weights.shape(name + ".weight");
  return shape && shape->size() == 2 ? (*shape)[number] : 0;
}

Result<std::vector<float>> optional_vector(const Weights& weights, const std::string& name, int64_t length) {
  if (!weights.shape(name)) return std::vector<float>();
  return whole_tensor(weights, name, {length});
}

}  // namespace

Result<AffineWeights> read_affine(const Weights& weights, const std::string& name, int64_t rows, int64_t columns, bool rounds) {
  const Shape wanted = {rows, columns};
  const Shape* shape = weights.shape(name + ".weight");
  if (!shape || *shape != wanted) return Error{"config.json: the model that it describes needs the tensor " + name + ".weight of shape " + shown(wanted)};
  const Result<Elements> elements = nonzero_elements(weights, name + ".weight");
  if (!elements) return elements.error();
  Result<std::vector<float>> bias = optional_vector(weights, name + ".bias", rows);
  if (!bias) return bias.error();
  return AffineWeights{rounds ? laid_out_for_bytes(*elements) : laid_out(*elements), std::move(*bias)};
}

Result<NormWeights> read_norm(const Weights& weights, const std::string& name, int64_t features, float epsilon) {
  Result<std::vector<float>> weight = whole_tensor(weights, name + ".weight", {features});
  if (!weight) return weight.error();
  Result<std::vector<float>> bias = optional_vector(weights, name + ".bias", features);
  if (!bias) return bias.error();
  return NormWeights{std::move(*weight), std::move(*bias), epsilon};
}

void NormWeights::apply(float* values, int64_t rows) const {
  const size_t features = weight.size();
  for (; rows > 0; --rows, values += features) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < features; ++i) mean += values[i];
    mean /= static_cast<double>(features);
    for (size_t i = 0; i < features; ++i) variance += (values[i] - mean) * (values[i] - mean);
    const double factor = 1 / std::sqrt(variance / static_cast<double>(features) + epsilon);
    for (size_t i = 0; i < features; ++i) {
      values[i] = static_cast<float>((values[i] - mean) * factor * weight[i] + (bias.empty() ? 0 : bias[i]));
    }
  }
}

Error call_error(int status) {
  if (status == 2) return {"ids and types must be those of rows of the model's embeddings, and texts not longer than its positions", Code::kArgument};
  return {"there is no memory for the call", Code::kMemory};
}

Result<std::unique_ptr<Encoder>> Encoder::read(const Weights& weights, const Config& config, bool rounds) {
  std::unique_ptr<Encoder> encoder(new Encoder(config));
  encoder->blocks_.resize(static_cast<size_t>(config.layers));
  for (int64_t i = 0; i < config.layers; ++i) {
    if (Fault fault = encoder->read_block(weights, i, rounds)) return *fault;
  }
  if (Fault fault = encoder->read_tables(weights)) return *fault;
  if (Fault fault = encoder->read_places(weights)) return *fault;
  return encoder;
}

Fault Encoder::read_tables(const Weights& weights) {
  struct Known {
    const char* name;
    Given given;
  };
  const bool is_modern = config_.body == Body::kModernBert, is_deberta = config_.body == Body::kDeberta;
  // In the order in which their rows are added.
  std::vector<Known> known = {{is_modern ? "tok_embeddings" : "word_embeddings", Given::kWords}};
  if (is_deberta) known.push_back({"position_embeddings", Given::kPositions});
  if (!is_modern && config_.body != Body::kMpnet) known.push_back({"token_type_embeddings", Given::kTypes});
  if (!is_modern && !is_deberta) known.push_back({"position_embeddings", Given::kPositions});
  const std::string embeddings = config_.prefix + "embeddings.";
  for (const Known& one : known) {
    const std::string name = embeddings + one.name + ".weight";
    if (is_deberta && one.given != Given::kWords && !weights.shape(name)) continue;
    Result<StoredTable> table = stored_table(weights, name);
    if (!table) return table.error();
    if (table->columns != config_.hidden) return Error{"config.json: hidden_size must be the columns of " + name};
    if (one.given == Given::kPositions) {
      const bool counts_padding = config_.body == Body::kBert || is_deberta;
      longest_ = table->rows - (counts_padding ? 0 : config_.padding + 1);
      if (longest_ < 1) return Error{"config.json: " + name + " must have rows for positions"};
    }
    tables_.push_back(std::move(*table));
    given_.push_back(one.given);
  }
  Result<NormWeights> norm = read_norm(weights, embeddings + (is_modern ? "norm" : "LayerNorm"), config_.hidden, config_.epsilon);
  if (!norm) return norm.error();
  norm_ = std::move(*norm);
  if (is_modern) {
    Result<NormWeights> last = read_norm(weights, config_.prefix + "final_norm", config_.hidden, config_.epsilon);
    if (!last) return last.error();
    last_ = std::move(*last);
  }
  return std::nullopt;
}

Fault Encoder::read_places(const Weights& weights) {
  const bool is_mpnet = config_.body == Body::kMpnet, is_deberta = config_.body == Body::kDeberta;
  const std::string encoder = config_.prefix + "encoder.";
  if (!is_mpnet && !is_deberta) return std::nullopt;
  Result<StoredTable> table = stored_table(weights, encoder + (is_mpnet ? "relative_attention_bias.weight" : "rel_embeddings.weight"));
  if (!table) return table.error();
  places_ = std::move(*table);
  const int64_t reach = config_.buckets ? config_.buckets : config_.reach;
  const bool fits = is_mpnet ? places_.rows >= 32 && places_.columns == config_.heads : places_.rows >= 2 * reach && places_.columns == config_.hidden;
  if (!fits) return Error{"config.json: the table of distances must have the shape that it describes"};
  if (config_.buckets && (config_.buckets < 4 || config_.reach <= config_.buckets / 2 + 1)) {
    return Error{"config.json: position_buckets must be at least 4, and less than twice max_relative_positions"};
  }
  if (is_deberta && config_.normalizes_places) {
    Result<NormWeights> norm = read_norm(weights, encoder + "LayerNorm", config_.hidden, config_.epsilon);
    if (!norm) return norm.error();
    places_norm_ = std::move(*norm);
  }
  return std::nullopt;
}

Fault Encoder::read_block(const Weights& weights, int64_t number, bool rounds) {
  const Names& names = names_of(config_.body);
  const std::string path = config_.prefix + names.blocks + std::to_string(number) + ".";
  const int64_t hidden = config_.hidden, size = hidden / config_.heads;
  const int64_t attended = axis(weights, path + names.out, 1), inner = axis(weights, path + names.down, 1);
  if (!attended || attended % size || !inner) return Error{"config.json: " + path + "* must be a block of whole heads with units"};
  const bool is_joint = !names.key, is_modern = config_.body == Body::kModernBert;
  if (is_modern && (attended != hidden || size % 2)) return Error{"config.json: " + path + names.query + " must have heads of an even size"};
  Block& block = blocks_[static_cast<size_t>(number)];
  block.heads = attended / size;
  struct Wanted {
    AffineWeights* place;
    const char* name;
    int64_t rows, columns;
  };
  std::vector<Wanted> wanted = {{&block.query, names.query, is_joint ? 3 * attended : attended, hidden},
                                {&block.out, names.out, hidden, attended},
                                {&block.up, names.up, is_modern ? 2 * inner : inner, hidden},
                                {&block.down, names.down, hidden, inner}};
  if (!is_joint) {
    wanted.push_back({&block.key, names.key, attended, hidden});
    wanted.push_back({&block.value, names.value, attended, hidden});
  }
  if (config_.body == Body::kDeberta) {
    if (attended != hidden) return Error{"config.json: " + path + names.query + " must have all heads"};
    if (!config_.shares_projections) {
      wanted.push_back({&block.key_places, "attention.self.pos_key_proj", attended, hidden});
      wanted.push_back({&block.query_places, "attention.self.pos_query_proj", attended, hidden});
    }
  }
  for (const Wanted& one : wanted) {
    Result<AffineWeights> affine = read_affine(weights, path + one.name, one.rows, one.columns, rounds);
    if (!affine) return affine.error();
    *one.place = std::move(*affine);
  }
  const bool has_first = !is_modern || number > 0;  // ModernBERT's first block begins after the norm of the embeddings
  if (has_first) {
    Result<NormWeights> norm = read_norm(weights, path + names.attention_norm, hidden, config_.epsilon);
    if (!norm) return norm.error();
    block.attention_norm = std::move(*norm);
  }
  Result<NormWeights> norm = read_norm(weights, path + names.output_norm, hidden, config_.epsilon);
  if (!norm) return norm.error();
  block.output_norm = std::move(*norm);
  return std::nullopt;
}

Layer Encoder::layer_of(const Block& block) const {
  Layer layer{};
  layer.query = block.query.product();
  layer.key = block.key.product();
  layer.value = block.value.product();
  layer.out = block.out.product();
  layer.up = block.up.product(config_.activation);
  layer.down = block.down.product();
  layer.attention_norm = block.attention_norm.norm();
  layer.output_norm = block.output_norm.norm();
  layer.heads = block.heads;
  const double size = static_cast<double>(config_.hidden / config_.heads);
  layer.scale = static_cast<float>(1 / std::sqrt(config_.body == Body::kDeberta ? 3 * size : size));
  layer.normalizes_before = layer.is_gated = config_.body == Body::kModernBert;
  return layer;
}

Result<std::shared_ptr<const Placed>> Encoder::placed(int64_t length, int32_t threads) const {
  const bool depends = config_.body == Body::kMpnet || config_.body == Body::kDeberta || config_.body == Body::kModernBert;
  const int64_t span = depends ? (length + kSpare + kStep - 1) / kStep * kStep : 0;
  while (lock_.test_and_set(std::memory_order_acquire)) {
  }
  std::shared_ptr<const Placed> found = placed_;
  lock_.clear(std::memory_order_release);
  if (found && found->span >= span) return found;
  auto made = std::make_shared<Placed>();
  made->span = span;
  if (Fault fault = make_places(*made, threads)) return *fault;
  for (const Block& block : blocks_) made->layers.push_back(layer_of(block));
  for (size_t i = 0; i < made->places.size(); ++i) made->layers[i].places = &made->places[i];
  found = made;
  while (lock_.test_and_set(std::memory_order_acquire)) {
  }
  if (!placed_ || placed_->span < span) placed_.swap(found);
  lock_.clear(std::memory_order_release);
  return std::shared_ptr<const Placed>(std::move(made));
}

std::vector<int64_t> Encoder::positions_of(const Ids& ids) const {
  std::vector<int64_t> positions(static_cast<size_t>(ids.tokens));
  const bool counts_padding = config_.body == Body::kBert || config_.body == Body::kDeberta;
  size_t token = 0;
  for (int64_t example = 0; example < ids.examples; ++example) {
    int64_t seen = 0;
    for (int64_t i = 0; i < ids.lengths[example]; ++i, ++token) {
      const bool is_shown = counts_padding || ids.ids[token] != config_.padding;
      seen += is_shown;
      positions[token] = counts_padding ? i : (is_shown ? seen : 0) + config_.padding;
    }
  }
  return positions;
}

Fault Encoder::run(const Ids& ids, int32_t threads, float* y) const {
  const int64_t length = *std::max_element(ids.lengths, ids.lengths + ids.examples);
  if (longest_ && length > longest_) {
    return Error{"a text must have at most " + std::to_string(longest_) + " tokens, the model's positions, got " + std::to_string(length), Code::kArgument};
  }
  const Result<std::shared_ptr<const Placed>> placed = this->placed(length, threads);
  if (!placed) return placed.error();
  const std::vector<int64_t> positions = positions_of(ids);
  const std::vector<int64_t> zeros(ids.types ? 0 : positions.size());
  const int64_t* types = ids.types ? ids.types : zeros.data();
  std::vector<Table> tables;
  std::vector<const int64_t*> rows;
  for (size_t i = 0; i < tables_.size(); ++i) {
    tables.push_back(tables_[i].table());
    rows.push_back(given_[i] == Given::kWords ? ids.ids : given_[i] == Given::kTypes ? types : positions.data());
  }
  const Norm norm = norm_.norm(), last = last_.norm();
  const Embedding embedding = {tables.data(), static_cast<int64_t>(tables.size()), config_.hidden, &norm};
  const bool all = !ids.kept || std::all_of(ids.kept, ids.kept + ids.tokens, [](uint8_t kept) { return kept != 0; });
  const std::vector<Layer>& layers = (*placed)->layers;
  const int status = mvprune_layers(layers.data(), static_cast<int64_t>(layers.size()), &embedding, rows.data(), &last, nullptr,
                                    all ? nullptr : ids.kept, ids.lengths, y, ids.examples, threads);
  if (status) return call_error(status);
  return std::nullopt;
}

}  // namespace mvprune
