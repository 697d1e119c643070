/* Sweeps over a table of what trainings come to (tests/bench/search_table.csv): `table_bench FILE SEARCHER
   SCHEDULER EPOCHS SEEDS` drives whole sweeps, one trial at a time, of so many epochs together, with seeds 0,
   1, ... For each it prints what the best trial's values reach when they are trained to the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/message.h"
#include "tests/support/common/sweep_specs.h"

enum { DIMENSIONS = 4, RUNGS = 4, LINE_SIZE = 1024, TEXT_SIZE = 200 };

static const int sizes[DIMENSIONS] = {8, 4, 4, 4};
enum { ROWS = 8 * 4 * 4 * 4 };

/* The dimensions are named after keys that may have any number: a place in [0, 1] is one of the table's. */
static const char text[] = "name: table\n"
                           "spec: base.yaml\n"
                           "objective: {metric: accuracy}\n"
                           "budget: {steps: 1}\n"
                           "space:\n"
                           "  train.optimizer.lr: {uniform: [0.000001, 0.999999]}\n"
                           "  train.optimizer.momentum: {uniform: [0.000001, 0.999999]}\n"
                           "  train.optimizer.weight_decay: {uniform: [0.000001, 0.999999]}\n"
                           "  train.clip_norm: {uniform: [0.000001, 0.999999]}\n";

static double accuracies[ROWS][RUNGS];

static int row_of(const int index[DIMENSIONS]) {
  int row = 0;
  for (int i = 0; i < DIMENSIONS; i++)
    row = row * sizes[i] + index[i];
  return row;
}

/* Whether it has all rows. */
static bool table_read(const char *path) {
  FILE *file = fopen(path, "r");
  char line[LINE_SIZE];
  int n = 0;
  while (file && fgets(line, sizeof line, file)) {
    int at[DIMENSIONS];
    double a[RUNGS];
    if (sscanf(line, "%d,%d,%d,%d,%lf,%lf,%lf,%lf", &at[0], &at[1], &at[2], &at[3], &a[0], &a[1], &a[2],
               &a[3]) != DIMENSIONS + RUNGS)
      continue; /* the head */
    memcpy(accuracies[row_of(at)], a, sizeof a);
    n++;
  }
  if (file)
    fclose(file);
  return n == ROWS;
}

static const double *look_up(const struct sweep_trial *trial) {
  int index[DIMENSIONS];
  for (int i = 0; i < DIMENSIONS; i++) {
    index[i] = (int)(trial->point[i] * sizes[i]);
    index[i] = index[i] < sizes[i] ? index[i] : sizes[i] - 1;
  }
  return accuracies[row_of(index)];
}

static double drive(const char *const *settings, int n) {
  struct sweep *sweep = sweep_of(text, settings, n);
  Weir__SweepRecord *record;
  enum sweep_turn turn;
  double found;
  while ((turn = sweep_next(sweep, &record)) != SWEEP_OVER) {
    struct err err = ERR_NONE;
    for (int i = 0; turn == SWEEP_WAITS && i < sweep->n_trials; i++) {
      const struct sweep_trial *trial = &sweep->trials[i];
      if (trial->state == SWEEP_TRIAL_RUNNING)
        sweep_tell(sweep, trial->number, trial->n_results,
                   &(struct sweep_outcome){.value = look_up(trial)[trial->n_results]});
    }
    if (turn == SWEEP_DECIDED)
      CHECK(sweep_apply(sweep, record, &err) == 0);
    message_free(record);
  }
  found = look_up(sweep_best(sweep))[RUNGS - 1];
  sweep_free(sweep);
  return found;
}

int main(int argc, char **argv) {
  char search[TEXT_SIZE], schedule[TEXT_SIZE], budget[TEXT_SIZE];
  const char *const settings[] = {search, schedule, budget};
  if (argc != 6 || !table_read(argv[1])) {
    fprintf(stderr, "usage: table_bench FILE SEARCHER SCHEDULER EPOCHS SEEDS, with all %d rows in FILE\n",
            ROWS);
    return 2;
  }
  snprintf(schedule, sizeof schedule, "schedule={name: %s, rungs: [1, 3, 9, 27], eta: 3}", argv[3]);
  snprintf(budget, sizeof budget, "budget={steps: %s}", argv[4]);
  for (int seed = 0; seed < atoi(argv[5]); seed++) {
    snprintf(search, sizeof search, "search={name: %s, seed: %d}", argv[2], seed);
    printf("%.4f\n", drive(settings, 3));
  }
  return 0;
}
