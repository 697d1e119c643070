/* DIR/run: JSON. */
#include "client/files/run_file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/files/output_file.h"
#include "common/base/memory.h"

static char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? mem_strdup(text) : NULL;
}

int run_file_read(const char *folder, struct run_file *file, struct err *err) {
  char *path = mem_printf("%s/run", folder);
  json_error_t json_err;
  json_t *object = json_load_file(path, 0, &json_err);
  *file = (struct run_file){0};
  if (!object && access(path, F_OK) != 0) {
    err_set(err, ERR_NOT_FOUND, "%s: no such file", path);
  } else {
    *file = (struct run_file){.run = text_of(object, "run"),
                              .store = text_of(object, "store"),
                              .model_sha256 = text_of(object, "model_sha256")};
    if (!file->run || !file->model_sha256)
      err_set(err, ERR_INVALID, "%s: does not say which run the folder holds: none began", path);
  }
  json_decref(object);
  free(path);
  return err->code;
}

int run_file_write(const char *folder, const struct run_file *file, struct err *err) {
  char *path = mem_printf("%s/run", folder);
  json_t *object = json_pack("{s:s*, s:s, s:s*}", "run", file->run, "model_sha256", file->model_sha256,
                             "store", file->store);
  char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
  if (text)
    output_file_save(path, text, strlen(text), err);
  else
    err_set(err, ERR_INVALID, "%s: cannot be written: the store's URL is not UTF-8", path);
  free(text);
  json_decref(object);
  free(path);
  return err->code;
}

void run_file_fini(struct run_file *file) {
  free(file->run);
  free(file->store);
  free(file->model_sha256);
  *file = (struct run_file){0};
}
