/* One cycle (Smith and Topin, 2018), as torch.optim.lr_scheduler.OneCycleLR without its cycle of the
   momentum: the rate climbs from lr / div_factor to lr, which is PyTorch's max_lr, and falls to lr /
   div_factor / final_div_factor at the run's end. */
#include <math.h>

#include "server/parameters/schedule.h"

static const struct option_rule one_cycle_options[] = {
    {.name = "pct_start", .range = OPTION_FROM_0_TO_1, .number = 0.3},
    {.name = "anneal_strategy", .words = "cos linear"},
    {.name = "div_factor", .range = OPTION_ABOVE_0, .number = 25},
    {.name = "final_div_factor", .range = OPTION_ABOVE_0, .number = 1e4},
    {.name = "three_phase"},
    {0},
};

struct phase {
  double last; /* its last step, a fraction */
  double from, to;
};

static double anneal(const Weir__ScheduleSpec *spec, const struct phase *phase, double share) {
  if (spec->anneal_strategy[0] == 'c')
    return phase->to + (phase->from - phase->to) * (0.5 * (1 + cos(M_PI * share)));
  return phase->from + (phase->to - phase->from) * share;
}

static double one_cycle_rate(const Weir__ScheduleSpec *spec, double lr, uint64_t step, uint64_t steps) {
  const double at = (double)(step - spec->warmup_steps), total = (double)(steps - spec->warmup_steps);
  const double low = lr / spec->div_factor, lowest = low / spec->final_div_factor;
  const struct phase three[] = {{spec->pct_start * total - 1, low, lr},
                                {2 * spec->pct_start * total - 2, lr, low},
                                {total - 1, low, lowest}};
  const struct phase two[] = {three[0], {total - 1, lr, lowest}};
  const struct phase *phase = spec->three_phase ? three : two;
  double before = 0;
  for (; at > phase->last && phase->last != total - 1; phase++)
    before = phase->last;
  return anneal(spec, phase, phase->last > before ? (at - before) / (phase->last - before) : 1);
}

const struct schedule_def schedule_one_cycle = {
    .name = "one_cycle", .options = one_cycle_options, .rate = one_cycle_rate};
