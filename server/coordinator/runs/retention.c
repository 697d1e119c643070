/* The committed checkpoints of a run: their list, and which of them are kept. */
#include <math.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "model/metrics/metric.h"
#include "server/coordinator/runs/checkpoints.h"
#include "server/coordinator/state/action.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/state.h"

static int checkpoint_find(const struct run *run, uint64_t step);
static void remove_at(struct run *run, int at);
static int find_best(const struct run *run);

bool coordinator_has_checkpoint(const struct run *run, uint64_t step) {
  int at = checkpoint_find(run, step);
  return at < run->n_checkpoints && run->checkpoints[at]->step == step;
}

static Weir__CheckpointInfo *copy_evaluated(const Weir__CheckpointInfo *info,
                                            const Weir__EvalEvent *evaluation) {
  Weir__CheckpointInfo evaluated = *info;
  evaluated.accuracy = evaluation->accuracy;
  evaluated.eval_loss = evaluation->loss;
  evaluated.metrics = evaluation->metrics;
  evaluated.n_metrics = evaluation->n_metrics;
  return message_copy(&evaluated);
}

void coordinator_checkpoint_add(struct run *run, const Weir__CheckpointInfo *info) {
  const struct logged_event *evaluated =
      event_log_newest(&run->events, WEIR__RUN_EVENT__EVENT_EVAL, info->step);
  Weir__CheckpointInfo *copy = evaluated && evaluated->eval->step == info->step
                                   ? copy_evaluated(info, evaluated->eval)
                                   : message_copy(info);
  int at = checkpoint_find(run, info->step);
  if (coordinator_has_checkpoint(run, info->step))
    remove_at(run, at);
  array_reserve((void **)&run->checkpoints, &run->checkpoints_capacity, run->n_checkpoints,
                sizeof *run->checkpoints);
  memmove(run->checkpoints + at + 1, run->checkpoints + at,
          (size_t)(run->n_checkpoints - at) * sizeof *run->checkpoints);
  run->checkpoints[at] = copy;
  run->n_checkpoints++;
  run->is_save_due = run->is_info_due = true;
}

void coordinator_checkpoint_drop(struct coordinator *coordinator, struct run *run, uint64_t step) {
  struct coordinator_action *action;
  if (!coordinator_has_checkpoint(run, step))
    return;
  log_event(LOG_INFO, "coordinator", "checkpoint_dropped", "run=%s step=%llu", run->id,
            (unsigned long long)step);
  remove_at(run, checkpoint_find(run, step));
  run->is_save_due = run->is_info_due = true;
  action = coordinator_act(coordinator, ACTION_DROP);
  action->run = run->id;
  action->step = step;
}

void coordinator_checkpoints_drop_above(struct coordinator *coordinator, struct run *run, uint64_t step) {
  while (coordinator_newest_checkpoint(run) > step)
    coordinator_checkpoint_drop(coordinator, run, coordinator_newest_checkpoint(run));
}

void coordinator_checkpoint_pass_over(struct run *run, uint64_t step, bool is_unreadable) {
  Weir__CheckpointInfo *info =
      coordinator_has_checkpoint(run, step) ? run->checkpoints[checkpoint_find(run, step)] : NULL;
  if (!info || info->unreadable == is_unreadable)
    return;
  log_event(LOG_WARN, "coordinator", is_unreadable ? "checkpoint_passed_over" : "checkpoint_readable",
            "run=%s step=%llu", run->id, (unsigned long long)step);
  info->unreadable = is_unreadable;
  run->is_save_due = run->is_info_due = true;
}

void coordinator_checkpoints_forget(struct run *run) {
  run->is_save_due = run->is_info_due = true;
  while (run->n_checkpoints)
    remove_at(run, run->n_checkpoints - 1);
}

void coordinator_checkpoint_evaluated(struct run *run, const Weir__EvalEvent *evaluation) {
  int at = checkpoint_find(run, evaluation->step);
  Weir__CheckpointInfo *former;
  if (!coordinator_has_checkpoint(run, evaluation->step))
    return;
  former = run->checkpoints[at];
  run->checkpoints[at] = copy_evaluated(former, evaluation);
  message_free(former);
  run->is_save_due = true;
}

/* The newest ones, the best one, the last version, and the one at which a fork began. Those that cannot be
   read count for nothing, and go once they are older than all that are kept for being new. A version that
   forks wait for is the newest until they have it. */
void coordinator_checkpoints_retain(struct coordinator *coordinator, struct run *run) {
  const Weir__CheckpointSpec *spec = run->spec->checkpoint;
  int keep = (int)spec->keep, best = find_best(run), newer = 0;
  for (int at = run->n_checkpoints - 1; at >= 0; at--) {
    const Weir__CheckpointInfo *info = run->checkpoints[at];
    bool is_old = newer >= keep;
    newer += !info->unreadable;
    if (is_old && at != best && info->step != coordinator_last_version(run) && info->step != run->origin.step)
      coordinator_checkpoint_drop(coordinator, run, info->step);
  }
}

/* NaN: not known. */
static double value_of(const Weir__CheckpointInfo *info, const char *name) {
  if (strcmp(name, "loss") == 0)
    return info->eval_loss;
  if (strcmp(name, "accuracy") == 0)
    return info->accuracy;
  for (size_t m = 0; m < info->n_metrics; m++)
    if (strcmp(info->metrics[m]->name, name) == 0)
      return info->metrics[m]->value;
  return NAN;
}

/* -1: none is asked for or evaluated. */
static int find_best(const struct run *run) {
  const char *by = run->spec->checkpoint->keep_best;
  const struct metric_def *metric = by ? metric_find(by) : NULL;
  bool is_lower_better = !metric || metric->is_lower_better; /* the loss is no row of the table */
  double best = NAN;
  int best_at = -1;
  for (int i = 0; by && i < run->n_checkpoints; i++) {
    double value = value_of(run->checkpoints[i], by);
    if (run->checkpoints[i]->unreadable || isnan(value))
      continue;
    if (best_at < 0 || (is_lower_better ? value < best : value > best)) {
      best_at = i;
      best = value;
    }
  }
  return best_at;
}

/* The index of the step, or where it would be. */
static int checkpoint_find(const struct run *run, uint64_t step) {
  int at = run->n_checkpoints;
  while (at > 0 && run->checkpoints[at - 1]->step >= step)
    at--;
  return at;
}

static void remove_at(struct run *run, int at) {
  message_free(run->checkpoints[at]);
  memmove(run->checkpoints + at, run->checkpoints + at + 1,
          (size_t)(run->n_checkpoints - at - 1) * sizeof *run->checkpoints);
  run->n_checkpoints--;
}
