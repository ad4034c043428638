// The normalizers of tokenizer.json.
#pragma once

#include <functional>
#include <string_view>

#include "../base/json.h"
#include "unicode.h"

namespace mvprune {

using Normalizer = std::function<void(Chars&)>;

// Of the value of "normalizer", which may be null.
Result<Normalizer> read_normalizer(const Json& json);

// A text's characters. Bytes that are not UTF-8 become U+FFFD each.
Chars to_chars(std::string_view text);

// The text of characters `from` to `to`.
std::string to_text(const Chars& chars, size_t from, size_t to);

// Puts a text in front of one that is not empty: it has the source of the first character.
void prepend(Chars& text, std::string_view front);

// The members of one part of tokenizer.json, checked as they are read.
class Settings {
 public:
  Settings(const Json& json, const char* part) : json_(json), part_(part) {}

  std::string_view type() const;
  // A missing one, or null, is the default. Another kind of value is an error, which `wrong` has.
  bool flag(const char* name, bool without);
  std::string text(const char* name, std::string_view without);
  const Json& of(const char* name) const;  // null if it is missing

  Error unknown(std::string_view what) const;  // this part, or a value in it, is not known here
  const std::optional<Error>& wrong() const { return wrong_; }

 private:
  const Json& json_;
  const char* part_;
  std::optional<Error> wrong_;
};

}  // namespace mvprune
