// What characters are and become, as Hugging Face's `tokenizers` has it: scripts/unicode_tables.py.
#pragma once

#include <cstdint>
#include <vector>

namespace mvprune {

enum CharFlags : uint32_t {
  kSpace = 1,
  kLetter = 2,
  kNumber = 4,
  kWord = 8,          // \w
  kPunctuation = 16,  // BERT's
  kAccent = 32,       // what BERT strips
  kControl = 64,      // what BERT drops
  kMark = 128,        // what StripAccents strips
};

uint32_t flags_of(uint32_t code);

inline bool is(uint32_t code, CharFlags flags) { return flags_of(code) & flags; }
inline bool is_space(uint32_t code) { return is(code, kSpace); }
inline bool is_letter(uint32_t code) { return is(code, kLetter); }
inline bool is_number(uint32_t code) { return is(code, kNumber); }

struct Char {
  uint32_t code;
  int32_t begin, end;  // characters of the source that it comes from
};

// Text on its way to ids, each character with its source.
using Chars = std::vector<Char>;

// A character, and what it does to the source: 0 takes the next character there, 1 is one more of the last, -n takes
// the next and drops n behind it.
struct Change {
  uint32_t code;
  int change;
};

void rewrite(Chars& text, const std::vector<Change>& changes);

void lower(Chars& text);
void decompose(Chars& text, bool compatible);
void compose(Chars& text, bool compatible);  // of any text

}  // namespace mvprune
