// JSON that is written piece by piece.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "../base/numbers.h"
#include "../base/utf8.h"

namespace mvprune::answers {

class Writing {
 public:
  // The opening and closing of lists and objects, and commas where they belong.
  Writing& open(char bracket) { return comma(), text_ += bracket, is_first_ = true, *this; }
  Writing& close(char bracket) { return text_ += bracket, is_first_ = false, *this; }
  Writing& name(std::string_view name) { return text(name), text_ += ':', is_first_ = true, *this; }

  Writing& text(std::string_view value) {
    comma();
    text_ += '"';
    for (size_t at = 0; at < value.size();) {
      const auto read = utf8_next(value, at);
      if (!read) ++at;
      const uint32_t code = read.value_or(0xFFFD);
      if (code == '"' || code == '\\') text_ += '\\';
      if (code < 0x20) {
        ((text_ += "\\u00") += code < 0x10 ? '0' : '1') += "0123456789abcdef"[code % 16];
      } else {
        utf8_append(text_, code);
      }
    }
    text_ += '"';
    return *this;
  }

  Writing& whole(int64_t value) { return comma(), text_ += std::to_string(value), *this; }
  Writing& flag(bool value) { return comma(), text_ += value ? "true" : "false", *this; }
  Writing& null() { return comma(), text_ += "null", *this; }

  // The shortest decimal that is read as the same number; null for one that is not finite.
  Writing& number(float value) {
    if (!std::isfinite(value)) return null();
    comma();
    const std::string written = written_number(value);
    text_ += written;
    // A number with a fraction stays one for those who read it.
    if (written.find_first_of(".e") == std::string::npos) text_ += ".0";
    return *this;
  }

  std::string done() { return std::move(text_); }

 private:
  void comma() {
    if (!is_first_) text_ += ',';
    is_first_ = false;
  }

  std::string text_;
  bool is_first_ = true;
};

}  // namespace mvprune::answers
