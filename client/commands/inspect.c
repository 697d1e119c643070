/* weir inspect: what Weir sees in an ONNX file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cluster/submission.h"
#include "client/command.h"
#include "client/terminal/inspection.h"
#include "client/terminal/mode_text.h"
#include "client/terminal/output.h"
#include "common/agree/spec.h"
#include "common/optim/trained_model.h"
#include "model/graph/graph.h"
#include "model/onnx/model_file.h"

enum { SHAPE_TEXT = 96, BATCH_MAX = 1 << 20 };

static void print_layers(const struct inspection *inspection) {
  static const char *const headings[] = {"LAYER",       "OPERATOR",       "OUTPUT",
                                         ">PARAMETERS", ">MULTIPLY-ADDS", NULL};
  struct table table;
  table_init(&table, headings);
  for (int n = 0; n < inspection->n_layers; n++) {
    const struct layer *layer = &inspection->layers[n];
    char shape[SHAPE_TEXT], elems[OUTPUT_TEXT_MAX], work[OUTPUT_TEXT_MAX];
    const char *cells[] = {layer->node->name, layer->node->op->name,
                           shape_text(layer->shape, shape, sizeof shape),
                           layer->parameters ? output_count((double)layer->parameters, elems) : "",
                           layer->multiply_adds > 0 ? output_count(layer->multiply_adds, work) : ""};
    table_row(&table, cells);
  }
  table_print(&table, stdout);
  table_fini(&table);
}

static bool has_groups(const struct inspection *inspection) {
  return inspection->spec && inspection->spec->train->optimizer->n_groups > 0;
}

static void print_tensors(const struct inspection *inspection) {
  static const char *const headings[] = {"TENSOR", "SHAPE", "TYPE", "ROLE", NULL};
  static const char *const headings_with_group[] = {"TENSOR", "SHAPE", "TYPE", "ROLE", "GROUP", NULL};
  struct table table;
  table_init(&table, has_groups(inspection) ? headings_with_group : headings);
  for (int i = 0; i < inspection->n_tensors; i++) {
    const struct tensor_role *tensor = &inspection->tensors[i];
    char shape[SHAPE_TEXT], group[OUTPUT_TEXT_MAX] = "";
    const char *cells[] = {tensor->name,
                           tensor->value ? shape_text(&tensor->value->shape, shape, sizeof shape) : "-",
                           tensor->value ? dtype_name(tensor->value->dtype) : "-", tensor->role, group};
    if (tensor->group >= 0)
      snprintf(group, sizeof group, "groups[%d]", tensor->group);
    table_row(&table, cells);
  }
  table_print(&table, stdout);
  table_fini(&table);
}

static void print_ends(const struct inspection *inspection) {
  const struct graph *graph = inspection->model->eval;
  const struct value *output = &inspection->model->output;
  char shape[SHAPE_TEXT];
  for (int i = 0; i < inspection->model->n_columns; i++) {
    const struct value *value = &graph->values[graph->inputs[i]];
    printf("input   %s: %s %s\n", value->name, dtype_name(value->dtype),
           shape_text(&value->shape, shape, sizeof shape));
  }
  printf("output  %s: %s %s\n", output->name, dtype_name(output->dtype),
         shape_text(&output->shape, shape, sizeof shape));
}

static void print_operators(const struct inspection *inspection) {
  printf("operators      ");
  for (int o = 0; o < inspection->n_operators; o++)
    printf("%s%s %d", o ? ", " : "", inspection->operators[o].name, inspection->operators[o].nodes);
  printf("\n");
}

/* No export says which row padding_idx names; PyTorch begins with zeros in it. */
static void print_rows(const struct inspection *inspection) {
  const struct model *model = inspection->model;
  for (int p = 0; p < model->n_params; p++)
    if (model->params[p].n_frozen_rows)
      printf("frozen rows    %u of '%s'\n", model->params[p].n_frozen_rows, model->params[p].name);
  for (int i = 0; i < inspection->n_zero_rows; i++) {
    const struct zero_row *zero_row = &inspection->zero_rows[i];
    const char *name = zero_row->param->name;
    printf("note           row %lld of the embedding '%s' is all zeros and will be trained; if it is "
           "padding_idx, "
           "which no export says, set model.frozen_rows: {\"%s\": [%lld]}\n",
           (long long)zero_row->row, name, name, (long long)zero_row->row);
  }
}

static void print_totals(const struct inspection *inspection) {
  const struct model *model = inspection->model;
  const struct model_memory *memory = &inspection->memory;
  char count[OUTPUT_TEXT_MAX], a[OUTPUT_TEXT_MAX], b[OUTPUT_TEXT_MAX], c[OUTPUT_TEXT_MAX];
  printf(
      "parameters     %s trained (%s) in %d tensors; frozen tensors %d, running statistics %d, blocks %u\n",
      output_count((double)model->param_elems, count), output_bytes(model->param_elems * sizeof(float), a),
      model->n_params, inspection->n_frozen, model->n_statistics, model->n_blocks);
  printf("multiply-adds  %s forward, %s a sample\n", output_count(inspection->multiply_adds, a),
         output_count(inspection->multiply_adds / inspection->samples, b));
  printf("memory         about %s an executor (activations of %d samples %s, weights in other layouts %s)\n",
         output_bytes(memory->train_bytes + memory->kept_bytes, a), inspection->samples,
         output_bytes(memory->train_bytes, b), output_bytes(memory->kept_bytes, c));
  printf("               on each worker weights %s and gradients %s; on the servers weights %s, for "
         "each optimizer slot as much again\n",
         output_bytes(memory->weights_bytes, a), output_bytes(memory->gradients_bytes, b),
         output_bytes(memory->gradients_bytes, c));
  if (inspection->spec)
    printf("computation    %s, %s; collective %s\n", inspection->spec->train->precision,
           inspection->spec->train->deterministic ? "deterministic" : "not deterministic",
           inspection->spec->train->collective);
  mode_print(stdout, "mode           ", inspection->spec, model->param_elems);
  if (inspection->n_batch_norms)
    printf("batch norm     %d of %d train (model.batch_norm: %s)\n", inspection->n_training_batch_norms,
           inspection->n_batch_norms, inspection->spec ? inspection->spec->model->batch_norm : "auto");
  print_rows(inspection);
  if (!inspection->spec) /* of a submission it was said when it was loaded */
    output_lost(stdout, "note           ", model->train);
}

static void print_text(const struct inspection *inspection) {
  print_ends(inspection);
  printf("classes %lld\n\n", (long long)inspection->model->labels.classes);
  print_layers(inspection);
  printf("\n");
  print_tensors(inspection);
  printf("\n");
  print_operators(inspection);
  print_totals(inspection);
  if (inspection->stages.stages.list)
    stage_report_print(&inspection->stages, stdout);
  else if (inspection->spec && inspection->spec->workers->stages == SPEC_STAGES_AUTO)
    printf("stages         as few as fit the memory of each worker (workers.stages: auto); --stages N shows "
           "N\n");
}

/* The batch that the file was exported for; 1 where it is open, or the file cannot be read. */
static int64_t batch_of_file(const void *bytes, size_t size) {
  struct err unused = ERR_NONE;
  struct graph *graph;
  int64_t batch = 1;
  if (graph_load_onnx(bytes, size, &graph, &unused))
    return 1;
  for (int i = 0; i < graph->n_inputs; i++) {
    const struct shape *shape = &graph->values[graph->inputs[i]].shape;
    if (shape->rank > 0 && shape->dim[0] > 0 && shape->dim[0] <= BATCH_MAX)
      batch = shape->dim[0];
  }
  graph_free(graph);
  return batch;
}

static bool is_spec(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* A model, or a spec with the one that it names. *batch: that of a microbatch. */
static int read_input(const struct args *args, struct submission *input, int64_t *batch, struct err *err) {
  const struct spec_source source = submission_source(args);
  if (!is_spec(source.file)) {
    if (source.n_settings)
      return err_set(err, ERR_INVALID, "'%s': PATH=VALUE changes a spec, and '%s' is a model",
                     source.settings[0], source.file);
    if (submission_open_model(input, source.file, err) == 0)
      *batch = batch_of_file(input->onnx, input->onnx_size);
  } else if (submission_load(input, &source, err) == 0)
    *batch = input->spec->train->batch / input->spec->train->microbatches;
  return err->code;
}

static int find_stages(const struct args *args, struct inspection *inspection, struct err *err) {
  const struct stage_request request = {
      .n_stages = (int)args_count(args, "stages"), .cuts = args_text(args, "cuts"), .spec = inspection->spec};
  return stage_report_init(&inspection->stages, inspection->model, &request, err);
}

static int inspect_run(const struct args *args) {
  struct inspection inspection = {0};
  struct submission input = {0};
  struct model *model = NULL;
  int64_t batch = 0, given = args_count(args, "batch");
  struct err err = ERR_NONE;
  if (read_input(args, &input, &batch, &err))
    goto out;
  batch = given ? given : batch;
  if (trained_model_open(
          &(struct model_source){
              .onnx = input.onnx, .size_bytes = input.onnx_size, .spec = input.spec, .samples = batch},
          &model, &err) ||
      (input.pieces.read && !input.spec && model_initial_check(model, &input.pieces, &err))) {
    err_prefix(&err, "%s", args->arguments[0]);
    goto out;
  }
  inspection_init(&inspection, model, input.spec, (int)batch);
  if (find_stages(args, &inspection, &err))
    goto out;
  if (args_flag(args, "json"))
    inspection_print_json(&inspection, stdout);
  else
    print_text(&inspection);
out:
  inspection_fini(&inspection);
  submission_fini(&input);
  return err.code ? command_fail(&err) : EXIT_DONE;
}

static const struct option_def inspect_options[] = {
    {"batch", 0, OPTION_COUNT, "N", NULL, 1, BATCH_MAX,
     "Samples of a microbatch: shapes, work and memory are shown for it. Default: the spec's; of a model "
     "what "
     "the file was exported for, or 1."},
    {"stages", 0, OPTION_COUNT, "N", NULL, 1, SPEC_STAGES_MAX,
     "Show the model cut into the N stages of a pipeline, as evenly as can be estimated from its graph: what "
     "each stage computes and holds, and what crosses between them. Default: the spec's workers.stages and "
     "workers.cuts."},
    {"cuts", 0, OPTION_TEXT, "NAME,...", NULL, 0, 0,
     "Cut it before these modules or nodes instead: layer3.0 is the first node of that module."},
    {"json", 0, OPTION_FLAG, NULL, NULL, 0, 0, "Print JSON instead of tables."},
    {0},
};

const struct command_def command_inspect = {
    .name = "inspect",
    .summary = "show what is in an ONNX file, and what would be trained",
    .arguments = "FILE.onnx|SPEC.yaml [PATH=VALUE]...",
    .min_arguments = 1,
    .max_arguments = ARGUMENTS_MAX,
    .description =
        "Reads an ONNX model as a run would and prints its layers with their output shapes and "
        "work, its tensors, "
        "and what training it needs in memory: 'trained' tensors have a gradient path to the "
        "loss, a 'statistic' is "
        "updated by batch norm, 'frozen' ones stay as they are. A model that cannot be trained is "
        "refused with "
        "everything unsupported named at once, and exit status 2.\n\n"
        "Of a spec it shows the model as that run would train it: with its loss, what it freezes, and "
        "which of train.optimizer.groups a tensor is in; and in the stages that workers.stages says. "
        "PATH=VALUE gives a key of the spec another value, as `weir train` takes it.",
    .options = inspect_options,
    .examples = "weir inspect cnn.onnx --batch 32\n"
                "weir inspect spec.yaml\n"
                "weir inspect spec.yaml workers.stages=2\n"
                "weir inspect resnet18.onnx --batch 16 --stages 2\n"
                "weir inspect cnn.onnx --json | jq .parameters\n",
    .run = inspect_run,
};
