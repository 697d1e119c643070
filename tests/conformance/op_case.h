/* A case of an op's row (struct op_case) as a graph: the op's node on its inputs, with seeded random data. */
#ifndef WEIR_TESTS_CONFORMANCE_OP_CASE_H
#define WEIR_TESTS_CONFORMANCE_OP_CASE_H

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/graph/op.h"
#include "common/random.h"

enum { CASE_ATTRS_MAX = 12, CASE_INTS_MAX = 16 };

struct op_trial {
  struct graph *graph;
  const struct node *node;
  void *data[OP_INPUTS_MAX]; /* of graph->inputs, owned */
  uint64_t key;              /* of the random data */
};

/* One input's text, taken apart. */
struct case_input {
  enum dtype dtype;
  struct shape shape;
  double below;      /* integers in [0, below); 0: reals in [-1, 1) */
  const char *given; /* the data; NULL: drawn */
  bool is_constant;
};

static inline enum dtype case_dtype(const char **at) {
  static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_I32, DTYPE_I64, DTYPE_U8, DTYPE_BOOL};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    size_t length = strlen(dtype_name(dtypes[i]));
    if (strncmp(*at, dtype_name(dtypes[i]), length) == 0) {
      *at += length;
      return dtypes[i];
    }
  }
  check_failed(*at, __FILE__, __LINE__);
}

/* "f32[2,3]", "i64{4}[2]", "f32[2]=1,2", "i64[1]==0" */
static inline struct case_input case_input_read(const char *at) {
  struct case_input input = {.dtype = case_dtype(&at)};
  char *end;
  if (*at == '{') {
    input.below = strtod(at + 1, &end);
    at = end + 1;
  }
  CHECK(*at == '[');
  for (at++; *at != ']'; at = end + (*end == ','))
    input.shape.dim[input.shape.rank++] = strtoll(at, &end, 10);
  if (at[1] == '=') {
    input.is_constant = at[2] == '=';
    input.given = at + 2 + input.is_constant;
  }
  return input;
}

static inline void case_put(enum dtype dtype, void *data, int64_t i, double value) {
  if (dtype == DTYPE_F32)
    ((float *)data)[i] = (float)value;
  else if (dtype == DTYPE_I32)
    ((int32_t *)data)[i] = (int32_t)value;
  else if (dtype == DTYPE_I64)
    ((int64_t *)data)[i] = (int64_t)value;
  else
    ((uint8_t *)data)[i] = (uint8_t)value;
}

static inline void *case_input_data(const struct case_input *input, uint64_t key) {
  int64_t elems = shape_elems(&input->shape);
  void *data = mem_new((size_t)elems * dtype_size(input->dtype) + 1);
  const char *given = input->given;
  for (int64_t i = 0; i < elems; i++) {
    double value = random_uniform(key, (uint64_t)i);
    char *end;
    value = input->below > 0 ? (double)(int64_t)(value * input->below) : 2.0 * value - 1.0;
    if (given) {
      value = strtod(given, &end);
      CHECK(end != given);
      given = end + (*end == ',');
    }
    case_put(input->dtype, data, i, value);
  }
  return data;
}

/* Adds an input or a constant to the graph; returns its value. */
static inline int case_add_input(struct op_trial *trial, const char *text, int index) {
  struct case_input input = case_input_read(text);
  void *data = case_input_data(&input, random_key(trial->key, (uint64_t)index, 0, 0));
  struct graph *graph = trial->graph;
  struct value constant = {.kind = VALUE_CONSTANT,
                           .dtype = input.dtype,
                           .shape = input.shape,
                           .producer = -1,
                           .param = -1,
                           .statistic = -1};
  if (!input.is_constant) {
    trial->data[graph->n_inputs] = data;
    return graph_add_input(graph, NULL, input.dtype, &input.shape);
  }
  constant.data =
      arena_copy(&graph->arena, data, (size_t)shape_elems(&input.shape) * dtype_size(input.dtype));
  free(data);
  return graph_add_value(graph, constant);
}

/* "group=2", "pads=1,1", "axes=1,", "alpha=0.5f", "auto_pad=VALID": text is cut up, ints has room for
   CASE_INTS_MAX. */
static inline struct attr case_attr(char *text, int64_t *ints) {
  char *value = strchr(text, '='), *end;
  struct attr attr = {.name = text, .ints = ints};
  CHECK(value);
  *value++ = '\0';
  if (strchr(value, ',')) {
    attr.type = ATTR_INTS;
    for (char *at = value; *at && strcmp(at, ",") != 0; at = end + (*end == ',')) {
      CHECK(attr.n < CASE_INTS_MAX);
      ints[attr.n++] = strtoll(at, &end, 10);
    }
    return attr;
  }
  if (!isdigit((unsigned char)*value) && *value != '-') {
    attr.type = ATTR_STRING;
    attr.s = value;
    return attr;
  }
  attr.i = strtoll(value, &end, 10);
  attr.f = strtof(value, NULL);
  attr.type = *end ? ATTR_FLOAT : ATTR_INT;
  return attr;
}

/* Builds the graph of a case, with every output of the node as the graph's. Released with op_trial_fini. */
static inline void op_trial_init(struct op_trial *trial, const struct op_def *op, const struct op_case *c,
                                 uint64_t key) {
  char *inputs_text = mem_strdup(c->inputs), *attrs_text = mem_strdup(c->attrs ? c->attrs : ""), *rest;
  int inputs[OP_INPUTS_MAX], n_inputs = 0, n_attrs = 0;
  int64_t ints[CASE_ATTRS_MAX][CASE_INTS_MAX];
  struct attr attrs[CASE_ATTRS_MAX];
  *trial = (struct op_trial){.graph = graph_new(), .key = key};
  trial->graph->opset = c->opset ? c->opset : 17;
  trial->graph->is_training = !c->is_eval;
  for (char *word = strtok_r(inputs_text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    CHECK(n_inputs < OP_INPUTS_MAX);
    inputs[n_inputs] = strcmp(word, "-") == 0 ? -1 : case_add_input(trial, word, n_inputs);
    n_inputs++;
  }
  for (char *word = strtok_r(attrs_text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    CHECK(n_attrs < CASE_ATTRS_MAX);
    attrs[n_attrs] = case_attr(word, ints[n_attrs]);
    n_attrs++;
  }
  trial->node =
      graph_add_node(trial->graph, op->name, inputs, n_inputs, c->outputs ? c->outputs : 1, attrs, n_attrs);
  free(inputs_text);
  free(attrs_text);
}

static inline void op_trial_fini(struct op_trial *trial) {
  for (int i = 0; i < trial->graph->n_inputs; i++)
    free(trial->data[i]);
  graph_free(trial->graph);
}

#endif
