/* The table of schedules, and the warm-up that all of them share. */
#include "common/optim/schedule.h"

#include "common/base/def_table.h"

#define SCHEDULE(name) extern const struct schedule_def schedule_##name;
#include "common/optim/schedule.def"
#undef SCHEDULE

static const struct schedule_def *const defs[] = {
#define SCHEDULE(name) &schedule_##name,
#include "common/optim/schedule.def"
#undef SCHEDULE
};
static const struct def_table schedules = DEF_TABLE(defs);

static const struct schedule_def *schedule_find(const char *name) {
  return def_find(&schedules, name);
}

const struct schedule_def *schedule_at(int index) {
  return def_at(&schedules, index);
}

int schedule_settle(Weir__ScheduleSpec *spec, struct err *err) {
  static const char *const shared[] = {"name", "warmup_steps", NULL};
  const struct schedule_def *schedule = schedule_find(spec->name);
  char known[DEF_NAMES_SIZE];
  struct option_table table = {.path = "train.schedule", .row = spec->name, .shared = shared};
  if (!schedule)
    return err_set(err, ERR_INVALID, "train.schedule.name: unknown schedule '%.60s'; known: %s", spec->name,
                   def_names(&schedules, ", ", known));
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

static int check_momentum(const Weir__OptimizerSpec *optimizer, struct err *err) {
  if (optimizer->has_momentum_decay)
    return err_set(err, ERR_INVALID,
                   "train.schedule.cycle_momentum: the momentum of '%s' has a schedule of its own",
                   optimizer->name);
  if (optimizer->n_betas == 0 && !(optimizer->momentum > 0))
    return err_set(err, ERR_INVALID,
                   "train.schedule.cycle_momentum: '%s' has no momentum here: it takes betas, or a momentum "
                   "above 0",
                   optimizer->name);
  return 0;
}

int schedule_check_optimizer(const Weir__ScheduleSpec *spec, const Weir__OptimizerSpec *optimizer,
                             struct err *err) {
  if (!spec->cycle_momentum)
    return 0;
  for (size_t g = 0; g < optimizer->n_groups; g++)
    if (!optimizer->groups[g]->frozen && check_momentum(optimizer->groups[g], err))
      return err->code;
  return check_momentum(optimizer, err);
}

const Weir__OptimizerSpec *schedule_options(const Weir__ScheduleSpec *spec,
                                            const Weir__OptimizerSpec *options, uint64_t step, uint64_t steps,
                                            struct step_options *own) {
  double momentum;
  if (!spec->cycle_momentum)
    return options;
  momentum = schedule_find(spec->name)->momentum(spec, step, steps);
  own->spec = *options;
  if (options->n_betas) {
    own->betas[0] = momentum;
    own->betas[1] = options->betas[1];
    own->spec.betas = own->betas;
  } else
    own->spec.momentum = momentum;
  return &own->spec;
}
