#include "tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "added.h"
#include "decoders.h"
#include "models.h"
#include "normalizers.h"
#include "pieces.h"
#include "special.h"

namespace mvprune {

struct TextTokenizer {
  Normalizer normalize;
  AddedTokens added;
  PreTokenizer cut;
  std::unique_ptr<TokenModel> model;
  SpecialTokens special;
  Json decoder;  // of tokenizer.json; read where text is written: a browser's library has no code for it
  bool is_bpe = false;
  TextDecoder decode;
  std::unordered_map<int32_t, const std::string*> texts;  // of ids; null: a special token

  TextTokens tokens(std::string_view text) const {
    Pieces pieces{{to_chars(text)}};
    added.cut(pieces, false);
    for (Piece& piece : pieces) {
      if (piece.id < 0) normalize(piece.text);
    }
    added.cut(pieces, true);
    cut(pieces);
    TextTokens tokens;
    std::vector<PieceToken> some;
    for (const Piece& piece : pieces) {
      some.clear();
      if (piece.text.empty()) continue;
      if (piece.id >= 0) {
        some.push_back({piece.id, 0, piece.text.size()});
      } else {
        model->tokenize(piece.text, some);
      }
      for (const PieceToken& token : some) tokens.push_back(placed(piece.text, token));
    }
    return tokens;
  }

 private:
  // Blanks are those of byte-level text, and of added tokens that take the blanks beside them.
  static TextToken placed(const Chars& text, const PieceToken& token) {
    const auto blank = [](const Char& one) { return one.code == byte_char(' ') || is(one.code, kSpace); };
    const auto first = text.begin() + static_cast<std::ptrdiff_t>(token.begin);
    const auto last = text.begin() + static_cast<std::ptrdiff_t>(token.end);
    const auto back = std::make_reverse_iterator(last), front = std::make_reverse_iterator(first);
    return {token.id, first->begin, last[-1].end, static_cast<int32_t>(std::find_if_not(first, last, blank) - first),
            static_cast<int32_t>(std::find_if_not(back, front, blank) - back)};
  }
};

namespace {

// The windows of `most` tokens, each of which repeats `stride` of the one before it.
std::vector<TextTokens> windows_of(const TextTokens& tokens, int64_t most, int64_t stride, bool all) {
  const auto size = static_cast<int64_t>(tokens.size());
  std::vector<TextTokens> windows;
  for (int64_t begin = 0; windows.empty() || all; begin += most - stride) {
    const int64_t end = std::min(begin + most, size);
    windows.emplace_back(tokens.begin() + begin, tokens.begin() + end);
    if (end == size) break;
  }
  return windows;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TextTokenizer> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::open(std::string_view tokenizer_json) {
  const auto json = Json::parse(tokenizer_json);
  if (!json) return Error{"tokenizer.json: " + json.error().text};
  const Json nothing;
  const auto of = [&](const char* name) -> const Json& {
    const Json* const found = json->find(name);
    return found ? *found : nothing;
  };
  auto normalize = read_normalizer(of("normalizer"));
  if (!normalize) return normalize.error();
  auto added = AddedTokens::read(of("added_tokens"), *normalize);
  if (!added) return added.error();
  auto cut = read_pre_tokenizer(of("pre_tokenizer"));
  if (!cut) return cut.error();
  auto model = read_model(of("model"));
  if (!model) return model.error();
  auto special = SpecialTokens::read(of("post_processor"));
  if (!special) return special.error();
  const Json* kind = of("model").find("type");
  TextTokenizer parts{std::move(*normalize), std::move(*added), std::move(*cut), std::move(*model), std::move(*special),
                      of("decoder"), kind && kind->text() && *kind->text() == "BPE", {}, {}};
  return Tokenizer(std::make_unique<TextTokenizer>(std::move(parts)));
}

Result<std::vector<Encoding>> Tokenizer::encode(std::string_view first, std::optional<std::string_view> second,
                                                const EncodeOptions& options) const {
  const SpecialTokens& special = parts_->special;
  TextTokens one = parts_->tokens(first);
  std::optional<TextTokens> two;
  if (second) two = parts_->tokens(*second);
  std::vector<Encoding> encodings;
  const auto size_one = static_cast<int64_t>(one.size()), size_two = two ? static_cast<int64_t>(two->size()) : 0;
  const int64_t most = options.max_length - (options.special ? special.count(second.has_value()) : 0);
  if (options.max_length == 0 || size_one + size_two <= most) {
    encodings.push_back(special.assemble(std::move(one), std::move(two), options.special));
    return encodings;
  }
  if (most <= 0) return Error{"max_length leaves no room for a token beside the special ones", Code::kArgument};
  const auto needs_stride = [&](int64_t room) { return options.stride < 0 || options.stride >= room; };
  if (two && options.truncate == Truncate::kSecond) {
    const int64_t room = most - size_one;
    if (room <= 0 || needs_stride(room)) {
      return Error{"the first text and the stride leave no room for the second", Code::kArgument};
    }
    for (TextTokens& window : windows_of(*two, room, options.stride, options.windows)) {
      encodings.push_back(special.assemble(one, std::move(window), options.special));
    }
    return encodings;
  }
  if (!two) {
    if (needs_stride(most)) {
      return Error{"max_length must be more than the stride and the special tokens", Code::kArgument};
    }
    for (TextTokens& window : windows_of(one, most, options.stride, options.windows)) {
      encodings.push_back(special.assemble(std::move(window), std::nullopt, options.special));
    }
    return encodings;
  }
  if (options.windows) return Error{"windows of two texts are windows of the second one", Code::kArgument};
  // The shorter one stays whole while the other one gives up enough; else both are halves.
  int64_t shorter = std::min(size_one, size_two), longer = std::max(shorter, most - shorter);
  if (shorter + longer > most) {
    shorter = most / 2;
    longer = shorter + most % 2;
  }
  const bool swap = size_one > size_two;
  one.resize(static_cast<size_t>(std::min(size_one, swap ? longer : shorter)));
  two->resize(static_cast<size_t>(std::min(size_two, swap ? shorter : longer)));
  encodings.push_back(special.assemble(std::move(one), std::move(two), options.special));
  return encodings;
}

std::optional<int32_t> Tokenizer::id(std::string_view token) const {
  for (const AddedToken& added : parts_->added.all()) {
    if (added.text == token) return added.id;
  }
  const int32_t id = parts_->model->vocabulary().find(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::vector<int32_t> Tokenizer::before() const { return parts_->special.before(); }

Fault Tokenizer::enable_decoding() {
  auto decode = read_decoder(parts_->decoder);
  if (!decode) return decode.error();
  parts_->decode = std::move(*decode);
  for (const Vocabulary::Entry& entry : parts_->model->vocabulary().all()) parts_->texts[entry.id] = &entry.text;
  for (const AddedToken& added : parts_->added.all()) parts_->texts[added.id] = added.special ? nullptr : &added.text;
  return std::nullopt;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool removes_blanks) const {
  TokenTexts tokens;
  for (const int32_t id : ids) {
    const auto found = parts_->texts.find(id);
    if (found != parts_->texts.end() && found->second) tokens.push_back(*found->second);
  }
  parts_->decode(tokens);
  std::string text;
  for (const std::string& token : tokens) text += token;
  if (removes_blanks && !parts_->is_bpe) remove_blanks(text);
  return text;
}

}  // namespace mvprune
