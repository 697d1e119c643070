/* Sweeps of several objectives, as people see them. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_OBJECTIVES_H
#define WEIR_CLIENT_SWEEPS_SWEEP_OBJECTIVES_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/err.h"
#include "training.pb-c.h"

/* 1 where a sweep has one objective. */
size_t sweep_objectives(const Weir__SweepInfo *info);
/* The metric of objective `at`, from 0. */
const char *sweep_metric(const Weir__SweepInfo *info, size_t at);
/* Values of the objective at rungs 0, 1, ...: trial->n_results of them; NULL: there are none. */
const double *sweep_results(const Weir__SweepTrial *trial, size_t at);
/* Whether no other trial dominates it. */
bool sweep_is_on_front(const Weir__SweepInfo *info, const Weir__SweepTrial *trial);

/* "accuracy 0.91 loss 0.3", the trial's values at a rung; returns text. */
enum { SWEEP_OBJECTIVES_TEXT_MAX = 400 };
const char *sweep_objectives_text(const Weir__SweepInfo *info, const Weir__SweepTrial *trial, size_t rung,
                                  char text[SWEEP_OBJECTIVES_TEXT_MAX]);

/* A line for each trial of the front: its number, its values, and its values of the keys. */
void sweep_print_front(FILE *file, const Weir__SweepInfo *info);

/* Makes the named objective the first, by which trials are ranked, and finds the best trial by it. NULL
   changes nothing. Errors: INVALID, with the objectives that there are. */
int sweep_by_objective(Weir__SweepInfo *info, const char *metric, struct err *err);

#endif
