/* What the losses of classes share. */
#include "model/losses/classes.h"

#include "model/losses/linear.h"
#include "model/ops/shared/backward.h"

/* The classes' weights as the op's input; -1 without. They stay with the graph for the rule. */
static int add_weights(struct loss_site *site, int64_t classes, int *input, struct err *err) {
  const Weir__LossOptions *options = site->options;
  const struct value *output = &site->graph->values[site->output];
  float *weights;
  char shape[256];
  *input = -1;
  if (options->n_weight == 0)
    return 0;
  if (options->n_weight != (size_t)classes)
    return err_set(
        err, ERR_INVALID,
        "model.loss_options.weight: %zu weights, but the model's output '%s', %s, has %lld classes",
        options->n_weight, output->name, shape_text(&output->shape, shape, sizeof shape), (long long)classes);
  weights = arena_new(&site->graph->arena, (size_t)classes * sizeof *weights);
  for (int64_t c = 0; c < classes; c++)
    weights[c] = (float)options->weight[c];
  *input = graph_add_constant_vector(site->graph, weights, classes);
  site->rule.weights = weights;
  return 0;
}

static struct shape shape_without(const struct shape *shape, int axis) {
  struct shape rest = {.rank = shape->rank - 1};
  for (int d = 0; d < rest.rank; d++)
    rest.dim[d] = shape->dim[d + (d >= axis)];
  return rest;
}

/* Scores that are a product and large are never made whole: the product becomes part of the loss. */
static const struct node *add_node(struct loss_site *site, int axis, bool is_log, int weights) {
  const Weir__LossOptions *options = site->options;
  const struct shape *shape = &site->graph->values[site->output].shape;
  struct attr attrs[] = {attr_of_int("ignore_index", options->ignore_index),
                         attr_of_float("label_smoothing", (float)options->label_smoothing),
                         attr_of_int("axis", axis), attr_of_int("log_probabilities", is_log)};
  struct linear linear;
  if (is_log || site->keeps_output || axis != shape->rank - 1 || shape_elems(shape) < LINEAR_SCORES_LEAST ||
      !linear_find(site->graph, site->output, &linear))
    return graph_add_node(site->graph, "CrossEntropy", VALUES(site->output, site->labels, weights), 4,
                          (struct attr_list){attrs, 4});
  attrs[2] = attr_of_int("trans_weight", linear.is_transposed);
  return graph_add_node(site->graph, "LinearCrossEntropy",
                        VALUES(linear.hidden, linear.weight, linear.bias, site->labels, weights), 4,
                        (struct attr_list){attrs, 3});
}

int loss_attach_classes(struct loss_site *site, bool is_log, struct err *err) {
  const Weir__LossOptions *options = site->options;
  struct shape shape = site->graph->values[site->output].shape, labels;
  const struct node *node;
  int axis, weights;
  if (loss_check_output(site, 2, err) || loss_class_axis(site, &axis, err))
    return err->code;
  site->class_axis = axis;
  site->rule = (struct label_rule){.classes = shape.dim[axis], .ignore_index = options->ignore_index};
  if (add_weights(site, shape.dim[axis], &weights, err))
    return err->code;
  labels = shape_without(&shape, axis);
  loss_add_labels(site, DTYPE_I64, &labels);
  node = add_node(site, axis, is_log, weights);
  site->values = (struct loss_values){node->outputs[0], node->outputs[1], node->outputs[2], node->outputs[3]};
  return 0;
}

int loss_attach_probabilities(struct loss_site *site, struct err *err) {
  const Weir__LossOptions *options = site->options;
  struct shape shape = site->graph->values[site->output].shape;
  struct attr attrs[2];
  int axis, weights;
  if (loss_check_output(site, 2, err) || loss_class_axis(site, &axis, err) ||
      add_weights(site, shape.dim[axis], &weights, err))
    return err->code;
  loss_add_labels(site, DTYPE_F32, &shape);
  site->rule = (struct label_rule){.sample_denominator =
                                       (double)(shape_elems(&shape) / shape.dim[0] / shape.dim[axis])};
  attrs[0] = attr_of_float("label_smoothing", (float)options->label_smoothing);
  attrs[1] = attr_of_int("axis", axis);
  site->values = (struct loss_values){graph_add_node(site->graph, "SoftCrossEntropy",
                                                     VALUES(site->output, site->labels, weights), 1,
                                                     (struct attr_list){attrs, 2})
                                          ->outputs[0],
                                      -1, -1, -1};
  return 0;
}
