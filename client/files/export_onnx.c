/* ONNX in inference form: the submitted model with its trained tensors replaced, batch norm on its running
   statistics, dropout gone, and draws of stochastic depth at their expectation. */
#include <stdlib.h>
#include <string.h>

#include "client/files/export.h"
#include "client/files/export_draws.h"
#include "common/base/unpack.h"
#include "model/export_tensors.h"
#include "model/onnx/model_file.h"
#include "model/onnx/onnx_patch.h"
#include "model/onnx/onnx_uses.h"

static void remove_attribute(Onnx__NodeProto *node, const char *name) {
  size_t kept = 0;
  for (size_t i = 0; i < node->n_attribute; i++)
    if (strcmp(node->attribute[i]->name, name) == 0)
      onnx__attribute_proto__free_unpacked(node->attribute[i], NULL);
    else
      node->attribute[kept++] = node->attribute[i];
  node->n_attribute = kept;
}

static void keep_names(char **names, size_t *n, size_t keep) {
  for (size_t i = keep; i < *n; i++)
    free(names[i]);
  *n = *n < keep ? *n : keep;
}

/* Batch norm with one output and no training_mode normalises with its running statistics. */
static void freeze_batch_norm(Onnx__NodeProto *node) {
  remove_attribute(node, "training_mode");
  keep_names(node->output, &node->n_output, 1);
}

/* In inference dropout is the identity; ratio and training_mode go with it. */
static void freeze_dropout(Onnx__NodeProto *node) {
  for (size_t i = 0; i < node->n_attribute; i++)
    onnx__attribute_proto__free_unpacked(node->attribute[i], NULL);
  node->n_attribute = 0;
  keep_names(node->input, &node->n_input, 1);
  keep_names(node->output, &node->n_output, 1);
  free(node->op_type);
  node->op_type = mem_strdup("Identity");
}

/* Readers of a dropout read its input, so that nothing is left of it but where it makes an output of the
 * graph. */
static void bypass_dropouts(Onnx__GraphProto *graph) {
  for (size_t n = 0; n < graph->n_node; n++) {
    Onnx__NodeProto *node = graph->node[n];
    if (strcmp(node->op_type, "Dropout") != 0)
      continue;
    freeze_dropout(node);
    if (!onnx_is_output(graph, node->output[0]))
      onnx_rename_uses(graph, node->output[0], node->input[0]);
  }
}

/* Nobody reads any of its outputs. */
static bool is_left_over(const Onnx__GraphProto *graph, const Onnx__NodeProto *node) {
  for (size_t o = 0; o < node->n_output; o++)
    if (*node->output[o] && onnx_is_used(graph, node->output[o]))
      return false;
  return true;
}

/* The bypassed dropouts and draws, and what only they read. Readers come behind what they read. */
static void remove_left_overs(Onnx__GraphProto *graph) {
  size_t kept = 0;
  for (size_t n = graph->n_node; n-- > 0;) {
    if (!is_left_over(graph, graph->node[n]))
      continue;
    onnx__node_proto__free_unpacked(graph->node[n], NULL);
    memmove(&graph->node[n], &graph->node[n + 1], (graph->n_node - n - 1) * sizeof *graph->node);
    graph->n_node--;
  }
  for (size_t i = 0; i < graph->n_initializer; i++)
    if (onnx_is_used(graph, graph->initializer[i]->name))
      graph->initializer[kept++] = graph->initializer[i];
    else
      onnx__tensor_proto__free_unpacked(graph->initializer[i], NULL);
  graph->n_initializer = kept;
}

/* Intermediate results' types are optional, and some belong to values that are gone. */
static void remove_value_infos(Onnx__GraphProto *graph) {
  for (size_t i = 0; i < graph->n_value_info; i++)
    onnx__value_info_proto__free_unpacked(graph->value_info[i], NULL);
  graph->n_value_info = 0;
}

/* The nodes of functions and branches: their dropouts stay, as identities. */
static void freeze_inner(Onnx__NodeProto *const *nodes, size_t n) {
  for (size_t i = 0; i < n; i++) {
    Onnx__NodeProto *node = nodes[i];
    if (strcmp(node->op_type, "BatchNormalization") == 0)
      freeze_batch_norm(node);
    else if (strcmp(node->op_type, "Dropout") == 0)
      freeze_dropout(node);
    for (size_t a = 0; a < node->n_attribute; a++)
      if (node->attribute[a]->g)
        freeze_inner(node->attribute[a]->g->node, node->attribute[a]->g->n_node);
  }
}

static void freeze_model(Onnx__ModelProto *model) {
  Onnx__GraphProto *graph = model->graph;
  bypass_dropouts(graph);
  export_expect_draws(graph);
  freeze_inner(graph->node, graph->n_node);
  for (size_t f = 0; f < model->n_functions; f++)
    freeze_inner(model->functions[f]->node, model->functions[f]->n_node);
  remove_left_overs(graph);
  remove_value_infos(graph);
}

static int write_packed(const Onnx__ModelProto *model, const char *path, struct err *err) {
  size_t size = onnx__model_proto__get_packed_size(model);
  uint8_t *bytes = malloc(size);
  int code;
  if (!bytes)
    return err_set(err, ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, size);
  onnx__model_proto__pack(model, bytes);
  code = model_file_write(path, bytes, size, err);
  free(bytes);
  return code;
}

int export_onnx(const struct trained_model *model, const char *path, struct err *err) {
  struct trained_tensors trained;
  Onnx__ModelProto *file = NULL;
  if (trained_tensors_init(&trained, model, err))
    goto out;
  file = message_unpack(&onnx__model_proto__descriptor, model->onnx, model->onnx_size, err);
  if (!file)
    goto out;
  for (int i = 0; i < trained.n; i++)
    onnx_replace(file->graph, &trained.tensors[i]);
  freeze_model(file);
  write_packed(file, path, err);
out:
  if (file)
    onnx__model_proto__free_unpacked(file, NULL);
  trained_tensors_fini(&trained);
  return err->code;
}
