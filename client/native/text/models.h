// The models of tokenizer.json: WordPiece, byte-level BPE, Unigram, WordLevel.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../base/json.h"
#include "unicode.h"

namespace mvprune {

// The tokens of a model, found by their text.
class Vocabulary {
 public:
  struct Entry {
    std::string text;
    int32_t id;
  };

  void add(std::string text, int64_t id) { entries_.push_back({std::move(text), static_cast<int32_t>(id)}); }
  // After the last `add`: false if a token is there twice.
  bool sort();

  // -1: there is none.
  int32_t find(std::string_view text) const;

  const std::vector<Entry>& all() const { return entries_; }

  // Calls found(length, id) for every token that begins the text, the shortest first.
  template <typename Found>
  void prefixes(std::string_view text, Found found) const;

 private:
  std::vector<Entry> entries_;
};

// Part of a piece: its characters from `begin` to `end`.
struct PieceToken {
  int32_t id;
  size_t begin, end;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the tokens of a piece.
  virtual void tokenize(const Chars& piece, std::vector<PieceToken>& tokens) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// Of the value of "model".
Result<std::unique_ptr<TokenModel>> read_model(const Json& json);

}  // namespace mvprune
