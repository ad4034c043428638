#include "generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "../kernel/glibc.h"
#include "artifact.h"

namespace mvprune {
namespace {

constexpr int64_t kMostTokens = 1 << 24;
constexpr int64_t kMostBeams = 64;
constexpr size_t kMostEnds = 1000, kMostStops = 16;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// What a model's file may have beside the settings of `Generation`, and changes nothing where one text is written: any
// value of the first ones, and one value of each of the others.
constexpr std::string_view kIgnored[] = {"pad_token_id", "transformers_version", "_from_model_config",
                                         "use_cache", "cache_implementation", "cache_config",
                                         "return_dict_in_generate", "output_scores", "output_logits", "output_attentions", "output_hidden_states",
                                         "disable_compile", "num_assistant_tokens",
                                         "num_assistant_tokens_schedule", "assistant_confidence_threshold", "is_assistant", "trust_remote_code"};

struct Neutral {
  std::string_view name;
  double value;
};

constexpr Neutral kNeutral[] = {{"num_beam_groups", 1}, {"num_return_sequences", 1}, {"diversity_penalty", 0},
                                {"typical_p", 1}, {"epsilon_cutoff", 0}, {"eta_cutoff", 0}, {"min_p", 0}, {"top_h", 1},
                                {"guidance_scale", 1}, {"penalty_alpha", 0},
                                {"encoder_repetition_penalty", 1}, {"encoder_no_repeat_ngram_size", 0}};

// A setting that changes nothing: null, false, an empty list, or the number that means so.
bool is_neutral(const std::string& name, const Json& value) {
  if (value.is_null() || (value.boolean() && !*value.boolean()) || (value.items() && value.items()->empty())) return true;
  const auto known = std::find_if(std::begin(kNeutral), std::end(kNeutral), [&](const Neutral& one) { return one.name == name; });
  return known != std::end(kNeutral) && value.number() == known->value;
}

// Reads the settings of one object.
class Reader {
 public:
  explicit Reader(bool file) : prefix_(file ? "generation_config.json: " : ""), code_(file ? Code::kInvalid : Code::kArgument) {}

  template <typename Number>
  Fault whole(const std::string& name, const Json& value, int64_t least, int64_t most, Number& found) const {
    const auto number = value.whole();
    if (!number || *number < least || *number > most) {
      return fault(name, "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    found = *number;
    return std::nullopt;
  }

  Fault number(const std::string& name, const Json& value, double least, double most, double& found) const {
    const auto number = value.number();
    const auto shown = [](double limit) { return std::to_string(limit).substr(0, std::to_string(limit).find('.') + 3); };
    if (!number || !(*number >= least && *number <= most)) return fault(name, "must be a number from " + shown(least) + " to " + shown(most));
    found = *number;
    return std::nullopt;
  }

  Fault flag(const std::string& name, const Json& value, bool& found) const {
    if (!value.boolean()) return fault(name, "must be true or false");
    found = *value.boolean();
    return std::nullopt;
  }

  Fault stopping(const std::string& name, const Json& value, Stopping& found) const {
    const bool is_never = value.text() && *value.text() == "never";
    if (!is_never && !value.boolean()) return fault(name, "must be true, false or never");
    found = is_never ? Stopping::kNever : *value.boolean() ? Stopping::kFull : Stopping::kUsual;
    return std::nullopt;
  }

  Fault tokens(const std::string& name, const Json& value, std::vector<int64_t>& found) const {
    found.clear();
    const Json::Items one = value.items() ? Json::Items() : Json::Items{value};
    const Json::Items& all = value.items() ? *value.items() : one;
    for (const Json& token : all) {
      if (token.whole().value_or(-1) < 0 || all.size() > kMostEnds) return fault(name, "must be a token, or a list of at most 1000");
      found.push_back(*token.whole());
    }
    return std::nullopt;
  }

  Fault words(const std::string& name, const Json& value, std::vector<std::vector<int64_t>>& found) const {
    found.clear();
    if (!value.items() || value.items()->size() > kMostEnds) return fault(name, "must be a list of at most 1000 lists of tokens");
    for (const Json& word : *value.items()) {
      found.emplace_back();
      if (Fault fault = tokens(name, word, found.back())) return fault;
      if (found.back().empty()) return fault(name, "must be lists of tokens, got an empty one");
    }
    return std::nullopt;
  }

  Fault texts(const std::string& name, const Json& value, std::vector<std::string>& found) const {
    found.clear();
    const Json::Items one = value.items() ? Json::Items() : Json::Items{value};
    const Json::Items& all = value.items() ? *value.items() : one;
    for (const Json& text : all) {
      if (!text.text() || text.text()->empty() || all.size() > kMostStops) return fault(name, "must be a text that is not empty, or a list of at most 16");
      found.push_back(*text.text());
    }
    return std::nullopt;
  }

  Error fault(const std::string& name, const std::string& rule) const { return {prefix_ + shown(std::string_view(name)) + " " + rule, code_}; }

 private:
  std::string prefix_;
  Code code_;
};

// The tokens that would repeat one of the n-grams of a text.
void forbid_repeats(const std::vector<int64_t>& tokens, size_t size, Logits logits) {
  if (tokens.size() + 1 < size) return;
  const auto last = tokens.end() - static_cast<std::ptrdiff_t>(size - 1);
  for (size_t i = 0; i + size <= tokens.size(); ++i) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::equal(last, tokens.end(), first)) logits[static_cast<size_t>(tokens[i + size - 1])] = kNever;
  }
}

// The words that are never written: of some tokens the last, after the others.
void forbid_words(const Generation& settings, const std::vector<int64_t>& tokens, Logits logits) {
  for (const std::vector<int64_t>& word : settings.bad_words) {
    const bool is_end = word.size() == 1 && std::find(settings.ends.begin(), settings.ends.end(), word[0]) != settings.ends.end();
    const size_t before = word.size() - 1;
    if (is_end || before > tokens.size() || word.back() >= static_cast<int64_t>(logits.size())) continue;
    if (std::equal(word.begin(), word.end() - 1, tokens.end() - static_cast<std::ptrdiff_t>(before))) logits[static_cast<size_t>(word.back())] = kNever;
  }
}

// Leaves these alone.
void force(const std::vector<int64_t>& tokens, Logits logits) {
  std::fill(logits.begin(), logits.end(), kNever);
  for (const int64_t token : tokens) {
    if (token < static_cast<int64_t>(logits.size())) logits[static_cast<size_t>(token)] = 0;
  }
}

int64_t largest_of(Logits logits) {
  size_t found = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[found] || std::isnan(logits[found])) found = i;
  }
  return static_cast<int64_t>(found);
}

int64_t sample(const Generation& settings, Logits logits, Random& random) {
  struct Word {
    double weight;
    int64_t id;
  };
  std::vector<Word> words;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kNever) words.push_back({static_cast<double>(logits[i]) / settings.temperature, static_cast<int64_t>(i)});
  }
  if (words.empty()) return largest_of(logits);
  const auto before = [](const Word& a, const Word& b) { return a.weight != b.weight ? a.weight > b.weight : a.id < b.id; };
  const size_t kept = settings.top_k > 0 ? std::min(words.size(), static_cast<size_t>(settings.top_k)) : words.size();
  std::partial_sort(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(kept), words.end(), before);
  words.resize(kept);
  double sum = 0;
  const double most = words.front().weight;
  for (Word& word : words) sum += word.weight = std::exp(word.weight - most);
  if (settings.top_p < 1) {  // the fewest words whose probabilities reach it, at least one
    double reached = 0;
    size_t count = 0;
    while (count < words.size() && (count == 0 || reached < settings.top_p * sum)) reached += words[count++].weight;
    words.resize(count);
    sum = reached;
  }
  double left = random.next() * sum;
  for (const Word& word : words) {
    if ((left -= word.weight) < 0) return word.id;
  }
  return words.back().id;
}

}  // namespace

Fault Generation::read(const Json& json, bool file) {
  const Reader reader(file);
  if (!json.members()) return file ? Error{"generation_config.json: must be a JSON object"} : Error{"parameters must be a JSON object", Code::kArgument};
  bool shapes = false, samples = false;  // whether the caller gives what only sampling reads, and says that there is none
  for (const JsonMember& member : *json.members()) {
    const std::string& name = member.name;
    const Json& value = member.value;
    if (value.is_null()) continue;
    Fault fault;
    if (name == "max_new_tokens") fault = reader.whole(name, value, 1, kMostTokens, max_new_tokens);
    else if (name == "most_new_tokens" && !file) fault = reader.whole(name, value, 1, kMostTokens, most_new_tokens);
    else if (name == "max_length" && file) fault = reader.whole(name, value, 1, kMostTokens, max_length);
    else if (name == "min_length" && file) fault = reader.whole(name, value, 0, kMostTokens, min_length);
    else if (name == "min_new_tokens") fault = reader.whole(name, value, 0, kMostTokens, min_new_tokens);
    else if (name == "do_sample") samples = true, fault = reader.flag(name, value, do_sample);
    else if (name == "num_beams") fault = reader.whole(name, value, 1, kMostBeams, num_beams);
    else if (name == "length_penalty") fault = reader.number(name, value, -10, 10, length_penalty);
    else if (name == "early_stopping") fault = reader.stopping(name, value, stopping);
    else if (name == "temperature") shapes = true, fault = reader.number(name, value, 0.01, 100, temperature);
    else if (name == "top_p") shapes = true, fault = reader.number(name, value, 0, 1, top_p);
    else if (name == "top_k") shapes = true, fault = reader.whole(name, value, 0, kMostTokens, top_k);
    else if (name == "repetition_penalty") fault = reader.number(name, value, 0.1, 10, repetition_penalty);
    else if (name == "no_repeat_ngram_size") fault = reader.whole(name, value, 0, kMostTokens, no_repeat_ngram_size);
    else if (name == "eos_token_id") fault = reader.tokens(name, value, ends);
    else if (name == "bos_token_id" && file) fault = reader.whole(name, value, 0, kMostTokens, begin);
    else if (name == "decoder_start_token_id" && file) fault = reader.whole(name, value, 0, kMostTokens, start);
    else if (name == "forced_bos_token_id" && file) fault = reader.tokens(name, value, first);
    else if (name == "forced_eos_token_id" && file) fault = reader.tokens(name, value, last);
    else if (name == "bad_words_ids" && file) fault = reader.words(name, value, bad_words);
    else if (name == "seed" && !file) fault = reader.whole(name, value, 0, std::numeric_limits<int64_t>::max(), seed);
    else if (name == "stop" && !file) fault = reader.texts(name, value, stop);
    else if (name == "truncate" && !file) fault = reader.flag(name, value, truncate);
    else if (!is_neutral(name, value) && (!file || std::find(std::begin(kIgnored), std::end(kIgnored), name) == std::end(kIgnored))) {
      return Error{reader.fault(name, "is a setting that is not computed here").text, file ? Code::kUnsupported : Code::kArgument};
    }
    if (fault) return fault;
  }
  if (!file && shapes && !samples) do_sample = true;
  if (!file && shapes && !do_sample) return Error{"temperature, top_p and top_k must not be given where do_sample is false", Code::kArgument};
  return std::nullopt;
}

Fault Generation::check(Code code) const {
  if (num_beams > 1 && do_sample) return Error{"do_sample must be false where num_beams is above 1: beams are not sampled here", code};
  return std::nullopt;
}

double Random::next() {
  uint64_t mixed = state_ += 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
  return static_cast<double>((mixed ^ mixed >> 31) >> 11) * 0x1p-53;
}

void weigh(const Generation& settings, const std::vector<int64_t>& tokens, int64_t prompt, int64_t most, Logits logits) {
  if (settings.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(settings.repetition_penalty);
    for (const int64_t token : std::unordered_set<int64_t>(tokens.begin(), tokens.end())) {
      float& logit = logits[static_cast<size_t>(token)];
      logit = logit < 0 ? logit * penalty : logit / penalty;
    }
  }
  if (settings.no_repeat_ngram_size > 0) forbid_repeats(tokens, static_cast<size_t>(settings.no_repeat_ngram_size), logits);
  forbid_words(settings, tokens, logits);
  const auto length = static_cast<int64_t>(tokens.size());
  if (length < settings.min_length || length - prompt < settings.min_new_tokens) {
    for (const int64_t end : settings.ends) {
      if (end < static_cast<int64_t>(logits.size())) logits[static_cast<size_t>(end)] = kNever;
    }
  }
  if (length == 1 && !settings.first.empty()) force(settings.first, logits);
  if (length + 1 == most && !settings.last.empty()) force(settings.last, logits);
}

int64_t choose_token(const Generation& settings, const std::vector<int64_t>& tokens, int64_t prompt, int64_t most, Logits logits, Random& random) {
  weigh(settings, tokens, prompt, most, logits);
  return settings.do_sample ? sample(settings, logits, random) : largest_of(logits);
}

}  // namespace mvprune
