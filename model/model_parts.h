/* The parts of model_open. Private to model/model*.c. */
#ifndef WEIR_MODEL_MODEL_PARTS_H
#define WEIR_MODEL_MODEL_PARTS_H

#include "model/losses/loss.h"
#include "model/model.h"

/* What is found out about an initializer of the file. */
struct initializer_note {
  int train_value, eval_value; /* -1 where that graph does not read it */
  uint32_t group;              /* that names it, as in struct param */
  bool is_frozen;              /* by the spec */
  bool is_fixed;               /* a statistic of a batch norm that does not train */
  bool is_constant;            /* of the exporter's making, or a buffer: see model_constants.c */
  int batch_value;             /* of a running statistic: this microbatch's, in the train graph; else -1 */
  float momentum;              /* of a running statistic */
  int grad;                    /* in the train graph, -1 where none flows */
};

struct model_builder {
  struct model *model;
  const Weir__ModelSpec *spec;          /* may be NULL */
  const Weir__OptimizerSpec *optimizer; /* likewise */
  const Weir__EvalSpec *eval;           /* likewise */
  const char *mixer;                    /* model_find_mixer's */
  const struct loss_def *loss;          /* NULL: the output is the loss */
  int output;                           /* of the graph's: what the loss is of, or the loss itself */
  int64_t microbatch_samples;
  int scale;                      /* in the train graph: the fed 1 / denominator */
  struct initializer_note *notes; /* of model->initializers */
  int *note_of_value;             /* of the train graph's values that are initializers */
};

/* The name of the first of the spec's transforms that mix labels; NULL without. spec may be NULL. */
const char *model_find_mixer(const Weir__RunSpec *spec);
/* Which loss, of which output. */
int model_find_loss(struct model_builder *builder, struct err *err);
/* Adds it to both graphs, which have one output, and its scale to the train graph. */
int model_attach_losses(struct model_builder *builder, struct err *err);

/* Notes which group each initializer is in; those of a frozen one are frozen. */
void model_assign_groups(struct model_builder *builder);
/* When the parameters are listed. Errors: INVALID for a pattern that names none of them, and for a group that
   is left without any. */
int model_check_groups(const struct model_builder *builder, struct err *err);

/* Columns of the dataset for the inputs and the labels. */
int model_columns(struct model_builder *builder, struct err *err);

/* Finds the f32 initializers that are constants rather than weights. */
void model_note_constants(struct model_builder *builder);

/* Dropout and batch norm become what they are in training, and in inference. Shapes are inferred before. */
int model_rewrite_train(struct model_builder *builder, struct err *err);
int model_rewrite_eval(struct model_builder *builder, struct err *err);

/* The eval graph's draws of 0 or 1 with a known probability become that probability. Shapes are inferred
   before. */
void model_expect_draws(struct graph *eval);

/* Notes the rows of parameters that the spec wants left alone, once the parameters are listed. Errors:
   INVALID for a tensor that is not trained or has no rows, and for a row that it does not have or that is
   named twice. */
int model_freeze_rows(struct model_builder *builder, struct err *err);

/* Cuts parameters and statistics, whose lengths are set, into blocks. */
void model_cut_blocks(struct model *model);

#endif
