// What an artifact says of itself: the manifest, and files that are what it names.
#pragma once

#include <string>

#include "../base/json.h"
#include "source.h"

namespace mvprune {

class Artifact {
 public:
  // Reads the manifest. The source must live as long as the result.
  static Result<Artifact> open(const Source& source);

  // A file with the size and the SHA-256 that the manifest says.
  Result<Bytes> read(const std::string& name) const;

  bool has(const std::string& name) const { return files_.count(name) > 0; }

  // The same file as JSON.
  Result<Json> read_json(const std::string& name) const;

  bool rounds_activations() const { return rounds_activations_; }

  // The manifest, whole.
  const Json& manifest() const { return manifest_; }

  // The fraction of the prunable weights that is kept.
  double density() const { return density_; }

 private:
  struct File {
    int64_t bytes;
    std::string sha256;
  };

  const Source* source_ = nullptr;
  Json manifest_;
  std::map<std::string, File> files_;
  bool rounds_activations_ = false;
  double density_ = 0;
};

// The start of a text that stands in an error.
std::string shown(std::string_view text);

}  // namespace mvprune
