#include "result.h"

namespace mvprune {

Error::Error() = default;

Error::Error(std::string text, Code code) : text(std::move(text)), code(code) {}

Error::Error(const Error& other) = default;

Error::Error(Error&& other) noexcept = default;

Error& Error::operator=(Error other) noexcept {
  text.swap(other.text);
  code = other.code;
  return *this;
}

Error::~Error() = default;

}  // namespace mvprune
