/* Where a run's model is cut. */
#include "model/stages/cuts.h"

#include <stdlib.h>

#include "common/agree/spec.h"
#include "model/stages/estimates.h"

/* The stages between the cuts that are named, or between the best ones. */
static int stages_find(const struct model *model, const Weir__WorkersSpec *workers,
                       struct stages_wanted *wanted, struct model_stages *out, struct err *err) {
  const struct place_names names = {(const char *const *)workers->cuts, (int)workers->n_cuts};
  int *cuts = mem_new(((size_t)names.n + 1) * sizeof *cuts);
  wanted->cuts = names.n > 0 ? cuts : NULL;
  if (names.n > 0 && model_places_named(wanted->places, &names, cuts, err))
    err_prefix(err, "workers.cuts");
  else if (model_stages_find(model, wanted, out, err))
    err_prefix(err, "workers.stages");
  free(cuts);
  return err->code;
}

int model_cuts_find(const struct model *model, const Weir__RunSpec *spec, int n_stages,
                    struct model_cuts *out, struct err *err) {
  struct model_places places;
  struct model_stages stages = {0};
  *out = (struct model_cuts){.n_stages = n_stages == SPEC_STAGES_AUTO ? 1 : n_stages};
  if (out->n_stages == 1)
    return ERR_OK;
  model_places_find(model, &places);
  struct stages_wanted wanted = {
      .places = &places, .n_stages = n_stages, .most_in_flight = (int)spec->train->microbatches};
  if (!stages_find(model, spec->workers, &wanted, &stages, err)) {
    out->train = mem_new((size_t)stages.n * sizeof *out->train);
    out->eval = mem_new((size_t)stages.n * sizeof *out->eval);
  }
  for (int s = 1; s < stages.n; s++) {
    out->train[s - 1] = stages.list[s].train;
    out->eval[s - 1] = stages.list[s].eval;
  }
  free(stages.list);
  model_places_fini(&places);
  return err->code;
}

/* Forward nodes, by which stages are told apart. What follows straight from the loss belongs to the last. */
static int node_place(const struct graph *train, int n) {
  int n_forward = 0;
  while (n_forward < train->n_nodes && train->nodes[n_forward]->forward < 0)
    n_forward++;
  if (n < n_forward)
    return n;
  return train->nodes[n]->forward >= 0 ? train->nodes[n]->forward : n_forward - 1;
}

int model_cuts_stage(const struct model_cuts *cuts, const struct graph *train, int value) {
  const struct value *of = &train->values[value];
  int place = of->kind == VALUE_RESULT ? node_place(train, of->producer) : 0, stage = 0;
  while (stage + 1 < cuts->n_stages && cuts->train[stage] <= place)
    stage++;
  return stage;
}

void model_cuts_fini(struct model_cuts *cuts) {
  free(cuts->train);
  free(cuts->eval);
  *cuts = (struct model_cuts){0};
}
