#include "words.h"

#include <algorithm>

#include "../base/utf8.h"
#include "../text/unicode.h"

namespace mvprune::answers {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;  // of bytes that are not UTF-8, as the tokenizer reads them

enum class Class { kSpace, kWord, kOther };

Class class_of(uint32_t code) {
  // What str.isspace of Python adds to the white space of Unicode.
  if (is(code, kSpace) || (code >= 0x1C && code <= 0x1F)) return Class::kSpace;
  return code == '_' || is(code, kLetter) || is(code, kNumber) ? Class::kWord : Class::kOther;
}

int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  bool goes_on = false;  // whether the last word may have more characters
  int64_t character = 0;
  for (size_t at = 0; at < text.size(); ++character) {
    const auto read = utf8_next(text, at);
    if (!read) ++at;
    const uint32_t code = read.value_or(kReplacement);
    const Class found = class_of(code);
    if (found != Class::kSpace) {
      if (!goes_on || found == Class::kOther) words.push_back({character, character, ""});
      words.back().end = character + 1;
      utf8_append(words.back().text, code);
    }
    goes_on = found == Class::kWord;
  }
  return words;
}

std::string joined(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) {
    if (!text.empty()) text += ' ';
    text += word.text;
  }
  return text;
}

FirstTokens::FirstTokens(const std::vector<Word>& words) {
  int64_t end = -1;
  for (const Word& word : words) ends_.push_back(end += characters(word.text) + 1);
}

std::vector<int64_t> FirstTokens::next(const Encoding& piece) {
  std::vector<int64_t> found;
  for (const Encoding::Place& place : piece.places) {
    // By its last character: some tokenizers count the blank before a word to its first token.
    const auto word = std::upper_bound(ends_.begin(), ends_.end(), place.end - 1);
    const int64_t number = word - ends_.begin();
    const bool is_inside =
        place.text >= 0 && place.end > place.begin && word != ends_.end() && place.end <= *word;
    const bool is_first = is_inside && number > last_;
    found.push_back(is_first ? number : -1);
    if (is_first) last_ = number;
  }
  return found;
}

}  // namespace mvprune::answers
