/* The sums that the blocks of a run exchange before they are updated. The plan is a pure function of model,
   optimizer and clipping, so all servers have the same.

   An update is made in phases. In each phase a block makes sums of its own (f64), and goes on once it has
   their totals over all blocks that share them. The values of a phase to which several blocks contribute lie
   in one vector; windows of it are a block's share. A tensor that one block holds whole needs no exchange:
   its sums are the totals. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_EXCHANGE_PLAN_H
#define WEIR_SERVER_PARAMETERS_RUN_EXCHANGE_PLAN_H

#include "common/optim/optimizer.h"
#include "common/optim/piece.h"

enum { EXCHANGE_PHASES_MAX = 1 + OPTIMIZER_PHASES_MAX };

/* `count` values of a block, beginning at its value `at`, are those of the vector from `place` on. */
struct exchange_window {
  uint32_t at, count;
  uint64_t place;
};

/* What one block has in one phase. */
struct exchange_share {
  uint32_t begin, n_values; /* among the block's sums: those of its phases lie one after the other */
  bool is_shared;           /* it is exchanged, by these windows, in order: */
  struct exchange_window *windows;
  uint32_t n_windows;
};

struct exchange_phase {
  struct exchange_share *shares; /* [n_blocks] */
  uint32_t n_contributors;       /* blocks with a shared one */
  uint64_t n_totals;             /* length of the vector */
};

struct exchange_plan {
  struct arena arena;
  uint32_t n_blocks; /* parameter blocks of the model */
  uint32_t n_phases;
  bool has_norm; /* phase 0 is the sum of squares of all gradients */
  struct exchange_phase phases[EXCHANGE_PHASES_MAX];
};

void exchange_plan_init(struct exchange_plan *plan, const struct model *model,
                        const struct optimizer_def *optimizer, bool has_norm);
void exchange_plan_fini(struct exchange_plan *plan); /* safe on a zeroed plan */

uint32_t exchange_plan_values(const struct exchange_plan *plan, uint32_t block); /* of all phases */

#endif
