/* Where a run's model is cut into stages. */
#ifndef WEIR_MODEL_STAGES_CUTS_H
#define WEIR_MODEL_STAGES_CUTS_H

#include "model/model.h"

struct model_cuts {
  int n_stages;
  int *train, *eval; /* [n_stages - 1] ascending: the nodes of the graphs before which a stage begins */
};

struct model_cuts_wanted {
  int n_stages; /* or SPEC_STAGES_AUTO: it is not cut */
  /* [n_nodes + 1] of each graph: where a backend can cut it (backend_def.find_places); NULL: wherever the
     graph can be */
  const bool *train, *eval;
};

/* Into so many stages: at the cuts that the spec names, or those by which the slowest stage takes the least
   time, as estimated from the graphs. The spec was checked, and settled with its defaults. The same wherever
   the same is wanted. Errors: INVALID, which begins with the key of the spec: a name that is not in the
   model, or where it cannot be cut; more stages than there can be. */
int model_cuts_find(const struct model *model, const Weir__RunSpec *spec, const struct model_cuts_wanted *of,
                    struct model_cuts *out, struct err *err);
/* The stage whose part of an execution of the train graph makes the value, and so has it first: a gradient in
   that of the node that it is the gradient of. */
int model_cuts_stage(const struct model_cuts *cuts, const struct graph *train, int value);
void model_cuts_fini(struct model_cuts *cuts); /* safe on a zeroed one */

#endif
