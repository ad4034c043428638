#include "decoder.h"

#include <algorithm>

#include "in_parallel.h"
#include "kernel_calls.h"

namespace mvprune {
namespace {

constexpr int64_t kWords = 512;  // rows of the vocabulary that a task has

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::read(const Weights& weights, const DecoderConfig& config, bool rounds) {
  auto decoder = std::make_unique<Decoder>();
  Result<std::unique_ptr<Stack>> stack = Stack::read(weights, config.stack, rounds, nullptr);
  if (!stack) return stack.error();
  decoder->stack_ = std::move(*stack);
  if (config.source) {
    const auto stored = [&](const StackConfig& one) { return weights.stored_name(std::string(one.names.words) + ".weight"); };
    const bool shares = stored(config.stack) == stored(*config.source);
    stack = Stack::read(weights, *config.source, rounds, shares ? decoder->stack_->words() : nullptr);
    if (!stack) return stack.error();
    decoder->encoder_ = std::move(*stack);
  }
  decoder->scale_ = config.scale;
  if (Fault fault = decoder->read_head(weights, config)) return *fault;
  return decoder;
}

Fault Decoder::read_head(const Weights& weights, const DecoderConfig& config) {
  const std::string words = config.stack.names.words;
  std::string head = config.head;
  if (!weights.shape(head + ".weight")) head = weights.shape("embed_out.weight") ? "embed_out" : words;
  if (weights.stored_name(head + ".weight") != weights.stored_name(words + ".weight")) {
    Result<StoredTable> table = stored_table(weights, head + ".weight");
    if (!table) return table.error();
    if (table->columns != stack_->hidden() || table->rows != this->words()) return Error{"config.json: " + head + " must have the shape of " + words};
    head_ = std::move(*table);
  }
  const StoredTable& used = head_.rows ? head_ : *stack_->words();
  if (head != words && weights.shape(head + ".bias")) {
    Result<std::vector<float>> bias = whole_tensor(weights, head + ".bias", {used.rows});
    if (!bias) return bias.error();
    head_bias_ = std::move(*bias);
  }
  if (config.head_bias) {
    Result<std::vector<float>> bias = whole_tensor(weights, config.head_bias, {1, used.rows});
    if (!bias) return bias.error();
    head_bias_ = std::move(*bias);
  }
  if (mvprune_has_few()) few_head_ = few_of(used);
  return std::nullopt;
}

// Logits, (texts, words), of states, (texts, hidden).
void Decoder::count_words(const std::vector<float>& states, int32_t threads, float* logits) const {
  const float* bias = head_bias_.empty() ? nullptr : head_bias_.data();
  const StoredTable& head = head_.rows ? head_ : *stack_->words();
  const int64_t texts = static_cast<int64_t>(states.size()) / head.columns;
  if (few_head_ && mvprune_few(few_head_->matrix(), states.data(), bias, logits, texts, threads) == 0) return;
  const Table table = head.table();
  const Embedding rows = {&table, 1, head.columns, nullptr};
  const DecoderIsa& isa = decoder_isa();
  in_parallel((head.rows + kWords - 1) / kWords, threads, [&](int64_t part) {
    std::vector<float> row(static_cast<size_t>(head.columns));
    for (int64_t word = part * kWords; word < std::min(head.rows, (part + 1) * kWords); ++word) {
      const int64_t* const id = &word;
      mvprune_embed(&rows, &id, row.data(), 1);
      for (int64_t text = 0; text < texts; ++text) {
        logits[text * head.rows + word] = isa.dot(row.data(), states.data() + text * head.columns, head.columns) + (bias ? bias[word] : 0.0f);
      }
    }
  });
}

Fault Decoder::read_source(Remembered& text, const std::vector<int64_t>& ids, int32_t threads) const {
  std::vector<float> states;
  if (Fault fault = encoder_->read_whole(ids, threads, states)) return fault;
  return stack_->remember_source(states, threads, text);
}

Fault Decoder::run(const Batch& texts, const std::vector<int64_t>& ids, int32_t threads, float* logits) const {
  std::vector<float> last(texts.size() * static_cast<size_t>(stack_->hidden()));
  if (Fault fault = stack_->run(texts, ids, threads, last.data())) return fault;
  if (scale_ != 1) std::transform(last.begin(), last.end(), last.begin(), [&](float value) { return value * scale_; });
  count_words(last, threads, logits);
  return std::nullopt;
}

}  // namespace mvprune
