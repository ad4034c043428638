// Texts to ids and back, as Hugging Face's `tokenizers` makes them from tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../base/result.h"

namespace mvprune {

struct TextTokenizer;

// The ids of one input, or of a window of it. All vectors have one element for each token.
struct Encoding {
  // What a token comes from.
  struct Place {
    int64_t begin = 0, end = 0;  // characters (code points) of the text
    int32_t text = -1;           // 0: the first text, 1: the second; -1: a special token
  };

  std::vector<int32_t> ids, types;
  std::vector<Place> places;
};

// Which text gives up tokens when both are too long together.
enum class Truncate { kLongest, kSecond };

struct EncodeOptions {
  int64_t max_length = 0;  // tokens, special ones with them; 0: any number
  Truncate truncate = Truncate::kLongest;
  bool windows = false;  // what does not fit makes further encodings; without this it is left out
  int64_t stride = 0;    // tokens that a window repeats of the one before it
  bool special = true;   // whether special tokens are added
};

class Tokenizer {
 public:
  // Takes the text of tokenizer.json. A part that this library does not know is refused by its name: ids are never
  // guessed. Truncation and padding in the file do not count.
  static Result<Tokenizer> open(std::string_view tokenizer_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // One encoding, or the windows in order. Any bytes are a text: those that are not UTF-8 count as U+FFFD each.
  // Fails if the special tokens, the stride or the first text (kSecond) leave no room below max_length.
  Result<std::vector<Encoding>> encode(std::string_view first, std::optional<std::string_view> second,
                                       const EncodeOptions& options) const;

  // None: the vocabulary and the added tokens have no such token.
  std::optional<int32_t> id(std::string_view token) const;

  // The special tokens in front of one text.
  std::vector<int32_t> before() const;

  // Prepares `decode`. Fails, if the library does not know the decoder.
  Fault enable_decoding();

  // The text that tokens write, without special ones; ids that there are not write nothing. Not before the other.
  // `removes_blanks`: those before punctuation, but of BPE's vocabularies, which have their blanks in the tokens.
  std::string decode(const std::vector<int32_t>& ids, bool removes_blanks) const;

 private:
  explicit Tokenizer(std::unique_ptr<TextTokenizer> parts);
  std::unique_ptr<TextTokenizer> parts_;
};

}  // namespace mvprune
