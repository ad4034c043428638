// Runs the kernel's functions for another process: requests on stdin, answers on stdout. Built for another architecture
// and run by an emulator, it lets tests of this machine's Python reach that architecture's kernel; see emulated.py.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernel.h"

using namespace mvprune;

extern "C" const char* mvprune_choose(const char* name);
extern "C" int mvprune_linear(const Product* product, const float* x, int64_t tokens, int32_t threads);
extern "C" int mvprune_sample(const Matrix* matrix, const float* grad, const float* x, float* values, int64_t tokens, int32_t threads);
extern "C" int mvprune_feed_forward(const Product* up, const Product* down, const float* x, int64_t tokens, int32_t threads);
extern "C" int mvprune_layer(const Layer* layer, const float* x, const uint8_t* kept, float* y, int64_t examples, int64_t length, int32_t threads);

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
    } else {
      const Given query(nullptr), key(nullptr), value(nullptr), out(nullptr), up(nullptr), down(nullptr);
      Layer layer{query.product, key.product, value.product, out.product, up.product, down.product, {}, {}, 0, 0};
      for (Norm* norm : {&layer.attention_norm, &layer.output_norm}) {
        norm->weight = array<float>();
        norm->bias = array<float>();
        norm->epsilon = *array<float>();
      }
      layer.heads = number();
      layer.scale = *array<float>();
      const auto* x = array<float>();
      const auto* kept = array<uint8_t>();
      const int64_t examples = number(), length = number();
      answer(mvprune_layer(&layer, x, kept, y.data(), examples, length, static_cast<int32_t>(number())), y);
    }
  }
}
