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

const struct schedule_def *const *schedule_table(size_t *n) {
  *n = sizeof schedules / sizeof *schedules;
  return schedules;
}

int schedule_settle(Weir__ScheduleSpec *spec, struct err *err) {
  static const char known[] = ""
#define SCHEDULE(name) ", " #name
#include "server/parameters/schedule.def"
#undef SCHEDULE
      ;
  static const char *const shared[] = {"name", "warmup_steps", NULL};
  const struct schedule_def *schedule = schedule_find(spec->name);
  struct option_table table = {.path = "train.schedule", .row = spec->name, .shared = shared};
  if (!schedule)
    return err_set(err, ERR_INVALID, "train.schedule.name: unknown schedule '%.60s'; known: %s", spec->name,
                   known + 2);
  table.rules = schedule->options;
  if (options_settle(spec, &table, err))
    return err->code;
  return schedule->check ? schedule->check(spec, err) : 0;
}

double schedule_lr(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  const struct schedule_def *schedule = schedule_find(spec->name);
  if (step < spec->warmup_steps && !schedule->warms_up)
    return lr * (double)(step + 1) / (double)spec->warmup_steps;
  return schedule->rate(spec, lr, step, steps);
}
