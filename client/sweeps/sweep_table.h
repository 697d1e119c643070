/* Sweeps as people see them. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_TABLE_H
#define WEIR_CLIENT_SWEEPS_SWEEP_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "client/terminal/output.h"
#include "common/base/memory.h"
#include "training.pb-c.h"

enum { SWEEP_VALUES_MAX = 400 };

/* "train.optimizer.lr=0.01 train.batch=64", cut where it is too long; returns text. */
const char *sweep_values_text(const Weir__SweepTrial *trial, char text[SWEEP_VALUES_MAX]);
/* "lr=0.01 batch=64": of a path its last part, where that tells it from the others of the space; and without
   those that are the same for all trials. */
const char *sweep_short_values(const Weir__SweepInfo *info, const Weir__SweepTrial *trial,
                               char text[SWEEP_VALUES_MAX]);

/* Dimensions in which trials differ, at most `most`, in the order of the space. Returns how many. */
int sweep_varying(const Weir__SweepInfo *info, const Weir__Dimension **out, int most);
/* The heading of its column: its short name, right-aligned if it is a number; built in the arena. */
const char *sweep_heading(const Weir__SweepInfo *info, const Weir__Dimension *dimension, struct arena *arena);
/* The trial's value of it, "-" where it has none; built in the arena. */
const char *sweep_cell(const Weir__SweepTrial *trial, const Weir__Dimension *dimension, struct arena *arena);

/* A trial by its number; NULL: there is none. */
const Weir__SweepTrial *sweep_find_trial(const Weir__SweepInfo *info, uint32_t number);
bool sweep_is_max(const Weir__SweepInfo *info); /* the objective's goal */
/* The rung of an n_results-th result, in the unit of rungs; 0: not known. */
uint64_t sweep_steps_at(const Weir__SweepInfo *info, size_t n_results);
/* The same as a step of the trial's run, which has that result. */
uint64_t sweep_run_step_at(const Weir__SweepInfo *info, const Weir__SweepTrial *trial, size_t n_results);
const char *sweep_unit(const Weir__SweepInfo *info); /* of rungs: "step", "sample" or "epoch" */
/* Whether the trial came to that rung itself: of a fork the first results are its parent's. */
bool sweep_came_to(const Weir__SweepTrial *trial, size_t rung);
const char *sweep_number(double value, char text[OUTPUT_TEXT_MAX]); /* four digits: "0.8512", "0.000123" */

/* A line on the sweep, a line on the best trial, and a row for each trial, the best first: its results by
   rung (where there are many rungs, the last of them), and its values of the dimensions that vary. */
void sweep_print(FILE *file, const Weir__SweepInfo *info);
/* A row for each trial in CSV (RFC 4180, but for plain line ends), the best first, with all dimensions. */
void sweep_print_csv(FILE *file, const Weir__SweepInfo *info);

/* A row for each sweep. */
void sweeps_print(FILE *file, const Weir__ListSweepsReply *reply);

#endif
