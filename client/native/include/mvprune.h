/* Answers of mvprune artifacts, without Python: libmvprune.so.1. docs/native.md explains it.
 *
 * A model is opened once and shared: any number of threads may call it at the same time, and it is immutable. An output
 * belongs to the caller of the function that made it. No function throws or ends the process. Texts are UTF-8.
 *
 * Structs of options and facts begin with their size: set it with MVPRUNE_INIT, so that programs built with an older
 * header go on working. What is 0 is as usual. Functions that can fail return a status, and set *error, if `error` is
 * not null, to an error that says more, or to null. A null handle may be given to every function that closes or frees.
 */
#ifndef MVPRUNE_H
#define MVPRUNE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define MVPRUNE_API
#else
#define MVPRUNE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. A library of a larger minor version has all that one of a smaller has. */
#define MVPRUNE_MAJOR 1
#define MVPRUNE_MINOR 1

typedef enum mvprune_status {
  MVPRUNE_OK = 0,
  MVPRUNE_INVALID_ARGUMENT = 1, /* what the caller gave: ids, options, a null pointer */
  MVPRUNE_INVALID_ARTIFACT = 2, /* the files do not make an artifact, or differ from its manifest */
  MVPRUNE_UNSUPPORTED = 3,      /* a valid artifact of a kind that this library does not compute: the text says which */
  MVPRUNE_UNREADABLE = 4,       /* a file is missing or cannot be read */
  MVPRUNE_OUT_OF_MEMORY = 5,
  MVPRUNE_INTERNAL = 6, /* a fault of the library: please report it with the text */
  MVPRUNE_TOO_LONG = 7  /* a prompt of more tokens than the model takes */
} mvprune_status;

/* What a model answers with, and the shape of its values; see mvprune_output_values. */
typedef enum mvprune_task {
  MVPRUNE_VECTORS = 0,  /* a vector of each text: (examples, hidden size) */
  MVPRUNE_SEQUENCE = 1, /* logits of each text: (examples, labels); one label: a score, as of regression and rerankers */
  MVPRUNE_TOKENS = 2,   /* logits of each token: (tokens, labels) */
  MVPRUNE_SPANS = 3,    /* of each token the logits that an answer starts and ends there: (tokens, 2) */
  MVPRUNE_TEXT = 4      /* text that follows a prompt: see mvprune_begin */
} mvprune_task;

typedef enum mvprune_activations {
  MVPRUNE_ACTIVATIONS_AS_STORED = 0, /* what the artifact's manifest says */
  MVPRUNE_ACTIVATIONS_FP32 = 1,
  MVPRUNE_ACTIVATIONS_INT8 = 2 /* only where the machine has instructions for it (VNNI), else fp32; see mvprune_info */
} mvprune_activations;

typedef struct mvprune_model mvprune_model;
typedef struct mvprune_output mvprune_output;
typedef struct mvprune_error mvprune_error;

/* Sets all fields of a struct to 0, and its size: mvprune_inputs inputs; MVPRUNE_INIT(inputs); */
#define MVPRUNE_INIT(one) (memset(&(one), 0, sizeof(one)), (void)((one).size = sizeof(one)))

typedef struct mvprune_open_options {
  size_t size;
  int32_t activations; /* of mvprune_activations */
  /* Labels that a model of natural language inference chooses from: the JSON {"labels": [...], "template": "..."}, of
   * which the template is a sentence with {} in the place of a label, and may be left out. null: its own classes. */
  const char* hypotheses;
} mvprune_open_options;

/* A file in memory. */
typedef struct mvprune_file {
  const char* name; /* relative to the artifact: "config.json" */
  const uint8_t* data;
  size_t bytes;
} mvprune_file;

typedef struct mvprune_info {
  size_t size;
  int32_t task;             /* of mvprune_task */
  int32_t activations;      /* those in use: MVPRUNE_ACTIVATIONS_FP32 or MVPRUNE_ACTIVATIONS_INT8 */
  int64_t labels;           /* how many; 0 of a model of vectors or spans */
  int64_t hidden_size;
  int64_t max_length;       /* tokens of the longest text, special ones with them; 0: any number */
  double density;           /* the fraction of the prunable weights that is kept */
  int32_t is_multi_label;   /* a text may have several labels: sigmoid, not softmax */
  const char* instructions; /* the instruction set in use: "avx512", "avx2", "neon" or "generic" */
} mvprune_info;

/* Texts as ids, one behind the other. */
typedef struct mvprune_inputs {
  size_t size;
  const int64_t* ids;     /* (tokens,) */
  const int64_t* lengths; /* (examples,): tokens of each text, at least 1; their sum is `tokens` */
  int64_t examples;
  int64_t tokens;
  const int64_t* types; /* (tokens,): token types; null: all 0 */
  const uint8_t* mask;  /* (tokens,): 0 hides a token from the others; null: none is hidden. Texts need no padding. */
} mvprune_inputs;

/* Texts, or pairs of texts, of UTF-8 with a 0 at the end. */
typedef struct mvprune_texts {
  size_t size;
  const char* const* texts; /* (count,) */
  const char* const* pairs; /* (count,): the second text of each, or null for none; null: no text has a second one */
  int64_t count;            /* at least 1 */
  const char* prompt_name;  /* of a model of vectors: the prompt before each text; null: its default one, if it has one */
  int64_t dimensions;       /* of mvprune_encode: the first numbers of each vector; 0: all */
} mvprune_texts;

/* The tokens of texts, one text behind the other. Arrays are (tokens,), but `lengths`, and live as long as the output.
 * begins and ends count characters (code points) of the text with its prompt; both are 0 where `texts` is -1. */
typedef struct mvprune_tokens {
  size_t size;
  int64_t examples;
  const int64_t* lengths; /* (examples,) */
  int64_t tokens;
  const int64_t* ids;
  const int64_t* types;
  const int64_t* begins;
  const int64_t* ends;
  const int32_t* texts; /* 0: the first text of a pair, 1: the second, -1: a special token */
} mvprune_tokens;

typedef struct mvprune_run_options {
  size_t size;
  int32_t threads;      /* at most, the caller's among them; 0: one. They do not change the values. */
  int32_t wants_hidden; /* whether the output has the hidden states too */
} mvprune_run_options;

/* What a model reads before it writes: a text, or ids. */
typedef struct mvprune_prompt {
  size_t size;
  const char* text;   /* UTF-8, `bytes` of it; null: there are ids */
  size_t bytes;
  const int64_t* ids; /* (tokens,); null: there is a text */
  int64_t tokens;
  /* A JSON object of settings with the names of transformers: max_new_tokens, min_new_tokens, do_sample, temperature,
   * top_p, top_k, num_beams, length_penalty, early_stopping, repetition_penalty, no_repeat_ngram_size, eos_token_id; and
   * `seed` (of sampling; left out: another one each time), `stop` (a text or a list: the answer ends before the first of
   * them), `truncate` (of a prompt that is too long, its first tokens are left out, or of one for an encoder its last
   * ones) and `most_new_tokens` (a bound where max_new_tokens is left out). null: those of the artifact's
   * generation_config.json, as for each that is left out. */
  const char* parameters;
  int32_t threads;  /* at most, the caller's among them; 0: one. They do not change the text. */
  int32_t is_whole; /* whether the text has its begin token already, as that of a chat template; else it gets it. For an
                     * encoder: whether the text has its special tokens and the prefix of the artifact */
  int32_t goes_by_steps; /* with beams: 0: the first mvprune_next searches the text; 1: each call goes on with the search by
                          * a token of each beam, and its piece has the token -1 and `ended` 0 until it has the text */
} mvprune_prompt;

typedef enum mvprune_ended {
  MVPRUNE_GOES_ON = 0,
  MVPRUNE_STOPPED = 1, /* by the model, by a text of `stop`, or by mvprune_finish */
  MVPRUNE_FULL = 2     /* it has max_new_tokens tokens, or all of the model's positions */
} mvprune_ended;

/* A token that was written. */
typedef struct mvprune_piece {
  size_t size;
  int64_t token;    /* its id; -1: the text had ended before, or see goes_by_steps */
  const char* text; /* the characters that are final now, of this token or of some before it; a 0 follows them */
  size_t bytes;
  int32_t ended;    /* of mvprune_ended */
} mvprune_piece;

typedef struct mvprune_writing mvprune_writing;

/* The version of the library, as 1000 * major + minor: at least 1000 * MVPRUNE_MAJOR + MVPRUNE_MINOR of the header. */
MVPRUNE_API int32_t mvprune_version(void);

/* Opens an artifact's folder: checks the manifest and the size and SHA-256 of each file that it reads, and lays the
 * weights out for this machine. Nothing of the artifact is executed; any bytes give a model or an error.
 *
 * path: of the folder. options: null for the usual. model: set to the model, or to null. */
MVPRUNE_API mvprune_status mvprune_open(const char* path, const mvprune_open_options* options, mvprune_model** model,
                                        mvprune_error** error);

/* The same of files in memory, which are not needed after the call. Names that the library does not read are ignored. */
MVPRUNE_API mvprune_status mvprune_open_files(const mvprune_file* files, size_t count, const mvprune_open_options* options,
                                              mvprune_model** model, mvprune_error** error);

/* Frees a model. No call of it may be running, and no text may be unfinished. Outputs stay. */
MVPRUNE_API void mvprune_close(mvprune_model* model);

/* Facts of a model. info->size must be set. */
MVPRUNE_API mvprune_status mvprune_get_info(const mvprune_model* model, mvprune_info* info, mvprune_error** error);

/* The name of a label, from 0 on; null: there is none. It lives as long as the model. */
MVPRUNE_API const char* mvprune_label(const mvprune_model* model, int64_t label);

/* Computes the answers to texts as ids. options: null for the usual. output: set to the answers, or to null. */
MVPRUNE_API mvprune_status mvprune_run(const mvprune_model* model, const mvprune_inputs* inputs,
                                       const mvprune_run_options* options, mvprune_output** output, mvprune_error** error);

/* The same of texts: they are tokenized as tokenizer.json says, and cut to max_length of mvprune_info or the tokenizer's
 * own. Of pairs the longer text is cut, of questions with passages the passage, which is the second. A tokenizer with a
 * part that the library does not know is refused by its name: give ids then. */
MVPRUNE_API mvprune_status mvprune_run_texts(const mvprune_model* model, const mvprune_texts* texts,
                                             const mvprune_run_options* options, mvprune_output** output,
                                             mvprune_error** error);

/* The tokens of an output of mvprune_run_texts. tokens->size must be set. */
MVPRUNE_API mvprune_status mvprune_output_tokens(const mvprune_output* output, mvprune_tokens* tokens, mvprune_error** error);

/* What a model answers to texts, as JSON: its task, the fields of an input, its labels and more; see docs/native.md. It
 * lives as long as the model. Fails, as the two functions below, for a model whose tokenizer or task this library does
 * not have: such a model takes ids only. */
MVPRUNE_API mvprune_status mvprune_describe(const mvprune_model* model, const char** facts, mvprune_error** error);

/* Computes the answers to texts: `inputs` is a JSON list of objects with texts by the names of fields, the answers are
 * a JSON list of objects in the same order, which mvprune_output_text gives. */
MVPRUNE_API mvprune_status mvprune_predict(const mvprune_model* model, const char* inputs, size_t bytes,
                                           const mvprune_run_options* options, mvprune_output** output,
                                           mvprune_error** error);

/* Computes the vectors of texts: mvprune_output_values gives them, (texts, numbers). `pairs` must be null. */
MVPRUNE_API mvprune_status mvprune_encode(const mvprune_model* model, const mvprune_texts* texts,
                                         const mvprune_run_options* options, mvprune_output** output,
                                         mvprune_error** error);

/* Begins a text after a prompt. Many may be written at the same time, each by one thread at a time, and before the model
 * is closed each must be freed. Fails with MVPRUNE_TOO_LONG for a prompt that is too long and not cut, and with
 * MVPRUNE_INVALID_ARGUMENT for settings that the library does not have. */
MVPRUNE_API mvprune_status mvprune_begin(const mvprune_model* model, const mvprune_prompt* prompt, mvprune_writing** writing,
                                         mvprune_error** error);

/* Writes the next token. piece->size must be set; its text lives until the next call. */
MVPRUNE_API mvprune_status mvprune_next(mvprune_writing* writing, mvprune_piece* piece, mvprune_error** error);

/* Ends a text where it is: the piece has the characters that were not final yet, and no token. The next call of
 * mvprune_next says that it has ended. */
MVPRUNE_API mvprune_status mvprune_finish(mvprune_writing* writing, mvprune_piece* piece, mvprune_error** error);

/* How many tokens the prompt has, and how many of it were left out. Each may be null. */
MVPRUNE_API mvprune_status mvprune_writing_facts(const mvprune_writing* writing, int64_t* prompt_tokens,
                                                 int64_t* truncated_tokens, mvprune_error** error);

/* How many tokens the text has that was written; with beams, until they have a text, 0. */
MVPRUNE_API mvprune_status mvprune_written(const mvprune_writing* writing, int64_t* tokens, mvprune_error** error);

MVPRUNE_API void mvprune_writing_free(mvprune_writing* writing);

/* The JSON of mvprune_predict, which ends with a 0 that is not counted in `bytes`; of other outputs "". It lives as long
 * as the output. */
MVPRUNE_API const char* mvprune_output_text(const mvprune_output* output, size_t* bytes);

/* The values of an output, (rows, columns) float32, row by row: logits without softmax, or vectors. `rows` and `columns`
 * may be null. They live as long as the output. */
MVPRUNE_API const float* mvprune_output_values(const mvprune_output* output, int64_t* rows, int64_t* columns);

/* The last hidden states, (tokens, hidden size), if the call wanted them; else null. */
MVPRUNE_API const float* mvprune_output_hidden(const mvprune_output* output, int64_t* rows, int64_t* columns);

MVPRUNE_API void mvprune_output_free(mvprune_output* output);

/* The status that came with an error, and one sentence for people. The text lives as long as the error. */
MVPRUNE_API mvprune_status mvprune_error_status(const mvprune_error* error);
MVPRUNE_API const char* mvprune_error_text(const mvprune_error* error);
MVPRUNE_API void mvprune_error_free(mvprune_error* error);

#ifdef __cplusplus
}
#endif

#endif
