#include "artifact.h"

#include "../base/utf8.h"

namespace mvprune {
namespace {

constexpr char kManifest[] = "manifest.json";
constexpr uint64_t kMostManifest = 16 << 20;  // bytes
constexpr size_t kMostFiles = 1000;
constexpr int64_t kVersion = 3;
constexpr size_t kMostShown = 200;

Error invalid(const std::string& text) { return {std::string(kManifest) + ": " + text}; }

bool is_digest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string shown(std::string_view text) {
  std::string found;
  for (size_t at = 0; at < text.size();) {
    if (found.size() > kMostShown) return found + "…";
    const size_t before = at;
    const auto code = utf8_next(text, at);
    if (!code) ++at;
    const bool is_control = !code || *code < 0x20 || (*code >= 0x7F && *code < 0xA0);
    found += is_control ? std::string("?") : std::string(text.substr(before, at - before));
  }
  return found;
}

Result<Artifact> Artifact::open(const Source& source) {
  Result<Bytes> content = source.read(kManifest, kMostManifest);
  if (!content) return content.error();
  const Result<Json> parsed = Json::parse(text_of(*content));
  if (!parsed) return invalid(parsed.error().text);
  const Json& json = *parsed;
  if (!json.members()) return invalid("must be a JSON object");
  const Json* version = json.find("version");
  if (!version || version->whole() != kVersion) return invalid("version must be 3");
  const Json* files = json.find("files");
  if (!files || !files->items() || files->items()->size() > kMostFiles) {
    return invalid("files must be a list of at most 1000 entries");
  }
  Artifact artifact;
  artifact.source_ = &source;
  for (const Json& file : *files->items()) {
    const Json *path = file.find("path"), *bytes = file.find("size_bytes"), *digest = file.find("sha256");
    if (!path || !path->text() || !bytes || bytes->whole().value_or(-1) < 0 || !digest || !digest->text() ||
        !is_digest(*digest->text())) {
      return invalid("a file must have path, size_bytes and sha256");
    }
    if (!artifact.files_.try_emplace(*path->text(), File{*bytes->whole(), *digest->text()}).second) {
      return invalid("paths must differ, got " + shown(*path->text()) + " twice");
    }
  }
  const Json *spec = json.find("spec"), *accounting = json.find("accounting");
  const Json* activations = spec ? spec->find("activations") : nullptr;
  if (activations && activations->text()) {
    std::string name = *activations->text();
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    artifact.rounds_activations_ = name == "int8";
  }
  const Json* density = accounting ? accounting->find("density") : nullptr;
  const double kept = density ? density->number().value_or(-1) : -1;
  if (!(kept >= 0 && kept <= 1)) return invalid("accounting must have a density from 0 to 1");
  artifact.density_ = kept;
  artifact.manifest_ = json;
  return artifact;
}

Result<Bytes> Artifact::read(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) return invalid("files must contain " + name);
  const File& file = found->second;
  Result<Bytes> content = source_->read(name, static_cast<uint64_t>(file.bytes));
  if (!content) return content;
  if (content->size() != static_cast<size_t>(file.bytes)) {
    return Error{name + ": must have " + std::to_string(file.bytes) + " bytes, got " + std::to_string(content->size())};
  }
  if (sha256(*content) != file.sha256) return Error{name + ": must have the SHA-256 " + file.sha256 + ", got another"};
  return content;
}

Result<Json> Artifact::read_json(const std::string& name) const {
  const Result<Bytes> content = read(name);
  if (!content) return content.error();
  Result<Json> json = Json::parse(text_of(*content));
  if (!json) return Error{name + ": " + json.error().text};
  if (!json->members()) return Error{name + ": must be a JSON object"};
  return json;
}

}  // namespace mvprune
