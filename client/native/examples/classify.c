/* The labels of a text given as ids: classify FOLDER ID ...
 *
 * cc classify.c -lmvprune -o classify */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <mvprune.h>

static int failed(mvprune_error* error) {
  fprintf(stderr, "error: %s\n", mvprune_error_text(error));
  mvprune_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  mvprune_model* model;
  mvprune_output* output;
  mvprune_error* error;
  if (argc < 3) {
    fprintf(stderr, "classify FOLDER ID ...\n");
    return 2;
  }
  if (mvprune_open(argv[1], NULL, &model, &error)) return failed(error);

  int64_t length = argc - 2;
  int64_t* ids = malloc(sizeof(*ids) * (size_t)length);
  for (int64_t i = 0; i < length; ++i) ids[i] = strtoll(argv[i + 2], NULL, 10);
  mvprune_inputs inputs;
  MVPRUNE_INIT(inputs);
  inputs.ids = ids;
  inputs.lengths = &length;
  inputs.examples = 1;
  inputs.tokens = length;
  if (mvprune_run(model, &inputs, NULL, &output, &error)) return failed(error);

  int64_t rows, columns;
  const float* logits = mvprune_output_values(output, &rows, &columns);
  for (int64_t i = 0; i < columns; ++i) {
    const char* label = mvprune_label(model, i);
    printf("%s %.6f\n", label ? label : "", logits[i]);
  }
  mvprune_output_free(output);
  mvprune_close(model);
  free(ids);
  return 0;
}
