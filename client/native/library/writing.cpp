// The exported functions of models that write text.
#include "../answers/writing.h"

#include "interface.h"

using namespace mvprune;

struct mvprune_writing {
  std::unique_ptr<Writing> writing;
  std::string text;  // of the newest piece
  bool goes_by_steps;
};

namespace {

constexpr int64_t kMostIds = int64_t{1} << 24;

// What a caller gives.
Result<Prompt> prompt_of(const mvprune_prompt& given) {
  if (!given.text == !given.ids) return argument("prompt: text or ids must be given");
  Prompt prompt;
  prompt.is_whole = given.is_whole != 0;
  if (given.text) {
    prompt.text = {given.text, given.bytes};
    prompt.has_text = true;
    return prompt;
  }
  if (given.tokens < 1 || given.tokens > kMostIds) return argument("prompt: there must be at least one token");
  prompt.ids.assign(given.ids, given.ids + given.tokens);
  return prompt;
}

// Gives a caller what `made` returns.
template <typename Made>
Fault give_piece(mvprune_writing* writing, mvprune_piece* piece, const Made& made) {
  if (!writing || !piece) return argument("writing and piece must not be null");
  mvprune_piece found;
  if (Fault fault = read_struct(piece, "piece", found)) return fault;
  const size_t size = std::min(piece->size, sizeof(found));
  auto next = made();
  if (!next) return next.error();
  writing->text = std::move(next->text);
  found.token = next->token;
  found.text = writing->text.c_str();
  found.bytes = writing->text.size();
  found.ended = static_cast<int32_t>(next->ended);
  std::memcpy(static_cast<void*>(piece), &found, size);
  return std::nullopt;
}

}  // namespace

namespace mvprune {

Result<std::string> written_answers(const Writer& writer, const Json& inputs, int32_t threads) {
  if (!inputs.items()) return argument("inputs must be a list of objects");
  const auto cut = Json::parse("{\"truncate\": true}");
  answers::Writing json;
  json.open('[');
  size_t number = 0;
  for (const Json& input : *inputs.items()) {
    const std::string place = "inputs[" + std::to_string(number++) + "]";
    const Json* given = input.find("text");
    if (!given || !given->text() || input.members()->size() != 1) return argument(place + " must be an object with a text alone, named text");
    Prompt prompt;
    prompt.text = *given->text();
    prompt.has_text = true;
    auto writing = Writing::begin(writer, std::move(prompt), *cut, threads);
    if (!writing) return writing.error();
    std::string text;
    for (Ended ended = Ended::kNot; ended == Ended::kNot;) {
      auto piece = (*writing)->next(false);
      if (!piece) return piece.error();
      text += piece->text;
      ended = piece->ended;
    }
    json.open('{').name("generated_text").text(text);
    if ((*writing)->truncated_tokens()) json.name("truncated_tokens").whole((*writing)->truncated_tokens());
    json.close('}');
  }
  return json.close(']').done();
}

}  // namespace mvprune

extern "C" {

mvprune_status mvprune_begin(const mvprune_model* model, const mvprune_prompt* prompt, mvprune_writing** writing, mvprune_error** error) {
  if (writing) *writing = nullptr;
  return guarded(error, [&]() -> Fault {
    if (!model || !prompt || !writing) return argument("model, prompt and writing must not be null");
    if (!model->writer) return argument("the model writes no text: call mvprune_predict");
    mvprune_prompt given;
    if (Fault fault = read_struct(prompt, "prompt", given)) return fault;
    if (given.threads < 0 || given.threads > kMostThreads) return argument("threads must be from 0 to 1024, got " + std::to_string(given.threads));
    Json parameters;
    if (given.parameters) {
      auto read = Json::parse(given.parameters);
      if (!read) return argument("parameters must be JSON: " + read.error().text);
      parameters = std::move(*read);
    }
    auto read = prompt_of(given);
    if (!read) return read.error();
    auto made = Writing::begin(*model->writer, std::move(*read), parameters, std::max(given.threads, 1));
    if (!made) return made.error();
    *writing = new mvprune_writing{std::move(*made), "", given.goes_by_steps != 0};
    return std::nullopt;
  });
}

mvprune_status mvprune_next(mvprune_writing* writing, mvprune_piece* piece, mvprune_error** error) {
  return guarded(error, [&] { return give_piece(writing, piece, [&] { return writing->writing->next(writing->goes_by_steps); }); });
}

mvprune_status mvprune_finish(mvprune_writing* writing, mvprune_piece* piece, mvprune_error** error) {
  return guarded(error, [&] { return give_piece(writing, piece, [&] { return Result<Writing::Piece>(writing->writing->finish()); }); });
}

mvprune_status mvprune_writing_facts(const mvprune_writing* writing, int64_t* prompt_tokens, int64_t* truncated_tokens, mvprune_error** error) {
  return guarded(error, [&]() -> Fault {
    if (!writing) return argument("writing must not be null");
    if (prompt_tokens) *prompt_tokens = writing->writing->prompt_tokens();
    if (truncated_tokens) *truncated_tokens = writing->writing->truncated_tokens();
    return std::nullopt;
  });
}

mvprune_status mvprune_written(const mvprune_writing* writing, int64_t* tokens, mvprune_error** error) {
  return guarded(error, [&]() -> Fault {
    if (!writing || !tokens) return argument("writing and tokens must not be null");
    *tokens = writing->writing->written_tokens();
    return std::nullopt;
  });
}

void mvprune_writing_free(mvprune_writing* writing) { delete writing; }

}  // extern "C"
