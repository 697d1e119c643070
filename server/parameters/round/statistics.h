/* The rows of one statistics block. Rows of microbatches hold loss, counts and batch-norm statistics; they
   are kept apart and merged in the order of microbatches. Rows of replicas hold what their running statistics
   have become, and loss and counts of each inner step. Rows of an evaluation are kept by eval chunk. */
#ifndef WEIR_SERVER_PARAMETERS_ROUND_STATISTICS_H
#define WEIR_SERVER_PARAMETERS_ROUND_STATISTICS_H

#include "common/agree/plan.h"
#include "model/model.h"
#include "server/parameters/round/part.h"

/* Sums over all rows, in f64. */
struct metrics {
  double sum[METRICS];
};

struct statistics {
  uint32_t elems, part_elems; /* of the block, and of a row that comes */
  uint32_t units, eval_chunks;
  uint32_t inner_steps; /* of a row; 0: rows are of one step */
  uint32_t n_metrics;   /* METRICS where the block begins with them, else 0 */
  float *momentum;      /* f32[elems]; of the metrics: not used */
  struct buffer *rows;  /* f32[units, part_elems]: all of them are there when a step is complete */
  bool *has_row;        /* [units] */
  uint32_t n_rows;
  struct metric_set eval_metrics; /* what an evaluation's row has */
  float **eval_rows;              /* [eval_chunks], NULL until it came */
  uint32_t n_eval_rows;
  bool is_evaluated; /* the evaluation of the present version is complete and reported */
};

/* block: of the model's, a statistics block. Takes memory for a step's rows, but none for an evaluation's.
   Errors: NO_MEMORY; fini is due all the same. */
int statistics_init(struct statistics *statistics, const struct model *model, const struct block *block,
                    const struct plan *plan, struct err *err);
void statistics_fini(struct statistics *statistics);

/* Takes the row of unit or eval chunk part->node.first (in range): f32[part_elems], or of an evaluation
   f32[eval_metrics.row_elems]. One that is there already changes nothing. Errors: INVALID when an element is
   not finite, NO_MEMORY of an evaluation's; the rows are then as before. */
int statistics_add(struct statistics *statistics, const struct part *part, struct err *err);

bool statistics_is_complete(const struct statistics *statistics);            /* a row of every unit */
bool statistics_is_evaluation_complete(const struct statistics *statistics); /* a row of every eval chunk */

/* Mark the units, or the eval chunks, of which there is no row (marks.h); the others' marks stay. */
void statistics_missing(const struct statistics *statistics, uint64_t *units);
void statistics_missing_evaluation(const struct statistics *statistics, uint64_t *chunks);

/* The next state from the present one: metrics are this step's sums; a running statistic takes one update
   running * momentum + row * (1 - momentum) a microbatch, in order. Of rows of replicas running statistics
   are the mean. state, out f32[elems], not aliased. */
void statistics_merge(const struct statistics *statistics, const float *state, float *out);

/* Of all units; inner_step: of which, 0 where rows are of one step. */
struct metrics statistics_metrics(const struct statistics *statistics, uint32_t inner_step);
struct metrics statistics_eval_metrics(const struct statistics *statistics); /* of all eval chunks */
/* What the run's metrics say of all eval chunks. totals: statistics_eval_metrics. */
void statistics_eval_values(const struct statistics *statistics, const struct metrics *totals,
                            double values[METRICS_NAMED_MAX]);

void statistics_clear(struct statistics *statistics); /* for the next version */

#endif
