/* Who goes on from the rungs of a bracket. */
#include "common/sweep/bracket.h"

#include <stdlib.h>

#include "common/base/memory.h"
#include "common/sweep/scheduler.h"

/* Those of a bracket that were to come to a rung. */
struct field {
  int *trials; /* numbers */
  int n;
  bool is_whole; /* all of them have come there or failed before */
};

/* Leaves those that have come to the rung, the best first. */
static void field_gather(const struct sweep *sweep, int rung, struct field *field) {
  int n = 0;
  for (int i = 0; i < field->n; i++) {
    const struct sweep_trial *trial = &sweep->trials[field->trials[i]];
    if (trial->n_results > rung)
      field->trials[n++] = field->trials[i];
    else
      field->is_whole &= trial->state == SWEEP_TRIAL_FAILED;
  }
  field->n = n;
  scheduler_sort(sweep, rung, field->trials, n);
}

int bracket_find(const struct sweep *sweep, const struct bracket *bracket, bool goes_on) {
  int begun = sweep->n_trials - bracket->first < bracket->n ? sweep->n_trials - bracket->first : bracket->n;
  int places = bracket->n, found = -1;
  struct field field = {.trials = mem_new((size_t)bracket->n * sizeof *field.trials + 1),
                        .is_whole = begun == bracket->n};
  for (; field.n < begun; field.n++)
    field.trials[field.n] = bracket->first + field.n;
  for (int rung = 0; rung < sweep->n_rungs - 1 && found < 0; rung++) {
    int n_going;
    field_gather(sweep, rung, &field);
    if (rung < bracket->begin) {
      n_going = field.n;
    } else if (field.is_whole) {
      places /= (int)sweep->spec->schedule->eta;
      places = places ? places : 1;
      n_going = places < field.n ? places : field.n;
    } else {
      break;
    }
    for (int i = goes_on ? 0 : n_going; i < (goes_on ? n_going : field.n) && found < 0; i++)
      if (scheduler_waits(&sweep->trials[field.trials[i]], rung))
        found = field.trials[i];
    field.n = n_going;
  }
  free(field.trials);
  return found;
}
