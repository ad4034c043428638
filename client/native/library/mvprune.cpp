// The exported functions: checks of what callers give.
#include "interface.h"

#include <cstdlib>

#include "kernel_calls.h"

namespace mvprune {

mvprune_error no_memory{MVPRUNE_OUT_OF_MEMORY, "no memory"};
mvprune_error fault_of_ours{MVPRUNE_INTERNAL, "internal fault"};

mvprune_status status_of(Code code) {
  switch (code) {
    case Code::kInvalid: return MVPRUNE_INVALID_ARTIFACT;
    case Code::kUnsupported: return MVPRUNE_UNSUPPORTED;
    case Code::kUnreadable: return MVPRUNE_UNREADABLE;
    case Code::kArgument: return MVPRUNE_INVALID_ARGUMENT;
    case Code::kTooLong: return MVPRUNE_TOO_LONG;
    case Code::kMemory: return MVPRUNE_OUT_OF_MEMORY;
  }
  return MVPRUNE_INTERNAL;
}

mvprune_status give(mvprune_status status, const std::string& text, mvprune_error** error) {
  if (error) *error = new mvprune_error{status, text};
  return status;
}

Fault read_run_options(const mvprune_run_options* given, mvprune_run_options& found) {
  if (Fault fault = read_struct(given, "options", found)) return fault;
  if (found.threads < 0 || found.threads > kMostThreads) return argument("threads must be from 0 to 1024, got " + std::to_string(found.threads));
  if (!found.threads) found.threads = 1;
  return std::nullopt;
}

Result<const Model*> answering(const mvprune_model& model) {
  if (!model.model) return argument("the model writes text: call mvprune_begin");
  return static_cast<const Model*>(model.model.get());
}

}  // namespace mvprune

using namespace mvprune;
using mvprune::answers::Answers;

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;

Fault open_writer(const Artifact& artifact, const Json& config, Activations activations, const char* hypotheses, mvprune_model** model) {
  if (hypotheses) return argument("hypotheses must be null: the model writes text");
  auto writer = Writer::open(artifact, config, activations);
  if (!writer) return writer.error();
  std::string facts = (*writer)->facts();
  *model = new mvprune_model{nullptr, std::move(*writer), argument("the model writes text: call mvprune_begin"), std::move(facts)};
  return std::nullopt;
}

Fault open_model(const mvprune::Source& source, const mvprune_open_options* options, mvprune_model** model) {
  mvprune_open_options chosen;
  if (Fault fault = read_struct(options, "options", chosen)) return fault;
  if (chosen.activations < MVPRUNE_ACTIVATIONS_AS_STORED || chosen.activations > MVPRUNE_ACTIVATIONS_INT8) {
    return argument("activations must be one of mvprune_activations, got " + std::to_string(chosen.activations));
  }
  const auto activations = static_cast<Activations>(chosen.activations);
  const auto artifact = Artifact::open(source);
  if (!artifact) return artifact.error();
  const auto config = artifact->read_json("config.json");
  if (!config) return config.error();
  if constexpr (kWrites) {
    if (DecoderConfig::is_one(*config)) return open_writer(*artifact, *config, activations, chosen.hypotheses, model);
  }
  Result<std::unique_ptr<Model>> opened = Model::open(source, activations);
  if (!opened) return opened.error();
  mvprune::Json hypotheses;
  if (chosen.hypotheses) {
    auto read = mvprune::Json::parse(chosen.hypotheses);
    if (!read) return argument("hypotheses must be JSON: " + read.error().text);
    hypotheses = std::move(*read);
  }
  auto answers = Answers::open(*artifact, **opened, hypotheses);
  // What was asked for cannot be left out.
  if (!answers && chosen.hypotheses) return answers.error();
  auto made = std::make_unique<mvprune_model>(mvprune_model{std::move(*opened), nullptr, std::move(answers), ""});
  if (made->answers) made->facts = made->answers->facts();
  *model = made.release();
  return std::nullopt;
}

Fault check_inputs(const mvprune_inputs& given, Ids& ids) {
  if (!given.ids || !given.lengths) return argument("inputs: ids and lengths must be given");
  if (given.examples < 1 || given.tokens < 1 || given.tokens > kMostTokens || given.examples > given.tokens) {
    return argument("inputs: there must be at least one text, of at least one token each");
  }
  int64_t sum = 0;
  for (int64_t i = 0; i < given.examples; ++i) {
    if (given.lengths[i] < 1 || given.lengths[i] > given.tokens - sum) return argument("inputs: lengths must be at least 1 and add up to tokens");
    sum += given.lengths[i];
  }
  if (sum != given.tokens) return argument("inputs: lengths must add up to tokens");
  ids = {given.ids, given.types, given.mask, given.lengths, given.examples, given.tokens};
  return std::nullopt;
}

}  // namespace

extern "C" {

int32_t mvprune_version(void) { return 1000 * MVPRUNE_MAJOR + MVPRUNE_MINOR; }

mvprune_status mvprune_open(const char* path, const mvprune_open_options* options, mvprune_model** model, mvprune_error** error) {
  if (model) *model = nullptr;
  return guarded(error, [&]() -> Fault {
    if (!path || !model) return argument("path and model must not be null");
    return open_model(mvprune::Folder(path), options, model);
  });
}

mvprune_status mvprune_open_files(const mvprune_file* files, size_t count, const mvprune_open_options* options, mvprune_model** model, mvprune_error** error) {
  if (model) *model = nullptr;
  return guarded(error, [&]() -> Fault {
    if (!files || !model) return argument("files and model must not be null");
    mvprune::InMemory source;
    for (size_t i = 0; i < count; ++i) {
      if (!files[i].name || (!files[i].data && files[i].bytes)) return argument("a file must have a name and data");
      source.add(files[i].name, files[i].data, files[i].bytes);
    }
    return open_model(source, options, model);
  });
}

void mvprune_close(mvprune_model* model) { delete model; }

mvprune_status mvprune_get_info(const mvprune_model* model, mvprune_info* info, mvprune_error** error) {
  return guarded(error, [&]() -> Fault {
    mvprune_info found;
    if (!model || !info) return argument("model and info must not be null");
    if (Fault fault = read_struct(info, "info", found)) return fault;
    const size_t size = std::min(info->size, sizeof(found));
    if (const Writer* writer = model->writer.get()) {
      found.task = MVPRUNE_TEXT;
      found.activations = writer->rounds() ? MVPRUNE_ACTIVATIONS_INT8 : MVPRUNE_ACTIVATIONS_FP32;
      found.hidden_size = writer->hidden();
      found.max_length = writer->longest();
      found.density = writer->density();
      found.instructions = instruction_set();
      std::memcpy(static_cast<void*>(info), &found, size);
      return std::nullopt;
    }
    const Model& own = *model->model;
    found.task = static_cast<int32_t>(own.config().task);
    found.activations = own.rounds() ? MVPRUNE_ACTIVATIONS_INT8 : MVPRUNE_ACTIVATIONS_FP32;
    found.labels = static_cast<int64_t>(own.labels().size());
    found.hidden_size = own.config().hidden;
    found.max_length = own.longest();
    found.density = own.density();
    found.is_multi_label = own.config().is_multi_label;
    found.instructions = mvprune::instruction_set();
    std::memcpy(static_cast<void*>(info), &found, size);
    return std::nullopt;
  });
}

const char* mvprune_label(const mvprune_model* model, int64_t label) {
  if (!model || !model->model || label < 0 || label >= static_cast<int64_t>(model->model->labels().size())) return nullptr;
  return model->model->labels()[static_cast<size_t>(label)].c_str();
}

mvprune_status mvprune_run(const mvprune_model* model, const mvprune_inputs* inputs, const mvprune_run_options* options, mvprune_output** output, mvprune_error** error) {
  if (output) *output = nullptr;
  return guarded(error, [&]() -> Fault {
    if (!model || !inputs || !output) return argument("model, inputs and output must not be null");
    mvprune_inputs given;
    mvprune_run_options chosen;
    Ids ids;
    if (Fault fault = read_struct(inputs, "inputs", given)) return fault;
    if (Fault fault = check_inputs(given, ids)) return fault;
    if (Fault fault = read_run_options(options, chosen)) return fault;
    const auto own = answering(*model);
    if (!own) return own.error();
    Result<mvprune::Answer> answer = (*own)->run(ids, chosen.threads, chosen.wants_hidden != 0);
    if (!answer) return answer.error();
    *output = new mvprune_output{std::move(*answer), {}, ""};
    return std::nullopt;
  });
}

mvprune_status mvprune_run_texts(const mvprune_model* model, const mvprune_texts* texts, const mvprune_run_options* options, mvprune_output** output, mvprune_error** error) {
  if (output) *output = nullptr;
  return guarded(error, [&]() -> Fault {
    if (!model || !texts || !output) return argument("model, texts and output must not be null");
    mvprune_texts given;
    mvprune_run_options chosen;
    if (Fault fault = read_struct(texts, "texts", given)) return fault;
    if (Fault fault = read_run_options(options, chosen)) return fault;
    if (!given.texts || given.count < 1 || given.count > kMostTokens) return argument("texts: there must be at least one text");
    const auto own = answering(*model);
    if (!own) return own.error();
    auto made = std::make_unique<mvprune_output>();
    mvprune::TokenizedTexts& tokens = made->tokens;
    for (int64_t i = 0; i < given.count; ++i) {
      if (!given.texts[i]) return argument("texts: a text must not be null");
      const char* pair = given.pairs ? given.pairs[i] : nullptr;
      if (Fault fault = (*own)->texts().add(given.texts[i], pair, given.prompt_name, tokens)) return fault;
    }
    const auto total = static_cast<int64_t>(tokens.ids.size());
    const Ids ids = {tokens.ids.data(), tokens.types.data(), nullptr, tokens.lengths.data(), given.count, total};
    Result<mvprune::Answer> answer = (*own)->run(ids, chosen.threads, chosen.wants_hidden != 0);
    if (!answer) return answer.error();
    made->answer = std::move(*answer);
    *output = made.release();
    return std::nullopt;
  });
}

mvprune_status mvprune_output_tokens(const mvprune_output* output, mvprune_tokens* tokens, mvprune_error** error) {
  return guarded(error, [&]() -> Fault {
    mvprune_tokens found;
    if (!output || !tokens) return argument("output and tokens must not be null");
    if (Fault fault = read_struct(tokens, "tokens", found)) return fault;
    const mvprune::TokenizedTexts& own = output->tokens;
    if (own.lengths.empty()) return argument("output must be that of mvprune_run_texts");
    const size_t size = std::min(tokens->size, sizeof(found));
    found.examples = static_cast<int64_t>(own.lengths.size());
    found.lengths = own.lengths.data();
    found.tokens = static_cast<int64_t>(own.ids.size());
    found.ids = own.ids.data();
    found.types = own.types.data();
    found.begins = own.begins.data();
    found.ends = own.ends.data();
    found.texts = own.texts.data();
    std::memcpy(static_cast<void*>(tokens), &found, size);
    return std::nullopt;
  });
}

mvprune_status mvprune_describe(const mvprune_model* model, const char** facts, mvprune_error** error) {
  if (facts) *facts = nullptr;
  return guarded(error, [&]() -> Fault {
    if (!model || !facts) return argument("model and facts must not be null");
    if (!model->writer && !model->answers) return model->answers.error();
    if (model->writer && !model->writer->tokenizer()) return model->writer->why_no_tokenizer();
    *facts = model->facts.c_str();
    return std::nullopt;
  });
}

mvprune_status mvprune_predict(const mvprune_model* model, const char* inputs, size_t bytes, const mvprune_run_options* options, mvprune_output** output, mvprune_error** error) {
  if (output) *output = nullptr;
  return guarded(error, [&]() -> Fault {
    if (!model || !inputs || !output) return argument("model, inputs and output must not be null");
    mvprune_run_options chosen;
    if (Fault fault = read_run_options(options, chosen)) return fault;
    if (!model->writer && !model->answers) return model->answers.error();
    const auto given = mvprune::Json::parse({inputs, bytes});
    if (!given) return argument("inputs must be JSON: " + given.error().text);
    Result<std::string> text = std::string();
    if constexpr (kWrites) {
      if (model->writer) text = written_answers(*model->writer, *given, chosen.threads);
    }
    if (model->model) text = model->answers->answer(*given, {*model->model, chosen.threads});
    if (!text) return text.error();
    *output = new mvprune_output{{}, {}, std::move(*text)};
    return std::nullopt;
  });
}

mvprune_status mvprune_encode(const mvprune_model* model, const mvprune_texts* texts, const mvprune_run_options* options, mvprune_output** output, mvprune_error** error) {
  if (output) *output = nullptr;
  return guarded(error, [&]() -> Fault {
    if (!model || !texts || !output) return argument("model, texts and output must not be null");
    mvprune_texts given;
    mvprune_run_options chosen;
    if (Fault fault = read_struct(texts, "texts", given)) return fault;
    if (Fault fault = read_run_options(options, chosen)) return fault;
    if (!model->answers) return model->answers.error();
    if (!given.texts || given.count < 1 || given.count > kMostTokens) return argument("texts: there must be at least one text");
    if (given.pairs) return argument("texts: pairs must be null: a vector is of one text");
    std::vector<std::string_view> some;
    for (int64_t i = 0; i < given.count; ++i) {
      if (!given.texts[i]) return argument("texts: a text must not be null");
      some.emplace_back(given.texts[i]);
    }
    auto answer = model->answers->vectors(some, given.prompt_name ? given.prompt_name : "", given.dimensions,
                                          {*model->model, chosen.threads});
    if (!answer) return answer.error();
    *output = new mvprune_output{std::move(*answer), {}, ""};
    return std::nullopt;
  });
}

const char* mvprune_output_text(const mvprune_output* output, size_t* bytes) {
  if (bytes) *bytes = output ? output->text.size() : 0;
  return output ? output->text.c_str() : "";
}

const float* mvprune_output_values(const mvprune_output* output, int64_t* rows, int64_t* columns) {
  if (rows) *rows = output ? output->answer.rows : 0;
  if (columns) *columns = output ? output->answer.columns : 0;
  return output ? output->answer.values.data() : nullptr;
}

const float* mvprune_output_hidden(const mvprune_output* output, int64_t* rows, int64_t* columns) {
  const bool has = output && !output->answer.hidden.empty();
  if (rows) *rows = has ? output->answer.tokens : 0;
  if (columns) *columns = has ? output->answer.features : 0;
  return has ? output->answer.hidden.data() : nullptr;
}

void mvprune_output_free(mvprune_output* output) { delete output; }

mvprune_status mvprune_error_status(const mvprune_error* error) { return error ? error->status : MVPRUNE_OK; }

const char* mvprune_error_text(const mvprune_error* error) { return error ? error->text.c_str() : ""; }

void mvprune_error_free(mvprune_error* error) {
  if (error != &no_memory && error != &fault_of_ours) delete error;
}

}  // extern "C"

namespace mvprune {

const char* instruction_set() {
  static const char* const name = [] {
    const char* wanted = std::getenv("MVPRUNE_KERNEL");
    return mvprune_choose(wanted ? wanted : "");
  }();
  return name;
}

}  // namespace mvprune
