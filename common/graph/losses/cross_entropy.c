/* Cross-entropy of logits f32[batch,classes] and labels i64[batch], as PyTorch's CrossEntropyLoss. */
#include "common/graph/loss.h"

static int cross_entropy_attach(struct graph *graph, int output, int labels, struct loss_values *values,
                                struct err *err) {
  const struct value *out = &graph->values[output];
  int64_t batch = graph->values[labels].shape.dim[0];
  char shape[256];
  const struct node *node;
  if (out->dtype != DTYPE_F32 || out->shape.rank != 2 || out->shape.dim[0] != batch)
    return err_set(err, ERR_INVALID,
                   "loss 'cross_entropy' takes an output f32[%lld,classes] (%lld samples at a time), but the "
                   "model's output '%s' is %s%s",
                   (long long)batch, (long long)batch, out->name, dtype_name(out->dtype),
                   shape_text(&out->shape, shape, sizeof shape));
  node = graph_add_node(graph, "CrossEntropy", (int[]){output, labels}, 2, 2, NULL, 0);
  *values = (struct loss_values){node->outputs[0], node->outputs[1]};
  return 0;
}

const struct loss_def loss_cross_entropy = {"cross_entropy", cross_entropy_attach};
