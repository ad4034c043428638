#include "models.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

#include "../base/sorting.h"
#include "../base/utf8.h"
#include "normalizers.h"

namespace mvprune {
namespace {

constexpr int64_t kMostIds = 1 << 24;

// A piece as UTF-8, with the byte at which each character begins.
struct Encoded {
  explicit Encoded(const Chars& piece) {
    starts.reserve(piece.size() + 1);
    for (const Char& one : piece) {
      starts.push_back(text.size());
      utf8_append(text, one.code);
    }
    starts.push_back(text.size());
  }

  std::string_view part(size_t begin, size_t end) const {
    return std::string_view(text).substr(starts[begin], starts[end] - starts[begin]);
  }

  std::string text;
  std::vector<size_t> starts;
};

// The longest token that begins the rest, again and again (Wu et al. 2016).
class WordPiece : public TokenModel {
 public:
  static Result<std::unique_ptr<TokenModel>> read(Settings& settings, Vocabulary vocabulary) {
    auto model = std::make_unique<WordPiece>();
    model->vocabulary_ = std::move(vocabulary);
    model->prefix_ = settings.text("continuing_subword_prefix", "##");
    model->unknown_ = model->vocabulary_.find(settings.text("unk_token", "[UNK]"));
    const Json& most = settings.of("max_input_chars_per_word");
    if (!most.is_null() && most.whole().value_or(-1) < 0) return settings.unknown("max_input_chars_per_word");
    model->most_ = static_cast<size_t>(most.whole().value_or(100));
    if (settings.wrong()) return *settings.wrong();
    if (model->unknown_ < 0) return settings.unknown("an unk_token that is not in its vocabulary");
    return std::unique_ptr<TokenModel>(std::move(model));
  }

  void tokenize(const Chars& piece, std::vector<PieceToken>& tokens) const override {
    const size_t before = tokens.size();
    if (piece.size() > most_) return tokens.push_back({unknown_, 0, piece.size()});
    const Encoded encoded(piece);
    std::string text;
    for (size_t begin = 0; begin < piece.size();) {
      int32_t id = -1;
      size_t end = piece.size();
      for (; end > begin; --end) {
        text = begin ? prefix_ : "";
        text += encoded.part(begin, end);
        if ((id = vocabulary_.find(text)) >= 0) break;
      }
      if (id < 0) {
        tokens.resize(before);
        return tokens.push_back({unknown_, 0, piece.size()});
      }
      tokens.push_back({id, begin, end});
      begin = end;
    }
  }

 private:
  std::string prefix_;
  int32_t unknown_ = -1;
  size_t most_ = 100;
};

// Every piece is a token.
class WordLevel : public TokenModel {
 public:
  static Result<std::unique_ptr<TokenModel>> read(Settings& settings, Vocabulary vocabulary) {
    auto model = std::make_unique<WordLevel>();
    model->vocabulary_ = std::move(vocabulary);
    model->unknown_ = model->vocabulary_.find(settings.text("unk_token", "<unk>"));
    if (settings.wrong()) return *settings.wrong();
    if (model->unknown_ < 0) return settings.unknown("an unk_token that is not in its vocabulary");
    return std::unique_ptr<TokenModel>(std::move(model));
  }

  void tokenize(const Chars& piece, std::vector<PieceToken>& tokens) const override {
    const int32_t id = vocabulary_.find(to_text(piece, 0, piece.size()));
    tokens.push_back({id < 0 ? unknown_ : id, 0, piece.size()});
  }

 private:
  int32_t unknown_ = -1;
};

// Pairs become one token, those of the lowest rank first (Sennrich et al. 2016).
class Bpe : public TokenModel {
 public:
  static Result<std::unique_ptr<TokenModel>> read(Settings& settings, Vocabulary vocabulary) {
    auto model = std::make_unique<Bpe>();
    model->vocabulary_ = std::move(vocabulary);
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!settings.text(name, "").empty()) return settings.unknown(name);
    }
    if (settings.flag("byte_fallback", false)) return settings.unknown("byte_fallback");
    if (settings.of("dropout").number().value_or(0) != 0) return settings.unknown("dropout");
    model->fuses_ = settings.flag("fuse_unk", false);
    model->ignores_ = settings.flag("ignore_merges", false);
    const std::string unknown = settings.text("unk_token", "");
    if (!unknown.empty() && (model->unknown_ = model->vocabulary_.find(unknown)) < 0) {
      return settings.unknown("an unk_token that is not in its vocabulary");
    }
    if (settings.wrong()) return *settings.wrong();
    if (!model->read_merges(settings.of("merges"))) return settings.unknown("merges that its vocabulary does not fit");
    return std::unique_ptr<TokenModel>(std::move(model));
  }

  void tokenize(const Chars& piece, std::vector<PieceToken>& tokens) const override {
    const Encoded encoded(piece);
    if (ignores_) {
      const int32_t whole = vocabulary_.find(encoded.text);
      if (whole >= 0) return tokens.push_back({whole, 0, piece.size()});
    }
    std::vector<Symbol> symbols;
    symbols.reserve(piece.size());
    bool after_unknown = false;
    for (size_t i = 0; i < piece.size(); ++i) {
      int32_t id = vocabulary_.find(encoded.part(i, i + 1));
      const bool unknown = id < 0;
      if (unknown && unknown_ < 0) continue;  // nothing stands for it
      if (unknown && after_unknown && fuses_) {
        symbols.back().end = i + 1;
        continue;
      }
      symbols.push_back({unknown ? unknown_ : id, i, i + 1, symbols.size() - 1, symbols.size() + 1});
      after_unknown = unknown;
    }
    merge(symbols);
    for (const Symbol& symbol : symbols) {
      if (symbol.id >= 0) tokens.push_back({symbol.id, symbol.begin, symbol.end});
    }
  }

 private:
  struct Merge {
    int32_t rank, id;
  };

  struct Symbol {
    int32_t id;  // -1: part of one before it now
    size_t begin, end;
    size_t before, behind;  // places of its neighbours; beyond the list: none
  };

  struct Candidate {
    int32_t rank, id;
    size_t place;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };

  static uint64_t pair(int32_t first, int32_t second) {
    return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
  }

  bool read_merges(const Json& list) {
    if (!list.items()) return false;
    merges_.reserve(list.items()->size());
    int32_t rank = 0;
    for (const Json& item : *list.items()) {
      std::string_view first, second;
      if (item.text()) {
        const size_t blank = item.text()->find(' ');
        if (blank == std::string::npos) return false;
        first = std::string_view(*item.text()).substr(0, blank);
        second = std::string_view(*item.text()).substr(blank + 1);
      } else if (item.items() && item.items()->size() == 2 && (*item.items())[0].text() && (*item.items())[1].text()) {
        first = *(*item.items())[0].text();
        second = *(*item.items())[1].text();
      } else {
        return false;
      }
      const int32_t one = vocabulary_.find(first), two = vocabulary_.find(second);
      const int32_t both = vocabulary_.find(std::string(first) + std::string(second));
      if (one < 0 || two < 0 || both < 0) return false;
      merges_[pair(one, two)] = {rank++, both};
    }
    return true;
  }

  void merge(std::vector<Symbol>& symbols) const {
    std::priority_queue<Candidate> queue;
    const auto consider = [&](size_t place) {
      if (place >= symbols.size() || symbols[place].behind >= symbols.size()) return;
      const auto found = merges_.find(pair(symbols[place].id, symbols[symbols[place].behind].id));
      if (found != merges_.end()) queue.push({found->second.rank, found->second.id, place});
    };
    for (size_t i = 0; i < symbols.size(); ++i) consider(i);
    while (!queue.empty()) {
      const Candidate best = queue.top();
      queue.pop();
      Symbol& left = symbols[best.place];
      if (left.id < 0 || left.behind >= symbols.size()) continue;
      Symbol& right = symbols[left.behind];
      const auto found = merges_.find(pair(left.id, right.id));
      if (found == merges_.end() || found->second.id != best.id) continue;  // it was another pair when it came
      left.id = best.id;
      left.end = right.end;
      left.behind = right.behind;
      right.id = -1;
      if (left.behind < symbols.size()) symbols[left.behind].before = best.place;
      consider(left.before);
      consider(best.place);
    }
  }

  std::unordered_map<uint64_t, Merge> merges_;
  int32_t unknown_ = -1;
  bool fuses_ = false, ignores_ = false;
};

// The way with the largest sum of scores (Kudo 2018).
class Unigram : public TokenModel {
 public:
  static Result<std::unique_ptr<TokenModel>> read(Settings& settings) {
    auto model = std::make_unique<Unigram>();
    const Json& list = settings.of("vocab");
    if (!list.items() || list.items()->empty()) return settings.unknown("its vocabulary");
    if (settings.flag("byte_fallback", false)) return settings.unknown("byte_fallback");
    double least = std::numeric_limits<double>::infinity();
    for (const Json& item : *list.items()) {
      const auto* both = item.items();
      if (!both || both->size() != 2 || !(*both)[0].text() || !(*both)[1].number()) {
        return settings.unknown("its vocabulary");
      }
      model->vocabulary_.add(*(*both)[0].text(), static_cast<int64_t>(model->scores_.size()));
      model->scores_.push_back(*(*both)[1].number());
      least = std::min(least, model->scores_.back());
    }
    if (model->scores_.size() > kMostIds || !model->vocabulary_.sort()) return settings.unknown("its vocabulary");
    const int64_t unknown = settings.of("unk_id").whole().value_or(-1);
    if (unknown < 0 || unknown >= static_cast<int64_t>(model->scores_.size())) return settings.unknown("its unk_id");
    model->unknown_ = static_cast<int32_t>(unknown);
    model->unknown_score_ = least - 10;
    if (settings.wrong()) return *settings.wrong();
    return std::unique_ptr<TokenModel>(std::move(model));
  }

  void tokenize(const Chars& piece, std::vector<PieceToken>& tokens) const override {
    const Encoded encoded(piece);
    std::vector<size_t> character(encoded.text.size() + 1);
    for (size_t i = 0; i <= piece.size(); ++i) character[encoded.starts[i]] = i;
    struct Best {
      double score = 0;
      size_t begin = 0;
      int32_t id = -1;  // -1: no way leads here yet
    };
    std::vector<Best> best(piece.size() + 1);
    for (size_t begin = 0; begin < piece.size(); ++begin) {
      const double so_far = best[begin].score;
      bool has_single = false;
      const auto offer = [&](size_t end, int32_t id, double score) {
        if (best[end].id < 0 || so_far + score > best[end].score) best[end] = {so_far + score, begin, id};
      };
      const size_t start = encoded.starts[begin];
      vocabulary_.prefixes(std::string_view(encoded.text).substr(start), [&](size_t bytes, int32_t id) {
        const size_t end = character[start + bytes];
        has_single |= end == begin + 1;
        offer(end, id, scores_[static_cast<size_t>(id)]);
      });
      if (!has_single) offer(begin + 1, unknown_, unknown_score_);
    }
    const size_t first = tokens.size();
    for (size_t end = piece.size(); end > 0; end = best[end].begin) {
      const Best& step = best[end];
      if (step.id == unknown_ && tokens.size() > first && tokens.back().id == unknown_) {
        tokens.back().begin = step.begin;
      } else {
        tokens.push_back({step.id, step.begin, end});
      }
    }
    std::reverse(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end());
  }

 private:
  std::vector<double> scores_;
  int32_t unknown_ = -1;
  double unknown_score_ = 0;
};

bool read_vocabulary(const Json& json, Vocabulary& vocabulary) {
  if (!json.members()) return false;
  for (const JsonMember& member : *json.members()) {
    const int64_t id = member.value.whole().value_or(-1);
    if (id < 0 || id >= kMostIds) return false;
    vocabulary.add(member.name, id);
  }
  return vocabulary.sort();
}

}  // namespace

bool Vocabulary::sort() {
  sort_stably(entries_, [](const Entry& a, const Entry& b) { return a.text < b.text; });
  return std::adjacent_find(entries_.begin(), entries_.end(),
                            [](const Entry& a, const Entry& b) { return a.text == b.text; }) == entries_.end();
}

int32_t Vocabulary::find(std::string_view text) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), text,
                                      [](const Entry& entry, std::string_view wanted) { return entry.text < wanted; });
  return found != entries_.end() && found->text == text ? found->id : -1;
}

template <typename Found>
void Vocabulary::prefixes(std::string_view text, Found found) const {
  auto low = entries_.begin(), high = entries_.end();  // those that begin with the bytes so far
  for (size_t at = 0; at < text.size() && low != high; ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto of = [at](const Entry& entry) { return static_cast<unsigned char>(entry.text[at]); };
    if (low->text.size() == at) ++low;  // it ends here
    low = std::partition_point(low, high, [&](const Entry& entry) { return of(entry) < byte; });
    high = std::partition_point(low, high, [&](const Entry& entry) { return of(entry) <= byte; });
    if (low != high && low->text.size() == at + 1) found(at + 1, low->id);
  }
}

Result<std::unique_ptr<TokenModel>> read_model(const Json& json) {
  Settings settings(json, "model");
  const std::string_view type = settings.type();
  if (type == "Unigram") return Unigram::read(settings);
  if (type != "WordPiece" && type != "BPE" && type != "WordLevel") return settings.unknown(type);
  Vocabulary vocabulary;
  if (!read_vocabulary(settings.of("vocab"), vocabulary)) return settings.unknown("its vocabulary");
  if (type == "BPE") return Bpe::read(settings, std::move(vocabulary));
  if (type == "WordLevel") return WordLevel::read(settings, std::move(vocabulary));
  return WordPiece::read(settings, std::move(vocabulary));
}

}  // namespace mvprune
