#include "decoder.h"

#include <algorithm>
#include <cmath>

#include "../kernel/pool.h"
#include "artifact.h"
#include "kernel_calls.h"

namespace mvprune {
namespace {

constexpr int64_t kSpare = 64;      // tokens by which room for keys and values exceeds what is needed, at least
constexpr int64_t kAtOnce = 256;  // tokens of a prompt that go through the blocks at a time
constexpr int64_t kWords = 512;     // rows of the vocabulary that a task has

size_t at(int64_t i) { return static_cast<size_t>(i); }

Fault product(const AffineWeights& affine, const float* x, int64_t tokens, int32_t threads, const float* residual, std::vector<float>& y) {
  y.resize(at(tokens * affine.weight->rows()));
  Product made = affine.product(Activation::none, y.data());
  made.residual = residual;
  if (const int status = mvprune_linear(&made, x, tokens, threads)) return call_error(status);
  return std::nullopt;
}

// Calls task(i) for all i below count.
template <typename Task>
void in_parallel(int64_t count, int32_t threads, const Task& task) {
  parallel(count, threads, [](void* context, int64_t i) { (*static_cast<const Task*>(context))(i); }, const_cast<Task*>(&task));
}

}  // namespace

void Decoder::make_room(Remembered& text, int64_t tokens) const {
  const int64_t needed = text.length + tokens;
  if (needed <= text.capacity && !text.keys.empty()) return;
  const int64_t capacity = std::min(needed + std::max(kSpare, needed / 2), std::max(needed, config_.longest));
  text.keys.resize(parts_.size());
  text.values.resize(parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (std::vector<float>* one : {&text.keys[i], &text.values[i]}) {
      std::vector<float> larger(at(parts_[i].groups * capacity * config_.size));
      for (int64_t group = 0; group < parts_[i].groups && text.length; ++group) {
        const float* from = one->data() + group * text.capacity * config_.size;
        std::copy(from, from + text.length * config_.size, larger.data() + group * capacity * config_.size);
      }
      one->swap(larger);
    }
  }
  text.capacity = capacity;
}

Fault Decoder::embed(const int64_t* ids, Work& work) const {
  std::vector<int64_t> places(at(work.tokens));
  for (int64_t i = 0; i < work.tokens; ++i) places[at(i)] = work.first + i + config_.first_position;
  const Table tables[] = {words_.table(), positions_.table()};
  const int64_t* const rows[] = {ids, places.data()};
  const Embedding embedding = {tables, positions_.rows ? 2 : 1, config_.hidden, nullptr};
  work.x.resize(at(work.tokens * config_.hidden));
  if (const int status = mvprune_embed(&embedding, rows, work.x.data(), work.tokens)) return call_error(status);
  return std::nullopt;
}

// Cosines of all tokens, (tokens, turned), and then sines.
void Decoder::turn(Work& work) const {
  const int64_t turned = config_.turned, half = turned / 2;
  work.turns.resize(at(2 * work.tokens * turned));
  for (int64_t token = 0; token < work.tokens; ++token) {
    float *cosines = work.turns.data() + token * turned, *sines = cosines + work.tokens * turned;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(work.first + token) * config_.frequencies[at(i)];
      cosines[i] = cosines[half + i] = std::cos(angle);
      sines[i] = sines[half + i] = std::sin(angle);
    }
  }
}

// One more token in one call of the kernel; false: it has to go part by part.
bool Decoder::step(Remembered& text, const Work& work, float* last) const {
  if (blocks_.empty() || work.tokens != 1) return false;
  std::vector<float*> keys, values;
  for (size_t i = 0; i < parts_.size(); ++i) {
    keys.push_back(text.keys[i].data());
    values.push_back(text.values[i].data());
  }
  Step step{};
  step.texts = 1;
  step.length = text.length;
  step.capacity = text.capacity;
  step.keys = keys.data();
  step.values = values.data();
  if (config_.turned) {
    step.cosines = work.turns.data();
    step.sines = work.turns.data() + config_.turned;
  }
  const Normal norm = normal_of(last_);
  return mvprune_decode(blocks_.data(), static_cast<int64_t>(blocks_.size()), &norm, &step, work.x.data(), last, work.threads) == 0;
}

void Decoder::attend(const Part& part, size_t index, Remembered& text, Work& work) const {
  const DecoderIsa& isa = decoder_isa();
  const int64_t size = config_.size, turned = config_.turned, each = part.heads / part.groups, tokens = work.tokens;
  const bool is_packed = !part.key.many.weight;
  const int64_t width = part.query.rows(), grouped = part.groups * size;
  // The vectors of a head: of queries, or of keys and values by `which` (1, 2) among packed rows.
  const auto packed = [&](int64_t which, int64_t token, int64_t head) {
    float* row = work.query.data() + token * width;
    if (!is_packed || !which) return row + (config_.goes_by_heads ? 3 * head * size : head * size);
    return config_.goes_by_heads ? row + (3 * head + which) * size : row + (part.heads + (which - 1) * part.groups + head) * size;
  };
  const auto place = [&](const NormWeights& norm, int64_t token, float* head) {
    if (!norm.weight.empty()) isa.normalize(normal_of(norm), 1, size, head, head);
    const float* cosines = work.turns.data() + token * turned;
    if (turned) isa.rotate(cosines, cosines + tokens * turned, turned, head);
  };
  in_parallel(part.groups, work.threads, [&](int64_t group) {
    float* keys = text.keys[index].data() + group * text.capacity * size;
    float* values = text.values[index].data() + group * text.capacity * size;
    for (int64_t token = 0; token < tokens; ++token) {
      float* key = is_packed ? packed(1, token, group) : work.key.data() + token * grouped + group * size;
      const float* value = is_packed ? packed(2, token, group) : work.value.data() + token * grouped + group * size;
      place(part.key_norm, token, key);
      std::copy(key, key + size, keys + (work.first + token) * size);
      std::copy(value, value + size, values + (work.first + token) * size);
    }
  });
  work.context.resize(at(tokens * part.heads * size));
  in_parallel(part.heads, work.threads, [&](int64_t head) {
    std::vector<float> scores(at(work.first + tokens + 16));
    const int64_t room = head / each * text.capacity * size;
    for (int64_t token = 0; token < tokens; ++token) {
      float* query = packed(0, token, head);
      place(part.query_norm, token, query);
      isa.attend(query, text.keys[index].data() + room, text.values[index].data() + room, nullptr, work.first + token + 1, size,
                 1 / std::sqrt(static_cast<float>(size)), scores.data(), work.context.data() + (token * part.heads + head) * size);
    }
  });
}

Fault Decoder::feed(const Part& part, Work& work, const std::vector<float>& in) const {
  const bool has_gate = part.gate.many.weight != nullptr;
  if (has_gate) {
    if (Fault fault = product(part.gate.many, in.data(), work.tokens, work.threads, nullptr, work.gate)) return fault;
  }
  if (Fault fault = product(part.up.many, in.data(), work.tokens, work.threads, nullptr, work.inner)) return fault;
  const DecoderIsa& isa = decoder_isa();
  const int64_t rows = part.up.rows();
  in_parallel(work.tokens, work.threads, [&](int64_t token) {
    isa.activate(config_.activation, has_gate ? work.gate.data() + token * rows : nullptr, work.inner.data() + token * rows, rows);
  });
  std::vector<float> sum;
  if (Fault fault = product(part.down.many, work.inner.data(), work.tokens, work.threads, work.x.data(), sum)) return fault;
  work.x.swap(sum);
  return std::nullopt;
}

// One block.
Fault Decoder::pass(const Part& part, size_t index, Remembered& text, Work& work) const {
  const DecoderIsa& isa = decoder_isa();
  const auto normalize = [&](const NormWeights& norm) {
    work.normal.resize(work.x.size());
    isa.normalize(normal_of(norm), work.tokens, config_.hidden, work.x.data(), work.normal.data());
  };
  normalize(part.attention_norm);
  const float* in = work.normal.data();
  if (Fault fault = product(part.query.many, in, work.tokens, work.threads, nullptr, work.query)) return fault;
  if (part.key.many.weight) {
    if (Fault fault = product(part.key.many, in, work.tokens, work.threads, nullptr, work.key)) return fault;
    if (Fault fault = product(part.value.many, in, work.tokens, work.threads, nullptr, work.value)) return fault;
  }
  attend(part, index, text, work);
  if (config_.is_parallel) normalize(part.feed_norm);
  std::vector<float> sum;
  if (Fault fault = product(part.out.many, work.context.data(), work.tokens, work.threads, work.x.data(), sum)) return fault;
  work.x.swap(sum);
  if (!config_.is_parallel) normalize(part.feed_norm);
  return feed(part, work, work.normal);
}

// `last`, (hidden,): the state of the last token.
Fault Decoder::go_on(Remembered& text, const int64_t* ids, int64_t count, int32_t threads, float* last) const {
  Work work{count, text.length, threads, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  if (Fault fault = embed(ids, work)) return fault;
  turn(work);
  if (!step(text, work, last)) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (Fault fault = pass(parts_[i], i, text, work)) return fault;
    }
    decoder_isa().normalize(normal_of(last_), 1, config_.hidden, work.x.data() + (count - 1) * config_.hidden, last);
  }
  text.length += count;
  return std::nullopt;
}

Fault Decoder::count_words(const float* hidden, int32_t threads, float* logits) const {
  const float* bias = head_bias_.empty() ? nullptr : head_bias_.data();
  if (few_head_ && mvprune_few(few_head_->matrix(), hidden, bias, logits, 1, threads) == 0) return std::nullopt;
  const StoredTable& head = head_.rows ? head_ : words_;
  const Table table = head.table();
  const Embedding rows = {&table, 1, head.columns, nullptr};
  const DecoderIsa& isa = decoder_isa();
  in_parallel((head.rows + kWords - 1) / kWords, threads, [&](int64_t part) {
    std::vector<float> row(at(head.columns));
    for (int64_t word = part * kWords; word < std::min(head.rows, (part + 1) * kWords); ++word) {
      const int64_t* const id = &word;
      mvprune_embed(&rows, &id, row.data(), 1);
      logits[word] = isa.dot(row.data(), hidden, head.columns) + (bias ? bias[word] : 0.0f);
    }
  });
  return std::nullopt;
}

Fault Decoder::run(Remembered& text, const std::vector<int64_t>& ids, int32_t threads, float* logits) const {
  const auto count = static_cast<int64_t>(ids.size());
  if (text.length + count > config_.longest) {
    return Error{"a text must have at most " + std::to_string(config_.longest) + " tokens, the model's positions, got " + std::to_string(text.length + count), Code::kArgument};
  }
  make_room(text, count);
  std::vector<float> last(at(config_.hidden));
  for (int64_t first = 0; first < count; first += kAtOnce) {
    if (Fault fault = go_on(text, ids.data() + first, std::min(kAtOnce, count - first), threads, last.data())) return fault;
  }
  return count_words(last.data(), threads, logits);
}

}  // namespace mvprune
