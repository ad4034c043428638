#include "weights.h"

#include <algorithm>
#include <string_view>

#include "../base/sorting.h"
#include "../base/utf8.h"
#include "artifact.h"

namespace mvprune {
namespace {

constexpr uint64_t kMostHeader = 16 << 20;
constexpr int64_t kVersion = 3;
constexpr size_t kMostAxes = 8, kMostName = 256;
constexpr int64_t kMostOfShape = int64_t{1} << 60;
// Zeros cost a hostile file nothing, and a reader memory.
constexpr uint64_t kElementsAlways = uint64_t{1} << 28, kElementsPerByte = 1 << 10;
constexpr uint64_t kMostRatio = 255;
constexpr int64_t kBlock = 4, kGroup = 64;

constexpr std::string_view kLayouts[] = {"gap", "mask", "gap4", "mask4", "rows", "full"};

Error wrong(const std::string& text) { return {"weights.safetensors: " + text}; }

Error wrong(const std::string& name, const std::string& text) { return wrong("tensor '" + shown(std::string_view(name)) + "': " + text); }

int64_t item_bytes(std::string_view dtype) {
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16") return 2;
  if (dtype == "BOOL" || dtype == "U8" || dtype == "I8") return 1;
  return dtype == "I64" ? 8 : 0;
}

bool is_name(std::string_view name) {
  size_t characters = 0;
  for (size_t at = 0; at < name.size(); ++characters) {
    const auto code = utf8_next(name, at);
    if (!code || *code < 0x20 || (*code >= 0x7F && *code < 0xA0) || *code == '/' || *code == '\\') return false;
  }
  return characters > 0 && characters <= kMostName && name.find("::") == std::string_view::npos;
}

// Whether an object has exactly these members.
bool has_exactly(const Json& json, std::initializer_list<std::string_view> names) {
  if (!json.members() || json.members()->size() != names.size()) return false;
  return std::all_of(names.begin(), names.end(), [&](std::string_view name) { return json.find(name); });
}

std::optional<Shape> shape_of(const Json* json) {
  if (!json || !json->items() || json->items()->size() > kMostAxes) return std::nullopt;
  Shape shape;
  int64_t elements = 1;
  for (const Json& axis : *json->items()) {
    const int64_t length = axis.whole().value_or(-1);
    if (length < 0 || length > kMostOfShape || elements > (kMostOfShape - 1) / std::max<int64_t>(length, 1)) return std::nullopt;
    elements *= std::max<int64_t>(length, 1);
    shape.push_back(length);
  }
  return shape;
}

Result<Entry> entry_of(const std::string& name, const Json& json) {
  if (!has_exactly(json, {"dtype", "shape", "data_offsets"}) || !json.find("dtype")->text()) {
    return wrong(name, "must have exactly the fields dtype, shape, data_offsets");
  }
  Entry entry;
  entry.dtype = *json.find("dtype")->text();
  if (!item_bytes(entry.dtype)) return wrong(name, "dtype must be one of the format's, got " + shown(std::string_view(entry.dtype)));
  const auto shape = shape_of(json.find("shape"));
  if (!shape) return wrong(name, "shape must be at most 8 whole numbers of at least 0, with less than 2^60 elements");
  entry.shape = *shape;
  const Json::Items* offsets = json.find("data_offsets")->items();
  if (!offsets || offsets->size() != 2) return wrong(name, "data_offsets must be two whole numbers of at least 0");
  const int64_t begin = (*offsets)[0].whole().value_or(-1), end = (*offsets)[1].whole().value_or(-1);
  if (begin < 0 || end < 0) return wrong(name, "data_offsets must be two whole numbers of at least 0");
  if (end < begin || end - begin != elements_of(entry.shape) * item_bytes(entry.dtype)) {
    return wrong(name, "data_offsets must span the bytes of shape and dtype");
  }
  entry.begin = static_cast<uint64_t>(begin);
  entry.end = static_cast<uint64_t>(end);
  return entry;
}

// Takes a part of a packed tensor out of the entries.
std::optional<Entry> taken(std::map<std::string, Entry>& entries, const std::string& name) {
  const auto found = entries.find(name);
  if (found == entries.end()) return std::nullopt;
  Entry entry = std::move(found->second);
  entries.erase(found);
  return entry;
}

// What a description says, without the parts.
Result<PackedTensor> described(const std::string& name, const Json& json) {
  const Json* layout = json.find("layout");
  const auto known = layout && layout->text() ? std::find(std::begin(kLayouts), std::end(kLayouts), *layout->text()) : std::end(kLayouts);
  PackedTensor tensor{};
  if (known == std::end(kLayouts)) return wrong(name, "layout must be one of gap, mask, gap4, mask4, rows, full");
  tensor.layout = static_cast<Layout>(known - std::begin(kLayouts));
  const bool is_exact = tensor.in_blocks() ? has_exactly(json, {"count", "layout", "nonzero", "shape", "values"})
                                           : has_exactly(json, {"count", "layout", "shape", "values"});
  if (!is_exact || !json.find("values")->text()) return wrong(name, "must have exactly the fields of its layout");
  const auto shape = shape_of(json.find("shape"));
  if (!shape) return wrong(name, "shape must be at most 8 whole numbers of at least 0, with less than 2^60 elements");
  tensor.shape = *shape;
  tensor.dtype = *json.find("values")->text();
  if (tensor.dtype == "BASE") return wrong(name, "base must be given for a tensor of the base model's values, and cannot be");
  if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16" && !tensor.has_scales()) {
    return wrong(name, "values must be one of F32, F16, BF16, I8, I4, got " + shown(std::string_view(tensor.dtype)));
  }
  if (tensor.shape.empty() && (tensor.layout == Layout::kRows || tensor.has_scales())) return wrong(name, "the shape must have an axis");
  const int64_t elements = elements_of(tensor.shape);
  const auto count = json.find("count")->whole();
  const int64_t whole = tensor.layout == Layout::kRows ? tensor.row() : 1;
  if (!count || *count < 0 || *count > elements || (tensor.layout == Layout::kFull && *count != elements) ||
      (whole && *count % whole)) {
    return wrong(name, "count must fit the shape " + shown(tensor.shape));
  }
  tensor.count = tensor.nonzero = *count;
  if (tensor.in_blocks()) {
    tensor.nonzero = json.find("nonzero")->whole().value_or(-1);
    if (tensor.count % kBlock || tensor.row() % kBlock || tensor.nonzero < tensor.count / kBlock || tensor.nonzero > tensor.count) {
      return wrong(name, "blocks must have 4 elements of a row, of which at least one is not zero");
    }
  }
  return tensor;
}

Fault check_parts(const std::string& name, const PackedTensor& tensor) {
  const std::string plain = tensor.dtype == "I4" ? "I8" : tensor.dtype;
  const auto is_part = [](const Entry& entry, std::string_view dtype) {
    return (entry.dtype == dtype || entry.dtype == "U8") && entry.shape.size() == 1;
  };
  if (!is_part(tensor.values, plain) || (tensor.positions && !is_part(*tensor.positions, "U8")) ||
      (tensor.scales && !is_part(*tensor.scales, "BF16"))) {
    return wrong(name, "parts must be of their dtype or U8, with one axis");
  }
  if (tensor.values.dtype == plain && tensor.values.shape[0] != tensor.count) {
    return wrong(name, "::values must have " + std::to_string(tensor.count) + " values");
  }
  if (tensor.scales) {
    // Before anything is unpacked: rows cost a file nothing, and a reader memory.
    const int64_t rows = tensor.stored_rows(), groups = tensor.groups(), length = tensor.scales->shape[0];
    const bool is_frame = tensor.scales->dtype == "U8";
    const uint64_t most = is_frame ? kMostRatio * static_cast<uint64_t>(length) / 2 : static_cast<uint64_t>(length);
    const bool fits = !rows || !groups || static_cast<uint64_t>(rows) <= most / static_cast<uint64_t>(groups);
    if (!fits || (!is_frame && rows * groups != length)) {
      return wrong(name, "::scales must be as many as the rows need, or a frame large enough for them");
    }
  }
  return std::nullopt;
}

}  // namespace

int64_t elements_of(const Shape& shape, size_t first_axis) {
  int64_t elements = 1;
  for (size_t axis = first_axis; axis < shape.size(); ++axis) elements *= shape[axis];
  return elements;
}

std::string shown(const Shape& shape) {
  std::string text = "[";
  for (const int64_t length : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(length);
  return text + "]";
}

int64_t PackedTensor::stored_rows() const {
  if (layout == Layout::kRows) return row() ? count / row() : 0;
  return shape.empty() ? 1 : shape[0];
}

int64_t PackedTensor::groups() const {
  return dtype == "I4" && !is_sparse() ? (row() + kGroup - 1) / kGroup : 1;
}

Result<Weights> Weights::open(Bytes file) {
  Weights weights;
  weights.file_ = std::move(file);
  const Bytes& bytes = weights.file_;
  uint64_t length = 0;
  for (size_t i = 0; i < 8 && i < bytes.size(); ++i) length |= uint64_t{bytes[i]} << 8 * i;
  if (bytes.size() < 8 || length > bytes.size() - 8) return wrong("the file must contain the header, got a shorter file");
  if (length > kMostHeader) return wrong("the header must have at most 16777216 bytes");
  weights.start_ = 8 + static_cast<size_t>(length);
  const Result<Json> header = Json::parse(text_of(bytes).substr(8, static_cast<size_t>(length)));
  if (!header) return wrong("invalid JSON: " + header.error().text);
  if (!header->members()) return wrong("header: must be a JSON object");
  for (const JsonMember& member : *header->members()) {
    if (member.name == "__metadata__") continue;
    Result<Entry> entry = entry_of(member.name, member.value);
    if (!entry) return entry.error();
    weights.plain_.emplace(member.name, std::move(*entry));
  }
  // The entries fill the data without gaps or overlaps.
  using Span = std::pair<uint64_t, uint64_t>;
  std::vector<Span> spans;
  for (const auto& [name, entry] : weights.plain_) spans.emplace_back(entry.begin, entry.end);
  sort_stably(spans, [](const Span& a, const Span& b) { return a < b; });
  uint64_t end = 0;
  for (const auto& [begin, next] : spans) {
    if (begin != end) return wrong("the data of a tensor must start where the one before ends");
    end = next;
  }
  if (end != bytes.size() - weights.start_) return wrong("the tensors must take all bytes of the file");
  const Json* metadata = header->find("__metadata__");
  if (!metadata || !has_exactly(*metadata, {"mvprune"}) || !metadata->find("mvprune")->text()) {
    return wrong("__metadata__: must have exactly the fields mvprune (str)");
  }
  const Result<Json> own = Json::parse(*metadata->find("mvprune")->text());
  if (!own) return wrong("mvprune: invalid JSON: " + own.error().text);
  if (Fault fault = weights.assemble(*own)) return *fault;
  if (Fault fault = weights.check_elements()) return *fault;
  return weights;
}

Fault Weights::assemble(const Json& metadata) {
  const Json* version = metadata.find("version");
  if (!version || version->whole() != kVersion) return wrong("version must be 3");
  if (!has_exactly(metadata, {"aliases", "base", "packed", "version"}) || !metadata.find("aliases")->members() ||
      !metadata.find("base")->members() || !metadata.find("packed")->members()) {
    return wrong("mvprune: must have exactly the fields aliases, base, packed, version");
  }
  if (!metadata.find("base")->members()->empty()) {
    return Error{"weights.safetensors: it is a delta artifact, part of whose tensors are in its base "
                 "model; submit its job without --delta",
                 Code::kUnsupported};
  }
  for (const JsonMember& member : *metadata.find("packed")->members()) {
    const std::string& name = member.name;
    Result<PackedTensor> tensor = described(name, member.value);
    if (!tensor) return tensor.error();
    const auto values = taken(plain_, name + "::values");
    tensor->positions = taken(plain_, name + "::positions");
    tensor->scales = taken(plain_, name + "::scales");
    if (!values || tensor->positions.has_value() == (tensor->layout == Layout::kFull) ||
        tensor->scales.has_value() != tensor->has_scales()) {
      return wrong(name, "a packed tensor must have ::values, ::positions unless full, and ::scales where they are I8 or I4");
    }
    tensor->values = *values;
    if (Fault fault = check_parts(name, *tensor)) return fault;
    packed_.emplace(name, std::move(*tensor));
  }
  const auto is_stored = [&](const std::string& name) { return plain_.count(name) || packed_.count(name); };
  const auto bad_name = [](const std::string& name) {
    return wrong("names of tensors must be 1 to 256 printable characters without '::', '/' and '\\', got '" + shown(std::string_view(name)) + "'");
  };
  for (const auto& [name, entry] : plain_) {
    if (!is_name(name)) return bad_name(name);
  }
  for (const auto& [name, tensor] : packed_) {
    if (!is_name(name)) return bad_name(name);
    if (plain_.count(name)) return wrong(name, "must be stored once, got twice");
  }
  for (const JsonMember& member : *metadata.find("aliases")->members()) {
    const std::string* target = member.value.text();
    if (!is_name(member.name)) return bad_name(member.name);
    if (is_stored(member.name) || !target || !is_stored(*target)) {
      return wrong("aliases must be new names of stored tensors, got '" + shown(std::string_view(member.name)) + "'");
    }
    aliases_.emplace(member.name, *target);
  }
  return std::nullopt;
}

Fault Weights::check_elements() const {
  const uint64_t most = std::max(kElementsAlways, kElementsPerByte * static_cast<uint64_t>(file_.size()));
  uint64_t elements = 0;
  const auto add = [&](const Shape& shape) {
    uint64_t product = 1;  // at most 2^60
    for (const int64_t length : shape) product *= static_cast<uint64_t>(std::max<int64_t>(length, 1));
    elements = std::min(elements + product, uint64_t{1} << 62);
  };
  for (const auto& [name, entry] : plain_) add(entry.shape);
  for (const auto& [name, tensor] : packed_) add(tensor.shape);
  for (const auto& [name, target] : aliases_) add(*shape(target));
  if (elements <= most) return std::nullopt;
  return wrong("the tensors must have at most " + std::to_string(most) + " elements, got " + std::to_string(elements));
}

const std::string& Weights::stored_name(const std::string& name) const {
  const auto found = aliases_.find(name);
  return found == aliases_.end() ? name : found->second;
}

const Entry* Weights::plain(const std::string& stored) const {
  const auto found = plain_.find(stored);
  return found == plain_.end() ? nullptr : &found->second;
}

const PackedTensor* Weights::packed(const std::string& stored) const {
  const auto found = packed_.find(stored);
  return found == packed_.end() ? nullptr : &found->second;
}

const Shape* Weights::shape(const std::string& name) const {
  const std::string& stored = stored_name(name);
  if (const Entry* entry = plain(stored)) return &entry->shape;
  const PackedTensor* tensor = packed(stored);
  return tensor ? &tensor->shape : nullptr;
}

}  // namespace mvprune
