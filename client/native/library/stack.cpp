#include "stack.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "in_parallel.h"
#include "kernel_calls.h"
#include "places.h"

namespace mvprune {
namespace {

constexpr int64_t kSpare = 64;    // tokens by which room for keys and values exceeds what is needed, at least
constexpr int64_t kAtOnce = 256;  // tokens of a prompt that go through the blocks at a time

size_t at(int64_t i) { return static_cast<size_t>(i); }

Fault product(const AffineWeights& affine, const float* x, int64_t tokens, int32_t threads, const float* residual, std::vector<float>& y) {
  y.resize(at(tokens * affine.weight->rows()));
  Product made = affine.product(Activation::none, y.data());
  made.residual = residual;
  if (const int status = mvprune_linear(&made, x, tokens, threads)) return call_error(status);
  return std::nullopt;
}

}  // namespace

void Stack::make_room(Remembered& text, int64_t tokens) const {
  const int64_t needed = text.length + tokens;
  if (needed <= text.capacity && !text.keys.empty()) return;
  const int64_t capacity = std::min(needed + std::max(kSpare, needed / 2), std::max(needed, config_.longest));
  const size_t slots = config_.is_causal ? parts_.size() : 1;  // else no block's are wanted after it
  text.keys.resize(slots);
  text.values.resize(slots);
  for (size_t i = 0; i < slots; ++i) {
    int64_t groups = parts_[i].groups;
    for (const Part& part : parts_) groups = config_.is_causal ? groups : std::max(groups, part.groups);
    for (std::vector<float>* one : {&text.keys[i], &text.values[i]}) {
      std::vector<float> larger(at(groups * capacity * config_.size));
      for (int64_t group = 0; group < groups && text.length; ++group) {
        const float* from = one->data() + group * text.capacity * config_.size;
        std::copy(from, from + text.length * config_.size, larger.data() + group * capacity * config_.size);
      }
      one->swap(larger);
    }
  }
  text.capacity = capacity;
}

Fault Stack::embed(const int64_t* ids, Work& work) const {
  work.x.resize(at(work.tokens * config_.hidden));
  const auto look_up = [&](const StoredTable& stored, const int64_t* rows, float* y) -> Fault {
    const Table table = stored.table();
    const Embedding embedding = {&table, 1, config_.hidden, nullptr};
    if (const int status = mvprune_embed(&embedding, &rows, y, work.tokens)) return call_error(status);
    return std::nullopt;
  };
  if (Fault fault = look_up(*words_, ids, work.x.data())) return fault;
  const float scale = config_.words_scale;
  if (scale != 1) std::transform(work.x.begin(), work.x.end(), work.x.begin(), [&](float value) { return value * scale; });
  if (positions_.rows) {
    std::vector<int64_t> places(at(work.tokens));
    for (int64_t i = 0; i < work.tokens; ++i) places[at(i)] = work.place(i) + config_.first_position;
    std::vector<float> added(work.x.size());
    if (Fault fault = look_up(positions_, places.data(), added.data())) return fault;
    std::transform(work.x.begin(), work.x.end(), added.begin(), work.x.begin(), std::plus<float>());
  }
  if (!embedding_norm_.weight.empty()) {
    decoder_isa().normalize(normal_of(embedding_norm_), work.tokens, config_.hidden, work.x.data(), work.x.data());
  }
  return std::nullopt;
}

// Cosines of all tokens, (tokens, turned), and then sines.
void Stack::turn(Work& work) const {
  const int64_t turned = config_.turned, half = turned / 2;
  work.turns.resize(at(2 * work.tokens * turned));
  for (int64_t token = 0; token < work.tokens; ++token) {
    float *cosines = work.turns.data() + token * turned, *sines = cosines + work.tokens * turned;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(work.place(token)) * config_.frequencies[at(i)];
      cosines[i] = cosines[half + i] = std::cos(angle);
      sines[i] = sines[half + i] = std::sin(angle);
    }
  }
}

// What is added to the scores, a row for each head: that of the last query's first key, then of its next ones. The row of
// the query before it begins one later.
void Stack::set_bias(Work& work) const {
  if (distances_.empty()) return;
  const int64_t length = work.first + work.each, width = config_.is_causal ? length : 2 * length - 1;
  work.bias.resize(at(config_.heads * width));
  for (int64_t i = 0; i < width; ++i) {
    const int64_t bucket = relative_bucket(length - 1 - i, config_.buckets, config_.reach, !config_.is_causal);
    for (int64_t head = 0; head < config_.heads; ++head) work.bias[at(head * width + i)] = distances_[at(bucket * config_.heads + head)];
  }
}

// What goes into the first block, and what the scores of all blocks take.
Fault Stack::enter(const int64_t* ids, Work& work) const {
  if (Fault fault = embed(ids, work)) return fault;
  turn(work);
  set_bias(work);
  return std::nullopt;
}

// One more token of each text in one call of the kernel; false: it has to go part by part.
bool Stack::step(const Work& work, float* last) const {
  if (blocks_.empty() || work.each != 1) return false;
  const RememberedSource* source = work.texts.front()->source.get();
  std::vector<float*> keys, values;
  std::vector<const float*> cross_keys, cross_values;
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (Remembered* text : work.texts) {
      keys.push_back(text->keys[i].data());
      values.push_back(text->values[i].data());
      if (!source) continue;
      cross_keys.push_back(text->source->keys[i].data());
      cross_values.push_back(text->source->values[i].data());
    }
  }
  Step step{};
  step.texts = work.tokens;
  step.length = work.first;
  step.capacity = work.texts.front()->capacity;
  step.keys = keys.data();
  step.values = values.data();
  step.source = source ? source->tokens : 0;
  step.cross_keys = cross_keys.data();
  step.cross_values = cross_values.data();
  step.bias = work.bias.empty() ? nullptr : work.bias.data();
  if (config_.turned) {
    step.cosines = work.turns.data();
    step.sines = work.turns.data() + work.tokens * config_.turned;
  }
  const Normal norm = normal_of(last_);
  return mvprune_decode(blocks_.data(), static_cast<int64_t>(blocks_.size()), norm.weight ? &norm : nullptr, &step, work.x.data(), last, work.threads) == 0;
}

// The vectors of a head among the rows of query, which are those of keys and values too where they have no weights.
float* Stack::packed(const Part& part, Work& work, int64_t which, int64_t token, int64_t head) const {
  const int64_t size = config_.size;
  float* row = work.query.data() + token * part.query.rows();
  if (part.key.many.weight) return row + head * size;
  if (config_.goes_by_heads) return row + (3 * head + which) * size;
  return row + ((which ? part.heads + (which - 1) * part.groups : 0) + head) * size;
}

// A head of queries or keys: normalized and turned.
void Stack::place(const NormWeights& norm, const Work& work, int64_t token, float* head) const {
  const DecoderIsa& isa = decoder_isa();
  const int64_t turned = config_.turned;
  if (!norm.weight.empty()) isa.normalize(normal_of(norm), 1, config_.size, head, head);
  const float* cosines = work.turns.data() + token * turned;
  if (turned) isa.rotate(cosines, cosines + work.tokens * turned, turned, head);
}

void Stack::remember(const Part& part, size_t slot, Work& work) const {
  const int64_t size = config_.size, grouped = part.groups * size;
  const bool is_packed = !part.key.many.weight;
  in_parallel(part.groups, work.threads, [&](int64_t group) {
    for (int64_t token = 0; token < work.tokens; ++token) {
      Remembered& text = work.text(token);
      const int64_t own = (group * text.capacity + work.place(token)) * size;
      float* key = is_packed ? packed(part, work, 1, token, group) : work.key.data() + token * grouped + group * size;
      const float* value = is_packed ? packed(part, work, 2, token, group) : work.value.data() + token * grouped + group * size;
      place(part.key_norm, work, token, key);
      std::copy(key, key + size, text.keys[slot].data() + own);
      std::copy(value, value + size, text.values[slot].data() + own);
    }
  });
}

void Stack::attend(const Part& part, size_t slot, Work& work) const {
  const DecoderIsa& isa = decoder_isa();
  const int64_t size = config_.size, each = part.heads / part.groups, tokens = work.tokens, length = work.first + work.each;
  const int64_t width = config_.is_causal ? length : 2 * length - 1;  // of the rows of bias
  work.context.resize(at(tokens * part.heads * size));
  in_parallel(part.heads, work.threads, [&](int64_t head) {
    std::vector<float> scores(at(length + 16));
    for (int64_t token = 0; token < tokens; ++token) {
      const Remembered& text = work.text(token);
      const int64_t room = head / each * text.capacity * size;
      float* query = packed(part, work, 0, token, head);
      place(part.query_norm, work, token, query);
      const int64_t shown = config_.is_causal ? work.place(token) + 1 : length;
      const float* bias = work.bias.empty() ? nullptr : work.bias.data() + head * width + length - 1 - work.place(token);
      isa.attend(query, text.keys[slot].data() + room, text.values[slot].data() + room, nullptr, bias, shown, size, config_.scale,
                 scores.data(), work.context.data() + (token * part.heads + head) * size);
    }
  });
}

void Stack::attend_source(const Part& part, size_t index, Work& work) const {
  const DecoderIsa& isa = decoder_isa();
  const int64_t size = config_.size, each = part.heads / part.groups;
  in_parallel(part.heads, work.threads, [&](int64_t head) {
    std::vector<float> scores;
    for (int64_t token = 0; token < work.tokens; ++token) {
      const RememberedSource& source = *work.text(token).source;
      scores.resize(at(source.tokens + 16));
      const int64_t room = head / each * source.tokens * size;
      const int64_t own = (token * part.heads + head) * size;
      isa.attend(work.query.data() + own, source.keys[index].data() + room, source.values[index].data() + room, nullptr, nullptr,
                 source.tokens, size, config_.scale, scores.data(), work.context.data() + own);
    }
  });
}

Fault Stack::feed(const Part& part, Work& work, const std::vector<float>& in) const {
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
Fault Stack::pass(const Part& part, size_t index, Work& work) const {
  const DecoderIsa& isa = decoder_isa();
  const auto normalize = [&](const NormWeights& norm, std::vector<float>& y) {
    y.resize(work.x.size());
    isa.normalize(normal_of(norm), work.tokens, config_.hidden, work.x.data(), y.data());
  };
  const auto multiply = [&](const Weight& weight, const std::vector<float>& x, std::vector<float>& y) {
    return product(weight.many, x.data(), work.tokens, work.threads, nullptr, y);
  };
  const auto add = [&](const Weight& weight) -> Fault {  // to x, what it makes of the context
    std::vector<float> sum;
    if (Fault fault = product(weight.many, work.context.data(), work.tokens, work.threads, work.x.data(), sum)) return fault;
    work.x.swap(sum);
    return std::nullopt;
  };
  const auto attention = [&](const std::vector<float>& in) -> Fault {
    if (Fault fault = multiply(part.query, in, work.query)) return fault;
    if (part.key.many.weight) {
      if (Fault fault = multiply(part.key, in, work.key)) return fault;
      if (Fault fault = multiply(part.value, in, work.value)) return fault;
    }
    const size_t slot = config_.is_causal ? index : 0;
    remember(part, slot, work);
    attend(part, slot, work);
    if (config_.is_parallel) normalize(part.feed_norm, work.normal);
    return add(part.out);
  };
  const auto cross = [&](const std::vector<float>& in) -> Fault {
    if (Fault fault = multiply(part.cross_query, in, work.query)) return fault;
    attend_source(part, index, work);
    return add(part.cross_out);
  };
  // A part with the norm before or after it.
  const auto normalized = [&](const NormWeights& norm, const auto& run) -> Fault {
    if (!config_.normalizes_after) normalize(norm, work.normal);
    if (Fault fault = run(config_.normalizes_after ? work.x : work.normal)) return fault;
    if (config_.normalizes_after) normalize(norm, work.x);
    return std::nullopt;
  };
  const auto feeding = [&](const std::vector<float>& in) { return feed(part, work, in); };
  if (Fault fault = normalized(part.attention_norm, attention)) return fault;
  if (part.cross_query.many.weight) {
    if (Fault fault = normalized(part.cross_norm, cross)) return fault;
  }
  return config_.is_parallel ? feed(part, work, work.normal) : normalized(part.feed_norm, feeding);
}

// The norm after the blocks, if there is one.
void Stack::leave(const float* x, int64_t tokens, float* y) const {
  if (last_.weight.empty()) {
    std::copy(x, x + tokens * config_.hidden, y);
  } else {
    decoder_isa().normalize(normal_of(last_), tokens, config_.hidden, x, y);
  }
}

// `last`, (texts, hidden): the states of the last tokens.
Fault Stack::go_on(const Batch& texts, const std::vector<int64_t>& ids, int32_t threads, float* last) const {
  Work work(texts, static_cast<int64_t>(ids.size() / texts.size()), threads);
  if (Fault fault = enter(ids.data(), work)) return fault;
  if (!step(work, last)) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (Fault fault = pass(parts_[i], i, work)) return fault;
    }
    for (int64_t token = work.each - 1; token < work.tokens; token += work.each, last += config_.hidden) {
      leave(work.x.data() + token * config_.hidden, 1, last);
    }
  }
  for (Remembered* text : texts) text->length += work.each;
  return std::nullopt;
}

Fault Stack::check_length(int64_t tokens) const {
  if (tokens <= config_.longest) return std::nullopt;
  return Error{"a text must have at most " + std::to_string(config_.longest) + " tokens, the model's positions, got " + std::to_string(tokens), Code::kArgument};
}

Fault Stack::run(const Batch& texts, const std::vector<int64_t>& ids, int32_t threads, float* last) const {
  const auto each = static_cast<int64_t>(ids.size() / texts.size());
  if (Fault fault = check_length(texts.front()->length + each)) return fault;
  for (Remembered* text : texts) make_room(*text, each);
  for (int64_t first = 0; first < each; first += kAtOnce) {
    const int64_t some = std::min(kAtOnce, each - first);
    std::vector<int64_t> part;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto from = ids.begin() + static_cast<int64_t>(i) * each + first;
      part.insert(part.end(), from, from + some);
    }
    if (Fault fault = go_on(texts, part, threads, last)) return fault;
  }
  return std::nullopt;
}

Fault Stack::read_whole(const std::vector<int64_t>& ids, int32_t threads, std::vector<float>& states) const {
  Remembered text;
  const Batch texts = {&text};
  Work work(texts, static_cast<int64_t>(ids.size()), threads);
  if (Fault fault = check_length(work.tokens)) return fault;
  make_room(text, work.tokens);
  if (Fault fault = enter(ids.data(), work)) return fault;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (Fault fault = pass(parts_[i], i, work)) return fault;
  }
  states.resize(work.x.size());
  leave(work.x.data(), work.tokens, states.data());
  return std::nullopt;
}

Fault Stack::remember_source(const std::vector<float>& states, int32_t threads, Remembered& text) const {
  const int64_t tokens = static_cast<int64_t>(states.size()) / config_.hidden, size = config_.size;
  auto source = std::make_shared<RememberedSource>();
  source->tokens = tokens;
  for (const Part& part : parts_) {
    const Weight* const weights[] = {&part.cross_key, &part.cross_value};
    for (const Weight* weight : weights) {
      std::vector<float> rows;  // (tokens, groups, size)
      if (Fault fault = product(weight->many, states.data(), tokens, threads, nullptr, rows)) return fault;
      std::vector<float> by_group(rows.size());
      for (int64_t i = 0; i < tokens * part.groups; ++i) {
        const int64_t token = i / part.groups, group = i % part.groups;
        std::copy_n(rows.data() + i * size, size, by_group.data() + (group * tokens + token) * size);
      }
      (weight == &part.cross_key ? source->keys : source->values).push_back(std::move(by_group));
    }
  }
  text.source = std::move(source);
  return std::nullopt;
}

}  // namespace mvprune
