/* The weights of version 0. */
#include "client/cluster/initial_weights.h"

#include "client/cluster/weights_sources.h"

int initial_weights(const struct submitted_model *model, struct buffer **flat, struct err *err) {
  struct weights_source source;
  uint64_t elems;
  if (!model->spec || !model->spec->train)
    return err_set(err, ERR_CORRUPT, "the run has no spec");
  if (weights_from_file(model, &source, &elems, err))
    return err->code;
  *flat = buffer_new(elems * sizeof(float));
  if (!*flat)
    err_set(err, ERR_NO_MEMORY, "no memory for the weights");
  else
    source.read(source.user, (*flat)->data, elems, err);
  source.close(source.user);
  return err->code;
}
