// Runs the kernel's functions for another process: requests on stdin, answers on stdout. Built for another architecture
// and run by an emulator, it lets tests of this machine's Python reach that architecture's kernel; see emulated.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "kernel.h"

using namespace mvprune;

extern "C" const char* mvprune_choose(const char* name);
extern "C" int mvprune_linear(const Product* product, const float* x, int64_t tokens, int32_t threads);
extern "C" int mvprune_sample(const Matrix* matrix, const float* grad, const float* x, float* values, int64_t tokens, int32_t threads);
extern "C" int mvprune_feed_forward(const Product* up, const Product* down, const float* x, int64_t tokens, int32_t threads);
extern "C" int mvprune_embed(const Embedding* embedding, const int64_t* const* ids, float* y, int64_t tokens);
extern "C" int mvprune_layers(const Layer* layers, int64_t count, const Embedding* embedding, const int64_t* const* ids, const Norm* last, const float* x, const uint8_t* kept, const int64_t* lengths, float* y, int64_t examples, int32_t threads);

namespace {

void read_exactly(void* into, size_t bytes) {
  if (bytes && std::fread(into, 1, bytes, stdin) != bytes) std::exit(0);  // the other process has ended
}

void write_exactly(const void* from, size_t bytes) {
  if (bytes && std::fwrite(from, 1, bytes, stdout) != bytes) std::exit(1);
}

int64_t number() {
  int64_t value;
  read_exactly(&value, sizeof value);
  return value;
}

std::vector<void*> arrays;  // of the request

void forget_arrays() {
  for (void* memory : arrays) std::free(memory);
  arrays.clear();
}

// An array of the request. Its memory has exactly its bytes; absent ones are null.
template <typename T>
const T* array() {
  const int64_t bytes = number();
  if (bytes < 0) return nullptr;
  void* memory = std::malloc(bytes ? bytes : 1);
  read_exactly(memory, bytes);
  arrays.push_back(memory);
  return static_cast<const T*>(memory);
}

Matrix given_matrix() {
  Matrix matrix;
  matrix.rows = number();
  matrix.columns = number();
  matrix.block = number();
  matrix.kind = static_cast<Values>(number());
  matrix.starts = array<int64_t>();
  matrix.order = array<uint8_t>();
  matrix.indices = array<uint16_t>();
  matrix.values = array<uint8_t>();
  matrix.scales = array<float>();
  matrix.offsets = array<int32_t>();
  return matrix;
}

struct Given {
  Matrix matrix;
  Product product;

  explicit Given(float* y) : matrix(given_matrix()) {
    product.matrix = &matrix;
    product.bias = array<float>();
    product.residual = array<float>();
    product.y = y;
    product.activation = static_cast<Activation>(number());
  }
  Given(const Given&) = delete;
};

Norm given_norm() {
  Norm norm;
  norm.weight = array<float>();
  norm.bias = array<float>();
  norm.epsilon = *array<float>();
  return norm;
}

std::unique_ptr<Given> given_or_none() { return number() ? std::make_unique<Given>(nullptr) : nullptr; }

Product product_of(const std::unique_ptr<Given>& given) { return given ? given->product : Product{}; }

Places given_places() {
  Places places;
  places.span = number();
  places.window = number();
  places.bias = array<float>();
  places.bias_stride = number();
  places.to_key = array<float>();
  places.to_query = array<float>();
  places.most = array<float>();
  places.turns = array<float>();
  return places;
}

struct GivenLayer {
  Given query{nullptr};
  std::unique_ptr<Given> key = given_or_none(), value = given_or_none();
  Given out{nullptr}, up{nullptr}, down{nullptr};
  Layer layer{query.product, product_of(key), product_of(value), out.product, up.product, down.product, given_norm(), given_norm(),
              number(), *array<float>(), static_cast<int32_t>(number()), static_cast<int32_t>(number()), nullptr};
  bool has_places = number() != 0;
  Places places = has_places ? given_places() : Places{};

  GivenLayer() { layer.places = has_places ? &places : nullptr; }
  GivenLayer(const GivenLayer&) = delete;
};

struct GivenEmbedding {
  std::vector<Table> tables;
  Norm norm;
  Embedding embedding;

  GivenEmbedding() : tables(number()) {
    for (Table& table : tables) {
      table.rows = number();
      table.kind = static_cast<Values>(number());
      table.numbers = array<uint8_t>();
      table.scales = array<float>();
    }
    embedding = {tables.data(), static_cast<int64_t>(tables.size()), number(), nullptr};
    if (number()) {
      norm = given_norm();
      embedding.norm = &norm;
    }
  }
  GivenEmbedding(const GivenEmbedding&) = delete;
};

std::vector<const int64_t*> given_ids(int64_t count) {
  std::vector<const int64_t*> ids(count);
  for (auto& one : ids) one = array<int64_t>();
  return ids;
}

void answer(int64_t status, const std::vector<float>& y) {
  write_exactly(&status, sizeof status);
  write_exactly(y.data(), y.size() * sizeof(float));
  std::fflush(stdout);
}

}  // namespace

int main() {
  for (;;) {
    forget_arrays();
    const char request = static_cast<char>(number());
    if (request == 'c') {
      const char* name = mvprune_choose(array<char>());
      const int64_t found = name != nullptr;
      write_exactly(&found, sizeof found);
      std::fflush(stdout);
      continue;
    }
    std::vector<float> y(number());
    if (request == 'p') {
      const Given given(y.data());
      const auto* x = array<float>();
      const int64_t tokens = number();
      answer(mvprune_linear(&given.product, x, tokens, static_cast<int32_t>(number())), y);
    } else if (request == 's') {
      const Matrix matrix = given_matrix();
      const auto* values = array<float>();
      y.assign(values, values + y.size());
      const auto* grad = array<float>();
      const auto* x = array<float>();
      const int64_t tokens = number();
      answer(mvprune_sample(&matrix, grad, x, y.data(), tokens, static_cast<int32_t>(number())), y);
    } else if (request == 'f') {
      const Given up(nullptr), down(y.data());
      const auto* x = array<float>();
      const int64_t tokens = number();
      answer(mvprune_feed_forward(&up.product, &down.product, x, tokens, static_cast<int32_t>(number())), y);
    } else if (request == 'e') {
      const GivenEmbedding embedding;
      const std::vector<const int64_t*> ids = given_ids(embedding.embedding.count);
      const int64_t tokens = number();
      answer(mvprune_embed(&embedding.embedding, ids.data(), y.data(), tokens), y);
    } else {
      std::deque<GivenLayer> given(number());
      std::vector<Layer> layers;
      for (const GivenLayer& one : given) layers.push_back(one.layer);
      const bool embedded = number() != 0;
      const auto embedding = embedded ? std::make_unique<GivenEmbedding>() : nullptr;
      const std::vector<const int64_t*> ids = given_ids(embedded ? embedding->embedding.count : 0);
      const Norm last = given_norm();
      const auto* x = array<float>();
      const auto* kept = array<uint8_t>();
      const auto* lengths = array<int64_t>();
      const int64_t examples = number();
      const auto threads = static_cast<int32_t>(number());
      const Embedding* const first = embedded ? &embedding->embedding : nullptr;
      const auto count = static_cast<int64_t>(layers.size());
      answer(mvprune_layers(layers.data(), count, first, ids.data(), &last, x, kept, lengths, y.data(), examples, threads), y);
    }
  }
}
