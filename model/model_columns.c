/* Which dataset column feeds which input of the model. */
#include <string.h>

#include "model/graph/listing.h"
#include "model/model_parts.h"

static const char *input_name(const struct graph *graph, int i) {
  return graph->values[graph->inputs[i]].name;
}

static const char *inputs_text(const struct graph *graph, struct listing *listing) {
  for (int i = 0; i < graph->n_inputs; i++)
    listing_add(listing, "'%s'", input_name(graph, i));
  return listing_text(listing);
}

static const char *column_of(const Weir__ModelSpec *spec, const char *input) {
  for (size_t i = 0; spec && i < spec->n_inputs; i++)
    if (spec->inputs[i]->key && strcmp(spec->inputs[i]->key, input) == 0)
      return spec->inputs[i]->value;
  return NULL;
}

/* Every input that the spec names is one of the model's. */
static int check_named(const struct graph *graph, const Weir__ModelSpec *spec, struct err *err) {
  for (size_t s = 0; spec && s < spec->n_inputs; s++) {
    const char *key = spec->inputs[s]->key ? spec->inputs[s]->key : "";
    struct listing listing = {0};
    bool is_found = false;
    for (int i = 0; i < graph->n_inputs; i++)
      is_found |= strcmp(input_name(graph, i), key) == 0;
    if (!is_found)
      return err_set(err, ERR_INVALID,
                     "model.inputs: the model's output depends on no input '%.100s', but on %s", key,
                     inputs_text(graph, &listing));
  }
  return 0;
}

int model_columns(struct model_builder *builder, struct err *err) {
  struct model *model = builder->model;
  struct graph *graph = model->train;
  struct listing listing = {0};
  if (graph->n_inputs == 0)
    return err_set(err, ERR_INVALID, "the model's output '%s' depends on no input",
                   graph->values[graph->outputs[0]].name);
  if (graph->n_inputs > MODEL_INPUTS_MAX - 2)
    return err_set(err, ERR_UNSUPPORTED, "the model has %d inputs, at most %d are supported", graph->n_inputs,
                   MODEL_INPUTS_MAX - 2);
  if (check_named(graph, builder->spec, err))
    return err->code;
  model->n_columns = graph->n_inputs;
  model->input_columns = arena_new(&graph->arena, (size_t)graph->n_inputs * sizeof *model->input_columns);
  for (int i = 0; i < graph->n_inputs; i++) {
    const char *column = column_of(builder->spec, input_name(graph, i));
    if (builder->spec && !column && graph->n_inputs > 1)
      return err_set(err, ERR_INVALID,
                     "model.inputs: input '%s' has no dataset column: name one for each of %s",
                     input_name(graph, i), inputs_text(graph, &listing));
    model->input_columns[i] = arena_strdup(&graph->arena, column ? column : "");
  }
  model->label_column =
      arena_strdup(&graph->arena, builder->spec && builder->spec->labels ? builder->spec->labels : "");
  return 0;
}
