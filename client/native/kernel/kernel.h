// What the parts of the library share: the matrices, the products asked for, one table of functions per instruction set.
#pragma once

#include <cstdint>

namespace mvprune {

// fp16 and int4: only of tables. quads, full: only of matrices, for activations in int8.
enum class Values : int32_t { fp32 = 0, bf16 = 1, int8 = 2, fp16 = 3, int4 = 4, quads = 5, full = 6 };

enum class Activation : int32_t { none = 0, gelu = 1, gelu_tanh = 2, relu = 3 };

// Rows are stored in bands of this many, whose sums stay in L2; a row within its band fits uint8.
constexpr int64_t kBand = 256;

// The widest block of columns; every block divides it. Its indices fit uint16.
constexpr int64_t kWidestBlock = 1024;

// The block of quads: columns of a token that share a scale. Its sums of bytes fit int32.
constexpr int64_t kQuadBlock = 512;

// Rows of a full matrix whose sums are in registers together.
constexpr int64_t kTogether = 4;

// A sparse (rows, columns) matrix. The non-zeros lie band of rows by band, block of columns by block within a band, and
// within a block row by row, the fullest rows first: then rows of as many non-zeros follow each other, and the processor
// foresees the end of their loops. The i-th of the rows there is order[i]; its non-zeros are starts[i] up to starts[i + 1].
// Of quads, what is stored are not non-zeros but groups of four columns from a multiple of four on, of which one is not
// zero: four int8 each. A full matrix stores all of its groups: band by band, block by block, kTogether rows by kTogether
// rows, and then group by group, those of the rows beside each other. Rows of zeros fill up the last ones of a band.
// Laid out as kernel.py's Matrix.
struct Matrix {
  int64_t rows;
  int64_t columns;
  int64_t block;  // columns in one
  const int64_t* starts;  // null if full, as are order and indices
  const uint8_t* order;  // row within its band
  const uint16_t* indices;  // column within its block; of quads, the group
  const void* values;
  const float* scales;  // one a row; null unless int8, quads or full
  const int32_t* offsets;  // one for each row of each block, as order: 128 times the sum of its values; null unless quads or full
  Values kind;
};

// y = activation(x W^T + bias) + residual. Laid out as kernel.py's _Product.
struct Product {
  const Matrix* matrix;
  const float* bias;      // null: none
  const float* residual;  // null: none
  float* y;
  Activation activation;
};

// Adds the product of one band of rows and one block of columns to sums, for that block of a panel; see kernel.cpp.
using Accumulate = void (*)(const Product& product, int64_t band, int64_t block, const float* panel, float* sums);

// norm(v) = (v - mean(v)) / sqrt(variance(v) + epsilon) * weight + bias. Laid out as layers.py's _Norm.
struct Norm {
  const float* weight;  // null: norm(v) = v
  const float* bias;    // null: none
  float epsilon;
};

// How the scores of a layer depend on where its tokens are. Columns of distances, query minus key, are from -span on.
// Laid out as layers.py's _Places.
struct Places {
  int64_t span;           // at least 32 more than the tokens of any example
  int64_t window;         // the distance beyond which `bias` hides all keys; 0: none
  const float* bias;      // (heads, 2 span) of distances, added to the scores; null: none
  int64_t bias_stride;    // from one head to the next; 0: all have the same
  const float* to_key;    // (attended, 2 span) of distances: what a query's products with keys are added to; null: none
  const float* to_query;  // the same of a key's products with queries; null if to_key is
  const float* most;      // (heads, 2): the greatest sizes in a head's rows of to_key and to_query
  const float* turns;     // (head's size, span) of tokens: cosines, then sines, which turn query and key; null: none
};

// A Transformer's block. One that normalizes after each sum: a = attention_norm(x + out(attention(query(x), key(x),
// value(x)))), then y = output_norm(a + down(activation(up(a)))). One that normalizes before: n = attention_norm(x),
// a = x + out(attention(query(n), key(n), value(n))), then y = a + down(activation(up(output_norm(a)))). Of the products, y
// and residual are not used. Laid out as layers.py's _Layer.
struct Layer {
  Product query;       // matrix of all three if that of key and value is null: their rows follow each other
  Product key, value;
  Product out, up, down;
  Norm attention_norm, output_norm;
  int64_t heads;
  float scale;         // of the scores
  int32_t normalizes_before;
  int32_t is_gated;    // up has two halves: down(activation(first) * second)
  const Places* places;  // null: scores do not depend on them
};

inline int64_t attended_rows(const Layer& layer) {
  return layer.key.matrix ? layer.query.matrix->rows : layer.query.matrix->rows / 3;
}

// Two int4 numbers make a byte, each plus 8: those of kHalf columns the low bits, those of the next kHalf the high bits.
// Rows are filled up to 2 kHalf columns.
constexpr int64_t kHalf = 16;

// Columns of an int4 row that share a scale.
constexpr int64_t kScaled = 64;

// Rows that tokens refer to: a row is its numbers, times its scales if there are scales. Laid out as kernel.py's _Table.
struct Table {
  int64_t rows;
  const void* numbers;  // (rows, columns)
  const float* scales;  // one a row, of int4 one for kScaled columns of it; null: none
  Values kind;
};

// The sum of one row of each table, normalized. Laid out as kernel.py's _Embedding.
struct Embedding {
  const Table* tables;
  int64_t count;
  int64_t columns;
  const Norm* norm;  // null: none
};

// Rows [first, last) of a matrix.
struct Rows {
  int64_t first;
  int64_t last;
};

// Tokens [first, last) of x, at most `lanes * vectors` of them.
struct Tokens {
  int64_t first;
  int64_t last;
};

// Examples that lie one behind the other in the lanes of one block of tokens, or one example of any number of blocks.
struct Pack {
  int64_t first;    // token of the call
  int64_t tokens;   // of all its examples
  int64_t width;    // tokens in a block, whole vectors; the last block may have fewer
  int64_t blocks;
  int64_t example;  // the first
  int64_t examples;
  int64_t place;    // tokens of the packs before it, each filled up to whole vectors
};

// One example of a pack, its query, key and value: (features, tokens), block of tokens by block. Behind them there is room
// for a vector.
struct Example {
  const float* products;  // of the pack
  int64_t tokens;         // of the pack
  int64_t width;          // of the pack
  int64_t place;          // of its first token in the pack
  int64_t length;         // tokens
  const uint8_t* kept;    // for each token, whether others may attend to it; null: all
};

// One head of an example: rows of each block of its products. Its tables are at distance 0.
struct Head {
  int64_t features;  // rows in all
  int64_t key;       // first row of its keys
  int64_t value;     // first row of its values
  int64_t size;      // rows of each
  float scale;
  int64_t window;
  const float* bias;
  const float* to_key;
  const float* to_query;
  int64_t stride;    // from one row of to_key and of to_query to the next
  float most_of_key, most_of_query;
};

// One head's context of queries of an example that are in one block: `queries` and `out` are rows of `width`.
using Attend = void (*)(const Head& head, const Example& example, Tokens tokens, const float* queries, int64_t width, float* memory, float* out);

// The gradient of a penalty on the scores S: factor times the slope of the logistic function at S - shift. Laid out as
// passes.py's _Penalty.
struct Penalty {
  const float* scores;  // null: no penalty
  float factor;
  float shift;
};

// A selection of the largest importances: score + factor |weight|, or the score. Laid out as passes.py's _Bracket.
struct Bracket {
  const float* scores;
  const float* weights;  // null: not weighted
  float factor;
  float low, high;
  int64_t count;
  uint8_t* kept;  // written: 1 from high on, else 0
  // Those in [low, high), as many as `capacity`, in the order of the indices.
  int64_t* indices;
  float* candidates;
  int64_t capacity;
  int64_t found;  // written: how many are in [low, high)
  int64_t above;  // written: how many are kept
};

// One instruction set. All functions work on one block of tokens and use the scratch memory they are given.
struct Isa {
  const char* name;
  int64_t lanes;    // floats in a vector
  int64_t vectors;  // vectors of tokens in a block, at most
  int64_t byte_vectors;  // the same where all products are of bytes: their panels take a quarter of the cache
  // Floats of scratch memory that the functions below need for a block of `vectors` vectors.
  int64_t (*scratch)(const Matrix& matrix, const Matrix* up, int64_t vectors);
  // The part-th of `parts` equal ranges of rows, for one block of tokens of x.
  void (*linear)(const Product& product, const float* x, Tokens tokens, int64_t part, int64_t parts, float* scratch);
  // values[i] += the gradient of the i-th non-zero, the sum of grad[token, row] x[token, column] over one block of tokens;
  // for the part-th of `parts` equal ranges of rows. Scratch memory is that of `linear`.
  void (*sample)(const Matrix& matrix, const float* grad, const float* x, Tokens tokens, int64_t part, int64_t parts, float* values, float* scratch);
  // down(activation(up(x))), for one block of tokens; the inner values stay transposed.
  void (*feed_forward)(const Product& up, const Product& down, const float* x, Tokens tokens, float* scratch);
  // Floats of scratch memory that `finish` needs for a block of `vectors` vectors, and examples of up to `length` tokens.
  int64_t (*layer_scratch)(const Layer& layer, int64_t length, int64_t vectors);
  // y (tokens, columns) of the tokens' rows: ids[k] are those of the k-th table.
  void (*embed)(const Embedding& embedding, const int64_t* const* ids, Tokens tokens, float* y);
  // The panel of one block of tokens of x (tokens, columns), and back, normalized.
  void (*enter)(const float* x, int64_t columns, Tokens tokens, float* panel);
  void (*leave)(const Norm& norm, float* panel, int64_t columns, Tokens tokens, float* y);
  // query(x), key(x) and value(x) of the block-th block of a pack, of the panel of x. `lengths` are the tokens of the
  // pack's examples. Scratch memory is that of `finish`.
  void (*project)(const Layer& layer, const Pack& pack, const int64_t* lengths, int64_t block, const float* panel, float* products, float* scratch);
  // The layer for the same tokens, with the products of all blocks: the panel of x becomes that of y. `kept` is that of
  // the pack's tokens.
  void (*finish)(const Layer& layer, const Pack& pack, const int64_t* lengths, const uint8_t* kept, int64_t block, const float* products, float* panel, float* scratch);
  // With G in grad and the mask's bits, of `count` weights: of_scores = G W plus the penalty's gradient, grad = G where the
  // bit is set. The lowest bit of a byte is the first.
  void (*share_gradient)(float* grad, const float* weight, const uint8_t* bits, float* of_scores, const Penalty& penalty, int64_t count);
  // out = the weights times their bits.
  void (*mask_weights)(const float* weight, const uint8_t* bits, float* out, int64_t count);
  void (*mask_to_bf16)(const float* weight, const uint8_t* bits, uint16_t* out, int64_t count);
  void (*select_above)(Bracket& bracket);
};

extern const Isa kBaseline;
extern const Isa kAvx2;
extern const Isa kAvx512;

// The products of bytes by one instruction.
struct Dots {
  int64_t lanes;  // of the instruction sets that can use it
  bool fast;      // whether that is one for four bytes at once
  Accumulate (*accumulate_for)(Values kind, int64_t vectors);
  Attend attend;  // by products of int16; null if not fast
};

// By a multiplication for each byte: as exact, and slower than products of floats.
extern const Dots kBaselineDots;
extern const Dots kAvx2Dots;
extern const Dots kAvx512Dots;
// By vpdpbusd, of 8 and 16 lanes. AVX-VNNI and AVX-512 encode it differently.
extern const Dots kAvxVnni;
extern const Dots kAvx512VlVnni;
extern const Dots kAvx512Vnni;

#if defined(__x86_64__) && __has_include(<avxvnniintrin.h>)
#define MVPRUNE_HAS_AVXVNNI 1
#else
#define MVPRUNE_HAS_AVXVNNI 0
#endif

// What the chosen instruction set uses.
extern const Dots* dots;

}  // namespace mvprune
