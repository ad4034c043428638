#include "json.h"

#include <algorithm>
#include <charconv>

#include "numbers.h"
#include "sorting.h"
#include "utf8.h"

namespace mvprune {
namespace {

constexpr int kMostLevels = 100;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Result<Json> read() {
    Json json;
    if (value(json, 0)) {
      space();
      if (at_ == text_.size()) return json;
      fail("there is text behind the value");
    }
    return Error{std::string(wrong_) + " (byte " + std::to_string(at_) + ")"};
  }

 private:
  bool fail(const char* wrong) {
    wrong_ = wrong;
    return false;
  }

  void space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool value(Json& json, int level) {
    if (level > kMostLevels) return fail("there are too many levels");
    space();
    if (at_ >= text_.size()) return fail("the text is cut off");
    switch (text_[at_]) {
      case '{':
        return object(json, level);
      case '[':
        return array(json, level);
      case '"':
        return string(json.value_.emplace<std::string>());
      case 't':
        json.value_ = true;
        return word("true");
      case 'f':
        json.value_ = false;
        return word("false");
      case 'n':
        return word("null");
      default:
        return number(json);
    }
  }

  bool word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return fail("a value is expected");
    at_ += word.size();
    return true;
  }

  bool object(Json& json, int level) {
    ++at_;
    Json::Members& members = json.value_.emplace<Json::Members>();
    space();
    if (take('}')) return true;
    while (true) {
      space();
      if (at_ >= text_.size() || text_[at_] != '"') return fail("a name is expected");
      JsonMember& member = members.emplace_back();
      if (!string(member.name)) return false;
      space();
      if (!take(':')) return fail("a colon is expected");
      if (!value(member.value, level + 1)) return false;
      space();
      if (take('}')) return are_different(members) || fail("an object has a name twice");
      if (!take(',')) return fail("a comma or the end of an object is expected");
    }
  }

  static bool are_different(const Json::Members& members) {
    std::vector<std::string_view> names(members.size());
    std::transform(members.begin(), members.end(), names.begin(),
                   [](const JsonMember& one) { return std::string_view(one.name); });
    sort_stably(names, [](std::string_view a, std::string_view b) { return a < b; });
    return std::adjacent_find(names.begin(), names.end()) == names.end();
  }

  bool array(Json& json, int level) {
    ++at_;
    Json::Items& items = json.value_.emplace<Json::Items>();
    space();
    if (take(']')) return true;
    while (true) {
      if (!value(items.emplace_back(), level + 1)) return false;
      space();
      if (take(']')) return true;
      if (!take(',')) return fail("a comma or the end of a list is expected");
    }
  }

  bool string(std::string& text) {
    ++at_;
    while (true) {
      const size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') {
        const auto byte = static_cast<unsigned char>(text_[at_]);
        if (byte < 0x20) return fail("a string has a control character");
        if (byte < 0x80) {
          ++at_;
        } else if (!utf8_next(text_, at_)) {
          return fail("a string is not UTF-8");
        }
      }
      text.append(text_.substr(begin, at_ - begin));
      if (take('"')) return true;
      if (!take('\\') || at_ >= text_.size()) return fail("a string is cut off");
      const char escape = text_[at_++];
      if (escape == 'u') {
        if (!unicode(text)) return fail("an escape is not of a character");
        continue;
      }
      constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
      const size_t which = kEscapes.find(escape);
      if (which == std::string_view::npos) return fail("an escape is unknown");
      text.push_back(kMeant[which]);
    }
  }

  bool unicode(std::string& text) {
    uint32_t code, low;
    if (!hex(code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {
      if (!take('\\') || !take('u') || !hex(low) || low < 0xDC00 || low >= 0xE000) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      return false;
    }
    utf8_append(text, code);
    return true;
  }

  bool hex(uint32_t& code) {
    if (text_.size() - at_ < 4) return false;
    const char* const begin = text_.data() + at_;
    const auto done = std::from_chars(begin, begin + 4, code, 16);
    at_ += 4;
    return done.ec == std::errc() && done.ptr == begin + 4;
  }

  bool number(Json& json) {
    const size_t begin = at_;
    take('-');
    const size_t first = at_;
    digits();
    if (at_ == first || (text_[first] == '0' && at_ > first + 1)) return fail("a value is expected");
    bool whole = true;
    if (take('.')) {
      whole = false;
      if (!digits()) return fail("a digit is expected");
    }
    if (take('e') || take('E')) {
      whole = false;
      if (!take('+')) take('-');
      if (!digits()) return fail("a digit is expected");
    }
    const std::string text(text_.substr(begin, at_ - begin));
    int64_t exact;
    if (whole && std::from_chars(text.data(), text.data() + text.size(), exact).ec == std::errc()) {
      json.value_ = exact;
      return true;
    }
    double value;
    if (!read_number(text, value)) return fail("a number is too large");
    json.value_ = value;
    return true;
  }

  bool digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > begin;
  }

  std::string_view text_;
  size_t at_ = 0;
  const char* wrong_ = "";
};

Result<Json> Json::parse(std::string_view text) { return JsonReader(text).read(); }

std::optional<double> Json::number() const {
  if (const auto* exact = std::get_if<int64_t>(&value_)) return static_cast<double>(*exact);
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  return std::nullopt;
}

std::optional<int64_t> Json::whole() const {
  const auto* exact = std::get_if<int64_t>(&value_);
  return exact ? std::optional<int64_t>(*exact) : std::nullopt;
}

const Json* Json::find(std::string_view name) const {
  const Members* all = members();
  if (!all) return nullptr;
  const auto found = std::find_if(all->begin(), all->end(), [&](const JsonMember& one) { return one.name == name; });
  return found == all->end() ? nullptr : &found->value;
}

}  // namespace mvprune
