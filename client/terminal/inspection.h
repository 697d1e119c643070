/* What `weir inspect` knows of a model. */
#ifndef WEIR_CLIENT_TERMINAL_INSPECTION_H
#define WEIR_CLIENT_TERMINAL_INSPECTION_H

#include <stdio.h>

#include "client/terminal/stage_report.h"
#include "model/graph/op.h"
#include "model/model.h"

/* A node of the eval graph but those of the loss, unless the loss took the last layer in: then it is the
 * last. */
struct layer {
  const struct node *node;
  const struct shape *shape; /* of its first output */
  uint64_t parameters;       /* trained elements that it is the first to read */
  double multiply_adds;
};

struct tensor_role {
  const char *name, *role;   /* "trained", "statistic", "frozen" */
  const struct value *value; /* NULL: nothing reads it */
  int group;                 /* of train.optimizer.groups that trains it; -1: none */
};

/* A row of zeros in a trained embedding that has others, too: what padding_idx leaves at 0, perhaps. */
struct zero_row {
  const struct param *param;
  int64_t row; /* the first one */
  int64_t n;   /* how many */
};

struct operator_count {
  const char *name;
  int nodes;
};

struct inspection {
  const Weir__RunSpec *spec; /* the caller's; NULL: a look at the file alone */
  struct model *model;
  int samples;
  struct layer *layers;
  int n_layers;
  struct tensor_role *tensors;
  int n_tensors, n_frozen;
  struct operator_count *operators; /* of the layers, in alphabetical order */
  int n_operators;
  double multiply_adds;
  struct model_memory memory;
  int n_batch_norms, n_training_batch_norms;
  struct zero_row *zero_rows; /* that the spec does not freeze */
  int n_zero_rows;
  struct stage_report stages; /* the caller's to init, after inspection_init */
};

/* Looks at a model that was opened for microbatches of so many samples; the model becomes the inspection's.
   spec: NULL, or checked, and good until the end of the inspection. */
void inspection_init(struct inspection *inspection, struct model *model, const Weir__RunSpec *spec,
                     int samples);
void inspection_fini(struct inspection *inspection); /* safe on a zeroed one */

void inspection_print_json(const struct inspection *inspection, FILE *file);

#endif
