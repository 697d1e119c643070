#include "client/sweeps/sweep_objectives.h"

#include <inttypes.h>
#include <string.h>

#include "client/sweeps/sweep_table.h"
#include "common/base/message.h"
#include "common/base/text.h"

enum { NAMES_MAX = 400 };

size_t sweep_objectives(const Weir__SweepInfo *info) {
  return info->spec && info->spec->n_objectives ? info->spec->n_objectives : 1;
}

const char *sweep_metric(const Weir__SweepInfo *info, size_t at) {
  if (at > 0)
    return info->spec->objectives[at]->metric;
  return info->spec && info->spec->objective ? info->spec->objective->metric : "value";
}

const double *sweep_results(const Weir__SweepTrial *trial, size_t at) {
  if (at == 0)
    return trial->results;
  return at <= trial->n_others && trial->others[at - 1]->n_results >= trial->n_results
             ? trial->others[at - 1]->results
             : NULL;
}

bool sweep_is_on_front(const Weir__SweepInfo *info, const Weir__SweepTrial *trial) {
  size_t low = 0, high = info->n_front; /* ascending */
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (info->front[middle] < trial->number)
      low = middle + 1;
    else
      high = middle;
  }
  return low < info->n_front && info->front[low] == trial->number;
}

const char *sweep_objectives_text(const Weir__SweepInfo *info, const Weir__SweepTrial *trial, size_t rung,
                                  char text[SWEEP_OBJECTIVES_TEXT_MAX]) {
  char number[TEXT_NUMBER_SIZE];
  size_t at = 0;
  text[0] = '\0';
  for (size_t o = 0; o < sweep_objectives(info) && at < SWEEP_OBJECTIVES_TEXT_MAX; o++) {
    const double *results = sweep_results(trial, o);
    if (results)
      at += (size_t)snprintf(text + at, SWEEP_OBJECTIVES_TEXT_MAX - at, "%s%s %s", o ? "  " : "",
                             sweep_metric(info, o), text_number(results[rung], number));
  }
  return text;
}

void sweep_print_front(FILE *file, const Weir__SweepInfo *info) {
  char text[SWEEP_OBJECTIVES_TEXT_MAX], values[SWEEP_VALUES_MAX];
  for (size_t i = 0; i < info->n_front; i++) {
    const Weir__SweepTrial *trial = sweep_find_trial(info, info->front[i]);
    if (trial && trial->n_results)
      fprintf(file, "front: trial %u  %s  %s\n", trial->number,
              sweep_objectives_text(info, trial, trial->n_results - 1, text),
              sweep_values_text(trial, values));
  }
}

/* Who has come further or, as far, is better. */
static bool is_better(const Weir__SweepInfo *info, const Weir__SweepTrial *a, const Weir__SweepTrial *b) {
  if (a->n_results != b->n_results)
    return a->n_results > b->n_results;
  return sweep_is_max(info) ? a->results[a->n_results - 1] > b->results[b->n_results - 1]
                            : a->results[a->n_results - 1] < b->results[b->n_results - 1];
}

static void find_best(Weir__SweepInfo *info) {
  const Weir__SweepTrial *best = NULL;
  for (size_t i = 0; i < info->n_trials; i++) {
    const Weir__SweepTrial *trial = info->trials[i];
    if (trial->n_results && !*trial->failure && (!best || is_better(info, trial, best)))
      best = trial;
  }
  info->has_best = best != NULL;
  info->best = best ? best->number : 0;
  info->best_value = best ? best->results[best->n_results - 1] : 0;
}

/* The first one and the named one change their places in everything that the sweep says. */
static void make_first(Weir__SweepInfo *info, size_t at) {
  Weir__SweepObjective *named = info->spec->objectives[at];
  for (size_t i = 0; i < info->n_trials; i++) {
    Weir__SweepTrial *trial = info->trials[i];
    Weir__SweepResults *other = at <= trial->n_others ? trial->others[at - 1] : NULL;
    double *results = trial->results;
    size_t n = trial->n_results;
    if (!other)
      continue;
    trial->results = other->results;
    trial->n_results = other->n_results;
    other->results = results;
    other->n_results = n;
  }
  info->spec->objectives[at] = info->spec->objectives[0];
  info->spec->objectives[0] = named;
  message_free(info->spec->objective);
  info->spec->objective = message_copy(named);
  find_best(info);
}

int sweep_by_objective(Weir__SweepInfo *info, const char *metric, struct err *err) {
  char names[NAMES_MAX] = "";
  for (size_t o = 0; metric && o < sweep_objectives(info); o++) {
    size_t at = strlen(names);
    if (strcmp(sweep_metric(info, o), metric) == 0) {
      if (o > 0)
        make_first(info, o);
      return 0;
    }
    snprintf(names + at, NAMES_MAX - at, "%s%s", o ? ", " : "", sweep_metric(info, o));
  }
  return metric ? err_set(err, ERR_INVALID, "--objective: sweep '%s' has no objective '%.60s'; it has %s",
                          info->sweep, metric, names)
                : 0;
}
