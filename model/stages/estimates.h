/* A model's stages, estimated from its graphs: before a backend has chosen layouts, fused nodes or measured
   anything. Which cuts are best, what each stage computes and holds, and what crosses between them. */
#ifndef WEIR_MODEL_STAGES_ESTIMATES_H
#define WEIR_MODEL_STAGES_ESTIMATES_H

#include "model/stages/places.h"

/* A stage, for one microbatch where nothing else is said. */
struct model_stage {
  const char *from;           /* where it begins, as model_places name it; NULL: at the model's beginning */
  int train, eval;            /* its first node in each graph */
  int n_nodes;                /* forward nodes of the train graph, those of the loss included */
  double multiply_adds;       /* of its forward nodes */
  double time_share;          /* of the time that all stages compute */
  uint64_t weights_bytes;     /* all initializers that its nodes read, in either graph */
  uint64_t saved_bytes;       /* that live from its forward to its backward part */
  uint64_t activations_bytes; /* that live at a time, saved ones included */
  int in_flight; /* microbatches: n in the first of n stages, 1 in the last, or fewer if wanted */
  uint64_t
      memory_bytes; /* two versions of the weights, activations, and what each further one in flight saves */
  uint64_t up_bytes, down_bytes; /* that cross to the stage above, and back; 0 for the last */
};

struct model_stages {
  struct model_stage *list;
  int n;
};

struct stages_wanted {
  const struct model_places *places;
  const int *cuts; /* [n_stages - 1] indices in places, ascending; NULL: the best ones */
  int n_stages;
  int most_in_flight; /* microbatches; 0: as many as the stages want */
};

/* The list is freed by the caller, and its names are the places'. Errors: INVALID when there are too few
 * places. */
int model_stages_find(const struct model *model, const struct stages_wanted *wanted, struct model_stages *out,
                      struct err *err);

#endif
