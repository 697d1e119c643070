/* Teams of executors. */
#include "worker/train/executor/team.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/metrics/metric.h"
#include "worker/train/executor/edges.h"

void team_init(struct team *team, struct run *run) {
  int n_stages = run->part.n_stages;
  *team = (struct team){
      .run = run, .n_stages = n_stages, .tasks = mem_new((size_t)n_stages * sizeof *team->tasks)};
  pipeline_init(&team->pipeline, n_stages, run->part.first, run->part.last);
  team_times_init(&team->times, run->part.last - run->part.first + 1);
  for (int s = 0; s < n_stages; s++)
    team->tasks[s] = task_new(run);
}

void team_fini(struct team *team) {
  for (int s = 0; s < team->n_stages; s++)
    task_free(team->tasks[s]);
  free(team->tasks);
  pipeline_fini(&team->pipeline);
  team_times_fini(&team->times);
}

/* A task that nobody wants and nobody is at; -1: none. */
static int find_unwanted(const struct team *team) {
  for (int s = 0; s < team->n_stages; s++) {
    const struct pipeline_slot *slot = &team->pipeline.slots[s];
    if (slot->next != PIPELINE_FREE && !slot->is_busy &&
        (team->run->is_stopping || !steps_is_wanted(team->run, &team->tasks[s]->work)))
      return s;
  }
  return -1;
}

/* The weights that the tasks under way read. A task of the next version does not begin beside those of this
   one: it would wait for weights that these have yet to change, and keep a stage from their backward parts.
   NULL: nothing is under way. */
static const struct weights_set *team_set(const struct team *team) {
  for (int s = 0; s < team->n_stages; s++)
    if (team->pipeline.slots[s].next != PIPELINE_FREE)
      return team->tasks[s]->work.set;
  return NULL;
}

/* Where other workers have the other stages. */
static void team_count_under_way(struct team *team) {
  bool is_any = false;
  if (stage_part_is_whole(&team->run->part))
    return;
  for (int s = 0; s < team->n_stages; s++) {
    const struct pipeline_slot *slot = &team->pipeline.slots[s];
    is_any |= slot->next != PIPELINE_FREE && slot->goes_back;
  }
  if (is_any != team->times.is_held)
    team_times_hold(&team->times, is_any, clock_now_ns());
}

bool team_is_seated(const struct team *team) {
  const struct run *run = team->run;
  size_t n_executors = (size_t)(run->part.last - run->part.first + 1), before = (size_t)(team - run->teams);
  return run->share.executors == 0 || before == 0 || (before + 1) * n_executors <= run->share.executors;
}

/* A new task, where there is a slot for it. */
static void team_begin(struct team *team) {
  struct run *run = team->run;
  struct work work;
  int slot;
  if (run->is_stopping || !team_is_seated(team) || !pipeline_has_room(&team->pipeline) ||
      !steps_begin(run, team_set(team), &work))
    return;
  slot = pipeline_begin(&team->pipeline, work.kind == WORK_MICROBATCH);
  task_begin(team->tasks[slot], &work);
  run->n_under_way++;
  team_count_under_way(team);
}

/* A task that has come from another worker. One of another version waits, as above; one that is not owed any
   more is let go of. */
static void team_follow(struct team *team) {
  struct run *run = team->run;
  const struct weights_set *beside = team_set(team);
  struct work work;
  while (!run->is_stopping && pipeline_has_room(&team->pipeline) && edges_next_locked(run, &work) &&
         (!beside || beside->version == work.version)) {
    bool is_begun = steps_begin_at(run, &work);
    edges_begin_locked(run, &work, is_begun);
    if (!is_begun)
      continue;
    task_begin(team->tasks[pipeline_begin(&team->pipeline, work.kind == WORK_MICROBATCH)], &work);
    run->n_under_way++;
    team_count_under_way(team);
    beside = work.set;
  }
}

/* What has come from other workers since. */
static void team_look(struct team *team) {
  struct run *run = team->run;
  for (int s = 0; s < team->n_stages; s++) {
    const struct pipeline_slot *slot = &team->pipeline.slots[s];
    if (slot->next == PIPELINE_AWAITS && !slot->is_busy && edges_has_locked(run, team->tasks[s]))
      pipeline_resume(&team->pipeline, s);
  }
  if (run->part.first > 0)
    team_follow(team);
  team->pipeline.is_held_up = edges_are_full(run);
}

static void team_end(struct team *team, int slot) {
  struct run *run = team->run;
  const struct task *task = team->tasks[slot];
  run->n_under_way--;
  if (!task->is_dropped && task->work.kind == WORK_MICROBATCH && !run->replica) {
    run->totals.computed++;
    metric_add(METRIC_MICROBATCHES, 1);
  }
  if (!task->is_dropped && task->work.kind == WORK_MICROBATCH && !task->work.is_extra)
    team_times_add(&team->times, task->work.step);
  if (task->is_dropped && run->edges && run->phase == RUN_WORKING)
    run->must_rejoin = true; /* the others go on without the task */
  edges_forget_locked(run, task, task->execution);
  team_count_under_way(team);
  steps_end(run, &task->work, !task->is_dropped);
}

bool team_is_idle_locked(const struct team *team) {
  return team_set(team) == NULL;
}

bool team_take_locked(struct team *team, int stage, struct turn *turn) {
  int s = find_unwanted(team);
  if (team->run->phase == RUN_WORKING && team->run->edges)
    team_look(team);
  if (s >= 0) {
    team->tasks[s]->is_dropped = true;
    pipeline_take_away(&team->pipeline, s);
  } else {
    s = pipeline_take(&team->pipeline, stage);
    if (s < 0 && stage == 0) { /* of the model */
      team_begin(team);
      s = pipeline_take(&team->pipeline, stage);
    }
  }
  if (s < 0)
    return false;
  const struct pipeline_slot *slot = &team->pipeline.slots[s];
  *turn = (struct turn){s, slot->next, slot->contexts[stage] > 0 ? slot->contexts[stage] : 0};
  return true;
}

void team_give_locked(struct team *team, const struct turn *turn, bool has_more) {
  bool is_over = team->tasks[turn->slot]->is_dropped;
  if (is_over) {
    pipeline_drop(&team->pipeline, turn->slot);
  } else if (has_more) {
    edges_forget_locked(team->run, team->tasks[turn->slot], team->tasks[turn->slot]->execution - 1);
    pipeline_repeat(&team->pipeline, turn->slot);
  } else {
    is_over = pipeline_finish(&team->pipeline, turn->slot);
  }
  if (is_over)
    team_end(team, turn->slot);
  else
    pthread_cond_broadcast(&team->run->changed);
}
