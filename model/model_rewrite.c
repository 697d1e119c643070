/* Dropout, batch norm and random draws in the train and the eval graph. */
#include <stdlib.h>
#include <string.h>

#include "model/graph/op.h"
#include "model/model_parts.h"

static bool is_op(const struct node *node, const char *name) {
  return strcmp(node->op->name, name) == 0 && !*node->op->domain;
}

/* Values that a node reads, or that are the graph's output. Freed by the caller. */
static bool *values_read(const struct graph *graph) {
  bool *is_read = mem_new((size_t)graph->n_values);
  for (int n = 0; n < graph->n_nodes; n++)
    for (int i = 0; i < graph->nodes[n]->n_inputs; i++)
      if (graph->nodes[n]->inputs[i] >= 0)
        is_read[graph->nodes[n]->inputs[i]] = true;
  for (int o = 0; o < graph->n_outputs; o++)
    is_read[graph->outputs[o]] = true;
  return is_read;
}

/* What a node becomes: one of another op with its first inputs and outputs, one attribute less. */
struct other_form {
  const struct op_def *op;
  int n_inputs, n_outputs;
  const char *dropped_attr; /* NULL: all stay */
};

static void node_become(struct graph *graph, struct node *node, const struct other_form *form) {
  struct attr *attrs = arena_copy(&graph->arena, node->attrs, (size_t)node->n_attrs * sizeof *attrs);
  int kept = 0;
  CHECK(form->op && form->n_inputs <= node->n_inputs && form->n_outputs <= node->n_outputs);
  for (int a = 0; a < node->n_attrs; a++)
    if (!form->dropped_attr || strcmp(attrs[a].name, form->dropped_attr) != 0)
      attrs[kept++] = attrs[a];
  node->op = form->op;
  node->attrs = attrs;
  node->n_attrs = kept;
  node->n_inputs = form->n_inputs;
  node->n_outputs = form->n_outputs;
}

/* An output behind the first that somebody reads: its index, or -1. */
static int extra_output_read(const struct node *node, const bool *is_read) {
  for (int o = 1; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0 && is_read[node->outputs[o]])
      return node->outputs[o];
  return -1;
}

/* By the spec's model.batch_norm. Before opset 14 the outputs behind the first ask for training, since then
   an attribute does, which PyTorch's newer exporter leaves out whatever mode the module is in. */
static bool batch_norm_trains(const Weir__ModelSpec *spec, const struct graph *graph,
                              const struct node *node) {
  const char *rule = spec && spec->batch_norm ? spec->batch_norm : "auto";
  const struct attr *mode = node_attr(node, "training_mode");
  if (strcmp(rule, "auto") != 0)
    return strcmp(rule, "train") == 0;
  if (graph->opset < 14)
    return node->n_outputs > 1;
  return mode ? mode->type == ATTR_INT && mode->i != 0 : graph->is_from_pytorch;
}

/* Before opset 12 every Dropout of a training graph drops, since then those whose third input is true. */
static int dropout_drops(const struct graph *graph, const struct node *node, bool *drops, struct err *err) {
  const struct value *mode = node_input(graph, node, 2);
  *drops = graph->opset < 12;
  if (*drops || !mode)
    return 0;
  if (!mode->data || mode->dtype != DTYPE_BOOL || shape_elems(&mode->shape) != 1)
    return node_error(node, err, ERR_INVALID, "its training_mode '%s' is not a constant", mode->name);
  *drops = *(const uint8_t *)mode->data != 0;
  return 0;
}

/* A Dropout that does not drop passes its input on. */
static int dropout_bypass(struct graph *graph, struct node *node, const bool *is_read, struct err *err) {
  int mask = extra_output_read(node, is_read);
  if (mask >= 0)
    return node_error(node, err, ERR_UNSUPPORTED, "its mask '%s' is read", graph->values[mask].name);
  node_become(graph, node,
              &(struct other_form){.op = op_find("", "Identity"), .n_inputs = 1, .n_outputs = 1});
  return 0;
}

static struct initializer_note *note_of(struct model_builder *builder, int value) {
  const struct graph *graph = builder->model->train;
  return graph->values[value].kind == VALUE_INITIALIZER ? &builder->notes[builder->note_of_value[value]]
                                                        : NULL;
}

/* Gives BatchNormTraining's outputs: Y, and new values for the batch's mean, variance and 1 / deviation. */
static void training_outputs(struct graph *graph, struct node *node) {
  int *outputs = arena_new(&graph->arena, 4 * sizeof *outputs);
  outputs[0] = node->outputs[0];
  for (int o = 1; o < 4; o++)
    outputs[o] = graph_add_value(
        graph, (struct value){.kind = VALUE_RESULT, .producer = node->index, .param = -1, .statistic = -1});
  node->outputs = outputs;
  node->n_outputs = 4;
}

static int batch_norm_train(struct model_builder *builder, struct node *node, const bool *is_read,
                            struct err *err) {
  struct graph *graph = builder->model->train;
  float momentum = node_attr_float(node, "momentum", 0.9f);
  int extra = extra_output_read(node, is_read), statistics[2];
  if (!(momentum >= 0 && momentum <= 1))
    return node_error(node, err, ERR_INVALID, "its momentum is %g, not in [0, 1]", (double)momentum);
  if (extra >= 0)
    return node_error(node, err, ERR_UNSUPPORTED, "its output '%s' is read: only the first may be",
                      graph->values[extra].name);
  statistics[0] = node->inputs[3];
  statistics[1] = node->inputs[4];
  node_become(graph, node,
              &(struct other_form){.op = op_find("ai.weir", "BatchNormTraining"),
                                   .n_inputs = 3,
                                   .n_outputs = 1,
                                   .dropped_attr = "training_mode"});
  training_outputs(graph, node);
  if (node->op->infer(graph, node, err))
    return err->code;
  for (int s = 0; s < 2; s++) {
    const struct value *value = &graph->values[statistics[s]];
    struct initializer_note *note = note_of(builder, statistics[s]);
    if (!note || !shape_is_same(&value->shape, &graph->values[node->outputs[1 + s]].shape))
      return node_error(node, err, ERR_UNSUPPORTED, "its running statistic '%s' is not an initializer",
                        value->name);
    if (note->batch_value >= 0)
      return node_error(node, err, ERR_UNSUPPORTED,
                        "its running statistic '%s' is updated a second time in a step", value->name);
    note->batch_value = node->outputs[1 + s];
    note->momentum = momentum;
  }
  return 0;
}

/* Gives the node the form that normalises with its running statistics, whichever it had. */
static int batch_norm_infer_form(struct graph *graph, struct node *node, const bool *is_read,
                                 struct err *err) {
  int extra = extra_output_read(node, is_read);
  if (extra >= 0)
    return node_error(node, err, ERR_UNSUPPORTED, "its output '%s' is read: only the first may be",
                      graph->values[extra].name);
  node_become(
      graph, node,
      &(struct other_form){
          .op = node->op, .n_inputs = node->n_inputs, .n_outputs = 1, .dropped_attr = "training_mode"});
  return node->op->infer(graph, node, err);
}

/* A batch norm that does not train keeps its statistics. */
static int batch_norm_fix(struct model_builder *builder, struct node *node, const bool *is_read,
                          struct err *err) {
  for (int i = 3; i < node->n_inputs; i++) {
    struct initializer_note *note = node->inputs[i] >= 0 ? note_of(builder, node->inputs[i]) : NULL;
    if (note)
      note->is_fixed = true;
  }
  return batch_norm_infer_form(builder->model->train, node, is_read, err);
}

/* Nothing computes with a running statistic in the train graph: it would differ between the microbatches. */
static int check_statistics_unread(struct model_builder *builder, struct err *err) {
  const struct graph *graph = builder->model->train;
  for (int n = 0; n < graph->n_nodes; n++)
    for (int i = 0; i < graph->nodes[n]->n_inputs; i++) {
      int value = graph->nodes[n]->inputs[i];
      const struct initializer_note *note = value >= 0 ? note_of(builder, value) : NULL;
      if (note && note->batch_value >= 0)
        return node_error(graph->nodes[n], err, ERR_UNSUPPORTED,
                          "reads '%s', a running statistic that training changes", graph->values[value].name);
    }
  return 0;
}

int model_rewrite_train(struct model_builder *builder, struct err *err) {
  struct graph *graph = builder->model->train;
  bool *is_read = values_read(graph);
  int code = 0;
  for (int n = 0; n < graph->n_nodes && !code; n++) {
    struct node *node = graph->nodes[n];
    bool drops;
    if (is_op(node, "Dropout")) {
      code = dropout_drops(graph, node, &drops, err);
      if (!code && !drops)
        code = dropout_bypass(graph, node, is_read, err);
    } else if (is_op(node, "BatchNormalization")) {
      code = batch_norm_trains(builder->spec, graph, node) ? batch_norm_train(builder, node, is_read, err)
                                                           : batch_norm_fix(builder, node, is_read, err);
    }
  }
  free(is_read);
  return code ? code : check_statistics_unread(builder, err);
}

int model_rewrite_eval(struct model_builder *builder, struct err *err) {
  struct graph *graph = builder->model->eval;
  bool *is_read = values_read(graph);
  int code = 0;
  for (int n = 0; n < graph->n_nodes && !code; n++) {
    struct node *node = graph->nodes[n];
    if (is_op(node, "Dropout")) {
      code = dropout_bypass(graph, node, is_read, err);
    } else if (is_op(node, "BatchNormalization")) {
      code = batch_norm_infer_form(graph, node, is_read, err);
    }
  }
  free(is_read);
  if (!code)
    model_expect_draws(graph);
  return code;
}
