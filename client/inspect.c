/* weir inspect: what Weir sees in an ONNX file. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "client/model_file.h"
#include "client/output.h"
#include "common/graph/model.h"
#include "common/graph/op.h"

enum { SHAPE_TEXT = 96 };

/* How an initializer takes part in training. */
static const char *initializer_role(const struct initializer *initializer) {
  return initializer->param >= 0 ? "trained" : initializer->statistic >= 0 ? "statistic" : "frozen";
}

static const struct value *initializer_value(const struct model *model,
                                             const struct initializer *initializer) {
  int at = graph_find(model->train, initializer->name);
  if (at < 0)
    at = graph_find(model->eval, initializer->name);
  else
    return &model->train->values[at];
  return at < 0 ? NULL : &model->eval->values[at];
}

/* Trained elements that a node of the eval graph reads first. */
static uint64_t node_parameters(const struct model *model, const struct node *node) {
  uint64_t elems = 0;
  for (int p = 0; p < model->n_params; p++)
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] >= 0 && node->inputs[i] == model->params[p].eval_value)
        elems += model->params[p].elems;
  return elems;
}

static void print_layers(const struct model *model) {
  static const char *const headings[] = {"LAYER", "OPERATOR", "OUTPUT", ">PARAMETERS", NULL};
  struct table table;
  table_init(&table, headings);
  for (int n = 0; n < model->eval->n_nodes; n++) {
    const struct node *node = model->eval->nodes[n];
    char shape[SHAPE_TEXT], count[OUTPUT_TEXT_MAX];
    uint64_t elems = node_parameters(model, node);
    const char *cells[] = {node->name, node->op->name,
                           shape_text(&node_output(model->eval, node, 0)->shape, shape, sizeof shape),
                           elems ? output_count((double)elems, count) : ""};
    table_row(&table, cells);
  }
  table_print(&table, stdout);
  table_fini(&table);
}

static void print_initializers(const struct model *model) {
  static const char *const headings[] = {"TENSOR", "SHAPE", "TYPE", "ROLE", NULL};
  struct table table;
  table_init(&table, headings);
  for (int i = 0; i < model->n_initializers; i++) {
    const struct initializer *initializer = &model->initializers[i];
    const struct value *value = initializer_value(model, initializer);
    char shape[SHAPE_TEXT] = "-";
    const char *cells[] = {initializer->name, value ? shape_text(&value->shape, shape, sizeof shape) : shape,
                           value ? dtype_name(value->dtype) : "-", initializer_role(initializer)};
    table_row(&table, cells);
  }
  table_print(&table, stdout);
  table_fini(&table);
}

static void print_ends(const char *what, const struct graph *graph, const int *values, int n) {
  char shape[SHAPE_TEXT];
  for (int i = 0; i < n; i++) {
    const struct value *value = &graph->values[values[i]];
    printf("%s %s: %s %s\n", what, value->name, dtype_name(value->dtype),
           shape_text(&value->shape, shape, sizeof shape));
  }
}

static void print_model(const struct model *model) {
  char count[OUTPUT_TEXT_MAX], bytes[OUTPUT_TEXT_MAX];
  print_ends("input ", model->eval, model->eval->inputs, model->n_columns);
  printf("classes: %lld\n\n", (long long)model->labels.classes);
  print_layers(model);
  printf("\n");
  print_initializers(model);
  printf("\n%s trained parameters (%s) in %d tensors, %d running statistics, %u blocks\n",
         output_count((double)model->param_elems, count),
         output_bytes(model->param_elems * sizeof(float), bytes), model->n_params, model->n_statistics,
         model->n_blocks);
}

static json_t *shape_json(const struct shape *shape) {
  json_t *dims = json_array();
  for (int i = 0; i < shape->rank; i++)
    json_array_append_new(dims, json_integer(shape->dim[i]));
  return dims;
}

static void print_json(const struct model *model) {
  json_t *layers = json_array(), *tensors = json_array(), *root;
  for (int n = 0; n < model->eval->n_nodes; n++) {
    const struct node *node = model->eval->nodes[n];
    json_array_append_new(layers,
                          json_pack("{s:s, s:s, s:o, s:I}", "name", node->name, "operator", node->op->name,
                                    "output", shape_json(&node_output(model->eval, node, 0)->shape),
                                    "parameters", (json_int_t)node_parameters(model, node)));
  }
  for (int i = 0; i < model->n_initializers; i++) {
    const struct value *value = initializer_value(model, &model->initializers[i]);
    json_t *tensor = json_pack("{s:s, s:s}", "name", model->initializers[i].name, "role",
                               initializer_role(&model->initializers[i]));
    if (value) {
      json_object_set_new(tensor, "shape", shape_json(&value->shape));
      json_object_set_new(tensor, "type", json_string(dtype_name(value->dtype)));
    }
    json_array_append_new(tensors, tensor);
  }
  root = json_pack("{s:o, s:o, s:I, s:I, s:I}", "layers", layers, "tensors", tensors, "parameters",
                   (json_int_t)model->param_elems, "classes", (json_int_t)model->labels.classes, "blocks",
                   (json_int_t)model->n_blocks);
  json_dumpf(root, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(root);
}

static int inspect_run(const struct args *args) {
  struct err err = ERR_NONE;
  struct model *model = NULL;
  void *bytes;
  size_t size;
  long batch = args_count(args, "batch");
  if (model_file_read(args->arguments[0], &bytes, &size, &err))
    return command_fail(&err);
  if (model_open(bytes, size, NULL, batch, &model, &err))
    err_prefix(&err, "%s", args->arguments[0]);
  else if (args_flag(args, "json"))
    print_json(model);
  else
    print_model(model);
  model_close(model);
  free(bytes);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def inspect_options[] = {
    {"batch", 0, OPTION_COUNT, "N", "1", 1, 1 << 20, "Batch size that the shapes are shown for."},
    {"json", 0, OPTION_FLAG, NULL, NULL, 0, 0, "Print JSON instead of tables."},
    {0},
};

const struct command_def command_inspect = {
    .name = "inspect",
    .summary = "show what is in an ONNX file, and what would be trained",
    .arguments = "FILE.onnx",
    .min_arguments = 1,
    .max_arguments = 1,
    .description =
        "Reads an ONNX model as a run would and prints its layers with their output shapes, and its tensors: "
        "'trained' ones have a gradient path to the loss, a 'statistic' is updated by batch norm, 'frozen' "
        "ones stay "
        "as they are. A model that cannot be trained is refused with everything unsupported named at once.",
    .options = inspect_options,
    .examples = "weir inspect cnn.onnx\n"
                "weir inspect cnn.onnx --json | jq .parameters\n",
    .run = inspect_run,
};
