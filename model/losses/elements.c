/* What the losses of targets share. */
#include "model/losses/elements.h"

#include "model/ops/shared/backward.h"

int loss_attach_elements(struct loss_site *site, const struct element_loss *loss, struct err *err) {
  struct shape shape = site->graph->values[site->output].shape;
  const struct node *node;
  if (loss_check_output(site, 1, err))
    return err->code;
  loss_add_labels(site, DTYPE_F32, &shape);
  site->rule.sample_denominator = (double)(shape_elems(&shape) / shape.dim[0]);
  node = graph_add_node(
      site->graph, "ElementLoss", VALUES(site->output, site->labels, loss->weights), 1,
      (struct attr_list){(struct attr[]){(struct attr){.name = "kind", .type = ATTR_STRING, .s = loss->kind},
                                         attr_of_float("parameter", (float)loss->parameter),
                                         attr_of_int("axis", loss->axis)},
                         3});
  site->values = (struct loss_values){node->outputs[0], -1, -1, -1};
  return 0;
}
