/* What there is to say about a model. */
#include "client/terminal/inspection.h"

#include <stdlib.h>
#include <string.h>

#include "model/graph/names.h"

/* Trained elements that the node reads and none before it. */
static uint64_t new_parameters(const struct model *model, const struct node *node, bool *is_seen) {
  uint64_t elems = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    const struct value *value = node_input(model->eval, node, i);
    if (!value || value->param < 0 || is_seen[value->param])
      continue;
    is_seen[value->param] = true;
    elems += model->params[value->param].elems;
  }
  return elems;
}

static const struct shape *first_shape(const struct graph *graph, const struct node *node) {
  static const struct shape none = {0};
  for (int o = 0; o < node->n_outputs; o++)
    if (node->outputs[o] >= 0)
      return &graph->values[node->outputs[o]].shape;
  return &none;
}

/* The nodes up to the one that computes the model's output, or its loss where that took the last layer in. */
static int count_layers(const struct model *model) {
  const struct graph *graph = model->eval;
  const struct value *last = NULL;
  for (int o = 0; o < graph->n_outputs; o++)
    if (strcmp(graph->values[graph->outputs[o]].name, model->output.name) == 0)
      last = &graph->values[graph->outputs[o]];
  if (!last)
    last = &graph->values[model->eval_loss.loss_sum];
  return last->kind == VALUE_RESULT ? last->producer + 1 : 0;
}

static void list_layers(struct inspection *inspection) {
  const struct model *model = inspection->model;
  const struct graph *graph = model->eval;
  bool *is_seen = mem_new((size_t)model->n_params);
  inspection->n_layers = count_layers(model);
  inspection->layers = mem_new((size_t)inspection->n_layers * sizeof *inspection->layers);
  for (int n = 0; n < inspection->n_layers; n++) {
    const struct node *node = graph->nodes[n];
    struct layer *layer = &inspection->layers[n];
    *layer =
        (struct layer){.node = node,
                       .shape = first_shape(graph, node),
                       .parameters = new_parameters(model, node, is_seen),
                       .multiply_adds = node->op->multiply_adds ? node->op->multiply_adds(graph, node) : 0};
    inspection->multiply_adds += layer->multiply_adds;
  }
  free(is_seen);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const struct operator_count *)a)->name, ((const struct operator_count *)b)->name);
}

static void count_operators(struct inspection *inspection) {
  int n = 0;
  inspection->operators = mem_new((size_t)inspection->n_layers * sizeof *inspection->operators);
  for (int i = 0; i < inspection->n_layers; i++)
    inspection->operators[i] = (struct operator_count){inspection->layers[i].node->op->name, 1};
  qsort(inspection->operators, (size_t)inspection->n_layers, sizeof *inspection->operators, compare_names);
  for (int i = 0; i < inspection->n_layers; i++)
    if (n && strcmp(inspection->operators[n - 1].name, inspection->operators[i].name) == 0)
      inspection->operators[n - 1].nodes++;
    else
      inspection->operators[n++] = inspection->operators[i];
  inspection->n_operators = n;
}

static void list_tensors(struct inspection *inspection) {
  const struct model *model = inspection->model;
  const struct graph *graphs[] = {model->eval, model->train};
  struct names names[2];
  inspection->n_tensors = model->n_initializers;
  inspection->tensors = mem_new((size_t)model->n_initializers * sizeof *inspection->tensors);
  for (int g = 0; g < 2; g++) {
    names_init(&names[g]);
    for (int v = 0; v < graphs[g]->n_values; v++)
      names_add(&names[g], graphs[g]->values[v].name, v);
  }
  for (int i = 0; i < model->n_initializers; i++) {
    const struct initializer *initializer = &model->initializers[i];
    struct tensor_role *tensor = &inspection->tensors[i];
    tensor->name = initializer->name;
    tensor->role = initializer->param >= 0 ? "trained" : initializer->statistic >= 0 ? "statistic" : "frozen";
    tensor->group = initializer->param >= 0 ? (int)model->params[initializer->param].group - 1 : -1;
    inspection->n_frozen += initializer->param < 0 && initializer->statistic < 0;
    for (int g = 0; g < 2 && !tensor->value; g++) {
      int at = names_find(&names[g], initializer->name);
      tensor->value = at >= 0 ? &graphs[g]->values[at] : NULL;
    }
  }
  names_fini(&names[0]);
  names_fini(&names[1]);
}

static void count_batch_norms(struct inspection *inspection) {
  const struct graph *graph = inspection->model->train;
  for (int n = 0; n < graph->n_nodes; n++) {
    bool trains = strcmp(graph->nodes[n]->op->name, "BatchNormTraining") == 0;
    inspection->n_training_batch_norms += trains;
    inspection->n_batch_norms += trains || strcmp(graph->nodes[n]->op->name, "BatchNormalization") == 0;
  }
}

static bool row_is_frozen(const struct param *param, int64_t row) {
  for (uint32_t r = 0; r < param->n_frozen_rows; r++)
    if (param->frozen_rows[r] == row)
      return true;
  return false;
}

/* Rows of zeros, and the first of them that is trained. */
static struct zero_row find_zero_rows(const struct param *param, const float *data) {
  int64_t rows = param->shape.dim[0], row_elems = (int64_t)param->elems / rows;
  struct zero_row found = {param, -1, 0};
  for (int64_t r = 0; r < rows; r++) {
    int64_t i = 0;
    while (i < row_elems && data[r * row_elems + i] == 0)
      i++;
    if (i < row_elems)
      continue;
    found.n++;
    if (found.row < 0 && !row_is_frozen(param, r))
      found.row = r;
  }
  return found;
}

static bool is_noted(const struct inspection *inspection, const struct param *param) {
  for (int i = 0; i < inspection->n_zero_rows; i++)
    if (inspection->zero_rows[i].param == param)
      return true;
  return false;
}

/* An embedding is a trained matrix whose rows are taken by indices that are data. */
static void list_zero_rows(struct inspection *inspection) {
  const struct model *model = inspection->model;
  const struct graph *graph = model->train;
  inspection->zero_rows = mem_new((size_t)model->n_params * sizeof *inspection->zero_rows);
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    const struct value *table = node_input(graph, node, 0), *rows = node_input(graph, node, 1);
    const struct param *param = table && table->param >= 0 ? &model->params[table->param] : NULL;
    struct zero_row zero_row;
    if (!param || strcmp(node->op->name, "Gather") != 0 || node_attr_int(node, "axis", 0) != 0 ||
        rows->data || param->shape.rank < 2 || is_noted(inspection, param))
      continue;
    zero_row = find_zero_rows(param, table->data);
    if (zero_row.row >= 0 && zero_row.n < param->shape.dim[0])
      inspection->zero_rows[inspection->n_zero_rows++] = zero_row;
  }
}

void inspection_init(struct inspection *inspection, struct model *model, const Weir__RunSpec *spec,
                     int samples) {
  *inspection = (struct inspection){.spec = spec, .model = model, .samples = samples};
  list_layers(inspection);
  count_operators(inspection);
  list_tensors(inspection);
  count_batch_norms(inspection);
  list_zero_rows(inspection);
  model_memory(inspection->model, &inspection->memory);
}

void inspection_fini(struct inspection *inspection) {
  stage_report_fini(&inspection->stages);
  model_close(inspection->model);
  free(inspection->layers);
  free(inspection->operators);
  free(inspection->tensors);
  free(inspection->zero_rows);
}
