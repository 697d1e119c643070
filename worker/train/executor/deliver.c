/* From a gradient to parts on their way: blocks are cut out of it or gathered, added along the reduction tree
   outside the run's lock, and sent. Whole blocks in an executor's own memory go here; what is put together in
   buffers, in deliver_parts.c. */
#include <string.h>

#include "common/agree/sum.h"
#include "common/trace/trace.h"
#include "worker/train/executor/executor.h"

/* Blocks of one gradient that leave together. While the host still has something to do with each, the first
   of them could be on their way. */
enum { READY_AT_ONCE = SENT_TOGETHER_MAX, MADE_AT_ONCE = SHARE_PARTS_MAX };

/* A block's part on its way through the reducer. */
struct delivery {
  uint32_t block;
  struct tree_node node; /* what the sum covers */
  struct buffer *sum;    /* NULL: nothing was added yet */
  bool is_to_send;
  struct transfer_item item; /* what is sent then */
};

/* One lock's worth: takes a sibling to add (returned), or places the sum and maybe learns that it is to be
   sent. A part whose step is over is dropped. */
static struct buffer *deliver_step(struct task *task, struct delivery *delivery) {
  struct run *run = task->run;
  uint32_t block = delivery->block;
  struct reducer_send send;
  struct buffer *sibling = NULL;
  pthread_mutex_lock(&run->lock);
  task_check_current_locked(task);
  if (!task->is_dropped)
    sibling = reducer_take(task_reducer(task), block, &delivery->node);
  if (!task->is_dropped && !sibling && delivery->sum &&
      reducer_place(task_reducer(task), block, delivery->node, delivery->sum, &send)) {
    delivery->is_to_send = true;
    delivery->item = task_sum_item(task, block, &send);
    delivery->item.buffer = delivery->sum;
  }
  pthread_mutex_unlock(&run->lock);
  return sibling;
}

void executor_send_leaving(struct executor *executor) {
  task_send(executor->task, executor->leaving.items, executor->leaving.n);
  executor->leaving.n = 0;
}

void executor_leave(struct executor *executor, const struct transfer_item *item) {
  executor->leaving.items[executor->leaving.n++] = *item;
  if (executor->leaving.n == SENT_TOGETHER_MAX)
    executor_send_leaving(executor);
}

static void leave_copied(struct executor *executor, const struct transfer_item *item) {
  executor_leave(executor, item);
  if (executor->leaving.n >= MADE_AT_ONCE)
    executor_send_leaving(executor);
}

/* Of an extra task: no sum is made, and no reply brings weights. */
static void deliver_alone(struct executor *executor, uint32_t block, const float *data, const char *what) {
  struct task *task = executor->task;
  struct transfer_item item = task_extra_item(task, block);
  if (task_is_cancelled(task))
    return;
  item.buffer = block_pool_take(task->run->pool, block);
  if (!item.buffer)
    task_fail_memory(task);
  else if (!sum_copy((float *)item.buffer->data, data, task_part_elems(task, block)))
    task_fail(task, what);
  if (task->is_dropped)
    block_pool_give(task->run->pool, block, item.buffer);
  else
    leave_copied(executor, &item);
}

/* Adds the sibling, or the microbatch's own data to it, or begins the sum with that. False: the sum is not
   finite. */
static bool delivery_add(struct task *task, struct delivery *delivery, struct buffer *sibling,
                         const float *data) {
  uint32_t elems = task_part_elems(task, delivery->block);
  bool is_finite;
  if (sibling && delivery->sum) {
    is_finite = sum_add(delivery->sum->data, sibling->data, elems);
    block_pool_give(task->run->pool, delivery->block, sibling);
    return is_finite;
  }
  delivery->sum = sibling ? sibling : block_pool_take(task->run->pool, delivery->block);
  if (sibling)
    return sum_add(delivery->sum->data, data, elems);
  if (delivery->sum)
    return sum_copy(delivery->sum->data, data, elems);
  task_fail_memory(task);
  return true;
}

/* data: the microbatch's part of a block that is in host memory at all executors. */
void executor_deliver_block(struct executor *executor, uint32_t block, const float *data, const char *what) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  struct delivery delivery = {.block = block, .node = {task->work.index, 0}};
  bool is_lost = false;
  if (task->work.is_extra) {
    deliver_alone(executor, block, data, what);
    return;
  }
  while (!is_lost && executor_wait_current(executor)) {
    struct buffer *sibling = deliver_step(task, &delivery);
    if (!sibling && delivery.sum)
      break; /* placed, or dropped */
    if (delivery_add(task, &delivery, sibling, data))
      continue;
    if (!sum_is_finite(data, task_part_elems(task, block)))
      task_fail(task, what);
    else
      is_lost = task_lose_sum(task, block, delivery.node);
  }
  if (task->is_dropped || is_lost)
    block_pool_give(run->pool, block, delivery.sum);
  else if (delivery.is_to_send)
    leave_copied(executor, &delivery.item);
}

/* The block's buffer, to be filled by all that share it. What parameters of several stages may share is in
   host memory, where each stage's device can copy to and look at. NULL: no memory, and the task is dropped.
 */
static struct gather *gather_open(struct executor *executor, uint32_t b) {
  struct task *task = executor->task;
  struct gather *gather = &task->gathers[b];
  bool is_for_one = executor->team->n_stages == 1 || executor->run->map.block_params[b] == 1;
  if (!gather->buffer)
    gather->buffer = executor->stream && task->work.is_for_device && is_for_one
                         ? block_pool_take_on(executor->run->pool, b, executor->device)
                         : block_pool_take(executor->run->pool, b);
  if (gather->buffer)
    return gather;
  task_fail_memory(task);
  return NULL;
}

struct overlap overlap_of(const struct model *model, uint32_t b, const struct param *param) {
  const struct block *block = &model->blocks[b];
  uint64_t begin = block->begin > param->begin ? block->begin : param->begin;
  uint64_t block_end = block->begin + block->elems, param_end = param->begin + param->elems;
  uint64_t end = block_end < param_end ? block_end : param_end;
  return (struct overlap){end - begin, begin - param->begin, begin - block->begin};
}

void executor_gather_piece(struct executor *executor, uint32_t b, int p, const float *piece) {
  const struct param *param = &executor->run->loaded.model->params[p];
  struct overlap overlap = overlap_of(executor->run->loaded.model, b, param);
  struct gather *gather = gather_open(executor, b);
  struct err err = ERR_NONE;
  bool is_finite; /* of sums, of which there are none */
  float *to;
  if (!gather)
    return;
  if (!sum_is_finite(piece, overlap.elems)) {
    task_fail(executor->task, param->name);
    return;
  }
  to = (float *)gather->buffer->data + overlap.in_block;
  if (block_pool_device(gather->buffer) < 0)
    memcpy(to, piece, overlap.elems * sizeof *to);
  else if (executor->memory->copy(executor->stream, to, piece, overlap.elems * sizeof *to, &err) ||
           executor->memory->wait(executor->stream, &is_finite, &err)) {
    task_fail_err(executor->task, &err);
    return;
  }
  executor_part_come(executor, b);
}

void executor_deliver_gradient(struct executor *executor, int p, const float *grad) {
  struct run *run = executor->run;
  const struct task *task = executor->task;
  const struct model *model = run->loaded.model;
  const struct param *param = &model->params[p];
  uint64_t begin_ns = trace_now_ns();
  for (uint32_t b = run->map.params[p].begin; b < run->map.params[p].end && !task->is_dropped; b++)
    if (run->map.block_params[b] > 1)
      executor_gather_piece(executor, b, p, grad + overlap_of(model, b, param).in_param);
    else
      executor_deliver_block(executor, b, grad + (model->blocks[b].begin - param->begin), param->name);
  executor_deliver_parts(executor);
  executor_send_leaving(executor);
  trace_span(&(struct trace_span){.category = "delivery",
                                  .name = param->name,
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = task->work.step,
                                  .index = task->work.index});
}

int executor_place_gradient(struct executor *executor, int p, struct backend_piece *pieces, int max) {
  struct run *run = executor->run;
  struct block_range range = run->map.params[p];
  int n = 0;
  if (range.end - range.begin > (uint32_t)max)
    return 0;
  for (uint32_t b = range.begin; b < range.end; b++) {
    struct overlap overlap = overlap_of(run->loaded.model, b, &run->loaded.model->params[p]);
    const struct gather *gather = gather_open(executor, b);
    if (!gather)
      return 0;
    pieces[n++] = (struct backend_piece){.to = (float *)gather->buffer->data + overlap.in_block,
                                         .begin = overlap.in_param,
                                         .elems = overlap.elems};
  }
  return n;
}

/* What is placed is neither added to another microbatch's nor compressed here. */
static bool is_placed_ready(const struct run *run) {
  return run->loaded.plan.microbatches == 1 && !run->compression.gradients;
}

/* Of a large parameter the first blocks in host memory leave before the next are taken up; a device is waited
   for once, for all. */
void executor_deliver_placed(struct executor *executor, int p, bool is_finite) {
  struct block_range range = executor->run->map.params[p];
  const struct parts *parts = &executor->parts;
  int at_once = is_placed_ready(executor->run) ? READY_AT_ONCE : MADE_AT_ONCE;
  if (!is_finite)
    task_fail(executor->task, executor->run->loaded.model->params[p].name);
  for (uint32_t b = range.begin; b < range.end && !executor->task->is_dropped; b++) {
    executor_part_come(executor, b);
    if (parts->n >= at_once && block_pool_device(parts->list[parts->n - 1].sum) < 0)
      executor_deliver_parts(executor);
  }
}

void executor_deliver_row(struct executor *executor) {
  const struct model *model = executor->run->loaded.model;
  const struct task *task = executor->task;
  for (uint32_t b = model->n_summed_blocks; b < model->n_blocks && !task->is_dropped; b++)
    executor_deliver_block(executor, b, task->row + model->blocks[b].begin, "the statistics row");
  executor_send_leaving(executor);
}

void executor_drop_gathers(struct executor *executor) {
  const struct model *model = executor->run->loaded.model;
  struct gather *gathers = executor->task->gathers;
  executor_deliver_parts(executor); /* of a task that is dropped: gives them back */
  for (uint32_t b = 0; b < model->n_param_blocks; b++) {
    block_pool_give(executor->run->pool, b, gathers[b].buffer);
    gathers[b] = (struct gather){0};
  }
}
