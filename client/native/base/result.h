// Errors by value: the library throws nothing of its own.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace mvprune {

// Whose fault it is.
enum class Code { kInvalid, kUnsupported, kUnreadable, kArgument, kTooLong, kMemory };

// Its functions are not inline: there are hundreds of places that make, copy and drop one, and none is fast.
struct Error {
  Error();
  Error(std::string text, Code code = Code::kInvalid);
  Error(const Error& other);
  Error(Error&& other) noexcept;
  Error& operator=(Error other) noexcept;
  ~Error();

  std::string text;  // what is wrong, for a person
  Code code = Code::kInvalid;
};

// What a function without a value gives: none, if nothing is wrong.
using Fault = std::optional<Error>;

// A value, or why there is none.
template <typename T>
class Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  // Only of a result that is ok.
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

  // Empty if it is ok.
  const Error& error() const { return error_; }

 private:
  std::optional<T> value_;
  Error error_;
};

}  // namespace mvprune
