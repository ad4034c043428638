// What a page gives the library: JavaScript's Math, and its way to read and write numbers. The C library's own functions
// for them are large, and are not linked in.
#include <cmath>
#include <cstddef>
#include <cstdlib>

#include "../base/numbers.h"

#define MVPRUNE_IMPORT(module, name) extern "C" __attribute__((import_module(module), import_name(name)))

MVPRUNE_IMPORT("page", "read_number") double page_read_number(const char* text, size_t bytes);
MVPRUNE_IMPORT("page", "write_number") size_t page_write_number(float value, char* text);

// A function of one number, as the C library has it for double and for float.
#define MVPRUNE_MATH(name)                                                  \
  MVPRUNE_IMPORT("Math", #name) double page_##name(double x);               \
  extern "C" double name(double x) { return page_##name(x); }               \
  extern "C" float name##f(float x) { return static_cast<float>(page_##name(static_cast<double>(x))); }

MVPRUNE_MATH(cos)
MVPRUNE_MATH(exp)
MVPRUNE_MATH(log)
MVPRUNE_MATH(sin)
MVPRUNE_MATH(tanh)

MVPRUNE_IMPORT("Math", "random") double page_random();
MVPRUNE_IMPORT("Math", "pow") double page_pow(double x, double y);
extern "C" float powf(float x, float y) { return static_cast<float>(page_pow(static_cast<double>(x), static_cast<double>(y))); }

namespace mvprune {

bool read_number(const std::string& text, double& value) {
  value = page_read_number(text.data(), text.size());
  return std::isfinite(value);
}

std::string written_number(float value) {
  char digits[32];
  return std::string(digits, page_write_number(value, digits));
}

uint64_t fresh_number() { return static_cast<uint64_t>(page_random() * 0x1p53); }

}  // namespace mvprune

// What the C and the C++ library call for an environment, and for a text on a console where they give up. Neither is here,
// and the library's own functions for it are large.
extern "C" char* getenv(const char*) { return nullptr; }
extern "C" [[noreturn]] void __cxa_pure_virtual() { abort(); }

namespace std {
inline namespace __1 {
[[noreturn]] __attribute__((visibility("default"))) void __libcpp_verbose_abort(const char*, ...) noexcept { abort(); }
}  // namespace __1
}  // namespace std
