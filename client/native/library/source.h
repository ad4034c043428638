// Where the files of an artifact come from, and that they are those which its manifest names.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../base/result.h"

namespace mvprune {

using Bytes = std::vector<uint8_t>;

inline std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Source {
 public:
  virtual ~Source() = default;

  // The whole file of that name, of at most `limit` bytes.
  virtual Result<Bytes> read(const std::string& name, uint64_t limit) const = 0;
};

// Files of a folder; links are followed. What is no regular file is refused, or read as none.
class Folder : public Source {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  Result<Bytes> read(const std::string& name, uint64_t limit) const override;

 private:
  std::string path_;
};

// Files in memory, which the caller keeps until the model is open.
class InMemory : public Source {
 public:
  void add(std::string name, const uint8_t* data, size_t bytes) { files_[std::move(name)] = {data, bytes}; }
  Result<Bytes> read(const std::string& name, uint64_t limit) const override;

 private:
  std::map<std::string, std::pair<const uint8_t*, size_t>> files_;
};

// SHA-256 (FIPS 180-4), as 64 lower-case hex digits.
std::string sha256(const Bytes& bytes);

}  // namespace mvprune
