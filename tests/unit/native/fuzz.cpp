// Opens an artifact whose files have random bytes changed, asks what opens, and closes it: fuzz FOLDER ROUNDS FILE ...
// The manifest vouches for the changed files. It prints how many opened.
#include <mvprune.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "client/native/library/source.h"

using mvprune::Bytes;

namespace {

void ask(const mvprune_model* model) {
  const int64_t ids[] = {5, 6, 7, 8, 9}, lengths[] = {2, 3};
  mvprune_inputs inputs;
  MVPRUNE_INIT(inputs);
  inputs.ids = ids;
  inputs.lengths = lengths;
  inputs.examples = 2;
  inputs.tokens = 5;
  mvprune_run_options options;
  MVPRUNE_INIT(options);
  options.threads = 2;
  options.wants_hidden = 1;
  mvprune_output* output;
  mvprune_error* error;
  mvprune_run(model, &inputs, &options, &output, &error);
  mvprune_output_free(output);
  mvprune_error_free(error);
  const char* given[] = {"The model answers", "pruned \xff weights"};
  mvprune_texts texts;
  MVPRUNE_INIT(texts);
  texts.texts = texts.pairs = given;
  texts.count = 2;
  mvprune_run_texts(model, &texts, nullptr, &output, &error);
  mvprune_output_free(output);
  mvprune_error_free(error);
}

// Of a model that writes text.
void write(const mvprune_model* model) {
  for (const char* parameters : {"{\"max_new_tokens\": 6, \"stop\": [\"e\"]}", "{\"temperature\": 0.7, \"no_repeat_ngram_size\": 2}", "{\"num_beams\": 3, \"max_new_tokens\": 4}"}) {
    mvprune_prompt prompt;
    MVPRUNE_INIT(prompt);
    prompt.text = "The model answers";
    prompt.bytes = 17;
    prompt.parameters = parameters;
    prompt.threads = 2;
    mvprune_writing* writing;
    mvprune_error* error;
    if (mvprune_begin(model, &prompt, &writing, &error) != MVPRUNE_OK) {
      mvprune_error_free(error);
      continue;
    }
    mvprune_piece piece;
    MVPRUNE_INIT(piece);
    for (int i = 0; i < 8 && mvprune_next(writing, &piece, &error) == MVPRUNE_OK; ++i) {
    }
    mvprune_error_free(error);
    mvprune_finish(writing, &piece, nullptr);
    mvprune_writing_free(writing);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const mvprune::Folder folder(argv[1]);
  const std::string manifest_name = "manifest.json";
  const Bytes manifest = *folder.read(manifest_name, 1 << 24);
  std::mt19937_64 source(0);
  int opened = 0;
  for (int round = 0; round < std::atoi(argv[2]); ++round) {
    std::string sealed(manifest.begin(), manifest.end());
    std::vector<std::string> names;
    std::vector<Bytes> contents;
    for (int i = 3; i < argc; ++i) {
      Bytes content = *folder.read(argv[i], 1 << 24);
      const std::string before = mvprune::sha256(content);
      // The header of weights more often than their data; the first round changes nothing.
      const bool is_chosen = round && static_cast<int>(source() % static_cast<uint64_t>(argc - 3)) == i - 3;
      for (int k = 0; is_chosen && k < 1 + static_cast<int>(source() % 4); ++k) {
        const size_t reach = source() % 4 ? std::min<size_t>(content.size(), 9000) : content.size();
        content[source() % reach] = static_cast<uint8_t>(source() % 3 ? '0' + source() % 10 : source());
      }
      const size_t at = sealed.find(before);
      if (at != std::string::npos) sealed.replace(at, before.size(), mvprune::sha256(content));
      names.push_back(argv[i]);
      contents.push_back(std::move(content));
    }
    names.push_back(manifest_name);
    contents.emplace_back(sealed.begin(), sealed.end());
    std::vector<mvprune_file> files;
    for (size_t i = 0; i < names.size(); ++i) files.push_back({names[i].c_str(), contents[i].data(), contents[i].size()});
    mvprune_model* model;
    mvprune_error* error;
    if (mvprune_open_files(files.data(), files.size(), nullptr, &model, &error) == MVPRUNE_OK) {
      ++opened;
      ask(model);
      write(model);
    } else if (!model && error && *mvprune_error_text(error)) {
      mvprune_error_free(error);
    } else {
      return 1;
    }
    mvprune_close(model);
  }
  std::printf("%d\n", opened);
  return 0;
}
