/* One cycle (Smith and Topin, 2018), as torch.optim.lr_scheduler.OneCycleLR: the rate climbs from lr /
   div_factor to lr, which is PyTorch's max_lr, and falls to lr / div_factor / final_div_factor at the run's
   end. With cycle_momentum the momentum goes the other way meanwhile. */
#include <math.h>

#include "common/optim/schedule.h"

enum { PHASES_MAX = 3 };

static const struct option_rule one_cycle_options[] = {
    {.name = "pct_start", .range = OPTION_FROM_0_TO_1, .number = 0.3},
    {.name = "anneal_strategy", .words = "cos linear"},
    {.name = "div_factor", .range = OPTION_ABOVE_0, .number = 25},
    {.name = "final_div_factor", .range = OPTION_ABOVE_0, .number = 1e4},
    {.name = "three_phase"},
    {.name = "cycle_momentum"},
    {.name = "base_momentum", .range = OPTION_ABOVE_0_BELOW_1, .number = 0.85},
    {.name = "max_momentum", .range = OPTION_ABOVE_0_BELOW_1, .number = 0.95},
    {0},
};

static double anneal_between(const Weir__ScheduleSpec *spec, double from, double to, double share) {
  if (spec->anneal_strategy[0] == 'c')
    return to + (from - to) * (0.5 * (1 + cos(M_PI * share)));
  return from + (to - from) * share;
}

/* Where a value is that goes through levels: from one to the next in each phase. */
static double one_cycle_value(const Weir__ScheduleSpec *spec, const double levels[PHASES_MAX + 1],
                              uint64_t step, uint64_t steps) {
  const double at = (double)(step - spec->warmup_steps), total = (double)(steps - spec->warmup_steps);
  const double three[] = {spec->pct_start * total - 1, 2 * spec->pct_start * total - 2, total - 1};
  const double two[] = {three[0], three[2]}; /* the last steps of phases, fractions */
  const double *last = spec->three_phase ? three : two;
  double before = 0;
  for (; at > *last && *last != total - 1; last++, levels++)
    before = *last;
  return anneal_between(spec, levels[0], levels[1], *last > before ? (at - before) / (*last - before) : 1);
}

static double one_cycle_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  const double low = lr / spec->div_factor, lowest = low / spec->final_div_factor;
  const double three[] = {low, lr, low, lowest}, two[] = {low, lr, lowest, lowest};
  return one_cycle_value(spec, spec->three_phase ? three : two, step, steps);
}

static double one_cycle_momentum(const Weir__ScheduleSpec *spec, uint64_t step, uint64_t steps) {
  const double most = spec->max_momentum, levels[] = {most, spec->base_momentum, most, most};
  return step < spec->warmup_steps ? most : one_cycle_value(spec, levels, step, steps);
}

const struct schedule_def schedule_one_cycle = {.name = "one_cycle",
                                                .options = one_cycle_options,
                                                .rate = one_cycle_rate,
                                                .momentum = one_cycle_momentum};
