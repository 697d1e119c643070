#include "tests/support/parameters/given_model.h"

#include <string.h>

#include "common/base/memory.h"

struct given_model {
  const void *file;
  size_t size_bytes;
};

static int copy_file(void *user, struct fetched_model *file, struct err *err) {
  const struct given_model *given = user;
  (void)err;
  *file = (struct fetched_model){mem_new(given->size_bytes), given->size_bytes};
  memcpy(file->bytes, given->file, given->size_bytes);
  return 0;
}

int given_model_load(struct run_setup *setup, const void *file, size_t size_bytes, struct hosted_run **run,
                     struct err *err) {
  struct given_model given = {file, size_bytes};
  struct opened_models models = {0};
  int code;
  setup->models = &models;
  setup->fetch = copy_file;
  setup->fetch_user = &given;
  code = hosted_run_new(setup, run, err);
  opened_models_fini(&models);
  return code;
}
