/* Where a run's model is cut. */
#include "model/stages/cuts.h"

#include <stdlib.h>

#include "common/agree/spec.h"
#include "model/stages/estimates.h"

struct finding {
  const struct model *model;
  const Weir__RunSpec *spec;
  const struct model_cuts_wanted *of;
};

static bool can_cut(const struct model_cuts_wanted *of, const struct model_place *place) {
  return (!of->train || of->train[place->train]) && (!of->eval || of->eval[place->eval]);
}

/* Keeps those places at which it can be cut; the list is the arena's. */
static void places_keep(struct model_places *places, const struct model_cuts_wanted *of) {
  struct model_place *kept = arena_new(&places->memory, ((size_t)places->n + 1) * sizeof *kept);
  int n = 0;
  for (int p = 0; p < places->n; p++)
    if (can_cut(of, &places->list[p]))
      kept[n++] = places->list[p];
  places->list = kept;
  places->n = n;
}

/* Where the spec says. */
static int named_find(const struct model_places *places, const struct place_names *names,
                      const struct model_cuts_wanted *of, int *cuts, struct err *err) {
  if (model_places_named(places, names, cuts, err))
    return err->code;
  for (int c = 0; c < names->n; c++)
    if (!can_cut(of, &places->list[cuts[c]]))
      return err_set(
          err, ERR_INVALID,
          "the model cannot be cut at '%s' here: the nodes before and behind it are computed together",
          places->list[cuts[c]].name);
  return ERR_OK;
}

/* The stages between the cuts that are named, or between the best ones. */
static int stages_find(const struct finding *finding, struct model_places *places, struct model_stages *out,
                       struct err *err) {
  const Weir__WorkersSpec *workers = finding->spec->workers;
  const struct place_names names = {(const char *const *)workers->cuts, (int)workers->n_cuts};
  struct stages_wanted wanted = {.places = places,
                                 .n_stages = finding->of->n_stages,
                                 .most_in_flight = (int)finding->spec->train->microbatches};
  int *cuts = mem_new(((size_t)names.n + 1) * sizeof *cuts);
  wanted.cuts = names.n > 0 ? cuts : NULL;
  if (names.n == 0)
    places_keep(places, finding->of);
  if (names.n > 0 && named_find(places, &names, finding->of, cuts, err))
    err_prefix(err, "workers.cuts");
  else if (model_stages_find(finding->model, &wanted, out, err))
    err_prefix(err, "workers.stages");
  free(cuts);
  return err->code;
}

int model_cuts_find(const struct model *model, const Weir__RunSpec *spec, const struct model_cuts_wanted *of,
                    struct model_cuts *out, struct err *err) {
  const struct finding finding = {model, spec, of};
  struct model_places places;
  struct model_stages stages = {0};
  *out = (struct model_cuts){.n_stages = of->n_stages == SPEC_STAGES_AUTO ? 1 : of->n_stages};
  if (out->n_stages == 1)
    return ERR_OK;
  model_places_find(model, &places);
  if (!stages_find(&finding, &places, &stages, err)) {
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
