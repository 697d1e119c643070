/* An executor. */
#include "worker/train/executor/executor.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/metrics/metric.h"
#include "common/trace/trace.h"
#include "worker/train/executor/edges.h"

static void *executor_main(void *argument);

/* On GPUs each executor has one for itself, on a CPU all share the machine's memory. */
static size_t executor_program_bytes(const struct run *run) {
  uint64_t bytes;
  if (run->options.n_devices > 0)
    return (size_t)run->options.memory_bytes;
  bytes = run->room_bytes / (uint64_t)run->n_executors;
  return bytes > 0 ? (size_t)bytes : 1;
}

void executors_start(struct run *run) {
  int n_stages = run->part.last - run->part.first + 1;
  run->n_teams = stage_part_is_whole(&run->part) ? executors_teams(run, n_stages) : 1;
  run->n_executors = run->n_teams * n_stages;
  run->program_bytes = executor_program_bytes(run);
  run->teams = mem_new((size_t)run->n_teams * sizeof *run->teams);
  run->executors = mem_new((size_t)run->n_executors * sizeof *run->executors);
  for (int t = 0; t < run->n_teams; t++)
    team_init(&run->teams[t], run);
  for (int i = 0; i < run->n_executors; i++) {
    struct executor *executor = &run->executors[i];
    executor->run = run;
    executor->index = i;
    executor->team = &run->teams[i / n_stages];
    executor->stage = run->part.first + i % n_stages;
    executor->task = executor->team->tasks[0];
    if (run->replica)
      executor->inner = task_new(run);
    CHECK(pthread_create(&executor->thread, NULL, executor_main, executor) == 0);
  }
}

void executors_join(struct run *run) {
  for (int i = 0; i < run->n_executors; i++) {
    struct executor *executor = &run->executors[i];
    pthread_join(executor->thread, NULL);
    executor_taps_free(executor);
    outbox_close(&executor->up);
    outbox_close(&executor->down);
    outbox_close(&executor->eval_up);
    if (executor->inner)
      task_free(executor->inner);
    free(executor->parts.list);
    free(executor->parts.sums);
  }
  for (int t = 0; t < run->n_teams; t++)
    team_fini(&run->teams[t]);
  edges_free(run);
  free(run->teams);
  free(run->executors);
  run->teams = NULL;
  run->executors = NULL;
  run->n_executors = run->n_teams = 0;
}

bool executor_is_last(const struct executor *executor) {
  return executor->stage == executor->team->n_stages - 1;
}

bool executor_is_at_edge(const struct executor *executor, enum backend_part part, bool is_sent) {
  const struct stage_part *stages = &executor->run->part;
  return executor->stage == ((part == BACKEND_FORWARD) == is_sent ? stages->last : stages->first);
}

/* Of the team's times, which are of the stages that are here. */
static int executor_place(const struct executor *executor) {
  return executor->stage - executor->run->part.first;
}

/* The task is computed from here on, or again after a wait. */
void executor_go_locked(struct executor *executor) {
  bool is_microbatch = executor->task->work.kind == WORK_MICROBATCH;
  uint64_t now_ns = clock_now_ns();
  executor->is_executing = true;
  if (is_microbatch)
    executor->busy_since_ns = now_ns;
  team_times_set(&executor->team->times, executor_place(executor),
                 is_microbatch ? STAGE_AT_MICROBATCH : STAGE_AT_CHUNK, now_ns);
}

void executor_halt_locked(struct executor *executor) {
  uint64_t now_ns = clock_now_ns();
  if (executor->busy_since_ns) {
    executor->run->totals.busy_ns += now_ns - executor->busy_since_ns;
    metric_add(METRIC_BUSY_SECONDS, now_ns - executor->busy_since_ns);
  }
  executor->busy_since_ns = 0;
  executor->is_executing = false;
  team_times_set(&executor->team->times, executor_place(executor), STAGE_WAITS, now_ns);
}

uint64_t executors_busy_ns_locked(struct run *run) {
  uint64_t now_ns = clock_now_ns(), busy_ns = run->totals.busy_ns;
  for (int i = 0; i < run->n_executors; i++) {
    struct executor *executor = &run->executors[i];
    if (executor->is_executing && !executor->void_since_ns && !steps_is_wanted(run, &executor->task->work)) {
      executor->void_since_ns = now_ns;
      if (!executor->busy_since_ns) /* with a chunk, then, which it may hang at */
        executor->busy_since_ns = now_ns;
    }
    if (executor->busy_since_ns)
      busy_ns += now_ns - executor->busy_since_ns;
  }
  return busy_ns;
}

static void executor_trace(const struct executor *executor, uint64_t begin_ns) {
  const struct work *work = &executor->task->work;
  bool is_chunk = work->kind == WORK_CHUNK, is_backward = executor->turn.part == PIPELINE_BACKWARD;
  const char *unit = executor->run->replica ? "replica" : "microbatch";
  const char *category = is_chunk ? "evaluation" : "train", *name = is_chunk ? "chunk" : unit;
  char part[64];
  if (begin_ns && executor->team->n_stages > 1) {
    snprintf(part, sizeof part, "%s, stage %d%s", name, executor->stage,
             is_backward                  ? " backward"
             : executor_is_last(executor) ? ""
                                          : " forward");
    name = part;
  }
  trace_span(&(struct trace_span){.category = work->is_extra ? "extra" : category,
                                  .name = name,
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = work->step,
                                  .index = work->index});
}

/* Its turn. True: the task has another execution. */
static bool executor_work(struct executor *executor) {
  struct task *task = executor->task;
  bool has_more = false;
  uint64_t begin_ns = trace_now_ns();
  if (!task->is_dropped && task->work.kind == WORK_CHUNK)
    has_more = executor_evaluate(executor);
  else if (!task->is_dropped && executor->run->replica)
    executor_replicate(executor);
  else if (!task->is_dropped)
    executor_train(executor);
  executor_trace(executor, begin_ns);
  executor_let_go(executor);
  return has_more;
}

void executor_let_go(struct executor *executor) {
  struct task *task = executor->task;
  executor->n_dropped += task->is_dropped;
  if (task->is_dropped) {
    executor_drop_gathers(executor);
    evaluation_free(task);
  }
  if (task->is_dropped && task->batch) {
    loader_put(executor->run->loaded.loader, task->batch);
    task->batch = NULL;
  }
}

/* Has a turn at a task, if there is one for it; gives the lock up meanwhile. */
static bool executor_turn_locked(struct executor *executor) {
  struct run *run = executor->run;
  uint64_t begin_ns;
  bool has_more;
  if (!team_take_locked(executor->team, executor->stage, &executor->turn))
    return false;
  executor->task = executor->team->tasks[executor->turn.slot];
  executor->is_told_to_hang = false;
  executor->void_since_ns = 0;
  executor_go_locked(executor);
  pthread_mutex_unlock(&run->lock);
  begin_ns = clock_now_ns();
  has_more = executor_work(executor);
  executor_times_add(&executor->times, begin_ns, clock_now_ns());
  pthread_mutex_lock(&run->lock);
  executor_halt_locked(executor);
  team_give_locked(executor->team, &executor->turn, has_more);
  return true;
}

/* Until the others of its team are prepared, which are not at anything then. False: one could not be. */
static bool executor_wait_for_team(struct executor *executor) {
  struct run *run = executor->run;
  bool is_well;
  pthread_mutex_lock(&run->lock);
  while (executor->team->n_stages > 1 && run->n_prepared < run->n_executors - 1)
    pthread_cond_wait(&run->changed, &run->lock);
  is_well = run->prepare_err.code == ERR_OK || executor->team->n_stages == 1;
  pthread_mutex_unlock(&run->lock);
  return is_well;
}

/* The run ends, or one of its executors could not be prepared. */
static bool is_over_locked(const struct executor *executor) {
  const struct run *run = executor->run;
  bool is_void = run->prepare_err.code && run->n_prepared == run->n_executors;
  return is_void || (run->is_stopping && team_is_idle_locked(executor->team));
}

/* The end of its row on the timeline: a span over all of its tasks says what it did of that time. */
static void executor_sum_up(const struct executor *executor) {
  const struct executor_times *times = &executor->times;
  char text[EXECUTOR_TIMES_SIZE];
  if (times->began_ns == 0)
    return;
  executor_times_text(times, text);
  log_event(LOG_INFO, "worker", "executor_ended",
            "run=%s executor=%d seconds=%.3f computed_seconds=%.3f weights_wait_seconds=%.3f "
            "data_wait_seconds=%.3f",
            executor->run->load->run, executor->index, clock_seconds(times->ended_ns - times->began_ns),
            clock_seconds(executor_times_computed_ns(times)), clock_seconds(times->weights_ns),
            clock_seconds(times->data_ns));
  trace_span(&(struct trace_span){.category = "summary",
                                  .name = text,
                                  .begin_ns = times->began_ns,
                                  .end_ns = times->ended_ns,
                                  .step = executor->task->work.step,
                                  .index = -1});
}

static void *executor_main(void *argument) {
  struct executor *executor = argument;
  struct run *run = executor->run;
  struct err err = ERR_NONE;
  uint64_t begin_ns = trace_now_ns();
  char name[32];
  snprintf(name, sizeof name, "executor %d", executor->index);
  trace_thread(name, run->trace_number);
  if (!backend_thread_init(&err) && !executor_prepare(executor, &err) && executor->index == 0 &&
      executor_wait_for_team(executor)) {
    pthread_mutex_lock(&run->lock);
    executors_share_blocks(run);
    executors_share_inputs(run);
    edges_new(run);
    pthread_mutex_unlock(&run->lock);
    executor_probe(executor, &err);
  }
  trace_span(&(struct trace_span){
      .category = "load", .name = "programs", .begin_ns = begin_ns, .end_ns = trace_now_ns(), .index = -1});
  pthread_mutex_lock(&run->lock);
  run->n_prepared++;
  if (err.code && !run->prepare_err.code)
    run->prepare_err = err;
  pthread_cond_broadcast(&run->changed);
  while (!is_over_locked(executor))
    if (!executor_land_locked(executor) && !executor_turn_locked(executor) && !executor_help_locked(executor))
      pthread_cond_wait(&run->changed, &run->lock);
  pthread_mutex_unlock(&run->lock);
  executor_sum_up(executor);
  run->options.backend->release(executor->train);
  run->options.backend->release(executor->eval);
  if (executor->memory)
    executor->memory->close(executor->stream);
  return NULL;
}

/* A dropped execution may have read weights too early: what the program keeps of them has a number of its
 * own. */
uint64_t executor_weights_version(const struct executor *executor) {
  return (executor->task->work.set->opening << 20) + (executor->n_dropped & 0xfffff);
}

/* Waits for a condition of the run's, or drops the task. what: it waits for, on the timeline. */
static void executor_wait(struct executor *executor, bool (*is_met)(const struct task *, const void *),
                          const void *argument, const char *what) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  uint64_t begin_ns = 0, halted_ns = 0, waited_ns;
  bool has_waited = false;
  pthread_mutex_lock(&run->lock);
  for (;;) {
    if (!steps_is_wanted(run, &task->work) || run->is_stopping)
      task->is_dropped = true;
    if (task->is_dropped || is_met(task, argument))
      break;
    if (executor_land_locked(executor))
      continue;
    if (!has_waited) {
      has_waited = true;
      begin_ns = trace_now_ns();
      halted_ns = clock_now_ns();
      executor_halt_locked(executor);
    }
    if (steps_should_yield(run, &task->work))
      task->is_dropped = true;
    else
      pthread_cond_wait(&run->changed, &run->lock);
  }
  if (has_waited) {
    waited_ns = clock_now_ns() - halted_ns;
    metric_add(METRIC_WAIT_SECONDS, waited_ns);
    executor->times.weights_ns += waited_ns;
    executor_go_locked(executor);
  }
  pthread_mutex_unlock(&run->lock);
  trace_span(&(struct trace_span){.category = "wait",
                                  .name = what,
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = task->work.step,
                                  .index = task->work.index});
}

static bool is_current(const struct task *task, const void *argument) {
  (void)argument;
  return steps_is_current(task->run, &task->work);
}

bool executor_wait_current(struct executor *executor) {
  struct task *task = executor->task;
  if (!task->is_current && !task->is_dropped)
    executor_wait(executor, is_current, NULL, "step before");
  task->is_current = true;
  return !task->is_dropped;
}

static bool is_ready(const struct task *task, const void *range) {
  return weights_is_ready(task->work.set, *(const struct block_range *)range);
}

void executor_before_train_weight(void *user, int value) {
  struct executor *executor = user;
  if (!executor->task->is_dropped)
    executor_wait(executor, is_ready, &executor->run->map.train_values[value],
                  executor->run->loaded.model->train->values[value].name);
}

void executor_before_eval_weight(void *user, int value) {
  struct executor *executor = user;
  if (!executor->task->is_dropped)
    executor_wait(executor, is_ready, &executor->run->map.eval_values[value],
                  executor->run->loaded.model->eval->values[value].name);
}

bool executor_is_cancelled(void *user) {
  struct executor *executor = user;
  return task_is_cancelled(executor->task);
}
