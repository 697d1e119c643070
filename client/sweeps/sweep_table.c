/* Tables of sweeps and their trials. */
#include "client/sweeps/sweep_table.h"

#include <stdlib.h>
#include <string.h>

#include "client/terminal/output.h"
#include "common/base/text.h"

/* Trials in an order, and the sweep that says which is better. */
struct ranking {
  const Weir__SweepTrial *trial;
  bool is_max;
};

const char *sweep_values_text(const Weir__SweepTrial *trial, char text[SWEEP_VALUES_MAX]) {
  size_t at = 0;
  text[0] = '\0';
  for (size_t i = 0; i < trial->n_values && at < SWEEP_VALUES_MAX; i++)
    at += (size_t)snprintf(text + at, SWEEP_VALUES_MAX - at, "%s%s=%s", i ? " " : "", trial->values[i]->path,
                           trial->values[i]->value);
  output_clean(text);
  return text;
}

const Weir__SweepTrial *sweep_find_trial(const Weir__SweepInfo *info, uint32_t number) {
  for (size_t i = 0; i < info->n_trials; i++)
    if (info->trials[i]->number == number)
      return info->trials[i];
  return NULL;
}

/* Who has come further first, then by the value there. */
static int compare(const void *a, const void *b) {
  const struct ranking *left = a, *right = b;
  const Weir__SweepTrial *x = left->trial, *y = right->trial;
  size_t n = x->n_results;
  if (n != y->n_results)
    return n < y->n_results ? 1 : -1;
  if (n > 0 && x->results[n - 1] != y->results[n - 1])
    return (x->results[n - 1] < y->results[n - 1]) == left->is_max ? 1 : -1;
  return x->number < y->number ? -1 : 1;
}

/* Values at rungs, the oldest first. */
static char *results_text(const Weir__SweepTrial *trial) {
  char *text = NULL, number[TEXT_NUMBER_SIZE];
  size_t size;
  FILE *file = open_memstream(&text, &size);
  CHECK(file);
  for (size_t i = 0; i < trial->n_results; i++)
    fprintf(file, "%s%.6s", i ? " " : "", text_number(trial->results[i], number));
  fclose(file);
  return text;
}

static void print_head(FILE *file, const Weir__SweepInfo *info) {
  const Weir__SweepTrial *best = info->has_best ? sweep_find_trial(info, info->best) : NULL;
  char values[SWEEP_VALUES_MAX], number[TEXT_NUMBER_SIZE];
  fprintf(file, "%s: %s%s%s; %u trial%s, %u running, %u failed\n", info->sweep,
          *info->end ? "ended, " : "running", info->end, *info->message ? " (waits for the store)" : "",
          info->begun, info->begun == 1 ? "" : "s", info->running, info->failed);
  if (best)
    fprintf(file, "best: trial %u with %s %s: %s\n", best->number,
            info->spec && info->spec->objective ? info->spec->objective->metric : "the value",
            text_number(info->best_value, number), sweep_values_text(best, values));
}

void sweep_print(FILE *file, const Weir__SweepInfo *info) {
  static const char *const headings[] = {">TRIAL", "STATE", "RESULTS", "VALUES", NULL};
  struct ranking *ranking = calloc(info->n_trials + 1, sizeof *ranking);
  struct table table;
  CHECK(ranking);
  print_head(file, info);
  for (size_t i = 0; i < info->n_trials; i++)
    ranking[i] = (struct ranking){info->trials[i], info->spec && info->spec->objective &&
                                                       info->spec->objective->goal &&
                                                       strcmp(info->spec->objective->goal, "max") == 0};
  qsort(ranking, info->n_trials, sizeof *ranking, compare);
  table_init(&table, headings);
  for (size_t i = 0; i < info->n_trials; i++) {
    const Weir__SweepTrial *trial = ranking[i].trial;
    char number[16], values[SWEEP_VALUES_MAX];
    char *results = results_text(trial);
    snprintf(number, sizeof number, "%u", trial->number);
    table_row(&table, (const char *const[]){number, trial->state, *trial->failure ? trial->failure : results,
                                            sweep_values_text(trial, values)});
    free(results);
  }
  table_print(&table, file);
  table_fini(&table);
  free(ranking);
}

void sweeps_print(FILE *file, const Weir__ListSweepsReply *reply) {
  static const char *const headings[] = {"SWEEP", "STATE", ">TRIALS", ">RUNNING", ">FAILED", ">BEST", NULL};
  struct table table;
  table_init(&table, headings);
  for (size_t i = 0; i < reply->n_sweeps; i++) {
    const Weir__SweepInfo *info = reply->sweeps[i];
    char trials[16], running[16], failed[16], best[TEXT_NUMBER_SIZE] = "-";
    snprintf(trials, sizeof trials, "%u", info->begun);
    snprintf(running, sizeof running, "%u", info->running);
    snprintf(failed, sizeof failed, "%u", info->failed);
    if (info->has_best)
      text_number(info->best_value, best);
    table_row(&table, (const char *const[]){info->sweep, *info->end ? "ended" : "running", trials, running,
                                            failed, best});
  }
  table_print(&table, file);
  table_fini(&table);
}
