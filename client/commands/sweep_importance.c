/* weir sweep importance: which keys of a sweep's space matter. */
#include <stdio.h>

#include "client/commands/sweep.h"
#include "client/sweeps/sweep_importance.h"
#include "client/sweeps/sweep_objectives.h"
#include "client/terminal/live.h"

static int show_importance(const struct args *args, struct connection *connection, Weir__SweepInfo *info,
                           struct err *err) {
  struct sweep_importance importance;
  struct live live;
  (void)connection;
  if (sweep_by_objective(info, args_text(args, "objective"), err))
    return err->code;
  live_init(&live, stdout);
  if (sweep_importance_init(&importance, info, (uint64_t)args_count(args, "step"), err) == 0) {
    if (args_flag(args, "json"))
      sweep_importance_print_json(stdout, &importance);
    else
      sweep_importance_print(stdout, &importance, live.style.is_unicode);
  }
  sweep_importance_fini(&importance);
  return err->code;
}

static int importance_run(const struct args *args) {
  return sweep_show(args, false, show_importance);
}

static const struct option_def importance_options[] = {
    {.name = "step",
     .kind = OPTION_COUNT,
     .value = "N",
     .least = 1,
     .most = OPTION_COUNT_MAX,
     .help = "the rung at which trials are compared, in steps (or samples, as the schedule). Default: the "
             "last one that at least half of the trials "
             "with results have reached."},
    {.name = "objective",
     .kind = OPTION_TEXT,
     .value = "METRIC",
     .help = "of several objectives: by this one. Default: the first."},
    {.name = "json", .kind = OPTION_FLAG, .help = "one JSON object, for programs."},
    {0}};

const struct command_def command_sweep_importance = {
    .name = "importance",
    .group = "sweep",
    .summary = "which keys of a sweep's space matter",
    .arguments = "SWEEP",
    .min_arguments = 1,
    .max_arguments = 1,
    .takes_coordinator = true,
    .description =
        "Prints a row for each key of the space, the most important first: the share of the variance of "
        "the results that the key explains by itself, how the result changes from the key's lowest value "
        "to its highest (averaged over the other keys), and near which value it is best. The method is "
        "functional analysis of variance on a random forest.",
    .options = importance_options,
    .examples = "weir sweep importance lenet-search\n",
    .run = importance_run,
};
