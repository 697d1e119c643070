/* A task under way. */
#include "worker/train/executor/task.h"

#include <stdlib.h>

#include "worker/train/run/sending.h"

struct task *task_new(struct run *run) {
  const struct model *model = run->loaded.model;
  struct task *task = mem_new(sizeof *task);
  task->run = run;
  task->row = mem_new(model->row_elems * sizeof(float));
  task->gathers = mem_new(model->n_param_blocks * sizeof *task->gathers);
  return task;
}

void task_free(struct task *task) {
  free(task->row);
  free(task->gathers);
  free(task);
}

void task_begin(struct task *task, const struct work *work) {
  task->work = *work;
  task->execution = 0;
  task->is_dropped = task->is_current = false;
}

bool task_is_cancelled(struct task *task) {
  struct run *run = task->run;
  if (task->is_dropped)
    return true;
  pthread_mutex_lock(&run->lock);
  task->is_dropped = run->is_stopping || (!task->probe && !steps_is_wanted(run, &task->work));
  pthread_mutex_unlock(&run->lock);
  return task->is_dropped;
}

void task_fail_err(struct task *task, const struct err *err) {
  const struct work *work = &task->work;
  struct err full = *err;
  err_prefix(&full, "%s %u of %s %llu",
             work->kind == WORK_CHUNK               ? "evaluation chunk"
             : task->run->replica && !task->replica ? "replica"
                                                    : "microbatch",
             work->index, work->kind == WORK_CHUNK ? "version" : "step", (unsigned long long)work->step);
  task_fail_data(task, &full);
}

void task_fail_data(struct task *task, const struct err *err) {
  task->is_dropped = true;
  run_fail(task->run, err, err->code == ERR_INVALID || err->code == ERR_UNSUPPORTED);
}

void task_fail(struct task *task, const char *what) {
  const struct work *work = &task->work;
  struct err err = ERR_NONE;
  if (work->kind == WORK_CHUNK ||
      !loader_check_finite(task->run->loaded.loader, work->step, work->index, &err))
    err_set(
        &err, ERR_INTERNAL,
        "%s is not finite: the training diverges; try a lower train.optimizer.lr, or look for extreme values "
        "in the data",
        what);
  task_fail_err(task, &err);
}

void task_fail_memory(struct task *task) {
  struct err err;
  err_set(&err, ERR_NO_MEMORY, "no memory for its gradient");
  task_fail_err(task, &err);
}

void task_check_current_locked(struct task *task) {
  task->is_dropped |= !steps_is_current(task->run, &task->work);
}

struct reducer *task_reducer(const struct task *task) {
  return task->replica ? replica_reducer(task->replica) : steps_reducer(task->run, task->work.step);
}

uint32_t task_part_elems(const struct task *task, uint32_t block) {
  const struct run *run = task->run;
  return task->replica ? run->block_elems[block]
                       : block_part_elems(&run->loaded.model->blocks[block], run->loaded.plan.inner_steps);
}

struct transfer_item task_sum_item(const struct task *task, uint32_t block, const struct reducer_send *send) {
  return (struct transfer_item){.kind = TRANSFER_PUSH,
                                .server = task->run->owner[block],
                                .block = block,
                                .step = task->work.step,
                                .version = mode_reply(&task->run->mode, task->work.step),
                                .node = send->node,
                                .wait = send->wait};
}

struct transfer_item task_extra_item(const struct task *task, uint32_t block) {
  return task_sum_item(task, block, &(struct reducer_send){.node = {task->work.index, 0}});
}

void task_send(const struct task *task, const struct transfer_item *items, int n) {
  for (int i = 0; task->replica && i < n; i++)
    replica_receive(task->replica, items[i].block, task->work.index, items[i].buffer);
  if (task->replica)
    return;
  if (task->work.is_extra)
    sending_start(task->run, items, n);
  else
    steps_send(task->run, items, n);
}

bool task_lose_sum(struct task *task, uint32_t block, struct tree_node node) {
  struct run *run = task->run;
  bool is_lost = true;
  if (run->edges || task->replica) {
    task_fail(task, "a sum of gradients");
    return true;
  }
  pthread_mutex_lock(&run->lock);
  task_check_current_locked(task);
  if (!task->is_dropped && run->outlet)
    is_lost = false;
  else if (!task->is_dropped) {
    reducer_lose(steps_reducer(run, task->work.step), block, node);
    steps_compute_alone(run, task->work.step, node);
  }
  pthread_mutex_unlock(&run->lock);
  return is_lost;
}
