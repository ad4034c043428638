#include "writer.h"

#include <algorithm>

#include "../answers/writing.h"
#include "../base/numbers.h"
#include "kernel_calls.h"

namespace mvprune {
namespace {

constexpr char kTokenizer[] = "tokenizer.json", kSettings[] = "tokenizer_config.json", kGeneration[] = "generation_config.json";
constexpr int64_t kUsualTokens = 64;  // that are written at most, unless someone says otherwise
constexpr std::string_view kUnknown = "\xEF\xBF\xBD";  // what a character whose bytes are not all there is written as

// A special token in tokenizer_config.json: a text, or an object with one.
std::string special_token(const Json& settings, std::string_view name) {
  const Json* found = settings.find(name);
  if (found && found->members()) found = found->find("content");
  return found && found->text() ? *found->text() : "";
}

}  // namespace

Result<std::unique_ptr<Writer>> Writer::open(const Artifact& artifact, const Json& json, Activations activations) {
  if (!instruction_set()) return Error{"MVPRUNE_KERNEL must be an instruction set of this machine; unset it", Code::kArgument};
  const Result<DecoderConfig> config = DecoderConfig::of(json);
  if (!config) return config.error();
  Result<Bytes> file = artifact.read("weights.safetensors");
  if (!file) return file.error();
  const Result<Weights> weights = Weights::open(std::move(*file));
  if (!weights) return weights.error();
  auto writer = std::make_unique<Writer>();
  writer->hidden_ = config->stack.hidden;
  writer->density_ = artifact.density();
  const bool wants = activations == Activations::kInt8 || (activations == Activations::kAsStored && artifact.rounds_activations());
  writer->rounds_ = wants && mvprune_has_dots();
  Result<std::unique_ptr<Decoder>> decoder = Decoder::read(*weights, *config, writer->rounds_);
  if (!decoder) return decoder.error();
  writer->decoder_ = std::move(*decoder);
  if (Fault fault = writer->read_settings(artifact)) return *fault;
  if (Fault fault = writer->read_task(artifact)) return *fault;
  if (Fault fault = writer->read_tokenizer(artifact)) {
    writer->tokenizer_.reset();
    writer->error_ = *fault;
  }
  if (writer->usual_.ends.empty() && writer->end_ >= 0) writer->usual_.ends = {writer->end_};
  return writer;
}

Fault Writer::read_settings(const Artifact& artifact) {
  if (artifact.has(kGeneration)) {
    const Result<Json> settings = artifact.read_json(kGeneration);
    if (!settings) return settings.error();
    if (Fault fault = usual_.read(*settings, true)) return fault;
    if (Fault fault = usual_.check(Code::kUnsupported)) return Error{std::string(kGeneration) + ": " + fault->text, fault->code};
  }
  for (const auto& [name, tokens] : {std::make_pair("forced_bos_token_id", &usual_.first), std::make_pair("forced_eos_token_id", &usual_.last)}) {
    for (const int64_t token : *tokens) {
      if (token >= decoder_->words()) return Error{std::string(kGeneration) + ": " + name + " must be a token of the model"};
    }
  }
  if (!decoder_->encoder()) return std::nullopt;
  if (!usual_.start) usual_.start = usual_.begin;
  if (!usual_.start || *usual_.start >= decoder_->words()) return Error{std::string(kGeneration) + ": decoder_start_token_id must be a token of the model"};
  return std::nullopt;
}

// The task, and of one with an encoder what was before texts in training, and how many tokens they had at most.
Fault Writer::read_task(const Artifact& artifact) {
  longest_ = decoder_->longest();
  if (!decoder_->encoder()) return std::nullopt;
  const Json& manifest = artifact.manifest();
  const Json *dataset = manifest.find("dataset"), *spec = manifest.find("spec");
  const Json* name = dataset ? dataset->find("name") : nullptr;
  const auto task = answers::writing_task_of(name && name->text() ? *name->text() : "");
  if (!task) return Error{"models of the task " + shown(name && name->text() ? *name->text() : "?") + " are not answered here", Code::kUnsupported};
  task_ = *task;
  const Json* prefix = spec ? spec->find("source_prefix") : nullptr;
  if (prefix && prefix->text()) prefix_ = *prefix->text();
  const Json* training = spec ? spec->find("training") : nullptr;
  const Json* most = training ? training->find("max_length") : nullptr;
  const int64_t trained = most ? most->whole().value_or(0) : 0;
  longest_ = std::min(trained > 0 ? trained : task_.max_length, decoder_->encoder()->longest());
  return std::nullopt;
}

Fault Writer::read_tokenizer(const Artifact& artifact) {
  if (!artifact.has(kTokenizer)) return Error{"the artifact has no tokenizer.json: give ids", Code::kUnsupported};
  const Result<Bytes> content = artifact.read(kTokenizer);
  if (!content) return content.error();
  Result<Tokenizer> tokenizer = Tokenizer::open(text_of(*content));
  if (!tokenizer) return tokenizer.error();
  if (artifact.has(kSettings)) {
    const Result<Json> settings = artifact.read_json(kSettings);
    if (!settings) return settings.error();
    const std::string end = special_token(*settings, "eos_token");
    const Json* most = settings->find("model_max_length");
    const double length = most ? most->number().value_or(0) : 0;
    if (decoder_->encoder() && length >= 1 && length < static_cast<double>(longest_)) longest_ = static_cast<int64_t>(length);
    const Json* side = settings->find("truncation_side");
    if (decoder_->encoder() && side && side->text() && *side->text() != "right") {
      return Error{std::string(kSettings) + ": truncation_side must be right: give ids", Code::kUnsupported};
    }
    if (!end.empty()) end_ = tokenizer->id(end).value_or(-1);
    const Json* removes = settings->find("clean_up_tokenization_spaces");
    removes_blanks_ = removes && removes->boolean() && *removes->boolean();
  }
  for (const int32_t token : tokenizer->before()) {
    if (token != end_) begin_.push_back(token);
  }
  if (begin_.empty() && end_ >= 0) begin_ = {end_};
  if (Fault fault = tokenizer->enable_decoding()) return fault;
  tokenizer_ = std::move(*tokenizer);
  return std::nullopt;
}

Result<std::vector<int64_t>> Writer::read(std::string_view text, bool is_whole, int64_t most) const {
  if (!tokenizer_) return error_;
  EncodeOptions options;
  options.special = decoder_->encoder() && !is_whole;
  options.max_length = most;
  const std::string given = (is_whole ? "" : prefix_) + std::string(text);
  const auto found = tokenizer_->encode(given, std::nullopt, options);
  if (!found) return Error{found.error().text, Code::kArgument};
  std::vector<int64_t> ids;
  if (!decoder_->encoder() && !is_whole) ids = begin_;
  ids.insert(ids.end(), found->front().ids.begin(), found->front().ids.end());
  return ids;
}

std::string Writer::facts() const {
  answers::Writing json;
  json.open('{').name("task").text(task_.name).name("kind").text(task_.kind).name("fields").open('[');
  json.open('{').name("name").text("text").name("required").flag(true).close('}').close(']');
  json.name("labels").open('[').close(']').name("prompts").open('[').close(']');
  return json.name("max_length").whole(longest_).close('}').done();
}

Result<std::unique_ptr<Writing>> Writing::begin(const Writer& writer, Prompt prompt, const Json& settings, int32_t threads) {
  std::unique_ptr<Writing> made(new Writing(writer));
  made->settings_ = writer.usual();
  made->settings_.max_new_tokens.reset();
  if (!settings.is_null()) {
    if (Fault fault = made->settings_.read(settings, false)) return *fault;
  }
  if (prompt.has_text) {
    auto ids = writer.read(prompt.text, prompt.is_whole);
    if (!ids) return ids.error();
    prompt.ids = std::move(*ids);
  }
  if (Fault fault = made->settings_.check(Code::kArgument)) return *fault;
  const Stack* encoder = writer.decoder().encoder();
  const int64_t words = encoder ? encoder->words()->rows : writer.decoder().words();
  for (const int64_t id : prompt.ids) {
    if (id < 0 || id >= words) return Error{"ids must be those of rows of the model's embeddings", Code::kArgument};
  }
  if (prompt.ids.empty()) return Error{"the prompt must have tokens that the model knows, got none", Code::kArgument};
  made->threads_ = threads;
  made->random_ = Random(made->settings_.seed ? *made->settings_.seed : fresh_number());
  if (encoder) {
    made->tokens_ = {*made->settings_.start};
    if (Fault fault = made->fit_source(prompt)) return *fault;
  } else {
    made->tokens_ = prompt.ids;
  }
  if (Fault fault = made->fit(prompt.has_text ? writer.before(prompt.is_whole) : 0, writer.decoder().longest())) return *fault;
  if (!encoder) made->prompt_tokens_ = made->given_;
  made->logits_.resize(static_cast<size_t>(writer.decoder().words()));
  return made;
}

// Cuts the text to what the encoder reads: of ids the first ones, of a text too, but with the tokens that end it.
Fault Writing::fit_source(const Prompt& prompt) {
  const int64_t longest = writer_->longest(), size = static_cast<int64_t>(prompt.ids.size());
  source_ = prompt.ids;
  if (size > longest) {
    if (!settings_.truncate) {
      return Error{"the prompt must have at most " + std::to_string(longest) + " tokens, the longest input in its training, got " + std::to_string(size), Code::kTooLong};
    }
    source_.resize(static_cast<size_t>(longest));
    if (prompt.has_text) {
      auto ids = writer_->read(prompt.text, prompt.is_whole, longest);
      if (!ids) return ids.error();
      source_ = std::move(*ids);
    }
  }
  prompt_tokens_ = static_cast<int64_t>(source_.size());
  truncated_ = size - prompt_tokens_;
  return std::nullopt;
}

// Cuts the prompt to what the model takes, and says how many tokens may follow it.
Fault Writing::fit(size_t kept, int64_t longest) {
  const int64_t size = static_cast<int64_t>(tokens_.size());
  const int64_t by_length = settings_.max_length ? std::max<int64_t>(*settings_.max_length - size, 0) : 0;
  const int64_t asked = settings_.max_new_tokens.value_or(0);
  const int64_t usual = writer_->usual().max_new_tokens.value_or(by_length ? by_length : kUsualTokens);
  most_ = asked ? asked : std::min(usual, settings_.most_new_tokens);
  int64_t room = longest - (asked ? asked : 1);
  if (size > room && !writer_->decoder().encoder()) {
    if (!settings_.truncate || room < 1) {
      const std::string less = asked ? ", less " + std::to_string(asked) + " for new tokens" : "";
      return Error{"the prompt must have at most " + std::to_string(longest) + " tokens, the model's positions" + less + ", got " + std::to_string(size), Code::kTooLong};
    }
    if (!asked) room = std::max(room + 1 - most_, (room + 1) / 2);  // half of the positions at least are for the prompt
    truncated_ = size - room;
    const auto first = tokens_.begin() + static_cast<std::ptrdiff_t>(std::min(kept, static_cast<size_t>(room)));
    tokens_.erase(first, first + static_cast<std::ptrdiff_t>(truncated_));
  }
  given_ = static_cast<int64_t>(tokens_.size());
  most_ = std::min(most_, longest - given_);
  return std::nullopt;
}

Fault Writing::read_source() {
  if (source_.empty()) return std::nullopt;
  if (Fault fault = writer_->decoder().read_source(remembered_, source_, threads_)) return fault;
  source_.clear();
  return std::nullopt;
}

// Goes on with beams until they have a text, or by a token.
Fault Writing::search(bool by_steps) {
  if (!beams_) {
    if (Fault fault = read_source()) return fault;
    beams_ = std::make_unique<Beams>(writer_->decoder(), settings_, std::move(remembered_), tokens_, given_ + most_);
  }
  for (bool goes_on = true; goes_on;) {
    const auto more = beams_->step(threads_);
    if (!more) return more.error();
    goes_on = *more && !by_steps;
    if (*more) continue;
    found_.assign(beams_->best().rbegin(), beams_->best().rend() - given_);
    beams_.reset();
  }
  return std::nullopt;
}

Result<int64_t> Writing::next_token() {
  if (settings_.num_beams > 1) {
    const int64_t token = found_.back();
    found_.pop_back();
    return token;
  }
  if (Fault fault = read_source()) return *fault;
  const std::vector<int64_t> unread(tokens_.begin() + static_cast<std::ptrdiff_t>(remembered_.length), tokens_.end());
  if (Fault fault = writer_->decoder().run({&remembered_}, unread, threads_, logits_.data())) return *fault;
  return choose_token(settings_, tokens_, given_, given_ + most_, {logits_.data(), writer_->decoder().words()}, random_);
}

Result<Writing::Piece> Writing::next(bool by_steps) {
  Piece piece;
  piece.ended = ended_;
  if (ended_ != Ended::kNot) return piece;
  if (settings_.num_beams > 1 && found_.empty()) {
    if (Fault fault = search(by_steps)) return *fault;
    if (beams_) return piece;
    if (found_.empty()) return finish();  // no word may follow
  }
  const auto token = next_token();
  if (!token) return token.error();
  piece.token = *token;
  tokens_.push_back(*token);
  const bool is_end = std::find(settings_.ends.begin(), settings_.ends.end(), piece.token) != settings_.ends.end();
  const bool is_all = settings_.num_beams > 1 && found_.empty();
  const bool is_full = written_tokens() >= most_;
  ended_ = is_end || (is_all && !is_full) ? Ended::kStop : is_full ? Ended::kLength : Ended::kNot;
  // Beams may have a text that stops anywhere, so theirs is given out whole.
  const bool is_ready = settings_.num_beams == 1 || ended_ != Ended::kNot;
  if (writer_->tokenizer() && is_ready) piece.text = written(ended_ != Ended::kNot);
  if (is_stopped_) ended_ = Ended::kStop;
  piece.ended = ended_;
  return piece;
}

Writing::Piece Writing::finish() {
  Piece piece;
  if (ended_ == Ended::kNot) {
    if (beams_) tokens_ = beams_->best();
    beams_.reset();
    ended_ = Ended::kStop;
    if (writer_->tokenizer()) piece.text = written(true);
  }
  piece.ended = ended_;
  return piece;
}

// The part of the text that is final and was not given out.
std::string Writing::written(bool is_last) {
  const std::vector<int32_t> ids(tokens_.begin() + static_cast<std::ptrdiff_t>(given_), tokens_.end());
  std::string text = writer_->tokenizer()->decode(ids, writer_->removes_blanks());
  size_t end = text.size();
  for (const std::string& stop : settings_.stop) {
    const size_t at = text.find(stop);
    if (at == std::string::npos) continue;
    end = std::min(end, at);
    is_stopped_ = true;
  }
  if (!is_last && !is_stopped_) {
    while (end >= kUnknown.size() && std::string_view(text).substr(end - kUnknown.size(), kUnknown.size()) == kUnknown) end -= kUnknown.size();
    if (writer_->removes_blanks()) end = std::min(end, text.find_last_of(' ', end) == std::string::npos ? 0 : text.find_last_of(' ', end));
    size_t held = 0;  // what may become a text that stops
    for (const std::string& stop : settings_.stop) {
      for (size_t size = std::min(stop.size() - 1, end); size > held; --size) {
        if (text.compare(end - size, size, stop, 0, size) == 0) held = size;
      }
    }
    end -= held;
  }
  if (end <= said_) return "";
  std::string piece = text.substr(said_, end - said_);
  said_ = end;
  return piece;
}

}  // namespace mvprune
