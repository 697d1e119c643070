/* Parts that were put together in buffers, on a device or in host memory, on their way through the reducer:
   all that have come together are added and copied together, so that a device is waited for once a round.
   What has come is finite; of sums that is asked. */

#include "common/agree/sum.h"
#include "worker/train/executor/executor.h"

static void sum_later(struct executor *executor, float *out, const float *in, size_t elems) {
  struct parts *parts = &executor->parts;
  array_reserve((void **)&parts->sums, &parts->sums_capacity, parts->n_sums, sizeof *parts->sums);
  parts->sums[parts->n_sums++] = (struct device_sum){out, in, elems};
}

static float *buffer_floats(const struct buffer *buffer) {
  return (float *)buffer->data;
}

static size_t part_elems(const struct executor *executor, const struct part *part) {
  return executor->run->block_elems[part->block];
}

void executor_part_come(struct executor *executor, uint32_t b) {
  struct task *task = executor->task;
  struct gather *gather = &task->gathers[b];
  struct parts *parts = &executor->parts;
  if (++gather->n_come < executor->run->map.block_params[b])
    return;
  array_reserve((void **)&parts->list, &parts->capacity, parts->n, sizeof *parts->list);
  parts->list[parts->n++] = (struct part){.block = b, .node = {task->work.index, 0}, .sum = gather->buffer};
  *gather = (struct gather){0};
}

/* Of an extra task each part is sent as it is. */
static void parts_send_alone(struct executor *executor) {
  for (int i = 0; i < executor->parts.n; i++) {
    struct part *part = &executor->parts.list[i];
    part->is_to_send = true;
    part->item = task_extra_item(executor->task, part->block);
  }
}

/* Each part takes a sibling that is there, or is placed. */
static void parts_ask(struct executor *executor) {
  struct run *run = executor->run;
  struct task *task = executor->task;
  struct reducer *reducer;
  if (task->work.is_extra) {
    parts_send_alone(executor);
    return;
  }
  pthread_mutex_lock(&run->lock);
  task_check_current_locked(task);
  reducer = task_reducer(task);
  for (int i = 0; i < executor->parts.n && !task->is_dropped; i++) {
    struct part *part = &executor->parts.list[i];
    struct reducer_send send;
    part->sibling = reducer_take(reducer, part->block, &part->node);
    if (part->sibling)
      continue;
    part->is_to_send = reducer_place(reducer, part->block, part->node, part->sum, &send);
    if (part->is_to_send)
      part->item = task_sum_item(task, part->block, &send);
    else
      part->sum = NULL; /* held */
  }
  pthread_mutex_unlock(&run->lock);
}

/* A copy of what lies on a device, there when the executor's stream was waited for. NULL with an error. */
static struct buffer *buffer_land(struct executor *executor, uint32_t block, const struct buffer *from,
                                  struct err *err) {
  struct buffer *to = block_pool_take(executor->run->pool, block);
  if (!to)
    err_set(err, ERR_NO_MEMORY, "no memory for its gradient");
  else if (executor->memory->copy(executor->stream, to->data, from->data, to->size_bytes, err)) {
    block_pool_give(executor->run->pool, block, to);
    return NULL;
  }
  return to;
}

static int executor_sync(struct executor *executor, bool *is_finite, struct err *err) {
  bool are_finite = true;
  if (!executor->memory->wait(executor->stream, &are_finite, err))
    *is_finite &= are_finite;
  return err->code;
}

/* Of a device that has no memory left for parts: its own are in host memory, another's may be elsewhere. */
static int add_here(struct executor *executor, struct part *part, bool *is_finite, struct err *err) {
  struct buffer *landed = NULL;
  if (block_pool_device(part->sibling) >= 0) {
    landed = buffer_land(executor, part->block, part->sibling, err);
    if (!landed || executor_sync(executor, is_finite, err)) {
      block_pool_give(executor->run->pool, part->block, landed);
      return err->code;
    }
  }
  *is_finite &= sum_add(buffer_floats(part->sum), buffer_floats(landed ? landed : part->sibling),
                        part_elems(executor, part));
  block_pool_give(executor->run->pool, part->block, landed);
  return 0;
}

/* The sum is made where one of both is on the executor's device, else on the host. */
static int part_add(struct executor *executor, struct part *part, bool *is_finite, struct err *err) {
  if (executor->stream && block_pool_device(part->sum) != executor->device &&
      block_pool_device(part->sibling) == executor->device) {
    struct buffer *sum = part->sum;
    part->sum = part->sibling;
    part->sibling = sum;
  }
  if (block_pool_device(part->sum) < 0)
    return add_here(executor, part, is_finite, err);
  sum_later(executor, buffer_floats(part->sum), buffer_floats(part->sibling), part_elems(executor, part));
  return 0;
}

/* What the round has to do, enqueued and waited for. */
static int parts_work(struct executor *executor, bool *is_finite, struct err *err) {
  struct parts *parts = &executor->parts;
  bool has_landings = false;
  for (int i = 0; i < parts->n && !err->code; i++) {
    struct part *part = &parts->list[i];
    if (part->sibling)
      part_add(executor, part, is_finite, err);
    else if (part->is_to_send && steps_must_land(executor->run, part->sum)) {
      part->landed = buffer_land(executor, part->block, part->sum, err);
      has_landings = true;
    }
  }
  if (parts->n_sums > 0 && !err->code)
    executor->memory->add(executor->stream, parts->sums, parts->n_sums, err);
  if (parts->n_sums > 0 || has_landings) {
    struct err one = ERR_NONE; /* whatever has failed: the buffers are in use until then */
    if (executor_sync(executor, is_finite, &one) && !err->code)
      *err = one;
  }
  parts->n_sums = 0;
  return err->code;
}

static void part_release(struct executor *executor, struct part *part) {
  block_pool_give(executor->run->pool, part->block, part->sum);
  block_pool_give(executor->run->pool, part->block, part->sibling);
  block_pool_give(executor->run->pool, part->block, part->landed);
}

/* Sends what is to be sent; what was placed is off the list, what was added is on it, to be asked for again.
 */
static void parts_go_on(struct executor *executor) {
  struct parts *parts = &executor->parts;
  int n = 0;
  for (int i = 0; i < parts->n; i++) {
    struct part part = parts->list[i];
    block_pool_give(executor->run->pool, part.block, part.sibling);
    part.sibling = NULL;
    if (part.is_to_send) {
      part.item.buffer = part.landed ? part.landed : part.sum;
      if (part.landed)
        block_pool_give(executor->run->pool, part.block, part.sum);
      executor_leave(executor, &part.item);
    } else if (part.sum)
      parts->list[n++] = part;
  }
  parts->n = n;
  executor_send_leaving(executor);
}

/* Whether a sum is finite, wherever it lies. */
static bool is_sum_finite(struct executor *executor, const struct part *part) {
  struct device_sum look = {buffer_floats(part->sum), NULL, part_elems(executor, part)};
  struct err err = ERR_NONE;
  bool is_finite = true;
  if (block_pool_device(part->sum) < 0)
    return sum_is_finite(look.out, look.elems);
  if (!executor->memory->add(executor->stream, &look, 1, &err))
    executor_sync(executor, &is_finite, &err);
  return is_finite;
}

/* Lets go of the sums that were made now and are not finite. False: there was none. */
static bool parts_lose(struct executor *executor) {
  struct parts *parts = &executor->parts;
  bool has_lost = false;
  int n = 0;
  for (int i = 0; i < parts->n; i++) {
    struct part *part = &parts->list[i];
    bool overflows = part->sibling && !is_sum_finite(executor, part);
    has_lost |= overflows;
    if (overflows && task_lose_sum(executor->task, part->block, part->node))
      part_release(executor, part);
    else
      parts->list[n++] = *part;
  }
  parts->n = n;
  return has_lost;
}

void executor_deliver_parts(struct executor *executor) {
  struct parts *parts = &executor->parts;
  struct task *task = executor->task;
  struct err err = ERR_NONE;
  bool is_finite = true;
  while (parts->n > 0 && !task->is_dropped) {
    if (executor_wait_current(executor))
      parts_ask(executor);
    if (task->is_dropped)
      break;
    is_finite = true;
    if (parts_work(executor, &is_finite, &err))
      task_fail_err(task, &err);
    else if (!is_finite && !parts_lose(executor))
      task_fail(task, "a sum of gradients");
    if (!task->is_dropped)
      parts_go_on(executor);
  }
  for (int i = 0; i < parts->n; i++)
    part_release(executor, &parts->list[i]);
  parts->n = parts->n_sums = 0;
}

bool executor_land_locked(struct executor *executor) {
  struct run *run = executor->run;
  struct weights_set *set = run->weights->current;
  struct transfer_item item;
  struct buffer *landed;
  struct err err = ERR_NONE;
  bool is_finite = true;
  if (!executor->stream || !steps_next_unsent(run, &item))
    return false;
  set->readers++; /* the run is not left meanwhile */
  pthread_mutex_unlock(&run->lock);
  landed = buffer_land(executor, item.block, item.buffer, &err);
  if (landed)
    executor_sync(executor, &is_finite, &err);
  block_pool_give(run->pool, item.block, item.buffer);
  item.buffer = landed;
  if (err.code) {
    block_pool_give(run->pool, item.block, landed);
    run_fail(run, &err, false);
  } else
    steps_send(run, &item, 1);
  steps_release(run, set);
  pthread_mutex_lock(&run->lock);
  return true;
}
