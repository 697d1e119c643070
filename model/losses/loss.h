/* Losses: rows of loss.def. A loss turns a graph's output and labels into a sum; the step's loss is the sum
   over its microbatches divided by its denominator, which follows from its labels (label_rule). */
#ifndef WEIR_MODEL_LOSSES_LOSS_H
#define WEIR_MODEL_LOSSES_LOSS_H

#include "common/base/def_table.h"
#include "model/graph/graph.h"
#include "model/losses/labels.h"
#include "spec.pb-c.h"

/* What the nodes of a loss compute: f32[] of one microbatch, as value indices. All but loss_sum are -1 for
   losses without classes. */
struct loss_values {
  int loss_sum;    /* what is differentiated, times 1 / the step's denominator */
  int correct;     /* labels whose class has the greatest score */
  int scored;      /* labels that are not ignored */
  int denominator; /* what the labels add to the step's denominator */
};

/* A loss and the graph to which it is attached. */
struct loss_site {
  struct graph *graph; /* shapes are inferred */
  int output;          /* the model's: what the loss is of */
  int64_t samples;     /* of an execution */
  const Weir__LossOptions *options;
  const struct loss_def *loss; /* NULL: the output is the loss */
  bool is_mixed;               /* labels are f32, probabilities of the classes, which transforms make */
  bool keeps_output;           /* the output is wanted for itself: it may not become part of the loss */
  int labels;                  /* attach's answers: the fed labels; -1: none */
  int class_axis;              /* of the output, where there are classes */
  struct label_rule rule;
  struct loss_values values;
};

struct loss_def {
  const char *name;
  const char *const *options; /* names of the fields of LossOptions that it has; ends with NULL */
  /* Adds the labels and the nodes, and answers in the site. Errors: INVALID when the output's shape or the
     options are not such that the loss takes (named). */
  int (*attach)(struct loss_site *site, struct err *err);
};

const struct loss_def *loss_find(const char *name); /* NULL if unknown */
const struct loss_def *loss_at(int index);          /* in the table's order; NULL past the last */
const char *loss_names(char out[DEF_NAMES_SIZE]);   /* "cross_entropy, ..." for messages */

/* A loss that takes mixed labels has the option soft_labels, which asks for such labels in the data. */
bool loss_has_option(const struct loss_def *loss, const char *option);
/* Every option that is given is one of the loss's; else INVALID, naming it and those that the loss has. */
int loss_check_options(const struct loss_def *loss, const Weir__LossOptions *options, struct err *err);

/* For rows. The output is f32[samples,...] with at least so many dimensions, and has elements; else INVALID.
 */
int loss_check_output(const struct loss_site *site, int rank_least, struct err *err);
/* The output's dimension that options->class_axis names; else 1, of rank 3 the last. Errors: INVALID. */
int loss_class_axis(const struct loss_site *site, int *axis, struct err *err);
/* Adds the fed labels. */
void loss_add_labels(struct loss_site *site, enum dtype dtype, const struct shape *shape);

#endif
