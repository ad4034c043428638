// The weights of a decoder.
#include <cmath>

#include "artifact.h"
#include "decoder.h"
#include "kernel_calls.h"

namespace mvprune {
namespace {

// A matrix that is stored as (columns, rows).
Elements transposed(const Elements& given) {
  Elements made;
  made.rows = given.columns;
  made.columns = given.rows;
  std::vector<size_t> starts(static_cast<size_t>(given.columns) + 1);
  for (const int64_t position : given.positions) ++starts[static_cast<size_t>(position % given.columns) + 1];
  for (size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  made.positions.resize(given.positions.size());
  made.values.resize(given.values.size());
  for (size_t i = 0; i < given.positions.size(); ++i) {
    const int64_t row = given.positions[i] / given.columns, column = given.positions[i] % given.columns;
    const size_t to = starts[static_cast<size_t>(column)]++;
    made.positions[to] = column * given.rows + row;
    made.values[to] = given.values[i];
  }
  return made;
}

// The length of an axis of a matrix; 0 if there is none.
int64_t axis(const Weights& weights, const std::string& name, size_t number) {
  const Shape* shape = weights.shape(name + ".weight");
  return shape && shape->size() == 2 ? (*shape)[number] : 0;
}

}  // namespace

Result<Decoder::Weight> Decoder::read_weight(const Weights& weights, const std::string& name, int64_t rows, int64_t columns, bool rounds) const {
  const Shape wanted = config_.inputs_first ? Shape{columns, rows} : Shape{rows, columns};
  const Shape* shape = weights.shape(name + ".weight");
  if (!shape || *shape != wanted) return Error{"config.json: the model that it describes needs the tensor " + name + ".weight of shape " + shown(wanted)};
  Result<Elements> elements = nonzero_elements(weights, name + ".weight");
  if (!elements) return elements.error();
  if (config_.inputs_first) *elements = transposed(*elements);
  Weight made;
  if (weights.shape(name + ".bias")) {
    Result<std::vector<float>> bias = whole_tensor(weights, name + ".bias", {rows});
    if (!bias) return bias.error();
    made.many.bias = std::move(*bias);
  }
  made.many.weight = rounds ? laid_out_for_bytes(*elements) : laid_out(*elements);
  if (mvprune_has_few()) made.few = few_of(*elements, rounds);
  return made;
}

Result<NormWeights> Decoder::read_norm_of(const Weights& weights, const std::string& name, int64_t features) const {
  return read_norm(weights, name, features, config_.epsilon);
}

Normal Decoder::normal_of(const NormWeights& norm) const {
  return {norm.weight.empty() ? nullptr : norm.weight.data(), norm.bias.empty() ? nullptr : norm.bias.data(), norm.epsilon, config_.is_centred};
}

Fault Decoder::read_block(const Weights& weights, int64_t number, bool rounds) {
  const DecoderNames& names = *config_.names;
  const std::string path = names.blocks + std::to_string(number) + ".";
  const size_t inputs = config_.inputs_first ? 0 : 1;
  const int64_t hidden = config_.hidden, size = config_.size;
  const int64_t attended = axis(weights, path + names.out, inputs), inner = axis(weights, path + names.down, inputs);
  const int64_t grouped = names.key ? axis(weights, path + names.key, 0) : attended;
  if (attended < 1 || attended % size || grouped < 1 || grouped % size || inner < 1 || attended % grouped) {
    return Error{"config.json: " + path + "* must be a block of whole heads with units"};
  }
  Part& part = parts_[static_cast<size_t>(number)];
  part.heads = attended / size;
  part.groups = grouped / size;
  struct Wanted {
    Weight* place;
    const char* name;
    int64_t rows, columns;
  };
  const Wanted wanted[] = {{&part.query, names.query, names.key ? attended : 3 * attended, hidden},
                           {&part.key, names.key, grouped, hidden},
                           {&part.value, names.value, grouped, hidden},
                           {&part.out, names.out, hidden, attended},
                           {&part.gate, names.gate, inner, hidden},
                           {&part.up, names.up, inner, hidden},
                           {&part.down, names.down, hidden, inner}};
  for (const Wanted& one : wanted) {
    if (!one.name) continue;
    Result<Weight> weight = read_weight(weights, path + one.name, one.rows, one.columns, rounds);
    if (!weight) return weight.error();
    *one.place = std::move(*weight);
  }
  struct WantedNorm {
    NormWeights* place;
    const char* name;
    int64_t features;
  };
  const WantedNorm norms[] = {{&part.attention_norm, names.attention_norm, hidden},
                              {&part.feed_norm, names.feed_norm, hidden},
                              {&part.query_norm, names.query_norm, size},
                              {&part.key_norm, names.key_norm, size}};
  for (const WantedNorm& one : norms) {
    if (!one.name) continue;
    Result<NormWeights> norm = read_norm_of(weights, path + one.name, one.features);
    if (!norm) return norm.error();
    *one.place = std::move(*norm);
  }
  return std::nullopt;
}

Fault Decoder::read_head(const Weights& weights) {
  const DecoderNames& names = *config_.names;
  Result<StoredTable> words = stored_table(weights, std::string(names.words) + ".weight");
  if (!words) return words.error();
  if (words->columns != config_.hidden || words->rows < 1) return Error{"config.json: hidden_size must be the columns of " + std::string(names.words)};
  words_ = std::move(*words);
  if (names.positions) {
    Result<StoredTable> positions = stored_table(weights, std::string(names.positions) + ".weight");
    if (!positions) return positions.error();
    config_.longest = std::min(config_.longest, positions->rows - config_.first_position);
    if (positions->columns != config_.hidden || config_.longest < 1) return Error{"config.json: " + std::string(names.positions) + " must have rows for positions"};
    positions_ = std::move(*positions);
  }
  std::string head = names.head;
  if (!weights.shape(head + ".weight")) head = weights.shape("embed_out.weight") ? "embed_out" : names.words;
  if (weights.stored_name(head + ".weight") != weights.stored_name(std::string(names.words) + ".weight")) {
    Result<StoredTable> table = stored_table(weights, head + ".weight");
    if (!table) return table.error();
    if (table->columns != config_.hidden || table->rows != words_.rows) return Error{"config.json: " + head + " must have the shape of " + names.words};
    head_ = std::move(*table);
  }
  const StoredTable& used = head_.rows ? head_ : words_;
  if (head != names.words && weights.shape(head + ".bias")) {
    Result<std::vector<float>> bias = whole_tensor(weights, head + ".bias", {used.rows});
    if (!bias) return bias.error();
    head_bias_ = std::move(*bias);
  }
  if (mvprune_has_few()) few_head_ = few_of(used);
  Result<NormWeights> last = read_norm_of(weights, names.last, config_.hidden);
  if (!last) return last.error();
  last_ = std::move(*last);
  return std::nullopt;
}

Block Decoder::block_of(const Part& part) const {
  Block block{};
  block.attention_norm = normal_of(part.attention_norm);
  block.feed_norm = normal_of(part.feed_norm);
  block.query_norm = normal_of(part.query_norm);
  block.key_norm = normal_of(part.key_norm);
  block.query = part.query.affine();
  block.key = part.key.affine();
  block.value = part.value.affine();
  block.out = part.out.affine();
  block.gate = part.gate.affine();
  block.up = part.up.affine();
  block.down = part.down.affine();
  block.heads = part.heads;
  block.groups = part.groups;
  block.size = config_.size;
  block.turned = config_.turned;
  block.scale = 1 / std::sqrt(static_cast<float>(config_.size));
  block.activation = config_.activation;
  block.goes_by_heads = config_.goes_by_heads;
  block.is_parallel = config_.is_parallel;
  return block;
}

Result<std::unique_ptr<Decoder>> Decoder::read(const Weights& weights, const DecoderConfig& config, bool rounds) {
  std::unique_ptr<Decoder> decoder(new Decoder(config));
  decoder->parts_.resize(static_cast<size_t>(config.layers));
  for (int64_t i = 0; i < config.layers; ++i) {
    if (Fault fault = decoder->read_block(weights, i, rounds)) return *fault;
  }
  if (Fault fault = decoder->read_head(weights)) return *fault;
  for (size_t i = 0; mvprune_has_few() && i < decoder->parts_.size(); ++i) decoder->blocks_.push_back(decoder->block_of(decoder->parts_[i]));
  return decoder;
}

}  // namespace mvprune
