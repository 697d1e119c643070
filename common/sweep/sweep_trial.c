/* The spec of a trial's run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/settle/spec_settle.h"
#include "common/specs/spec_with.h"
#include "common/sweep/sweep.h"

enum { OWN_SETTINGS_MAX = 4 };

void sweep_set_models(struct sweep *sweep, const struct sweep_model *models) {
  int at = space_files(sweep->space);
  uint32_t n = at >= 0 ? 1 + sweep->space->dimensions[at].n_values : 0;
  if (n == 0)
    return;
  sweep->models = arena_new(&sweep->arena, n * sizeof *sweep->models);
  for (uint32_t i = 0; i < n; i++)
    sweep->models[i] = (struct sweep_model){.multiply_adds = models[i].multiply_adds,
                                            .sha256 = arena_strdup(&sweep->arena, models[i].sha256)};
}

uint32_t sweep_trial_model(const struct sweep *sweep, const struct sweep_trial *trial) {
  int at = space_files(sweep->space);
  return at >= 0 && trial->values[at] ? 1 + space_value_index(&sweep->space->dimensions[at], trial->point[at])
                                      : 0;
}

uint64_t sweep_rung_step(const struct sweep *sweep, const struct sweep_trial *trial, int rung,
                         uint64_t train_samples) {
  return sweep_unit_step(sweep->unit, sweep->rungs[rung], trial->batch, train_samples);
}

/* Where that is in its run's spec, which has epochs where these are what rungs count. */
static uint64_t rung_in_spec(const struct sweep *sweep, const struct sweep_trial *trial, int rung) {
  return sweep->unit == SWEEP_EPOCHS ? sweep->rungs[rung] : sweep_rung_step(sweep, trial, rung, 0);
}

/* Its name, where it ends, and where it is held and evaluated on its way there. Returns how many. */
static int own_settings(const struct sweep *sweep, const struct sweep_trial *trial, uint32_t repeat,
                        char **out) {
  const bool is_by_epochs = sweep->unit == SWEEP_EPOCHS;
  uint64_t last = rung_in_spec(sweep, trial, sweep->n_rungs - 1);
  int n = 0;
  out[n++] = repeat ? mem_printf("name=%s-%04u-%u", sweep->spec->name, trial->number, repeat)
                    : mem_printf("name=%s-%04u", sweep->spec->name, trial->number);
  if (last == 0)
    return n;
  out[n++] = mem_printf("train.%s=%" PRIu64, is_by_epochs ? "epochs" : "steps", last);
  if (sweep->n_rungs > 1) {
    char list[SWEEP_RUNGS_MAX * 24] = "";
    for (int i = 0; i < sweep->n_rungs - 1; i++)
      snprintf(list + strlen(list), sizeof list - strlen(list), "%s%" PRIu64, i ? ", " : "",
               rung_in_spec(sweep, trial, i));
    out[n++] = mem_printf("eval.at%s=[%s]", is_by_epochs ? "_epochs" : "", list);
  }
  if (trial->n_results < sweep->n_rungs - 1)
    out[n++] = mem_printf("train.hold%s=%" PRIu64, is_by_epochs ? "_epochs" : "",
                          rung_in_spec(sweep, trial, trial->n_results));
  return n;
}

/* The repeats differ in what is drawn, and are evaluated on the same samples. */
static void seeds_set(const struct sweep *sweep, uint32_t repeat, Weir__RunSpec *spec) {
  Weir__DataSpec *data = spec->data;
  if (sweep->spec->repeats == 1)
    return;
  if (data->n_split && !data->has_split_seed) {
    data->has_split_seed = true;
    data->split_seed = spec->train->seed;
  }
  spec->train->has_seed = true;
  spec->train->seed += repeat;
}

int sweep_trial_spec(const struct sweep *sweep, const struct sweep_trial *trial, Weir__RunSpec **out,
                     struct err *err) {
  return sweep_repeat_spec(sweep, trial, 0, out, err);
}

int sweep_repeat_spec(const struct sweep *sweep, const struct sweep_trial *trial, uint32_t repeat,
                      Weir__RunSpec **out, struct err *err) {
  char **settings = mem_new((size_t)(sweep->space->n + OWN_SETTINGS_MAX) * sizeof *settings);
  struct spec_source source = {.file = "the run spec", .settings = (const char *const *)settings};
  int n = 0;
  *out = NULL;
  for (int i = 0; i < sweep->space->n; i++)
    if (trial->values[i])
      settings[n++] = mem_printf("%s=%s", sweep->space->dimensions[i].path, trial->values[i]);
  n +=
      own_settings(sweep, trial, repeat, settings + n); /* last: they stand above a value of all of `train` */
  source.n_settings = n;
  if (spec_with(sweep->base, &source, out, err) == 0 &&
      (spec_check(*out, err) || spec_settle_check(*out, err))) {
    spec_free(*out);
    *out = NULL;
  }
  for (int i = 0; i < n; i++)
    free(settings[i]);
  free(settings);
  if (*out)
    seeds_set(sweep, repeat, *out);
  return err->code;
}

int sweep_check_repeats(const Weir__SweepSpec *spec, struct err *err) {
  if (spec->repeats == 0 || spec->repeats > SWEEP_REPEATS_MAX)
    return err_set(err, ERR_INVALID, "repeats: %u is not from 1 to %d", spec->repeats, SWEEP_REPEATS_MAX);
  if (spec->repeats == 1)
    return 0;
  if (spec->repeats * spec->concurrency > SWEEP_CONCURRENCY_MAX)
    return err_set(err, ERR_INVALID, "repeats: %u times concurrency, %u, are more than %d runs at a time",
                   spec->repeats, spec->concurrency, SWEEP_CONCURRENCY_MAX);
  for (size_t i = 0; i < spec->n_space; i++)
    if (spec->space[i]->path && strcmp(spec->space[i]->path, "train.seed") == 0)
      return err_set(err, ERR_INVALID,
                     "space.train.seed: it differs between the repeats of a trial: leave it to them, or take "
                     "repeats away");
  return 0;
}
