/* The table of schedules, and the warm-up that all of them share. */
#include "server/parameters/schedule.h"

#include <stddef.h>
#include <string.h>

#define SCHEDULE(name) extern const struct schedule_def schedule_##name;
#include "server/parameters/schedule.def"
#undef SCHEDULE

static const struct schedule_def *const schedules[] = {
#define SCHEDULE(name) &schedule_##name,
#include "server/parameters/schedule.def"
#undef SCHEDULE
};

const struct schedule_def *schedule_find(const char *name) {
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
    if (strcmp(schedules[i]->name, name) == 0)
      return schedules[i];
  return NULL;
}

int schedule_check(const Weir__ScheduleSpec *spec, struct err *err) {
  static const char known[] = ""
#define SCHEDULE(name) ", " #name
#include "server/parameters/schedule.def"
#undef SCHEDULE
      ;
  const struct schedule_def *schedule = schedule_find(spec->name);
  if (!schedule)
    return err_set(err, ERR_INVALID, "train.schedule.name: unknown schedule '%.60s'; known: %s", spec->name,
                   known + 2);
  return schedule->check(spec, err);
}

double schedule_lr(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  if (step < spec->warmup_steps)
    return lr * (double)(step + 1) / (double)spec->warmup_steps;
  return lr * schedule_find(spec->name)->factor(spec, step, steps);
}

int schedule_refuse_step_options(const Weir__ScheduleSpec *spec, struct err *err) {
  const char *key = spec->has_step_size ? "step_size" : spec->has_gamma ? "gamma" : NULL;
  if (!key)
    return 0;
  return err_set(err, ERR_INVALID, "train.schedule.%s: is an option of the schedule 'step', not of '%s'", key,
                 spec->name);
}
