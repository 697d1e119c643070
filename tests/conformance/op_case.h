/* A case of an op's row (struct op_case) as a graph: the op's node on its inputs, with seeded random data. */
#ifndef WEIR_TESTS_CONFORMANCE_OP_CASE_H
#define WEIR_TESTS_CONFORMANCE_OP_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/half.h"
#include "model/graph/op.h"
#include "tests/conformance/op_draw.h"

enum { CASE_ATTRS_MAX = 16 };

struct op_trial {
  struct graph *graph;
  const struct node *node;
  bool is_inner;
  int results[OP_OUTPUTS_MAX]; /* the node's outputs, as the graph's: values */
  char *inputs, *attrs;        /* the case's, as drawn; owned */
  void *data[OP_INPUTS_MAX];   /* of graph->inputs, owned */
  uint64_t key;                /* of the random data */
  int n_apart, next_apart;     /* inputs whose values lie apart from each other */
};

/* One input's text, taken apart. */
struct case_input {
  enum dtype dtype;
  struct shape shape;
  double low, high;  /* integers of [low, high], reals of [low, high) */
  bool is_apart;     /* values no two of which are near each other or near 0 */
  const char *given; /* the data; NULL: drawn */
  bool is_constant;
};

/* Far enough for finite differences not to reach a kink at 0, a tie or the next value. */
static const double apart_gap = 0.1;

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

/* "{4}", "{-1..1}", "{apart}" -> what is behind it. */
static inline const char *case_read_range(struct case_input *input, const char *at) {
  const char *end = strchr(at, '}'), *range = strstr(at, "..");
  CHECK(end);
  if (strncmp(at, "{apart}", 7) == 0) {
    input->is_apart = true;
  } else if (range && range < end) {
    input->low = strtod(at + 1, NULL);
    input->high = strtod(range + 2, NULL);
  } else {
    input->low = 0.0;
    input->high = strtod(at + 1, NULL) - 1.0;
  }
  return end + 1;
}

/* "f32[2,3]", "i64{4}[2]", "f32{0.5..2}[3]", "f32[2]=1,2", "i64[1]==0" */
static inline struct case_input case_input_read(const char *at) {
  struct case_input input = {.dtype = case_dtype(&at), .low = -1.0, .high = 1.0};
  char *end;
  if (input.dtype == DTYPE_BOOL || input.dtype == DTYPE_U8)
    input.low = 0.0;
  if (*at == '{')
    at = case_read_range(&input, at);
  CHECK(*at == '[');
  for (at++; *at != ']'; at = end + (*end == ',')) {
    CHECK(input.shape.rank < RANK_MAX);
    input.shape.dim[input.shape.rank++] = strtoll(at, &end, 10);
    CHECK(end != at);
  }
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

/* Element i of elems, of the `turn`-th of n inputs whose values lie apart. */
static inline double case_apart(uint64_t key, int64_t i, int64_t elems, int turn, int n) {
  int64_t place = (int64_t)random_permute(key, (uint64_t)i, (uint64_t)elems) - elems / 2;
  return ((double)(place * n + turn) + 0.5) * apart_gap;
}

static inline double case_drawn(const struct case_input *input, uint64_t key, int64_t i) {
  double uniform = random_uniform(key, (uint64_t)i);
  if (input->dtype == DTYPE_F32)
    return input->low + uniform * (input->high - input->low);
  return input->low + floor(uniform * (input->high - input->low + 1.0));
}

/* Given data that is shorter than the input begins again. */
static inline void *case_input_data(struct op_trial *trial, const struct case_input *input, uint64_t key) {
  int64_t elems = shape_elems(&input->shape);
  void *data = mem_new((size_t)elems * dtype_size(input->dtype) + 1);
  int turn = input->is_apart ? trial->next_apart++ : 0;
  const char *given = input->given;
  for (int64_t i = 0; i < elems; i++) {
    double value;
    char *end;
    if (given) {
      value = strtod(given, &end);
      CHECK(end != given);
      given = *end == ',' ? end + 1 : input->given;
    } else {
      value = input->is_apart ? case_apart(key, i, elems, turn, trial->n_apart) : case_drawn(input, key, i);
    }
    case_put(input->dtype, data, i, value);
  }
  return data;
}

/* Whether a backend may keep it in bf16 between two nodes. */
static inline bool case_may_be_bf16(const struct op_trial *trial, enum dtype dtype,
                                    const struct shape *shape) {
  return trial->is_inner && dtype == DTYPE_F32 && shape->rank >= 2;
}

/* The same elements as the result of another node. */
static inline int case_pass(struct op_trial *trial, int value) {
  struct attr alpha = {.name = "alpha", .type = ATTR_FLOAT, .f = 1.0f};
  return graph_add_node(trial->graph, "LeakyRelu", VALUES(value), 1, ATTR_LIST(alpha))->outputs[0];
}

static inline void case_round(float *data, int64_t elems) {
  for (int64_t i = 0; i < elems; i++)
    data[i] = f32_of_bf16(bf16_of_f32(data[i]));
}

/* Adds an input or a constant to the graph; returns its value. */
static inline int case_add_input(struct op_trial *trial, const char *text, int index) {
  struct case_input input = case_input_read(text);
  void *data = case_input_data(trial, &input, random_key(trial->key, (uint64_t)index, 0, 0));
  struct graph *graph = trial->graph;
  struct value constant = {.kind = VALUE_CONSTANT,
                           .dtype = input.dtype,
                           .shape = input.shape,
                           .producer = -1,
                           .param = -1,
                           .statistic = -1};
  if (!input.is_constant) {
    bool is_passed = case_may_be_bf16(trial, input.dtype, &input.shape);
    if (is_passed)
      case_round(data, shape_elems(&input.shape));
    trial->data[graph->n_inputs] = data;
    int value = graph_add_input(graph, NULL, input.dtype, &input.shape);
    return is_passed ? case_pass(trial, value) : value;
  }
  constant.data =
      arena_copy(&graph->arena, data, (size_t)shape_elems(&input.shape) * dtype_size(input.dtype));
  free(data);
  return graph_add_value(graph, constant);
}

/* "Tanh;Relu" -> strings; text is cut up. */
static inline void case_attr_strings(struct arena *arena, struct attr *attr, char *text) {
  const char **strings = arena_new(arena, (strlen(text) + 1) * sizeof *strings);
  char *rest;
  attr->type = ATTR_STRINGS;
  attr->strings = strings;
  for (char *word = strtok_r(text, ";", &rest); word; word = strtok_r(NULL, ";", &rest))
    strings[attr->n++] = word;
}

/* "1,1" -> ints, "1f,0.5f" -> floats. */
static inline void case_attr_list(struct arena *arena, struct attr *attr, const char *text) {
  size_t room = strlen(text) + 1;
  int64_t *ints = arena_new(arena, room * sizeof *ints);
  float *floats = arena_new(arena, room * sizeof *floats);
  attr->type = ATTR_INTS;
  attr->ints = ints;
  attr->floats = floats;
  for (const char *at = text; *at && strcmp(at, ",") != 0; at += *at == ',') {
    size_t length = strcspn(at, ",");
    CHECK(length > 0);
    if (at[length - 1] == 'f')
      attr->type = ATTR_FLOATS;
    ints[attr->n] = strtoll(at, NULL, 10);
    floats[attr->n++] = strtof(at, NULL);
    at += length;
  }
}

/* "group=2", "pads=1,1", "axes=1,", "alpha=0.5f", "scales=1f,2f", "auto_pad=VALID", "activations=Tanh;Relu",
   "value=i64[1]=3": text is cut up. */
static inline struct attr case_attr(struct op_trial *trial, char *text) {
  char *value = strchr(text, '='), *end;
  struct arena *arena = &trial->graph->arena;
  struct attr attr = {.name = text};
  CHECK(value);
  *value++ = '\0';
  if (strchr(value, '[')) {
    struct case_input input = case_input_read(value);
    void *data = case_input_data(trial, &input, trial->key);
    attr.type = ATTR_TENSOR;
    attr.dtype = input.dtype;
    attr.shape = input.shape;
    attr.data = arena_copy(arena, data, (size_t)shape_elems(&input.shape) * dtype_size(input.dtype));
    free(data);
  } else if (strchr(value, ';')) {
    case_attr_strings(arena, &attr, value);
  } else if (!*value || !strchr("0123456789+-.,", *value)) {
    attr.type = ATTR_STRING;
    attr.s = value;
  } else if (strchr(value, ',')) {
    case_attr_list(arena, &attr, value);
  } else {
    attr.i = strtoll(value, &end, 10);
    attr.f = strtof(value, NULL);
    attr.type = *end ? ATTR_FLOAT : ATTR_INT;
  }
  return attr;
}

/* Puts the inputs and the node of the drawn texts into the graph, without its types. */
static inline void case_build(struct op_trial *trial, const struct op_def *op, const struct op_case *c) {
  char *inputs_text = mem_strdup(trial->inputs), *attrs_text = mem_strdup(trial->attrs), *rest;
  int inputs[OP_INPUTS_MAX], n_inputs = 0, n_attrs = 0;
  struct attr attrs[CASE_ATTRS_MAX];
  for (const char *at = inputs_text; (at = strstr(at, "{apart}")); at++)
    trial->n_apart++;
  for (char *word = strtok_r(inputs_text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    CHECK(n_inputs < OP_INPUTS_MAX);
    inputs[n_inputs] = strcmp(word, "-") == 0 ? -1 : case_add_input(trial, word, n_inputs);
    n_inputs++;
  }
  for (char *word = strtok_r(attrs_text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    CHECK(n_attrs < CASE_ATTRS_MAX);
    attrs[n_attrs++] = case_attr(trial, word);
  }
  trial->node = graph_append_node(trial->graph, op->name, (struct value_list){inputs, n_inputs},
                                  c->outputs ? c->outputs : 1, (struct attr_list){attrs, n_attrs});
  free(inputs_text);
  free(attrs_text);
}

static inline void op_trial_fini(struct op_trial *trial) {
  for (int i = 0; i < trial->graph->n_inputs; i++)
    free(trial->data[i]);
  graph_free(trial->graph);
  free(trial->inputs);
  free(trial->attrs);
}

/* What a trial is to be. With is_inner the node is between others: its tensors of two dimensions and more are
   results of nodes, and are read by nodes, so that a backend may keep them in bf16; what is fed to them is
   bf16 already. */
struct op_wish {
  const struct op_def *op;
  const struct op_case *op_case;
  uint64_t key;
  bool is_inner;
};

static inline void trial_set_results(struct op_trial *trial) {
  for (int i = 0; i < trial->node->n_outputs; i++) {
    const struct value *value = node_output(trial->graph, trial->node, i);
    bool is_passed = case_may_be_bf16(trial, value->dtype, &value->shape);
    trial->results[i] = is_passed ? case_pass(trial, trial->node->outputs[i]) : trial->node->outputs[i];
  }
}

/* Builds the graph of a case. Errors: those of the op's inference; INVALID also for an output without
   elements. Released with op_trial_fini in any case. */
static inline int op_trial_init(struct op_trial *trial, const struct op_wish *wish, struct err *err) {
  const struct op_def *op = wish->op;
  const struct op_case *c = wish->op_case;
  struct op_draw draw;
  op_draw_init(&draw, c->draw, wish->key);
  *trial = (struct op_trial){.graph = graph_new(),
                             .inputs = op_draw_expand(&draw, c->inputs),
                             .attrs = op_draw_expand(&draw, c->attrs),
                             .key = wish->key,
                             .is_inner = wish->is_inner};
  op_draw_fini(&draw);
  trial->graph->opset = c->opset ? c->opset : 17;
  trial->graph->is_training = !c->is_eval;
  case_build(trial, op, c);
  if (op->infer(trial->graph, trial->node, err))
    return err->code;
  for (int i = 0; i < trial->node->n_outputs; i++) {
    const struct value *value = node_output(trial->graph, trial->node, i);
    if (value->dtype == DTYPE_F32 && shape_elems(&value->shape) == 0)
      return node_error(trial->node, err, ERR_INVALID, "its output %d would be empty", i);
  }
  trial_set_results(trial);
  return ERR_OK;
}

#endif
