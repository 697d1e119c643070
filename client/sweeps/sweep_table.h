/* Sweeps as people see them. */
#ifndef WEIR_CLIENT_SWEEPS_SWEEP_TABLE_H
#define WEIR_CLIENT_SWEEPS_SWEEP_TABLE_H

#include <stdio.h>

#include "training.pb-c.h"

enum { SWEEP_VALUES_MAX = 400 };

/* "train.optimizer.lr=0.01 train.batch=64", cut where it is too long; returns text. */
const char *sweep_values_text(const Weir__SweepTrial *trial, char text[SWEEP_VALUES_MAX]);

/* A trial by its number; NULL: there is none. */
const Weir__SweepTrial *sweep_find_trial(const Weir__SweepInfo *info, uint32_t number);

/* A line on the sweep, a line on the best trial, and a row for each trial, the best first. */
void sweep_print(FILE *file, const Weir__SweepInfo *info);

/* A row for each sweep. */
void sweeps_print(FILE *file, const Weir__ListSweepsReply *reply);

#endif
