// The weights of a stack.
#include <utility>

#include "artifact.h"
#include "stack.h"
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

Result<Stack::Weight> Stack::read_weight(const Weights& weights, const std::string& name, int64_t rows, int64_t columns, bool rounds, bool is_for_few) const {
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
  if (is_for_few && mvprune_has_few()) made.few = few_of(*elements, rounds);
  return made;
}

Result<NormWeights> Stack::read_norm_of(const Weights& weights, const std::string& name, int64_t features) const {
  return read_norm(weights, name, features, config_.epsilon);
}

Normal Stack::normal_of(const NormWeights& norm) const {
  return {norm.weight.empty() ? nullptr : norm.weight.data(), norm.bias.empty() ? nullptr : norm.bias.data(), norm.epsilon, config_.is_centred};
}

Fault Stack::read_block(const Weights& weights, int64_t number, bool rounds) {
  const StackNames& names = config_.names;
  const std::string path = names.blocks + std::to_string(number) + ".";
  const size_t inputs = config_.inputs_first ? 0 : 1;
  const int64_t hidden = config_.hidden, size = config_.size;
  const int64_t attended = axis(weights, path + names.out, inputs), inner = axis(weights, path + names.down, inputs);
  const int64_t grouped = names.key ? axis(weights, path + names.key, 0) : attended;
  if (attended < 1 || attended % size || grouped < 1 || grouped % size || inner < 1 || attended % grouped) {
    return Error{"config.json: " + path + "* must be a block of whole heads with units"};
  }
  if (config_.buckets && attended != config_.heads * size) return Error{"config.json: " + path + names.query + " must have all heads"};
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
                           {&part.down, names.down, hidden, inner},
                           {&part.cross_query, names.cross_query, attended, hidden},
                           {&part.cross_key, names.cross_key, grouped, hidden},
                           {&part.cross_value, names.cross_value, grouped, hidden},
                           {&part.cross_out, names.cross_out, hidden, attended}};
  for (const Wanted& one : wanted) {
    if (!one.name) continue;
    const bool is_of_source = one.place == &part.cross_key || one.place == &part.cross_value;
    Result<Weight> weight = read_weight(weights, path + one.name, one.rows, one.columns, rounds, config_.is_causal && !is_of_source);
    if (!weight) return weight.error();
    *one.place = std::move(*weight);
  }
  struct WantedNorm {
    NormWeights* place;
    const char* name;
    int64_t features;
  };
  const WantedNorm norms[] = {{&part.attention_norm, names.attention_norm, hidden},
                              {&part.cross_norm, names.cross_norm, hidden},
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

Block Stack::block_of(const Part& part) const {
  Block block{};
  block.attention_norm = normal_of(part.attention_norm);
  block.feed_norm = normal_of(part.feed_norm);
  block.cross_norm = normal_of(part.cross_norm);
  block.query_norm = normal_of(part.query_norm);
  block.key_norm = normal_of(part.key_norm);
  block.query = part.query.affine();
  block.key = part.key.affine();
  block.value = part.value.affine();
  block.out = part.out.affine();
  if (part.cross_query.many.weight) {
    block.cross_query = part.cross_query.affine();
    block.cross_out = part.cross_out.affine();
  }
  block.gate = part.gate.affine();
  block.up = part.up.affine();
  block.down = part.down.affine();
  block.heads = part.heads;
  block.groups = part.groups;
  block.size = config_.size;
  block.turned = config_.turned;
  block.scale = config_.scale;
  block.activation = config_.activation;
  block.goes_by_heads = config_.goes_by_heads;
  block.is_parallel = config_.is_parallel;
  block.normalizes_after = config_.normalizes_after;
  return block;
}

Fault Stack::read_tables(const Weights& weights) {
  const StackNames& names = config_.names;
  if (!words_) {
    Result<StoredTable> words = stored_table(weights, std::string(names.words) + ".weight");
    if (!words) return words.error();
    words_ = std::make_shared<StoredTable>(std::move(*words));
  }
  if (words_->columns != config_.hidden || words_->rows < 1) return Error{"config.json: the hidden size must be the columns of " + std::string(names.words)};
  if (names.positions) {
    Result<StoredTable> positions = stored_table(weights, std::string(names.positions) + ".weight");
    if (!positions) return positions.error();
    config_.longest = std::min(config_.longest, positions->rows - config_.first_position);
    if (positions->columns != config_.hidden || config_.longest < 1) return Error{"config.json: " + std::string(names.positions) + " must have rows for positions"};
    positions_ = std::move(*positions);
  }
  if (config_.buckets) {
    Result<std::vector<float>> distances = whole_tensor(weights, std::string(names.distances) + ".weight", {config_.buckets, config_.heads});
    if (!distances) return distances.error();
    distances_ = std::move(*distances);
  }
  const std::pair<NormWeights*, const char*> norms[] = {{&embedding_norm_, names.embedding_norm}, {&last_, names.last}};
  for (const auto& [place, name] : norms) {
    if (!name) continue;
    Result<NormWeights> norm = read_norm_of(weights, name, config_.hidden);
    if (!norm) return norm.error();
    *place = std::move(*norm);
  }
  return std::nullopt;
}

Result<std::unique_ptr<Stack>> Stack::read(const Weights& weights, const StackConfig& config, bool rounds, std::shared_ptr<const StoredTable> words) {
  std::unique_ptr<Stack> stack(new Stack(config));
  stack->words_ = std::move(words);
  stack->parts_.resize(static_cast<size_t>(config.layers));
  for (int64_t i = 0; i < config.layers; ++i) {
    if (Fault fault = stack->read_block(weights, i, rounds)) return *fault;
  }
  if (Fault fault = stack->read_tables(weights)) return *fault;
  for (size_t i = 0; config.is_causal && mvprune_has_few() && i < stack->parts_.size(); ++i) stack->blocks_.push_back(stack->block_of(stack->parts_[i]));
  return stack;
}

}  // namespace mvprune
