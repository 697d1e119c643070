/* What of a program's memory there is once, and what once for each context. A context is an execution that
   may be between its forward and its backward part while others run: what lives from one part to the other is
   saved in it. What lives within a part is scratch, which all executions take turns at. Pure. */
#ifndef WEIR_WORKER_BACKEND_REPLAY_SPLIT_H
#define WEIR_WORKER_BACKEND_REPLAY_SPLIT_H

#include <stdbool.h>

#include "model/graph/memory_plan.h"

struct split {
  int n_steps;    /* spans that last until then, behind the last step, live always: they are kept */
  int n_forward;  /* the steps before the backward part */
  int n_contexts; /* with one all spans share one arena, whether they live in one part or in both */

  /* The answer, multiples of 64. */
  size_t shared_bytes; /* the arena that there is once: kept and scratch */
  size_t saved_bytes;  /* the arena that each context has */
};

/* Whether the span lies in the contexts' arenas. */
bool split_is_saved(const struct split *split, const struct memory_span *span);

/* Gives every span its offset in the arena in which it lies, and fills the answer. Returns the bytes of all
   arenas together. */
size_t split_plan(struct split *split, struct memory_span *spans, int n);

/* Of kept spans alone, each rounded up to 64. */
size_t split_kept_bytes(const struct split *split, const struct memory_span *spans, int n);

#endif
