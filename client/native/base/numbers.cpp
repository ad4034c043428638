#include "numbers.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace mvprune {

bool read_number(const std::string& text, double& value) {
#if defined(__cpp_lib_to_chars)
  const auto done = std::from_chars(text.data(), text.data() + text.size(), value);
  if (done.ec == std::errc()) return true;
#endif
  value = std::strtod(text.c_str(), nullptr);  // also of numbers too small for from_chars
  return std::isfinite(value);
}

std::string written_number(float value) {
  char digits[32];
#if defined(__cpp_lib_to_chars)
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
#else
  std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(value));
  return digits;
#endif
}

}  // namespace mvprune
