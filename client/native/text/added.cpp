#include "added.h"

#include <algorithm>

#include "../base/sorting.h"
#include "normalizers.h"

namespace mvprune {

Result<AddedTokens> AddedTokens::read(const Json& json, const std::function<void(Chars&)>& normalize) {
  AddedTokens tokens;
  if (json.is_null()) return tokens;
  if (!json.items()) return Error{"tokenizer.json: added_tokens must be a list"};
  for (const Json& item : *json.items()) {
    Settings settings(item, "added token");
    const int64_t id = item.find("id") ? item.find("id")->whole().value_or(-1) : -1;
    AddedToken token{settings.text("content", ""), {}, static_cast<int32_t>(id), settings.flag("single_word", false),
                     settings.flag("lstrip", false), settings.flag("rstrip", false), false,
                     settings.flag("special", false)};
    token.normalized = settings.flag("normalized", !token.special);
    if (settings.wrong() || id < 0 || id > INT32_MAX || token.text.empty()) {
      return Error{"tokenizer.json: an added token must have an id, a content and flags"};
    }
    token.content = to_chars(token.text);
    if (token.normalized) normalize(token.content);
    tokens.all_.push_back(std::move(token));
  }
  sort_stably(tokens.all_, [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
  return tokens;
}

const AddedToken* AddedTokens::at(const Chars& text, size_t place, bool normalized) const {
  for (const AddedToken& token : all_) {
    const size_t size = token.content.size();
    if (token.normalized != normalized || !size || size > text.size() - place) continue;
    if (std::equal(token.content.begin(), token.content.end(), text.begin() + static_cast<std::ptrdiff_t>(place),
                   [](const Char& a, const Char& b) { return a.code == b.code; })) {
      return &token;
    }
  }
  return nullptr;
}

void AddedTokens::cut(Pieces& pieces, bool normalized) const {
  Pieces to;
  for (Piece& piece : pieces) {
    if (piece.id >= 0) {
      to.push_back(std::move(piece));
      continue;
    }
    const Chars& text = piece.text;
    const auto put = [&](size_t begin, size_t end, int32_t id) {
      if (begin >= end) return;
      to.push_back({Chars(text.begin() + static_cast<std::ptrdiff_t>(begin),
                          text.begin() + static_cast<std::ptrdiff_t>(end)), id});
    };
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const AddedToken* const token = this->at(text, at, normalized);
      if (!token) {
        ++at;
        continue;
      }
      size_t begin = at, end = at + token->content.size();
      at = end;
      if (token->single_word && ((begin > 0 && is(text[begin - 1].code, kWord)) ||
                                 (end < text.size() && is(text[end].code, kWord)))) {
        continue;
      }
      while (token->left && begin > done && is(text[begin - 1].code, kSpace)) --begin;
      while (token->right && end < text.size() && is(text[end].code, kSpace)) ++end;
      put(done, begin, -1);
      put(std::max(done, begin), end, token->id);
      done = end;
    }
    put(done, text.size(), -1);
  }
  pieces = std::move(to);
}

}  // namespace mvprune
