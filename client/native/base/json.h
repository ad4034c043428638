// JSON (RFC 8259), read strictly into a tree: any bytes give a value or an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "result.h"

namespace mvprune {

struct JsonMember;

class Json {
 public:
  using Items = std::vector<Json>;
  using Members = std::vector<JsonMember>;

  // Reads a whole text of UTF-8. Refused are: surrogates without their other half, names that an object has twice,
  // more than 100 levels, numbers beyond a double.
  static Result<Json> parse(std::string_view text);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }

  // The value as one of its kind, or null if it is of another.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::string* text() const { return std::get_if<std::string>(&value_); }
  const Items* items() const { return std::get_if<Items>(&value_); }
  const Members* members() const { return std::get_if<Members>(&value_); }
  std::optional<double> number() const;

  // A number without fraction and exponent, of 64 bits.
  std::optional<int64_t> whole() const;

  // The member of an object; null if there is none, or this is no object.
  const Json* find(std::string_view name) const;

 private:
  friend class JsonReader;
  std::variant<std::monostate, bool, int64_t, double, std::string, Items, Members> value_;
};

struct JsonMember {
  std::string name;
  Json value;
};

}  // namespace mvprune
