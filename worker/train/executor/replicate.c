/* Replicas: the executor that has begun one leads it, the worker's others help with its jobs. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/metrics/metric.h"
#include "common/trace/trace.h"
#include "worker/train/executor/executor.h"

/* A microbatch of the replica that is computed now: its own task is not touched. */
static void compute_locked(struct executor *executor, const struct replica_job *job) {
  struct run *run = executor->run;
  struct task *outer = executor->task, *inner = executor->inner;
  uint64_t begin_ns = trace_now_ns();
  const struct work work = {.kind = WORK_MICROBATCH,
                            .index = job->index,
                            .step = job->step,
                            .version = run->weights->current->version,
                            .set = job->set};
  task_begin(inner, &work);
  inner->replica = run->replica;
  executor->task = inner;
  executor_go_locked(executor);
  pthread_mutex_unlock(&run->lock);
  executor_train(executor);
  executor_let_go(executor);
  trace_span(&(struct trace_span){.category = "train",
                                  .name = "microbatch",
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = job->step,
                                  .index = job->index});
  pthread_mutex_lock(&run->lock);
  executor_halt_locked(executor);
  executor->task = outer;
  if (inner->is_dropped)
    replica_drop(run->replica);
  else
    run->totals.computed++;
  metric_add(METRIC_MICROBATCHES, !inner->is_dropped);
}

static bool job_do_locked(struct executor *executor) {
  struct run *run = executor->run;
  struct replica_job job;
  if (!replica_take(run->replica, &job))
    return false;
  if (job.kind == REPLICA_MICROBATCH)
    compute_locked(executor, &job);
  else {
    pthread_mutex_unlock(&run->lock);
    replica_do(run->replica, &job);
    pthread_mutex_lock(&run->lock);
  }
  replica_give(run->replica);
  pthread_cond_broadcast(&run->changed);
  return true;
}

bool executor_help_locked(struct executor *executor) {
  struct run *run = executor->run;
  uint64_t begin_ns;
  bool has_helped;
  if (!run->replica || !run->is_replicating || !team_is_seated(executor->team))
    return false;
  executor->turn = (struct turn){.part = PIPELINE_FORWARD};
  begin_ns = clock_now_ns();
  has_helped = job_do_locked(executor);
  if (has_helped)
    executor_times_add(&executor->times, begin_ns, clock_now_ns());
  return has_helped;
}

/* Until all of its steps are taken and nobody is at a job of it. */
static void lead_locked(struct executor *executor) {
  struct run *run = executor->run;
  const struct task *task = executor->task;
  while (replica_is_under_way(run->replica) || replica_is_busy(run->replica)) {
    if (run->is_stopping || !steps_is_wanted(run, &task->work))
      replica_drop(run->replica);
    if (!job_do_locked(executor) && (replica_is_under_way(run->replica) || replica_is_busy(run->replica)))
      pthread_cond_wait(&run->changed, &run->lock);
  }
}

static void deliver(struct executor *executor) {
  const struct run *run = executor->run;
  const struct model *model = run->loaded.model;
  struct task *task = executor->task;
  uint32_t most = 0;
  float *part;
  for (uint32_t b = 0; b < model->n_blocks; b++)
    most = task_part_elems(task, b) > most ? task_part_elems(task, b) : most;
  part = mem_new(most * sizeof *part);
  for (uint32_t b = 0; b < model->n_blocks && !task->is_dropped; b++) {
    replica_part(run->replica, b, part);
    executor_deliver_block(executor, b, part,
                           model->blocks[b].kind == BLOCK_KEPT ? "what a replica's optimizer keeps"
                                                               : "what a replica's weights moved by");
  }
  executor_send_leaving(executor);
  free(part);
}

/* Its version must be here as a whole: the replica begins with a copy. */
void executor_replicate(struct executor *executor) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  const struct work *work = &task->work;
  uint32_t n_steps = (uint32_t)(mode_next(&run->mode, work->step) - work->step);
  uint32_t each = plan_unit_microbatches(&run->loaded.plan), first = work->index * each;
  if (!executor_wait_current(executor))
    return;
  loader_expect(run->loaded.loader, work->step, first, first + each);
  pthread_mutex_lock(&run->lock);
  executor_halt_locked(executor);
  replica_begin(run->replica, work->index, work->step, n_steps, work->set);
  pthread_cond_broadcast(&run->changed);
  lead_locked(executor);
  task->is_dropped |= !replica_is_complete(run->replica);
  executor_go_locked(executor);
  pthread_mutex_unlock(&run->lock);
  if (!task->is_dropped)
    deliver(executor);
  pthread_mutex_lock(&run->lock);
  replica_end(run->replica);
  pthread_mutex_unlock(&run->lock);
}
