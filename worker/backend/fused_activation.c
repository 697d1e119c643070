/* ReLU and Clip, and their gradients, by their nodes. */
#include "worker/backend/fused_activation.h"

#include <math.h>
#include <string.h>

#include "model/graph/graph.h"
#include "model/graph/op.h"

/* False for a bound that is not known here. */
static bool read_bound(const struct graph *graph, const struct node *node, int input, const char *attr,
                       float *bound) {
  const struct value *value = node_input(graph, node, input);
  if (!value) {
    *bound = node_attr_float(node, attr, *bound);
    return true;
  }
  if (value->kind != VALUE_CONSTANT || value->dtype != DTYPE_F32 || shape_elems(&value->shape) != 1)
    return false;
  memcpy(bound, value->data, sizeof *bound);
  return true;
}

/* Of f32, with bounds from input number first_bound on. */
static bool read_clip(const struct graph *graph, const struct node *node, int first_bound,
                      struct fused_activation *activation) {
  const struct value *in = node_input(graph, node, 0), *out = node_output(graph, node, 0);
  return in->dtype == DTYPE_F32 && out->dtype == DTYPE_F32 && shape_is_same(&in->shape, &out->shape) &&
         read_bound(graph, node, first_bound, "min", &activation->low) &&
         read_bound(graph, node, first_bound + 1, "max", &activation->high);
}

static bool read(const struct graph *graph, const struct node *node, bool is_gradient,
                 struct fused_activation *activation) {
  *activation = (struct fused_activation){FUSED_NONE, -INFINITY, INFINITY};
  if (strcmp(node->op->name, is_gradient ? "ReluGrad" : "Relu") == 0)
    activation->kind = FUSED_RELU;
  else if (strcmp(node->op->name, is_gradient ? "ClipGrad" : "Clip") == 0 &&
           read_clip(graph, node, 1 + is_gradient, activation))
    activation->kind = FUSED_CLIP;
  return activation->kind != FUSED_NONE;
}

bool fused_activation_read(const struct graph *graph, const struct node *node,
                           struct fused_activation *activation) {
  return read(graph, node, false, activation);
}

bool fused_activation_read_gradient(const struct graph *graph, const struct node *node,
                                    struct fused_activation *activation) {
  return read(graph, node, true, activation);
}
