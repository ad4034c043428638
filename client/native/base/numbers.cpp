#include "numbers.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

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

uint64_t fresh_number() {
  // std::random_device needs a newer glibc than the library does. The process differs after a fork, and the count where the
  // clock has not moved.
  static std::atomic<uint64_t> count{0};
  const auto now = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return (now ^ static_cast<uint64_t>(getpid()) << 40) + count++ * 0xD1342543DE82EF95u;
}

}  // namespace mvprune
