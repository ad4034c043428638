// Every reader of tensors, for one tensor of a weights file.
#include <string>

#include "client/native/library/layouts.h"

using namespace mvprune;

namespace {

std::string error;

const char* said(const Error& found) {
  error = found.text;
  return error.c_str();
}

}  // namespace

// Null, or why the file or its tensor of that name is refused.
extern "C" const char* test_unpack(const char* folder, const char* name) {
  Result<Bytes> file = Folder(folder).read("weights.safetensors", uint64_t{1} << 40);
  if (!file) return said(file.error());
  const Result<Weights> weights = Weights::open(std::move(*file));
  if (!weights) return said(weights.error());
  const Shape* shape = weights->shape(name);
  if (!shape) return said(Error{"there is no such tensor"});
  const auto whole = whole_tensor(*weights, name, *shape);
  if (shape->size() == 2) {
    const auto elements = nonzero_elements(*weights, name);
    const auto table = stored_table(*weights, name);
    if (whole && elements && elements->rows * elements->columns < 1 << 20) {
      laid_out(*elements);
      laid_out_for_bytes(*elements);
    }
    if (!elements) return said(elements.error());
    if (!table) return said(table.error());
  }
  return whole ? nullptr : said(whole.error());
}
