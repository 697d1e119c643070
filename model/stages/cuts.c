/* Where a run's model is cut. */
#include "model/stages/cuts.h"

#include <stdlib.h>

#include "model/stages/estimates.h"

/* The stages between the cuts that are named, or between the best ones. */
static int stages_find(const struct model *model, const struct model_places *places,
                       const Weir__RunSpec *spec, struct model_stages *out, struct err *err) {
  const Weir__WorkersSpec *workers = spec->workers;
  const struct place_names names = {(const char *const *)workers->cuts, (int)workers->n_cuts};
  int *cuts = mem_new(((size_t)names.n + 1) * sizeof *cuts);
  const struct stages_wanted wanted = {.places = places,
                                       .cuts = names.n > 0 ? cuts : NULL,
                                       .n_stages = (int)workers->stages,
                                       .most_in_flight = (int)spec->train->microbatches};
  if (names.n > 0 && model_places_named(places, &names, cuts, err))
    err_prefix(err, "workers.cuts");
  else if (model_stages_find(model, &wanted, out, err))
    err_prefix(err, "workers.stages");
  free(cuts);
  return err->code;
}

int model_cuts_find(const struct model *model, const Weir__RunSpec *spec, struct model_cuts *out,
                    struct err *err) {
  struct model_places places;
  struct model_stages stages = {0};
  *out = (struct model_cuts){.n_stages = (int)spec->workers->stages};
  if (out->n_stages == 1)
    return ERR_OK;
  model_places_find(model, &places);
  if (!stages_find(model, &places, spec, &stages, err)) {
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

void model_cuts_fini(struct model_cuts *cuts) {
  free(cuts->train);
  free(cuts->eval);
  *cuts = (struct model_cuts){0};
}
