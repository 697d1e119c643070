/* Trained tensors of an export, as their weights come. */
#include "client/files/trained_tensor.h"

#include <stdlib.h>

enum { PART_ELEMS = 1 << 18 };

int submitted_model_open(const struct submitted_model *from, struct model **out, struct err *err) {
  const Weir__RunSpec *spec = from->spec;
  return model_open(
      &(struct model_source){.onnx = from->onnx,
                             .size_bytes = from->onnx_size,
                             .spec = spec,
                             .samples = spec ? spec->train->batch / spec->train->microbatches : 1},
      out, err);
}

bool tensor_of_run(const struct model *model, int initializer, struct tensor_of_run *out) {
  const struct initializer *of = &model->initializers[initializer];
  if (of->param >= 0)
    *out = (struct tensor_of_run){&model->params[of->param].shape, model->params[of->param].elems};
  else if (of->statistic >= 0)
    *out = (struct tensor_of_run){&model->statistics[of->statistic].shape,
                                  model->statistics[of->statistic].elems};
  return of->param >= 0 || of->statistic >= 0;
}

/* A tensor's weights, which are the next to come. */
struct tensor_coming {
  int initializer;
  uint64_t elems;
  float *room; /* [PART_ELEMS] */
};

static int read_tensor(const struct tensor_coming *tensor, const struct weights_source *weights,
                       int (*each)(void *user, const struct tensor_part *part, struct err *err), void *user,
                       struct err *err) {
  for (uint64_t begin = 0; begin < tensor->elems; begin += PART_ELEMS) {
    uint64_t left = tensor->elems - begin;
    struct tensor_part part = {tensor->initializer, begin, left < PART_ELEMS ? left : PART_ELEMS,
                               tensor->room};
    if (weights->read(weights->user, tensor->room, part.elems, err) || each(user, &part, err))
      return err->code;
  }
  return 0;
}

/* Parameters in the order of initializers, then statistics likewise. */
int weights_each_part(const struct model *model, const struct weights_source *weights,
                      int (*each)(void *user, const struct tensor_part *part, struct err *err), void *user,
                      struct err *err) {
  float *room = mem_new(PART_ELEMS * sizeof *room);
  for (int statistics = 0; statistics < 2; statistics++)
    for (int i = 0; i < model->n_initializers && !err->code; i++) {
      struct tensor_of_run tensor;
      if (!tensor_of_run(model, i, &tensor) || (model->initializers[i].param < 0) != (statistics == 1))
        continue;
      read_tensor(&(struct tensor_coming){i, tensor.elems, room}, weights, each, user, err);
    }
  if (!err->code)
    weights->end(weights->user, err);
  free(room);
  return err->code;
}
