/* The loss of a model: which one, of which output, and its nodes in both graphs. */
#include <string.h>

#include "common/agree/plan.h"
#include "common/agree/spec.h"
#include "model/graph/listing.h"
#include "model/model_parts.h"
#include "model/ops/shared/backward.h"

static const Weir__LossOptions default_options = WEIR__LOSS_OPTIONS__INIT;

static const Weir__LossOptions *options_of(const struct model_builder *builder) {
  return builder->spec && builder->spec->loss_options ? builder->spec->loss_options : &default_options;
}

const char *model_find_mixer(const Weir__RunSpec *spec) {
  const Weir__DataSpec *data = spec ? spec->data : NULL;
  const char *name = NULL;
  for (size_t t = 0; data && t < data->n_transforms && !name; t++)
    spec_mixing(data->transforms[t], &name);
  return name;
}

static int fail_unknown(const struct graph *graph, const char *name, struct err *err) {
  struct listing outputs = {0};
  char known[DEF_NAMES_SIZE];
  for (int o = 0; o < graph->n_outputs; o++)
    listing_add(&outputs, "'%s'", graph->values[graph->outputs[o]].name);
  return err_set(
      err, ERR_INVALID,
      "model.loss: there is no loss '%.100s', known are: %s; nor has the model such an output: its "
      "are %s",
      name, loss_names(known), listing_text(&outputs));
}

/* A loss's name counts before that of an output. */
int model_find_loss(struct model_builder *builder, struct err *err) {
  const struct graph *graph = builder->model->train;
  const char *name = builder->spec && builder->spec->loss ? builder->spec->loss : "cross_entropy";
  const struct loss_def none = {.name = name, .options = (const char *const[]){NULL}};
  builder->loss = loss_find(name);
  while (!builder->loss && builder->output < graph->n_outputs &&
         strcmp(graph->values[graph->outputs[builder->output]].name, name) != 0)
    builder->output++;
  if (builder->output == graph->n_outputs)
    return fail_unknown(graph, name, err);
  if (!builder->loss && builder->spec->labels)
    return err_set(
        err, ERR_INVALID,
        "model.labels: the loss is the model's output '%s', which takes no labels: name the columns "
        "of the model's own inputs in model.inputs",
        name);
  return loss_check_options(builder->loss ? builder->loss : &none, options_of(builder), err);
}

/* An output that is the loss: f32 of one element is the mean over the execution's samples, f32[samples,...]
   has losses whose mean is wanted. */
static int attach_output(struct loss_site *site, struct err *err) {
  struct graph *graph = site->graph;
  const struct value output = graph->values[site->output];
  int64_t elems = shape_elems(&output.shape);
  struct attr keepdims = attr_of_int("keepdims", 0);
  char shape[256];
  if (output.dtype != DTYPE_F32 || elems < 1 || (elems > 1 && output.shape.dim[0] != site->samples))
    return err_set(err, ERR_INVALID,
                   "model.loss: the output '%s' is %s%s; a loss is f32[], the mean over the samples, or "
                   "f32[%lld,...], of each sample",
                   output.name, dtype_name(output.dtype), shape_text(&output.shape, shape, sizeof shape),
                   (long long)site->samples);
  site->values = (struct loss_values){site->output, -1, -1, -1};
  site->rule.sample_denominator = elems > 1 ? (double)(elems / site->samples) : 1;
  if (output.shape.rank > 0)
    site->values.loss_sum = backward_node(graph, "ReduceSum", VALUES(site->output), ATTR_LIST(keepdims));
  if (elems == 1)
    site->values.loss_sum = backward_scale(graph, site->values.loss_sum, (float)site->samples);
  return 0;
}

/* What mixes wants a class for each sample, and makes probabilities of them. */
static int check_mixed(const struct model_builder *builder, const struct loss_site *site, struct err *err) {
  const struct value *output = &site->graph->values[site->output];
  char shape[256];
  if (site->options->soft_labels)
    return err_set(err, ERR_INVALID,
                   "data.transforms.%s: mixes classes, but by model.loss_options.soft_labels the labels are "
                   "probabilities",
                   builder->mixer);
  if (site->samples == 1)
    return err_set(err, ERR_INVALID,
                   "data.transforms.%s: mixes the samples of a microbatch, which has only one: choose fewer "
                   "train.microbatches",
                   builder->mixer);
  if (output->shape.rank == 2)
    return 0;
  return err_set(err, ERR_INVALID,
                 "data.transforms.%s: mixes labels of one class a sample, which wants an output f32[samples,"
                 "classes]; '%s' is %s",
                 builder->mixer, output->name, shape_text(&output->shape, shape, sizeof shape));
}

static int loss_attach(const struct model_builder *builder, struct loss_site *site, struct err *err) {
  int rank;
  site->output = site->graph->outputs[0];
  site->samples = builder->microbatch_samples;
  site->options = options_of(builder);
  site->labels = -1;
  site->loss = builder->loss;
  rank = site->graph->values[site->output].shape.rank;
  if (site->is_mixed && (!site->loss || !loss_has_option(site->loss, "soft_labels")))
    return err_set(err, ERR_INVALID,
                   "data.transforms.%s: mixes classes, for losses with probabilities of classes as "
                   "cross_entropy, not '%s'",
                   builder->mixer, builder->spec->loss);
  if (!site->loss || (!builder->spec && rank < 2))
    return attach_output(site, err);
  if (site->is_mixed && check_mixed(builder, site, err))
    return err->code;
  return site->loss->attach(site, err);
}

static int choose_metrics(const struct model_builder *builder, const struct loss_site *loss,
                          struct err *err) {
  const struct value *values = loss->graph->values;
  const Weir__EvalSpec *eval = builder->eval;
  struct metric_site site = {.loss = loss->loss && loss->labels >= 0 ? loss->loss->name : "",
                             .output = values[loss->output].shape,
                             .class_axis = loss->class_axis,
                             .classes = loss->rule.classes,
                             .ignore_index = loss->rule.ignore_index};
  uint32_t chunk_samples = eval && eval->n_metrics ? plan_eval_chunk_samples((uint32_t)loss->samples) : 0;
  if (loss->labels >= 0)
    site.sample_labels = shape_elems(&values[loss->labels].shape) / loss->samples;
  return metric_set_init(&builder->model->metrics, &site,
                         &(struct metric_request){.names = eval ? eval->metrics : NULL,
                                                  .n = eval ? eval->n_metrics : 0,
                                                  .chunk_samples = chunk_samples},
                         err);
}

int model_attach_losses(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  const Weir__EvalSpec *spec = builder->eval;
  struct loss_site train = {.graph = model->train, .is_mixed = builder->mixer != NULL};
  struct loss_site eval = {.graph = model->eval,
                           .keeps_output = spec && metrics_read_scores(spec->metrics, spec->n_metrics)};
  if (loss_attach(builder, &train, err) || loss_attach(builder, &eval, err) ||
      choose_metrics(builder, &eval, err))
    return err->code;
  model->output = model->eval->values[eval.output];
  model->train_loss = train.values;
  model->eval_loss = eval.values;
  model->eval_output = model->metrics.reads_output ? eval.output : -1;
  model->labels = eval.rule;
  model->labels.sample_denominator = train.rule.sample_denominator;
  model->mixes_labels = train.is_mixed;
  model->has_labels = train.labels >= 0;
  builder->scale = graph_add_input(model->train, "weir.scale", DTYPE_F32, &(struct shape){0});
  return 0;
}
