// The parts of the native library for ctypes, as the tests call them.
#include <cstdio>
#include <cstring>
#include <string>

#include "../../../client/native/base/json.h"
#include "../../../client/native/base/zstd.h"
#include "../../../client/native/text/tokenizer.h"

using mvprune::Json;

namespace {

std::string shown;  // what the last call returned

void append_number(std::string& text, double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  text += digits;
  if (text.find_first_of(".en", text.size() - std::strlen(digits)) == std::string::npos) text += ".0";
}

void append_text(std::string& out, const std::string& text) {
  out += '"';
  for (const char c : text) {
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned char>(c));
    // The bytes of UTF-8, each as a character: the test puts them together again.
    out += escape;
  }
  out += '"';
}

void append(std::string& out, const Json& json) {
  if (json.is_null()) out += "null";
  if (const bool* value = json.boolean()) out += *value ? "true" : "false";
  if (const auto* text = json.text()) append_text(out, *text);
  if (const auto whole = json.whole()) {
    out += std::to_string(*whole);
  } else if (const auto number = json.number()) {
    append_number(out, *number);
  }
  if (const auto* items = json.items()) {
    out += '[';
    for (const Json& item : *items) {
      if (&item != &items->front()) out += ',';
      append(out, item);
    }
    out += ']';
  }
  if (const auto* members = json.members()) {
    out += '{';
    for (const auto& member : *members) {
      if (&member != &members->front()) out += ',';
      append_text(out, member.name);
      out += ':';
      append(out, json.find(member.name) ? *json.find(member.name) : Json());
    }
    out += '}';
  }
}

}  // namespace

extern "C" {

int64_t test_zstd_size(const uint8_t* frame, size_t bytes) {
  const auto size = mvprune::zstd_size(frame, bytes);
  return size ? static_cast<int64_t>(*size) : -1;
}

const char* test_zstd_unpack(const uint8_t* frame, size_t bytes, uint8_t* out, size_t size) {
  return mvprune::zstd_unpack(frame, bytes, out, size);
}

// The value written as JSON again, or "!" and the error.
const char* test_json(const char* text, size_t bytes) {
  const auto json = Json::parse({text, bytes});
  shown.clear();
  if (json) {
    append(shown, *json);
  } else {
    shown = "!" + json.error().text;
  }
  return shown.c_str();
}

// Null: `*wrong` says why.
mvprune::Tokenizer* test_tokenizer_open(const char* json, size_t bytes, const char** wrong) {
  auto opened = mvprune::Tokenizer::open({json, bytes});
  if (opened) return new mvprune::Tokenizer(std::move(*opened));
  shown = opened.error().text;
  *wrong = shown.c_str();
  return nullptr;
}

void test_tokenizer_close(mvprune::Tokenizer* tokenizer) { delete tokenizer; }

int64_t test_tokenizer_id(const mvprune::Tokenizer* tokenizer, const char* token) {
  return tokenizer->id(token).value_or(-1);
}

// The encodings as JSON: lists of [id, type, begin, end, text]. Or "!" and the error. options: max_length, whether only
// the second text is cut, windows, stride, special.
const char* test_encode(const mvprune::Tokenizer* tokenizer, const char* first, size_t bytes, const char* second,
                        size_t more, const int64_t* options) {
  std::optional<std::string_view> pair;
  if (second) pair = std::string_view(second, more);
  const auto truncate = options[1] ? mvprune::Truncate::kSecond : mvprune::Truncate::kLongest;
  const auto encodings =
      tokenizer->encode({first, bytes}, pair, {options[0], truncate, options[2] != 0, options[3], options[4] != 0});
  if (!encodings) {
    shown = "!" + encodings.error().text;
    return shown.c_str();
  }
  shown = "[";
  for (const auto& one : *encodings) {
    shown += shown.size() > 1 ? ",[" : "[";
    for (size_t i = 0; i < one.ids.size(); ++i) {
      const auto& place = one.places[i];
      char row[120];
      std::snprintf(row, sizeof row, "%s[%d,%d,%lld,%lld,%d]", i ? "," : "", one.ids[i], one.types[i],
                    static_cast<long long>(place.begin), static_cast<long long>(place.end), place.text);
      shown += row;
    }
    shown += "]";
  }
  shown += "]";
  return shown.c_str();
}

// The text of ids, or "!" and the error.
const char* test_decode(mvprune::Tokenizer* tokenizer, const int32_t* ids, size_t count, bool removes_blanks) {
  if (const auto fault = tokenizer->enable_decoding()) {
    shown = "!" + fault->text;
  } else {
    shown = tokenizer->decode({ids, ids + count}, removes_blanks);
  }
  return shown.c_str();
}
}
