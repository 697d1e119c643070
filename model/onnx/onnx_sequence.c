/* Sequences of tensors, which we do not have: PyTorch's exporter writes `x.split(...)` as a SplitToSequence
   whose elements SequenceAt nodes take by constant indices. That is a Split. */
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_parts.h"

enum { PARTS_MAX = 64 };

/* One SplitToSequence node. */
struct sequence {
  Onnx__NodeProto *split;
  const char *name; /* of its output */
  bool is_split;    /* so far: every reader takes a known element, and the sizes are known */
  int64_t last;     /* element that is taken */
  int64_t sizes[PARTS_MAX];
  int n; /* parts */
};

/* A SequenceAt node of one. */
struct taking {
  Onnx__NodeProto *node;
  int sequence, element;
};

/* All of a graph. Names lead to indices, for a file may hold a million nodes. */
struct sequences {
  Onnx__GraphProto *proto;
  struct names constants, names;
  const Onnx__TensorProto **tensors; /* of constants */
  struct sequence *list;
  struct taking *takings;
  int n_tensors, n, n_takings;
  int tensors_capacity, capacity, takings_capacity;
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

static void constant_add(struct sequences *sequences, const char *name, const Onnx__TensorProto *tensor) {
  if (!name || !tensor || !names_add(&sequences->constants, name, sequences->n_tensors))
    return;
  array_reserve((void **)&sequences->tensors, &sequences->tensors_capacity, sequences->n_tensors,
                sizeof *sequences->tensors);
  sequences->tensors[sequences->n_tensors++] = tensor;
}

static void list_constants(struct sequences *sequences) {
  const Onnx__GraphProto *proto = sequences->proto;
  for (size_t i = 0; i < proto->n_initializer; i++)
    constant_add(sequences, proto->initializer[i]->name, proto->initializer[i]);
  for (size_t n = 0; n < proto->n_node; n++)
    if (is_op(proto->node[n], "Constant") && proto->node[n]->n_attribute == 1)
      constant_add(sequences, proto->node[n]->output[0], proto->node[n]->attribute[0]->t);
}

/* The integers of an initializer or Constant node of that name. *is_scalar: it has no dimension. */
static int known_ints(const struct sequences *sequences, const char *name, int64_t *ints, bool *is_scalar) {
  int at = names_find(&sequences->constants, name);
  if (at < 0)
    return -1;
  *is_scalar = sequences->tensors[at]->n_dims == 0;
  return tensor_ints(sequences->tensors[at], ints);
}

static bool keeps_dims(const Onnx__NodeProto *split) {
  for (size_t a = 0; a < split->n_attribute; a++)
    if (split->attribute[a]->name && strcmp(split->attribute[a]->name, "keepdims") == 0)
      return split->attribute[a]->i != 0;
  return true;
}

static void list_splits(struct sequences *sequences) {
  for (size_t n = 0; n < sequences->proto->n_node; n++) {
    Onnx__NodeProto *node = sequences->proto->node[n];
    if (!is_op(node, "SplitToSequence") || node->n_input == 0 ||
        !names_add(&sequences->names, node->output[0], sequences->n))
      continue;
    array_reserve((void **)&sequences->list, &sequences->capacity, sequences->n, sizeof *sequences->list);
    sequences->list[sequences->n++] =
        (struct sequence){.split = node, .name = node->output[0], .is_split = keeps_dims(node), .last = -1};
  }
}

/* Which element a node takes of the sequence that is its first input; -1 if that is not known. */
static int element_of(const struct sequences *sequences, const Onnx__NodeProto *node) {
  int64_t ints[PARTS_MAX];
  bool is_scalar;
  if (!is_op(node, "SequenceAt") || node->n_input != 2 ||
      known_ints(sequences, node->input[1], ints, &is_scalar) != 1 || ints[0] < 0 || ints[0] >= PARTS_MAX)
    return -1;
  return (int)ints[0];
}

/* Notes who reads which sequence. */
static void list_takings(struct sequences *sequences) {
  for (size_t n = 0; n < sequences->proto->n_node; n++) {
    Onnx__NodeProto *node = sequences->proto->node[n];
    for (size_t i = 0; i < node->n_input; i++) {
      int at = names_find(&sequences->names, node->input[i]);
      int element = at < 0 || i > 0 ? -1 : element_of(sequences, node);
      if (at < 0)
        continue;
      if (element < 0)
        sequences->list[at].is_split = false;
      else if (element > sequences->list[at].last)
        sequences->list[at].last = element;
      array_reserve((void **)&sequences->takings, &sequences->takings_capacity, sequences->n_takings,
                    sizeof *sequences->takings);
      sequences->takings[sequences->n_takings++] = (struct taking){node, at, element};
    }
  }
}

/* Finds the parts' sizes. */
static void find_sizes(const struct sequences *sequences, struct sequence *sequence) {
  const Onnx__NodeProto *split = sequence->split;
  int64_t sizes[PARTS_MAX] = {1};
  int n_sizes = 1;
  bool is_scalar = true;
  if (split->n_input > 1)
    n_sizes = known_ints(sequences, split->input[1], sizes, &is_scalar);
  if (sequence->last < 0 || n_sizes < 1 || (!is_scalar && sequence->last >= n_sizes))
    sequence->is_split = false;
  if (!sequence->is_split)
    return;
  sequence->n = is_scalar ? (int)sequence->last + 1 : n_sizes;
  for (int i = 0; i < sequence->n; i++)
    sequence->sizes[i] = sizes[is_scalar ? 0 : i];
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

/* The SequenceAt becomes the Identity of one of the Split's outputs. */
static void taking_lower(const struct sequences *sequences, const struct taking *taking) {
  Onnx__NodeProto *node = taking->node;
  replace_text(&node->op_type, mem_strdup("Identity"));
  replace_text(&node->input[0], mem_printf("%s.%d", sequences->list[taking->sequence].name, taking->element));
  free(node->input[1]);
  node->n_input = 1;
}

/* The Split keeps its node, whose inputs and outputs change. */
static void sequence_lower(const struct sequence *sequence, Onnx__GraphProto *proto) {
  Onnx__NodeProto *split = sequence->split;
  char *name = split->output[0];
  proto->node = mem_resize(proto->node, (proto->n_node + 1) * sizeof *proto->node);
  proto->node[proto->n_node++] = sizes_new(sequence);
  replace_text(&split->op_type, mem_strdup("Split"));
  if (split->n_input < 2) {
    split->input = mem_resize(split->input, 2 * sizeof *split->input);
    split->input[1] = NULL;
    split->n_input = 2;
  }
  replace_text(&split->input[1], mem_printf("%s.sizes", name));
  split->n_output = (size_t)sequence->n;
  split->output = mem_resize(split->output, split->n_output * sizeof *split->output);
  for (int i = 0; i < sequence->n; i++)
    split->output[i] = mem_printf("%s.%d", name, i);
  free(name);
}

void onnx_sequences_lower(Onnx__GraphProto *proto) {
  struct sequences sequences = {.proto = proto};
  list_splits(&sequences);
  if (sequences.n) {
    list_constants(&sequences);
    list_takings(&sequences);
  }
  for (size_t o = 0; o < proto->n_output && sequences.n; o++) {
    int at = proto->output[o]->name ? names_find(&sequences.names, proto->output[o]->name) : -1;
    if (at >= 0)
      sequences.list[at].is_split = false;
  }
  for (int s = 0; s < sequences.n; s++)
    find_sizes(&sequences, &sequences.list[s]);
  for (int t = 0; t < sequences.n_takings; t++)
    if (sequences.list[sequences.takings[t].sequence].is_split)
      taking_lower(&sequences, &sequences.takings[t]);
  for (int s = 0; s < sequences.n; s++)
    if (sequences.list[s].is_split)
      sequence_lower(&sequences.list[s], proto);
  names_fini(&sequences.constants);
  names_fini(&sequences.names);
  free(sequences.tensors);
  free(sequences.list);
  free(sequences.takings);
}
