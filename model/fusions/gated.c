/* Activations that are x times a gate of x, which exporters decompose: Swish (SiLU), HardSwish and Mish. */
#include "model/fusions/fuse.h"

/* The op that x * gate(x) is, where `gate` is that factor; NULL if it is none. */
static const char *match_gate(const struct fuse *fuse, int gate, int x) {
  const struct node *node = fuse_sole_producer(fuse, gate, "Sigmoid");
  if (node && node->inputs[0] == x)
    return "Swish";
  node = fuse_sole_producer(fuse, gate, "HardSigmoid");
  if (node && node->inputs[0] == x && fuse_is_near(node_attr_float(node, "alpha", 0.2f), 1.0 / 6.0) &&
      fuse_is_near(node_attr_float(node, "beta", 0.5f), 0.5))
    return "HardSwish";
  node = fuse_sole_producer(fuse, gate, "Tanh");
  node = node ? fuse_sole_producer(fuse, node->inputs[0], "Softplus") : NULL;
  return node && node->inputs[0] == x ? "Mish" : NULL;
}

static bool gated_apply(struct fuse *fuse, struct node *node) {
  for (int i = 0; i < 2; i++) {
    int x = node->inputs[i];
    const char *op = match_gate(fuse, node->inputs[!i], x);
    if (!op)
      continue;
    fuse_become(fuse, node, op, VALUES(x), ATTRS_NONE);
    return true;
  }
  return false;
}

const struct fusion_def fusion_gated = {"gated", "Mul", gated_apply};
