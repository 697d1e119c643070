/* Guessing a model's loss and kind of data. */
#include "client/drafts/task.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "model/graph/op.h"

enum { SAMPLES_MOST = 8 };
static const uint64_t MICROBATCH_BYTES_MOST = UINT64_C(1) << 30;

static int load(const void *onnx, size_t size_bytes, int64_t samples, struct graph **out, struct err *err);
static void choose(struct task *task, const struct graph *graph);
static int open_model(struct task *task, const void *onnx, size_t size_bytes, const struct graph *graph,
                      struct err *err);
static uint64_t execution_bytes(const struct task *task);

int task_find(const void *onnx, size_t size_bytes, struct task *out, struct err *err) {
  struct graph *graph = NULL;
  *out = (struct task){.samples = SAMPLES_MOST};
  if (load(onnx, size_bytes, out->samples, &graph, err) && graph && graph->file_batch) {
    out->samples = graph->file_batch; /* other numbers of samples do not fit through it */
    graph_free(graph);
    *err = ERR_NONE;
    load(onnx, size_bytes, out->samples, &graph, err);
  }
  if (!err->code && graph->n_outputs == 0)
    err_set(err, ERR_INVALID, "the model has no output");
  if (!err->code) {
    choose(out, graph);
    open_model(out, onnx, size_bytes, graph, err);
  }
  while (!err->code && out->samples > 1 && out->samples != graph->file_batch &&
         execution_bytes(out) > MICROBATCH_BYTES_MOST) {
    out->samples /= 2;
    open_model(out, onnx, size_bytes, graph, err);
  }
  graph_free(graph);
  return err->code;
}

void task_fini(struct task *task) {
  free(task->loss);
  model_close(task->model);
  *task = (struct task){0};
}

const struct value *task_input(const struct task *task, int i) {
  return &task->model->eval->values[task->model->eval->inputs[i]];
}

/* *out also after an error of its shapes. */
static int load(const void *onnx, size_t size_bytes, int64_t samples, struct graph **out, struct err *err) {
  *out = NULL;
  if (graph_load_onnx(onnx, size_bytes, out, err) || graph_bind_batch(*out, samples, err))
    return err->code;
  return graph_infer(*out, err);
}

static uint64_t execution_bytes(const struct task *task) {
  struct model_memory memory;
  model_memory(task->model, &memory);
  return memory.train_bytes;
}

/* An output that is the loss: a single number, or one a sample with that name. */
static const struct value *find_loss_output(const struct graph *graph) {
  for (int o = 0; o < graph->n_outputs; o++) {
    const struct value *value = &graph->values[graph->outputs[o]];
    if (value->dtype == DTYPE_F32 &&
        (value->shape.rank == 0 || (strcmp(value->name, "loss") == 0 && value->shape.rank == 1)))
      return value;
  }
  return NULL;
}

/* The operator that makes the value, behind what only renames or reshapes it; "" for an input. */
static const char *made_by(const struct graph *graph, const struct value *value) {
  while (value && value->producer >= 0) {
    const struct node *node = graph->nodes[value->producer];
    if (strcmp(node->op->name, "Identity") != 0 && strcmp(node->op->name, "Reshape") != 0)
      return node->op->name;
    value = node_input(graph, node, 0);
  }
  return "";
}

/* The one value that is fed; NULL where there are several. */
static const struct value *only_input(const struct graph *graph) {
  return graph->n_inputs == 1 ? &graph->values[graph->inputs[0]] : NULL;
}

/* The output is of the input's shape, and no scores of so many classes by chance. */
static bool is_reconstruction(const struct graph *graph, const struct value *output) {
  const struct value *input = only_input(graph);
  return input && input->dtype == DTYPE_F32 && shape_is_same(&input->shape, &output->shape) &&
         !strstr(output->name, "logit");
}

static const char *choose_loss(struct task *task, const struct graph *graph, const struct value *output) {
  const char *op = made_by(graph, output);
  const struct shape *shape = &output->shape;
  bool is_number = shape->rank == 1 || (shape->rank == 2 && shape->dim[1] == 1);
  if (strcmp(op, "LogSoftmax") == 0)
    return "nll";
  if (strcmp(op, "Softmax") == 0)
    task->note = "the model ends in Softmax, which cross_entropy has itself: export the model without it";
  else if (strcmp(op, "Sigmoid") == 0)
    task->note = "the model ends in Sigmoid, which bce_with_logits has itself: export the model without it";
  if (strcmp(op, "Sigmoid") == 0 || (is_number && strstr(output->name, "logit")))
    return "bce_with_logits";
  if (is_number)
    task->note = "mse is for any numbers; bce_with_logits for labels that are 0 or 1";
  if (is_number || (is_reconstruction(graph, output) && !task->note))
    return "mse";
  return "cross_entropy";
}

static bool has_classes(const struct task *task) {
  return strcmp(task->loss, "cross_entropy") == 0 || strcmp(task->loss, "nll") == 0;
}

static void choose_data(struct task *task, const struct graph *graph, const struct shape *output) {
  const struct value *value = only_input(graph);
  const struct shape *input = value ? &value->shape : NULL;
  task->data = TASK_ARRAYS;
  task->summary = has_classes(task) ? "gives scores of classes" : "gives numbers";
  if (!input)
    return;
  if (value->dtype == DTYPE_F32 && input->rank == 4 && (input->dim[1] == 1 || input->dim[1] == 3) &&
      output->rank == 2 && has_classes(task)) {
    task->data = TASK_IMAGES;
    task->summary = "classifies images";
  } else if (value->dtype == DTYPE_I64 && input->rank == 2 && output->rank == 3 && has_classes(task) &&
             output->dim[1] == input->dim[1]) {
    task->data = TASK_TOKENS;
    task->summary = "predicts the next token";
  } else if (value->dtype == DTYPE_F32 && input->rank == 2 &&
             (has_classes(task) ? output->rank == 2 : output->rank == 1 || output->dim[1] == 1)) {
    task->data = TASK_TABLE;
    task->summary = has_classes(task) ? "classifies rows of numbers" : "gives a number for a row of numbers";
  }
}

static void choose(struct task *task, const struct graph *graph) {
  const struct value *loss = find_loss_output(graph), *output = &graph->values[graph->outputs[0]];
  if (loss) {
    task->loss = mem_strdup(loss->name);
    task->data = TASK_ARRAYS;
    task->summary = "computes its loss itself";
    return;
  }
  task->loss = mem_strdup(choose_loss(task, graph, output));
  choose_data(task, graph, &output->shape);
  if (graph->n_outputs > 1 && !task->note)
    task->note = "the loss is of the model's first output";
}

/* Which inputs lead to the output that counts. */
static void keep_used(struct graph *graph, const char *loss) {
  int root = graph_find(graph, loss);
  free(graph_prune(graph, root >= 0 ? &root : graph->outputs, 1));
}

static int open_model(struct task *task, const void *onnx, size_t size_bytes, const struct graph *graph,
                      struct err *err) {
  struct graph *used = graph_clone(graph);
  Weir__ModelSpec__InputsEntry entries[MODEL_INPUTS_MAX], *inputs[MODEL_INPUTS_MAX];
  Weir__ModelSpec spec = WEIR__MODEL_SPEC__INIT;
  Weir__RunSpec run = WEIR__RUN_SPEC__INIT;
  const struct model_source source = {
      .onnx = onnx, .size_bytes = size_bytes, .spec = &run, .samples = task->samples};
  keep_used(used, task->loss);
  for (int i = 0; i < used->n_inputs && i < MODEL_INPUTS_MAX; i++) {
    entries[i] = (Weir__ModelSpec__InputsEntry)WEIR__MODEL_SPEC__INPUTS_ENTRY__INIT;
    entries[i].key = entries[i].value = (char *)used->values[used->inputs[i]].name;
    inputs[spec.n_inputs++] = &entries[i];
  }
  spec.loss = task->loss;
  spec.inputs = inputs;
  run.model = &spec;
  model_close(task->model);
  model_open(&source, &task->model, err);
  graph_free(used);
  return err->code;
}
