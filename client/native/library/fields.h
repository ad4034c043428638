// The members of config.json, checked as they are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "../base/json.h"

namespace mvprune {

constexpr int64_t kMostLayers = 1000, kMostFeatures = 1 << 20, kMostPositions = 1 << 24;

inline Error wrong(const std::string& text) { return {"config.json: " + text}; }

inline Error unsupported(const std::string& text) { return {"config.json: " + text, Code::kUnsupported}; }

inline const Json* member(const Json& json, std::string_view name) {
  const Json* found = json.find(name);
  return found && !found->is_null() ? found : nullptr;
}

// A whole number from `least` to `most`; `otherwise` if there is none of that name.
inline Result<int64_t> whole(const Json& json, std::string_view name, int64_t least, int64_t most, std::optional<int64_t> otherwise = std::nullopt) {
  const Json* found = member(json, name);
  if (!found && otherwise) return *otherwise;
  const auto number = found ? found->whole() : std::nullopt;
  if (!number || *number < least || *number > most) {
    return wrong(std::string(name) + " must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *number;
}

inline std::string text(const Json& json, std::string_view name, std::string_view otherwise) {
  const Json* found = member(json, name);
  return std::string(found && found->text() ? *found->text() : otherwise);
}

inline bool flag(const Json& json, std::string_view name, bool otherwise) {
  const Json* found = member(json, name);
  return found && found->boolean() ? *found->boolean() : otherwise;
}

inline double number(const Json& json, std::string_view name, double otherwise) {
  const Json* found = member(json, name);
  return found ? found->number().value_or(otherwise) : otherwise;
}

}  // namespace mvprune
