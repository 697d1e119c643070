/* Optimizers: rows of optimizer.def. An optimizer turns weights and the gradient of one step into the next
   weights. Names of options, meanings and order of operations are those of PyTorch's torch.optim; arithmetic
   is f32. */
#ifndef WEIR_COMMON_OPTIM_OPTIMIZER_H
#define WEIR_COMMON_OPTIM_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/agree/options.h"
#include "spec.pb-c.h"

struct piece;

/* Of a tensor's sums of one phase: `count` values from `begin` on. */
struct optimizer_window {
  uint64_t begin;
  uint32_t count;
};

enum { OPTIMIZER_PHASES_MAX = 2, OPTIMIZER_WINDOWS_MAX = 12 };

/* One update of one block, or of one piece of it where the row asks for sums over tensors. Nothing aliases,
   but next_slots and slots, which are the same memory but where a checkpoint or a fork still refers to the
   slots, and of rows without phases maybe out and weights: an element is written after it was read. */
struct optimizer_update {
  uint64_t step; /* from 0, since the slots began */
  double lr;
  uint32_t elems;
  const float *weights; /* f32[elems] of version step */
  const float *grad;    /* f32[elems] */
  float *out;           /* f32[elems] of version step + 1 */
  const float *slots;   /* f32[slots][elems] of version step; before step 0 as init_slots says */
  float *next_slots;    /* f32[slots][elems] of version step + 1 */

  /* Of rows with phases. `out` is theirs to draft in from the first sums on, and with has_drafts also
     next_slots, which is other memory than slots then. */
  const struct piece *piece;
  const double *totals[OPTIMIZER_PHASES_MAX]; /* of each phase that is over, the piece's windows in order */
};

/* What rows are given is settled: every option of the row is there. */
struct optimizer_def {
  const char *name;
  const struct option_rule *options; /* besides lr */
  /* What ranges do not say; NULL: nothing. path: the spec's own. Errors: INVALID naming the key by its path.
   */
  int (*check)(const Weir__OptimizerSpec *spec, const char *path, struct err *err);
  uint32_t (*slots)(const Weir__OptimizerSpec *spec); /* f32 values kept for each weight */
  /* Of a row whose options say which values these are: a number for each choice. NULL: `slots` says it. */
  uint32_t (*slots_kind)(const Weir__OptimizerSpec *spec);
  /* What slots hold before step 0, f32[slots][elems]; NULL: zeros. */
  void (*init_slots)(const Weir__OptimizerSpec *spec, uint32_t elems, float *slots);
  void (*update)(const Weir__OptimizerSpec *spec, const struct optimizer_update *update);

  /* Rows whose updates need sums over a whole tensor make them in phases; others leave all this out. */
  uint32_t n_phases;
  bool has_drafts;
  /* The f32 values that are kept for a piece. NULL: `slots` for each weight. Values that several blocks keep
     of one tensor must come out alike in all of them. */
  uint32_t (*state)(const struct piece *piece);
  /* Which of its tensor's sums of a phase the piece adds to and needs the totals of; how many is returned.
     Of a piece that is its whole tensor, the sums that `sums` makes are the totals. Pure. */
  uint32_t (*windows)(uint32_t phase, const struct piece *piece,
                      struct optimizer_window windows[OPTIMIZER_WINDOWS_MAX]);
  /* Writes f64[n], one value for each of the windows' in order: the piece's share. n is returned. */
  uint32_t (*sums)(const Weir__OptimizerSpec *spec, const struct optimizer_update *update, uint32_t phase,
                   double *sums);
};

const struct optimizer_def *optimizer_find(const char *name); /* NULL if unknown */
const struct optimizer_def *optimizer_at(int index);          /* in the table's order; NULL past the last */

/* Checks a spec on the heap against its row and gives it the row's defaults, and to each of its groups all
   that the group does not say itself. Errors: INVALID, naming the key by its path ("train.optimizer.lr"); for
   an unknown name with those known. */
int optimizer_settle(Weir__OptimizerSpec *spec, struct err *err);
/* The same of one that lies at another path, without groups. */
int optimizer_settle_at(Weir__OptimizerSpec *spec, const char *path, struct err *err);

/* Whether settled specs, of as many groups, keep the same values for each weight, so that one can go on with
   the other's. */
bool optimizer_slots_are_alike(const Weir__OptimizerSpec *a, const Weir__OptimizerSpec *b);

/* The options of a group of the model (struct block) in a settled spec. */
const Weir__OptimizerSpec *optimizer_group(const Weir__OptimizerSpec *spec, uint32_t group);

#endif
