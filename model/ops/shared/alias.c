/* What ops share whose output 0 has the bytes of input 0. */
#include "model/ops/shared/alias.h"

#include <string.h>

#include "model/ops/shared/backward.h"

int alias_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  struct shape x = node_input(graph, node, 0)->shape;
  (void)err;
  autodiff_add(ad, node, 0, backward_reshape(graph, autodiff_grad(ad, node, 0), &x));
  return ERR_OK;
}

int alias_ref(const struct op_call *call, struct err *err) {
  const struct tensor *in = &call->in[0];
  size_t size_bytes = (size_t)shape_elems(&in->shape) * dtype_size(in->dtype);
  (void)err;
  if (size_bytes > 0 && in->data != call->out[0].data)
    memcpy(call->out[0].data, in->data, size_bytes);
  return ERR_OK;
}
