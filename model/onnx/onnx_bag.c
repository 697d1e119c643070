/* nn.EmbeddingBag, which PyTorch's exporters write as a Loop over the bags: each takes the rows between two
   offsets and reduces them. Bags of one length are a Reshape and one reduction; whether they have one length
   is seen when shapes are inferred, by the Reshape, for the shortest bag times their number must then be all
   rows. */
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_parts.h"

/* Each costs a walk through the file's nodes; a model has a few. */
enum { BAGS_MAX = 1024 };

/* What a Loop says. Names are the file's. */
struct bag {
  const char *rows;             /* f32[n,d] of the table, in the order of the bags; NULL: to be gathered */
  const char *weight, *indices; /* where they are to be gathered */
  const char *offsets;          /* i64[bags + 1], with the end of the last */
  const char *reduction;        /* the operator */
  size_t state;                 /* 2 or 3: the Loop's input that is a sequence of rows; 0: none */
};

static bool is_op(const Onnx__NodeProto *node, const char *op) {
  return node->op_type && strcmp(node->op_type, op) == 0 && onnx_domain_is_standard(node->domain);
}

static bool is_text(const char *a, const char *b) {
  return a && b && strcmp(a, b) == 0;
}

static const Onnx__AttributeProto *find_attribute(const Onnx__NodeProto *node, const char *name) {
  for (size_t a = 0; a < node->n_attribute; a++)
    if (is_text(node->attribute[a]->name, name))
      return node->attribute[a];
  return NULL;
}

static const Onnx__GraphProto *loop_body(const Onnx__NodeProto *node, const char *name) {
  const Onnx__AttributeProto *attribute = node ? find_attribute(node, name) : NULL;
  return attribute ? attribute->g : NULL;
}

static bool is_plumbing(const Onnx__NodeProto *node) {
  return is_op(node, "Constant") || is_op(node, "Cast") || is_op(node, "CastLike") || is_op(node, "Identity");
}

/* True if the graph has exactly these operators in this order, constants and casts aside; nodes[n] are they.
 */
static bool has_nodes(const Onnx__GraphProto *graph, const char *const *ops, size_t n,
                      Onnx__NodeProto **nodes) {
  size_t at = 0;
  for (size_t i = 0; graph && i < graph->n_node; i++) {
    Onnx__NodeProto *node = graph->node[i];
    if (is_plumbing(node))
      continue;
    if (at == n || (ops[at] && !is_op(node, ops[at])))
      return false;
    if (node->n_output < 1 || node->n_input < 1)
      return false;
    nodes[at++] = node;
  }
  return at == n;
}

static const char *input_of(const Onnx__NodeProto *node, size_t i) {
  return node && i < node->n_input ? node->input[i] : NULL;
}

static bool node_reads(const Onnx__NodeProto *node, size_t i, const Onnx__NodeProto *from) {
  return is_text(input_of(node, i), from->output[0]);
}

static const Onnx__NodeProto *value_producer(const Onnx__GraphProto *graph, const char *name) {
  for (size_t i = 0; name && i < graph->n_node; i++)
    for (size_t o = 0; o < graph->node[i]->n_output; o++)
      if (is_text(graph->node[i]->output[o], name))
        return graph->node[i];
  return NULL;
}

/* The TorchScript exporter: rows = Gather(weight, indices[offsets[i] : ends[i]]), scanned. */
static bool match_scan(const Onnx__GraphProto *graph, const Onnx__NodeProto *loop, struct bag *bag) {
  static const char *const ops[] = {"Gather", "Gather", "Unsqueeze", "Unsqueeze", "Slice", "Gather", NULL};
  static const char *const reductions[] = {"ReduceSum", "ReduceMean", "ReduceMax"};
  const Onnx__GraphProto *body = loop_body(loop, "body");
  const Onnx__NodeProto *ends;
  Onnx__NodeProto *at[7];
  if (loop->n_input != 2 || loop->n_output != 1 || !has_nodes(body, ops, 7, at) || body->n_input != 2 ||
      body->n_output != 2)
    return false;
  for (int r = 0; r < 3; r++)
    if (is_op(at[6], reductions[r]))
      bag->reduction = reductions[r];
  ends = value_producer(graph, input_of(at[1], 0));
  bag->offsets = input_of(at[0], 0);
  bag->indices = input_of(at[4], 0);
  bag->weight = input_of(at[5], 0);
  return bag->reduction && ends && is_op(ends, "Slice") && is_text(input_of(ends, 0), bag->offsets) &&
         is_text(input_of(at[0], 1), body->input[0]->name) &&
         is_text(input_of(at[1], 1), body->input[0]->name) && node_reads(at[2], 0, at[0]) &&
         node_reads(at[3], 0, at[1]) && node_reads(at[4], 1, at[2]) && node_reads(at[4], 2, at[3]) &&
         node_reads(at[5], 1, at[4]) && node_reads(at[6], 0, at[5]) &&
         is_text(body->output[1]->name, at[6]->output[0]);
}

/* The number of the mode that an If of onnxscript's function compares first: 0 sum, 1 mean, 2 max. */
static int mode_of(const Onnx__GraphProto *branch) {
  const Onnx__AttributeProto *value = branch->n_node > 0 && is_op(branch->node[0], "Constant")
                                          ? find_attribute(branch->node[0], "value_int")
                                          : NULL;
  return value && value->i >= 0 && value->i <= 2 ? (int)value->i : -1;
}

/* Which of the body's two states, at 2 and 3 of its inputs, has that name; 0: neither. */
static size_t state_of(const Onnx__GraphProto *body, const char *name) {
  return is_text(body->input[2]->name, name) ? 2 : is_text(body->input[3]->name, name) ? 3 : 0;
}

/* The newer exporter: onnxscript's aten_embedding_bag, which collects slices of the gathered rows in a
   sequence; an If tells bags without rows apart, further ones the modes. The sequence and the count of bags
   come in either order. */
static bool match_sequence(const Onnx__NodeProto *loop, struct bag *bag) {
  static const char *const ops[] = {"Reshape", "Add", "Slice",          "Add", "Add", "Slice",
                                    "Equal",   "If",  "SequenceInsert", "Add", "Less"};
  static const char *const modes[] = {"Equal", "If"}, *const sum[] = {"Slice", "ReduceSum"};
  static const char *const reductions[] = {"ReduceSum", "ReduceMean", "ReduceMax"};
  const Onnx__GraphProto *body = loop_body(loop, "body"), *some;
  Onnx__NodeProto *at[11], *choice[2], *first[2];
  int mode;
  if (loop->n_input != 4 || loop->n_output != 2 || !has_nodes(body, ops, 11, at) || body->n_input != 4 ||
      body->n_output != 3)
    return false;
  some = loop_body(at[7], "else_branch");
  if (!has_nodes(some, modes, 2, choice) || !has_nodes(loop_body(choice[1], "then_branch"), sum, 2, first))
    return false;
  mode = mode_of(some);
  bag->rows = input_of(first[0], 0);
  bag->offsets = input_of(at[2], 0);
  bag->state = state_of(body, input_of(at[8], 0));
  if (mode < 0 || bag->state == 0 || !is_text(input_of(at[5], 0), bag->offsets) ||
      !node_reads(at[8], 1, at[7]) || !is_text(body->output[bag->state - 1]->name, at[8]->output[0]) ||
      state_of(body, input_of(at[0], 0)) != 5 - bag->state)
    return false;
  bag->reduction = reductions[mode];
  return true;
}

static Onnx__AttributeProto *attribute_ints(const char *name, int64_t value) {
  Onnx__AttributeProto *attribute = mem_new(sizeof *attribute);
  onnx__attribute_proto__init(attribute);
  attribute->name = mem_strdup(name);
  attribute->has_type = 1;
  attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
  attribute->n_ints = 1;
  attribute->ints = mem_new(sizeof *attribute->ints);
  attribute->ints[0] = value;
  return attribute;
}

static Onnx__AttributeProto *attribute_int(const char *name, int64_t value) {
  Onnx__AttributeProto *attribute = mem_new(sizeof *attribute);
  onnx__attribute_proto__init(attribute);
  attribute->name = mem_strdup(name);
  attribute->has_type = attribute->has_i = 1;
  attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
  attribute->i = value;
  return attribute;
}

static void set_inputs(Onnx__NodeProto *node, const char *const *inputs, size_t n) {
  for (size_t i = 0; i < node->n_input; i++)
    free(node->input[i]);
  free(node->input);
  node->input = mem_new(n * sizeof *node->input);
  node->n_input = n;
  for (size_t i = 0; i < n; i++)
    node->input[i] = mem_strdup(inputs[i]);
}

static void set_attributes(Onnx__NodeProto *node, Onnx__AttributeProto *a, Onnx__AttributeProto *b) {
  for (size_t i = 0; i < node->n_attribute; i++)
    onnx__attribute_proto__free_unpacked(node->attribute[i], NULL);
  free(node->attribute);
  node->attribute = mem_new(2 * sizeof *node->attribute);
  node->n_attribute = 0;
  if (a)
    node->attribute[node->n_attribute++] = a;
  if (b)
    node->attribute[node->n_attribute++] = b;
}

static void set_op(Onnx__NodeProto *node, const char *op) {
  free(node->op_type);
  node->op_type = mem_strdup(op);
}

/* A node in a Loop's place, whose output is LOOP: PART. */
struct part {
  const char *op, *name;
  Onnx__AttributeProto *attribute; /* NULL: none */
};

/* Adds the part with the inputs, which end with NULL, and returns the name of its output. */
static const char *part_add(Onnx__GraphProto *graph, const Onnx__NodeProto *loop, struct part part, ...) {
  Onnx__NodeProto *node = mem_new(sizeof *node);
  const char *inputs[4];
  size_t n = 0;
  va_list list;
  onnx__node_proto__init(node);
  va_start(list, part);
  while ((inputs[n] = va_arg(list, const char *)))
    n++;
  va_end(list);
  set_op(node, part.op);
  set_inputs(node, inputs, n);
  if (part.attribute)
    set_attributes(node, part.attribute, NULL);
  node->name = mem_printf("%s: %s", loop->name && *loop->name ? loop->name : "EmbeddingBag", part.name);
  node->n_output = 1;
  node->output = mem_new(sizeof *node->output);
  node->output[0] = mem_printf("%s: %s", loop->output[0], part.name);
  graph->node = mem_resize(graph->node, (graph->n_node + 1) * sizeof *graph->node);
  graph->node[graph->n_node++] = node;
  return node->output[0];
}

static const char *add_number(Onnx__GraphProto *graph, const Onnx__NodeProto *loop, const char *name,
                              int64_t value) {
  return part_add(graph, loop, (struct part){"Constant", name, attribute_ints("value_ints", value)}, NULL);
}

/* [bags, length of the shortest, d] */
static const char *add_shape(Onnx__GraphProto *graph, const Onnx__NodeProto *loop, const struct bag *bag,
                             const char *rows) {
  const char *zero = add_number(graph, loop, "0", 0), *one = add_number(graph, loop, "1", 1);
  const char *last = add_number(graph, loop, "-1", -1), *end = add_number(graph, loop, "end", INT64_MAX);
  const char *starts =
      part_add(graph, loop, (struct part){"Slice", "starts", NULL}, bag->offsets, zero, last, NULL);
  const char *ends =
      part_add(graph, loop, (struct part){"Slice", "ends", NULL}, bag->offsets, one, end, NULL);
  const char *lengths = part_add(graph, loop, (struct part){"Sub", "lengths", NULL}, ends, starts, NULL);
  const char *shortest = part_add(
      graph, loop, (struct part){"ReduceMin", "shortest", attribute_int("keepdims", 1)}, lengths, NULL);
  const char *bags = part_add(graph, loop, (struct part){"Shape", "bags", NULL}, lengths, NULL);
  const char *size = part_add(graph, loop, (struct part){"Shape", "size", NULL}, rows, NULL);
  const char *width = part_add(graph, loop, (struct part){"Slice", "width", NULL}, size, one, end, NULL);
  return part_add(graph, loop, (struct part){"Concat", "shape", attribute_int("axis", 0)}, bags, shortest,
                  width, NULL);
}

/* The Loop becomes the reduction. */
static void bag_lower(Onnx__GraphProto *graph, Onnx__NodeProto *loop, const struct bag *bag) {
  const char *rows = bag->rows, *shape;
  if (!rows)
    rows = part_add(graph, loop, (struct part){"Gather", "rows", NULL}, bag->weight, bag->indices, NULL);
  shape = add_shape(graph, loop, bag, rows);
  rows = part_add(graph, loop,
                  (struct part){"Reshape", "bags of one length, as an EmbeddingBag's must be", NULL}, rows,
                  shape, NULL);
  set_op(loop, bag->reduction);
  set_inputs(loop, &rows, 1);
  set_attributes(loop, attribute_ints("axes", 1), attribute_int("keepdims", 0));
  for (; loop->n_output > 1; loop->n_output--)
    free(loop->output[loop->n_output - 1]);
}

/* The sequence that the Loop began with, and what joined it: nothing is left of the one, the other passes on.
 */
static void lower_sequence(Onnx__GraphProto *graph, Onnx__NodeProto *loop, const struct bag *bag) {
  char *sequence = loop->output[bag->state - 2];
  loop->output[bag->state - 2] = loop->output[0];
  loop->output[0] = sequence;
  for (size_t i = 0; i < graph->n_node; i++) {
    Onnx__NodeProto *node = graph->node[i];
    if (is_op(node, "SequenceEmpty") && node->n_output == 1 &&
        is_text(node->output[0], loop->input[bag->state])) {
      set_op(node, "Identity");
      set_inputs(node, &bag->offsets, 1);
      set_attributes(node, NULL, NULL);
    } else if (is_op(node, "ConcatFromSequence") && is_text(input_of(node, 0), loop->output[0]))
      set_op(node, "Identity");
  }
}

void onnx_bags_lower(Onnx__GraphProto *graph) {
  size_t n = graph->n_node;
  int loops = 0;
  for (size_t i = 0; i < n && loops < BAGS_MAX; i++) {
    Onnx__NodeProto *loop = graph->node[i];
    struct bag bag = {0};
    if (!is_op(loop, "Loop"))
      continue;
    loops++;
    if (match_sequence(loop, &bag))
      lower_sequence(graph, loop, &bag);
    else if (bag = (struct bag){0}, !match_scan(graph, loop, &bag))
      continue;
    bag_lower(graph, loop, &bag);
  }
}
