/* An inspection as JSON. */
#include <jansson.h>

#include "client/terminal/inspection.h"

static json_t *shape_json(const struct shape *shape) {
  json_t *dims = json_array();
  for (int i = 0; i < shape->rank; i++)
    json_array_append_new(dims, json_integer(shape->dim[i]));
  return dims;
}

static json_t *layers_json(const struct inspection *inspection) {
  json_t *layers = json_array();
  for (int n = 0; n < inspection->n_layers; n++) {
    const struct layer *layer = &inspection->layers[n];
    json_array_append_new(layers,
                          json_pack("{s:s, s:s, s:o, s:I, s:f}", "name", layer->node->name, "operator",
                                    layer->node->op->name, "output", shape_json(layer->shape), "parameters",
                                    (json_int_t)layer->parameters, "multiply_adds", layer->multiply_adds));
  }
  return layers;
}

static json_t *tensors_json(const struct inspection *inspection) {
  json_t *tensors = json_array();
  for (int i = 0; i < inspection->n_tensors; i++) {
    const struct tensor_role *role = &inspection->tensors[i];
    json_t *tensor = json_pack("{s:s, s:s}", "name", role->name, "role", role->role);
    if (role->group >= 0)
      json_object_set_new(tensor, "group", json_integer(role->group));
    if (role->value) {
      json_object_set_new(tensor, "shape", shape_json(&role->value->shape));
      json_object_set_new(tensor, "type", json_string(dtype_name(role->value->dtype)));
    }
    json_array_append_new(tensors, tensor);
  }
  return tensors;
}

static json_t *operators_json(const struct inspection *inspection) {
  json_t *operators = json_object();
  for (int o = 0; o < inspection->n_operators; o++)
    json_object_set_new(operators, inspection->operators[o].name,
                        json_integer(inspection->operators[o].nodes));
  return operators;
}

static json_t *memory_json(const struct model_memory *memory) {
  return json_pack("{s:I, s:I, s:I, s:I, s:I}", "activations_bytes", (json_int_t)memory->train_bytes,
                   "eval_activations_bytes", (json_int_t)memory->eval_bytes, "kept_weights_bytes",
                   (json_int_t)memory->kept_bytes, "weights_bytes", (json_int_t)memory->weights_bytes,
                   "gradients_bytes", (json_int_t)memory->gradients_bytes);
}

static json_t *zero_rows_json(const struct inspection *inspection) {
  json_t *rows = json_object();
  for (int i = 0; i < inspection->n_zero_rows; i++)
    json_object_set_new(rows, inspection->zero_rows[i].param->name,
                        json_integer(inspection->zero_rows[i].row));
  return rows;
}

static json_t *computation_json(const Weir__TrainSpec *train) {
  return json_pack("{s:s, s:b, s:s}", "precision", train->precision, "deterministic", train->deterministic,
                   "collective", train->collective);
}

void inspection_print_json(const struct inspection *inspection, FILE *file) {
  const struct model *model = inspection->model;
  json_t *root = json_pack("{s:o, s:o, s:o, s:o, s:I, s:f, s:I, s:I, s:I, s:i, s:i, s:i}", "layers",
                           layers_json(inspection), "tensors", tensors_json(inspection), "operators",
                           operators_json(inspection), "memory", memory_json(&inspection->memory),
                           "parameters", (json_int_t)model->param_elems, "multiply_adds",
                           inspection->multiply_adds, "classes", (json_int_t)model->labels.classes, "blocks",
                           (json_int_t)model->n_blocks, "batch", (json_int_t)inspection->samples,
                           "batch_norms", inspection->n_batch_norms, "training_batch_norms",
                           inspection->n_training_batch_norms, "lost_parameters", model->train->n_lost);
  if (inspection->n_zero_rows)
    json_object_set_new(root, "zero_rows", zero_rows_json(inspection));
  if (inspection->spec)
    json_object_set_new(root, "computation", computation_json(inspection->spec->train));
  if (inspection->stages.stages.list)
    json_object_set_new(root, "pipeline", stage_report_json(&inspection->stages));
  json_dumpf(root, file, JSON_INDENT(2));
  fprintf(file, "\n");
  json_decref(root);
}
