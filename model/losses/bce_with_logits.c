/* Binary cross-entropy of each logit and a target in [0, 1], as PyTorch's BCEWithLogitsLoss. */
#include "model/losses/elements.h"

/* What a positive counts, as the op's input and its axis. */
static int add_pos_weight(struct loss_site *site, struct element_loss *loss, struct err *err) {
  const Weir__LossOptions *options = site->options;
  const struct shape *shape = &site->graph->values[site->output].shape;
  size_t n = options->n_pos_weight;
  float *weights;
  if (n == 0)
    return 0;
  if ((n > 1 || options->has_class_axis) && loss_class_axis(site, &loss->axis, err))
    return err->code;
  if (n > 1 && n != (size_t)shape->dim[loss->axis])
    return err_set(err, ERR_INVALID,
                   "model.loss_options.pos_weight: %zu weights, but the model's output '%s' has %lld classes",
                   n, site->graph->values[site->output].name, (long long)shape->dim[loss->axis]);
  weights = arena_new(&site->graph->arena, n * sizeof *weights);
  for (size_t i = 0; i < n; i++)
    weights[i] = (float)options->pos_weight[i];
  loss->weights = graph_add_constant_vector(site->graph, weights, (int64_t)n);
  return 0;
}

static int bce_with_logits_attach(struct loss_site *site, struct err *err) {
  struct element_loss loss = {.kind = "bce_with_logits", .weights = -1};
  if (loss_check_output(site, 1, err) || add_pos_weight(site, &loss, err))
    return err->code;
  return loss_attach_elements(site, &loss, err);
}

static const char *const bce_with_logits_options[] = {"pos_weight", "class_axis", NULL};

const struct loss_def loss_bce_with_logits = {"bce_with_logits", bce_with_logits_options,
                                              bce_with_logits_attach};
