/* Sequences of tensors, which we do not have: PyTorch's exporter writes `x.split(...)` as a SplitToSequence
   whose elements SequenceAt nodes take by constant indices. That is a Split. */
#include <stdlib.h>
#include <string.h>

#include "common/graph/onnx_parts.h"

enum { PARTS_MAX = 64 };

/* One SplitToSequence node. */
struct sequence {
  Onnx__NodeProto *split;
  const char *name; /* of its output */
  int64_t sizes[PARTS_MAX];
  int n; /* parts */
};

static bool is_op(const Onnx__NodeProto *node, const char *op) {
  return node->op_type && strcmp(node->op_type, op) == 0 && onnx_domain_is_standard(node->domain) &&
         node->n_output == 1;
}

/* The integers of an i64 tensor of at most PARTS_MAX elements; -1 if it is something else. */
static int tensor_ints(const Onnx__TensorProto *tensor, int64_t *ints) {
  size_t n = tensor->n_int64_data;
  const void *data = tensor->int64_data;
  if (tensor->data_type != ONNX__TENSOR_PROTO__DATA_TYPE__INT64 || tensor->n_dims > 1)
    return -1;
  if (tensor->has_raw_data) {
    n = tensor->raw_data.len / sizeof *ints;
    data = tensor->raw_data.data;
  }
  if (n > PARTS_MAX || n != (tensor->n_dims ? (size_t)tensor->dims[0] : 1))
    return -1;
  if (n)
    memcpy(ints, data, n * sizeof *ints);
  return (int)n;
}

/* The same of an initializer or Constant node of that name. *is_scalar: it has no dimension. */
static int known_ints(const Onnx__GraphProto *proto, const char *name, int64_t *ints, bool *is_scalar) {
  const Onnx__TensorProto *tensor = NULL;
  for (size_t i = 0; i < proto->n_initializer; i++)
    if (proto->initializer[i]->name && strcmp(proto->initializer[i]->name, name) == 0)
      tensor = proto->initializer[i];
  for (size_t n = 0; n < proto->n_node; n++)
    if (is_op(proto->node[n], "Constant") && strcmp(proto->node[n]->output[0], name) == 0 &&
        proto->node[n]->n_attribute == 1)
      tensor = proto->node[n]->attribute[0]->t;
  if (!tensor)
    return -1;
  *is_scalar = tensor->n_dims == 0;
  return tensor_ints(tensor, ints);
}

static bool reads(const Onnx__NodeProto *node, const char *name) {
  for (size_t i = 0; i < node->n_input; i++)
    if (strcmp(node->input[i], name) == 0)
      return true;
  return false;
}

/* Which element a node takes of the sequence that it reads; -1 if that is not known. */
static int64_t element_of(const Onnx__GraphProto *proto, const Onnx__NodeProto *node) {
  int64_t ints[PARTS_MAX];
  bool is_scalar;
  if (!is_op(node, "SequenceAt") || node->n_input != 2 ||
      known_ints(proto, node->input[1], ints, &is_scalar) != 1 || ints[0] < 0 || ints[0] >= PARTS_MAX)
    return -1;
  return ints[0];
}

/* Finds the parts' sizes. False if a reader or a size is not known. */
static bool sequence_init(struct sequence *sequence, const Onnx__GraphProto *proto, Onnx__NodeProto *split) {
  int64_t sizes[PARTS_MAX] = {1}, last = -1;
  int n_sizes = 1;
  bool is_scalar = true;
  *sequence = (struct sequence){.split = split, .name = split->output[0]};
  for (size_t a = 0; a < split->n_attribute; a++)
    if (split->attribute[a]->name && strcmp(split->attribute[a]->name, "keepdims") == 0 &&
        split->attribute[a]->i == 0)
      return false;
  for (size_t n = 0; n < proto->n_node; n++) {
    int64_t element = 0;
    if (!reads(proto->node[n], sequence->name))
      continue;
    element = element_of(proto, proto->node[n]);
    if (element < 0)
      return false;
    last = element > last ? element : last;
  }
  if (split->n_input > 1)
    n_sizes = known_ints(proto, split->input[1], sizes, &is_scalar);
  if (last < 0 || n_sizes < 1 || (!is_scalar && last >= n_sizes))
    return false;
  sequence->n = is_scalar ? (int)last + 1 : n_sizes;
  for (int i = 0; i < sequence->n; i++)
    sequence->sizes[i] = sizes[is_scalar ? 0 : i];
  return true;
}

static void replace_text(char **text, char *by) {
  free(*text);
  *text = by;
}

/* A Constant node with the sizes, named after the sequence. */
static Onnx__NodeProto *sizes_new(const struct sequence *sequence) {
  Onnx__NodeProto *node = mem_new(sizeof *node);
  Onnx__AttributeProto *attr = mem_new(sizeof *attr);
  onnx__node_proto__init(node);
  onnx__attribute_proto__init(attr);
  attr->name = mem_strdup("value_ints");
  attr->has_type = 1;
  attr->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
  attr->n_ints = (size_t)sequence->n;
  attr->ints = mem_new(attr->n_ints * sizeof *attr->ints);
  memcpy(attr->ints, sequence->sizes, attr->n_ints * sizeof *attr->ints);
  node->op_type = mem_strdup("Constant");
  node->n_attribute = node->n_output = 1;
  node->attribute = mem_new(sizeof *node->attribute);
  node->attribute[0] = attr;
  node->output = mem_new(sizeof *node->output);
  node->output[0] = mem_printf("%s.sizes", sequence->name);
  return node;
}

/* The Split keeps its node, whose inputs and outputs change. */
static void sequence_lower(const struct sequence *sequence, Onnx__GraphProto *proto) {
  Onnx__NodeProto *split = sequence->split;
  char *name = mem_strdup(sequence->name);
  for (size_t n = 0; n < proto->n_node; n++) {
    Onnx__NodeProto *node = proto->node[n];
    int64_t element;
    if (!reads(node, name))
      continue;
    element = element_of(proto, node);
    replace_text(&node->op_type, mem_strdup("Identity"));
    replace_text(&node->input[0], mem_printf("%s.%d", name, (int)element));
    free(node->input[1]);
    node->n_input = 1;
  }
  proto->node = mem_resize(proto->node, (proto->n_node + 1) * sizeof *proto->node);
  proto->node[proto->n_node++] = sizes_new(sequence);
  replace_text(&split->op_type, mem_strdup("Split"));
  if (split->n_input < 2) {
    split->input = mem_resize(split->input, 2 * sizeof *split->input);
    split->input[1] = NULL;
    split->n_input = 2;
  }
  replace_text(&split->input[1], mem_printf("%s.sizes", name));
  free(split->output[0]);
  split->n_output = (size_t)sequence->n;
  split->output = mem_resize(split->output, split->n_output * sizeof *split->output);
  for (int i = 0; i < sequence->n; i++)
    split->output[i] = mem_printf("%s.%d", name, i);
  free(name);
}

void onnx_sequences_lower(Onnx__GraphProto *proto) {
  size_t n = proto->n_node;
  for (size_t i = 0; i < n; i++) {
    struct sequence sequence;
    Onnx__NodeProto *node = proto->node[i];
    if (is_op(node, "SplitToSequence") && node->n_input > 0 && sequence_init(&sequence, proto, node))
      sequence_lower(&sequence, proto);
  }
}
