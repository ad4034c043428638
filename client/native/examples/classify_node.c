/* An addon of Node: require('./mvprune.node').logits(FOLDER, TEXT) gives {label: logit}.
 *
 * cc -shared -fPIC -I/usr/include/node classify_node.c -lmvprune -o mvprune.node
 *
 * A real addon would keep the model open, and call it on a thread of libuv's pool. */
#include <node_api.h>
#include <stdlib.h>

#include <mvprune.h>

static char* text_of(napi_env env, napi_value value) {
  size_t length = 0;
  if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != napi_ok) return NULL;
  char* text = malloc(length + 1);
  if (text) napi_get_value_string_utf8(env, value, text, length + 1, &length);
  return text;
}

static napi_value failed(napi_env env, mvprune_error* error) {
  napi_throw_error(env, NULL, mvprune_error_text(error));
  mvprune_error_free(error);
  return NULL;
}

static napi_value logits_of(napi_env env, const char* folder, const char* text) {
  mvprune_model* model;
  mvprune_output* output;
  mvprune_error* error;
  napi_value found = NULL;
  if (mvprune_open(folder, NULL, &model, &error)) return failed(env, error);
  mvprune_texts texts;
  MVPRUNE_INIT(texts);
  texts.texts = &text;
  texts.count = 1;
  if (mvprune_run_texts(model, &texts, NULL, &output, &error)) {
    failed(env, error);
  } else {
    int64_t columns;
    const float* values = mvprune_output_values(output, NULL, &columns);
    napi_create_object(env, &found);
    for (int64_t i = 0; i < columns; ++i) {
      napi_value number;
      napi_create_double(env, values[i], &number);
      napi_set_named_property(env, found, mvprune_label(model, i), number);
    }
    mvprune_output_free(output);
  }
  mvprune_close(model);
  return found;
}

static napi_value logits(napi_env env, napi_callback_info info) {
  size_t count = 2;
  napi_value given[2];
  napi_get_cb_info(env, info, &count, given, NULL, NULL);
  char *folder = count == 2 ? text_of(env, given[0]) : NULL, *text = count == 2 ? text_of(env, given[1]) : NULL;
  napi_value found = NULL;
  if (folder && text) {
    found = logits_of(env, folder, text);
  } else {
    napi_throw_type_error(env, NULL, "logits takes a folder and a text");
  }
  free(folder);
  free(text);
  return found;
}

NAPI_MODULE_INIT() {
  napi_value function;
  napi_create_function(env, "logits", NAPI_AUTO_LENGTH, logits, NULL, &function);
  napi_set_named_property(env, exports, "logits", function);
  return exports;
}
