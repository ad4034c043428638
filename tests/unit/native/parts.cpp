// The parts of the native library for ctypes, as the tests call them.
#include <cstring>
#include <string>

#include "../../../client/native/base/json.h"
#include "../../../client/native/base/zstd.h"

using mvprune::Json;

namespace {

std::string shown;  // what the last call returned

void append_number(std::string& text, double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  text += digits;
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
}
