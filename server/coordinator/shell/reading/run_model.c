/* The model of a run, as the coordinator has it in memory. */
#include "server/coordinator/shell/reading/run_model.h"

#include <stdlib.h>
#include <string.h>

struct run_model *run_model_new(struct buffer *file) {
  struct run_model *model = mem_new(sizeof *model);
  model->refs = 1;
  model->file = file;
  onnx_outline_make(file->data, file->size_bytes, &model->pieces);
  if (model->pieces.bytes)
    model->outline = buffer_new(model->pieces.size_bytes);
  if (model->outline) {
    memcpy(model->outline->data, model->pieces.bytes, model->pieces.size_bytes);
    sha256_hex(model->outline->data, model->outline->size_bytes, model->outline_sha256);
  } else {
    model->outline = buffer_get(file);
  }
  free(model->pieces.bytes);
  model->pieces.bytes = NULL;
  return model;
}

struct run_model *run_model_get(struct run_model *model) {
  __atomic_add_fetch(&model->refs, 1, __ATOMIC_RELAXED);
  return model;
}

void run_model_put(struct run_model *model) {
  if (!model || __atomic_sub_fetch(&model->refs, 1, __ATOMIC_ACQ_REL))
    return;
  onnx_outline_fini(&model->pieces);
  buffer_put(model->outline);
  buffer_put(model->file);
  free(model);
}

int run_model_read(void *user, const struct piece_read *reads, int n, struct err *err) {
  const struct run_model *model = user;
  for (int i = 0; i < n; i++) {
    const struct piece_place *place = onnx_outline_find(&model->pieces, reads[i].key);
    if (!place || place->size_bytes != reads[i].size_bytes)
      return err_set(err, ERR_NOT_FOUND, "piece %s is not in the model", reads[i].key);
    memcpy(reads[i].to, place->data, place->size_bytes);
  }
  return 0;
}
