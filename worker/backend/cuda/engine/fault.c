/* What a kernel found wrong with its data, said as the op's reference kernel says it. */
#include <string.h>

#include "model/ops/linear_cross_entropy.h"
#include "model/ops/max_unpool.h"
#include "worker/backend/cuda/engine/program.h"

static bool is_class_loss(const struct node *node) {
  return strstr(node->op->name, "CrossEntropy") || strstr(node->op->name, "LikelihoodLoss");
}

/* Of integers: it has no other faults. */
static bool is_division(const struct node *node) {
  return strcmp(node->op->name, "Div") == 0 || strcmp(node->op->name, "Mod") == 0;
}

/* value is the label, place its index among the labels: ONNX's losses call each of them a sample, ours those
   of one position of a batch. */
static int label_error(const struct graph *graph, const struct node *node, const struct cuda_fault *fault,
                       struct err *err) {
  bool is_linear = strcmp(node->op->name, "LinearCrossEntropy") == 0;
  const struct shape *labels = &node_input(graph, node, is_linear ? LINEAR_LABELS : 1)->shape;
  const struct shape *scores = &node_input(graph, node, 0)->shape;
  bool is_ours = strcmp(node->op->domain, "ai.weir") == 0;
  int64_t each = is_ours && labels->rank > 0 ? shape_elems(labels) / labels->dim[0] : 1, classes;
  int axis = (int)node_attr_int(node, "axis", 1);
  axis = axis < 0 ? axis + scores->rank : axis;
  classes = is_linear ? linear_sizes_of(graph, node).classes : scores->dim[axis];
  return node_error(node, err, ERR_INVALID, "label %lld of sample %lld is not in [0, %lld)",
                    (long long)fault->value, (long long)(fault->place / each), (long long)classes);
}

/* The dimension that element `place` of input 1 counts in; -1: not known. */
static int64_t dimension_of(const struct graph *graph, const struct node *node, int64_t place) {
  bool is_gradient = strstr(node->op->name, "Grad") != NULL;
  const struct value *data = is_gradient ? node_output(graph, node, 0) : node_input(graph, node, 0);
  const struct value *indices = node_input(graph, node, 1);
  int64_t at = node_attr_int(node, "axis", 0);
  if (!data || !indices)
    return -1;
  at = at < 0 ? at + data->shape.rank : at;
  if (strstr(node->op->name, "ND") && indices->shape.rank > 0)
    at = node_attr_int(node, "batch_dims", 0) + place % indices->shape.dim[indices->shape.rank - 1];
  return at >= 0 && at < data->shape.rank ? data->shape.dim[at] : -1;
}

static int index_error(const struct graph *graph, const struct node *node, const struct cuda_fault *fault,
                       struct err *err) {
  return node_error(
      node, err, ERR_INVALID, "index %lld (element %lld of input 1) is outside a dimension of %lld",
      (long long)fault->value, (long long)fault->place, (long long)dimension_of(graph, node, fault->place));
}

/* value is a length, place its sequence. */
static int length_error(const struct graph *graph, const struct node *node, const struct cuda_fault *fault,
                        struct err *err) {
  const struct shape *x = &node_input(graph, node, 0)->shape;
  return node_error(node, err, ERR_INVALID,
                    "sequence_lens holds %lld for sequence %lld; there are %lld steps",
                    (long long)fault->value, (long long)fault->place,
                    (long long)x->dim[node_attr_int(node, "layout", 0) == 1]);
}

static bool is_recurrent(const struct node *node) {
  return strstr(node->op->name, "LSTM") || strstr(node->op->name, "GRU") || strstr(node->op->name, "RNN");
}

/* value is the length of sequence `place`. */
static int reversal_error(const struct graph *graph, const struct node *node, const struct cuda_fault *fault,
                          struct err *err) {
  const struct shape *x = &node_input(graph, node, 0)->shape;
  return node_error(node, err, ERR_INVALID, "length %lld of sequence %lld is outside 0 to %lld",
                    (long long)fault->value, (long long)fault->place,
                    (long long)x->dim[node_attr_int(node, "time_axis", 0) != 0]);
}

/* value is an index, place its element of input 1. */
static int unpool_error(const struct graph *graph, const struct node *node, const struct cuda_fault *fault,
                        struct err *err) {
  struct shape indexed;
  if (max_unpool_indexed(node, &node_input(graph, node, 1)->shape, &indexed, err))
    return err->code;
  return node_error(node, err, ERR_INVALID, "index %lld of element %lld is not in [0, %lld)",
                    (long long)fault->value, (long long)fault->place, (long long)shape_elems(&indexed));
}

/* value is the bits of an f32: a Dropout's ratio, or element `place` of a Bernoulli's input. Of a Multinomial
   place is the row. */
static int probability_error(const struct node *node, const struct cuda_fault *fault, struct err *err) {
  uint32_t bits = (uint32_t)fault->value;
  float p;
  memcpy(&p, &bits, sizeof p);
  if (strcmp(node->op->name, "Multinomial") == 0)
    return node_error(node, err, ERR_INVALID, "row %lld of its input has no finite probabilities",
                      (long long)fault->place);
  if (strcmp(node->op->name, "Dropout") == 0)
    return node_error(node, err, ERR_INVALID, "ratio is %g; it must be at least 0 and below 1", (double)p);
  return node_error(node, err, ERR_INVALID, "element %lld of its input is %g, not a probability",
                    (long long)fault->place, (double)p);
}

int cuda_fault_error(const struct backend_program *program, const struct cuda_fault *fault, struct err *err) {
  const struct graph *graph = program->graph;
  if (fault->node <= 0 || fault->node > graph->n_nodes)
    return ERR_OK;
  const struct node *node = graph->nodes[fault->node - 1];
  if (is_division(node))
    return node_error(node, err, ERR_INVALID, "integer division by zero (element %lld of the divisor)",
                      (long long)fault->place);
  if (is_recurrent(node))
    return length_error(graph, node, fault, err);
  if (strcmp(node->op->name, "ReverseSequence") == 0)
    return reversal_error(graph, node, fault, err);
  if (strstr(node->op->name, "Unpool"))
    return unpool_error(graph, node, fault, err);
  if (node->op->flags & OP_RANDOM)
    return probability_error(node, fault, err);
  return is_class_loss(node) ? label_error(graph, node, fault, err) : index_error(graph, node, fault, err);
}
