// What the files of exported functions share: the types behind the handles, and errors of every kind as a status and a
// text.
#pragma once

#include "../include/mvprune.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "../answers/answers.h"
#include "model.h"
#include "writer.h"

struct mvprune_model {
  std::unique_ptr<mvprune::Model> model;    // one of the two
  std::unique_ptr<mvprune::Writer> writer;  // of a model that writes text
  // Without answers to texts, the reason.
  mvprune::Result<mvprune::answers::Answers> answers;
  std::string facts;
};

struct mvprune_output {
  mvprune::Answer answer;
  mvprune::TokenizedTexts tokens;  // empty of ids that the caller gave
  std::string text;
};

struct mvprune_error {
  mvprune_status status;
  std::string text;
};

namespace mvprune {

constexpr int32_t kMostThreads = 1024;

// Whether models that write text are opened: not in a browser, which would load their code for nothing.
#if defined(__wasm__)
constexpr bool kWrites = false;
#else
constexpr bool kWrites = true;
#endif

// What is given where there is no memory for an error. Their texts are short enough to need none.
extern mvprune_error no_memory, fault_of_ours;

mvprune_status give(mvprune_status status, const std::string& text, mvprune_error** error);

mvprune_status status_of(Code code);

// Calls what may fail or throw. Only memory is a reason to throw, so anything else is a fault of the library.
template <typename Call>
mvprune_status guarded(mvprune_error** error, Call call) noexcept {
  if (error) *error = nullptr;
#if defined(__cpp_exceptions)
  try {
#endif
    const Fault fault = call();
    return fault ? give(status_of(fault->code), fault->text, error) : MVPRUNE_OK;
#if defined(__cpp_exceptions)
  } catch (const std::bad_alloc&) {
    if (error) *error = &no_memory;
    return MVPRUNE_OUT_OF_MEMORY;
  } catch (const std::length_error&) {  // of a vector that no machine has memory for
    if (error) *error = &no_memory;
    return MVPRUNE_OUT_OF_MEMORY;
  } catch (...) {
    if (error) *error = &fault_of_ours;
    return MVPRUNE_INTERNAL;
  }
#endif
}

inline Error argument(const std::string& text) { return {text, Code::kArgument}; }

// Copies the fields that the caller's version of a struct has.
template <typename Struct>
Fault read_struct(const Struct* given, const char* name, Struct& found) {
  found = Struct{};
  if (!given) return std::nullopt;
  const size_t size = given->size;
  if (size < sizeof(size_t) || size > 1 << 16) return argument(std::string(name) + ": size must be set, by MVPRUNE_INIT");
  std::memcpy(static_cast<void*>(&found), given, std::min(size, sizeof(Struct)));
  return std::nullopt;
}


Fault read_run_options(const mvprune_run_options* given, mvprune_run_options& found);

// The model that answers; none, if it writes text.
Result<const Model*> answering(const mvprune_model& model);

// The answers of a model that writes text to a JSON list of objects.
Result<std::string> written_answers(const Writer& writer, const Json& inputs, int32_t threads);

}  // namespace mvprune
