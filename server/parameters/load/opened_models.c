/* The models with which runs were loaded lately, opened. */
#include "server/parameters/load/opened_models.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/spec.h"
#include "common/agree/spec_program.h"
#include "common/base/memory.h"
#include "common/optim/trained_model.h"

struct opened_model {
  char *sha256; /* of the file that was opened */
  Weir__RunSpec *spec;
  int64_t samples;
  size_t size_bytes;
  struct model *model;
  struct opened_model *next;
};

static const char *sha256_of(const Weir__LoadRun *order) {
  return *order->outline_sha256 ? order->outline_sha256 : order->model_sha256;
}

static void opened_free(struct opened_model *opened) {
  model_close(opened->model);
  spec_free(opened->spec);
  free(opened->sha256);
  free(opened);
}

static bool is_wanted(const struct opened_model *opened, const struct model_wanted *wanted) {
  return strcmp(opened->sha256, sha256_of(wanted->order)) == 0 && opened->samples == wanted->samples &&
         spec_has_same_program(opened->spec, wanted->spec);
}

/* Taken from the list; NULL: it is not there. */
static struct opened_model *take(struct opened_models *models, const struct model_wanted *wanted) {
  struct opened_model **at = &models->first, *opened;
  while (*at && !is_wanted(*at, wanted))
    at = &(*at)->next;
  opened = *at;
  if (opened)
    *at = opened->next;
  return opened;
}

/* The model may refer to its spec, so it has one of its own. */
static int open_wanted(const struct model_wanted *wanted, struct opened_model **out, struct err *err) {
  struct fetched_model file;
  struct opened_model *opened;
  int code = wanted->fetch(wanted->user, &file, err);
  if (code)
    return code;
  opened = mem_new(sizeof *opened);
  opened->sha256 = mem_strdup(sha256_of(wanted->order));
  opened->spec = spec_copy(wanted->spec);
  opened->samples = wanted->samples;
  opened->size_bytes = file.size_bytes;
  code = trained_model_open(&(struct model_source){.onnx = file.bytes,
                                                   .size_bytes = file.size_bytes,
                                                   .spec = opened->spec,
                                                   .samples = opened->samples},
                            &opened->model, err);
  free(file.bytes);
  if (code)
    opened_free(opened);
  else
    *out = opened;
  return code;
}

int opened_models_get(struct opened_models *models, const struct model_wanted *wanted,
                      const struct model **out, struct err *err) {
  struct opened_model *opened = take(models, wanted);
  int code = opened ? 0 : open_wanted(wanted, &opened, err);
  if (code)
    return code;
  opened->next = models->first;
  models->first = opened;
  *out = opened->model;
  return 0;
}

void opened_models_trim(struct opened_models *models) {
  struct opened_model **at = &models->first, *opened;
  size_t bytes = 0;
  for (int n = 0; (opened = *at);) {
    bytes += opened->size_bytes;
    if (++n <= OPENED_MODELS_MAX && bytes <= OPENED_BYTES_MAX) {
      at = &opened->next;
      continue;
    }
    *at = opened->next;
    opened_free(opened);
  }
}

void opened_models_fini(struct opened_models *models) {
  while (models->first) {
    struct opened_model *opened = models->first;
    models->first = opened->next;
    opened_free(opened);
  }
}
