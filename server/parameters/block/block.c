/* Blocks that this server owns. */
#include "server/parameters/block/block.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/parameters/run/run.h"

enum { PAGE_BYTES = 4096 };

int hosted_block_no_memory(const struct hosted_block *block, struct err *err) {
  return err_set(err, ERR_NO_MEMORY, "no memory for block %u of %u elements", block->index, block->elems);
}

static int init_statistics(struct hosted_block *block, const struct model *model, struct err *err) {
  const struct hosted_run *run = block->run;
  block->statistics = mem_new(run->bounds.rounds * sizeof *block->statistics);
  for (uint32_t i = 0; i < run->bounds.rounds; i++)
    if (statistics_init(&block->statistics[i], model, &model->blocks[block->index], &run->plan, err))
      return err_prefix(err, "block %u", block->index);
  return 0;
}

static void init_rounds(struct hosted_block *block) {
  const struct hosted_run *run = block->run;
  block->rounds = mem_new(run->bounds.rounds * sizeof *block->rounds);
  uint64_t step = run->base_step;
  for (uint32_t i = 0; i < run->bounds.rounds; i++, step = mode_next(&run->mode, step)) {
    struct block_round *round = hosted_block_round(block, step);
    *round = (struct block_round){.block = block, .step = step};
    round_init(&round->parts, plan_units(&run->plan), block->elems, block->pool);
    round->parts.listener = hosted_block_listener(round);
    round->parts.block = block->index;
    if (block->kind == BLOCK_PARAMETERS)
      round->parts.compression = &run->compression;
  }
}

/* What the optimizer of inner steps begins with. */
static void begin_kept(struct hosted_block *block, const struct block *shape) {
  const Weir__TrainSpec *train = block->run->spec->train;
  struct update_rule rule = update_rule_of_steps(train);
  float *values;
  if (!rule.optimizer->init_slots)
    return;
  values = mem_new((size_t)update_rule_kept(train, shape->group) * block->elems * sizeof *values);
  rule.optimizer->init_slots(update_rule_group(&rule, shape->group), block->elems, values);
  memcpy(block->current->data, values + (size_t)shape->kept_n * block->elems, block->current->size_bytes);
  free(values);
}

int hosted_block_init(struct hosted_block *block, struct hosted_run *run, const struct model *model,
                      uint32_t index, struct err *err) {
  const struct block *shape = &model->blocks[index];
  block->run = run;
  block->index = index;
  block->elems = shape->elems;
  block->part_elems = block_part_elems(shape, run->plan.inner_steps);
  block->kind = shape->kind;
  block->has_metrics = shape->kind == BLOCK_STATISTICS && shape->begin == 0;
  older_init(&block->older, run->bounds.versions - 1);
  if (block->kind == BLOCK_STATISTICS) {
    if (init_statistics(block, model, err))
      return err->code;
  } else if (!run->mode.def->applies_units)
    init_rounds(block);
  if (block->kind == BLOCK_PARAMETERS) {
    block->options = update_rule_group(&run->rule, shape->group);
    if (hosted_block_init_update(block, model, err))
      return err->code;
  }
  block->version = run->base_step;
  if (block->version > 0)
    return 0;
  if (hosted_block_allocate(block, err))
    return err->code;
  model_initial_block(model, index, block->current->data);
  if (block->kind == BLOCK_KEPT)
    begin_kept(block, shape);
  hosted_block_begin(block);
  return 0;
}

void hosted_block_fini(struct hosted_block *block) {
  CHECK(!block->parked);
  for (uint32_t i = 0; i < block->run->bounds.rounds; i++) {
    if (block->statistics)
      statistics_fini(&block->statistics[i]);
    if (block->rounds)
      round_fini(&block->rounds[i].parts);
  }
  free(block->statistics);
  free(block->rounds);
  if (block->kind == BLOCK_PARAMETERS)
    hosted_block_fini_update(block);
  buffer_put(block->current);
  hosted_block_drop_sent(block);
  buffer_put(block->evaluated);
  older_fini(&block->older);
  buffer_put(block->next);
  buffer_put(block->spare);
  buffer_put(block->slots);
  buffer_put(block->next_slots);
  snapshot_put(block->snapshot);
}

static void buffer_drop(struct buffer **buffer) {
  buffer_put(*buffer);
  *buffer = NULL;
}

/* Older versions that nobody needs any more, once that one is complete everywhere. */
static void hosted_block_drop_old(struct hosted_block *block, uint64_t complete) {
  const struct mode *mode = &block->run->mode;
  uint64_t newest = mode_count(mode, block->version), oldest = mode_count(mode, mode_oldest(mode, complete));
  struct buffer *dropped;
  while ((dropped = older_take(&block->older, newest, oldest))) {
    buffer_put(block->spare);
    block->spare = dropped;
  }
  if (complete > block->evaluated_version)
    buffer_drop(&block->evaluated);
}

/* The server has no room for another call that waits. The part of a push was taken all the same, and its
   client is told so: it pulls the version later. */
static void hosted_block_put_off(struct hosted_block *block, struct parameters_call *call) {
  struct err err;
  if (call->is_push) {
    parameters_call_reply(call, block->version, NULL);
    return;
  }
  err_set(&err, ERR_BUSY, "block %u: calls that wait for a version take all of their %zu MiB", block->index,
          shard_budgets(block->queue->shard)->calls.bytes_max >> 20);
  parameters_call_refuse(call, &err);
}

static void hosted_block_park(struct hosted_block *block, struct parameters_call *call) {
  struct err err;
  if (hosted_block_is_faulty(block, &err)) {
    parameters_call_refuse(call, &err);
    return;
  }
  if (!parameters_call_park(call, block->version)) {
    hosted_block_put_off(block, call);
    return;
  }
  call->next = block->parked;
  block->parked = call;
  block->n_parked++;
}

/* Of versions that are not evaluated any weights will do that have all updates of the steps before: the
   newest are best. */
static struct buffer *find_applied(const struct hosted_block *block, uint64_t version) {
  if (block->evaluated && version == block->evaluated_version)
    return block->evaluated;
  return version < block->version && plan_evaluates(&block->run->plan, version) ? NULL : block->current;
}

struct buffer *hosted_block_find(const struct hosted_block *block, uint64_t version) {
  const struct mode *mode = &block->run->mode;
  if (mode->def->applies_units)
    return find_applied(block, version);
  if (version == block->version || !mode_makes(mode, version))
    return version == block->version ? block->current : NULL;
  return older_find(&block->older, mode_count(mode, block->version), mode_count(mode, version));
}

/* The highest version that calls are answered with: none behind one whose evaluation is not over. */
static uint64_t block_horizon(const struct hosted_block *block) {
  bool is_open =
      hosted_block_evaluates(block) && !hosted_block_statistics(block, block->version)->is_evaluated;
  return is_open ? block->version : hosted_run_horizon(block->run, block->version);
}

static void hosted_block_give(struct hosted_block *block, struct parameters_call *call, uint64_t version,
                              struct buffer *weights) {
  struct buffer *sent = hosted_block_sent(block, version, weights);
  struct err err;
  if (sent)
    parameters_call_reply(call, version, sent);
  else {
    hosted_block_no_memory(block, &err);
    parameters_call_refuse(call, &err);
  }
}

/* Gives a call the version that it waits for, now or when it exists. */
static void hosted_block_answer(struct hosted_block *block, struct parameters_call *call) {
  struct buffer *data;
  uint64_t version;
  struct err err;
  hosted_block_drop_old(block, hosted_run_proven_version(block->run));
  if (call->version > block_horizon(block)) {
    hosted_block_park(block, call);
    return;
  }
  version = mode_answer(&block->run->mode, call->version, block->version);
  data = hosted_block_find(block, version);
  if (data)
    hosted_block_give(block, call, version, data);
  else {
    err_set(&err, ERR_DROPPED, "run '%s': block %u: version %llu was dropped, the newest is %llu",
            block->run->id, block->index, (unsigned long long)call->version,
            (unsigned long long)block->version);
    parameters_call_refuse(call, &err);
  }
}

static bool hosted_block_refuse_unloaded(struct hosted_block *block, struct parameters_call *call) {
  struct err err;
  if (!hosted_run_is_unloaded(block->run, &err))
    return false;
  parameters_call_refuse(call, &err);
  return true;
}

void hosted_block_push(struct hosted_block *block, struct parameters_call *call) {
  struct part *part = &call->part;
  struct err err;
  if (hosted_block_refuse_unloaded(block, call))
    return;
  if (hosted_block_take(block, part, &call->version, &err)) {
    err_prefix(&err, "run '%s': block %u of step %llu, %s %u.. (level %u), from %s", block->run->id,
               block->index, (unsigned long long)part->step,
               part->is_evaluation ? "eval chunk" : "microbatch", part->node.first, part->node.level,
               rpc_call_peer(call->rpc));
    parameters_call_refuse(call, &err);
    return;
  }
  parameters_call_drop_part(call);
  if (call->waits)
    hosted_block_answer(block, call);
  else
    parameters_call_reply(call, block->version, NULL);
}

/* Segments are given back as a whole: what stays leaves them. */
static void leave_segment(struct buffer **buffer) {
  struct buffer *copy = NULL;
  if (*buffer && (*buffer)->place && buffer_is_sole(*buffer))
    copy = buffer_new((*buffer)->size_bytes);
  if (!copy)
    return;
  memcpy(copy->data, (*buffer)->data, copy->size_bytes);
  buffer_put(*buffer);
  *buffer = copy;
}

/* What the next version takes is asked for again before its update (hosted_block_reserve). */
void hosted_block_rest(struct hosted_block *block) {
  struct err err;
  if (hosted_run_is_unloaded(block->run, &err) || !hosted_block_is_held(block))
    return;
  hosted_block_drop_old(block, block->version);
  buffer_drop(&block->spare);
  buffer_drop(&block->next);
  buffer_drop(&block->next_slots);
  leave_segment(&block->current);
  hosted_block_drop_sent(block);
  for (uint32_t i = 0; i < block->older.capacity; i++)
    leave_segment(&block->older.buffers[i]);
}

void hosted_block_go_on(struct hosted_block *block) {
  struct err err = ERR_NONE;
  if (hosted_run_is_unloaded(block->run, &err) || !hosted_block_make_versions(block, &err))
    return;
  err_prefix(&err, "run '%s': block %u of step %llu", block->run->id, block->index,
             (unsigned long long)block->version);
  hosted_block_refuse_parked(block, &err);
}

void hosted_block_pull(struct hosted_block *block, struct parameters_call *call) {
  if (!hosted_block_refuse_unloaded(block, call))
    hosted_block_answer(block, call);
}

void hosted_block_forget(struct hosted_block *block, struct parameters_call *call) {
  struct err err;
  struct parameters_call **link = &block->parked;
  while (*link && *link != call)
    link = &(*link)->next;
  if (!*link)
    return;
  *link = call->next;
  block->n_parked--;
  err_set(&err, ERR_CANCELLED, "the client has gone");
  parameters_call_refuse(call, &err);
}

void hosted_block_refuse_parked(struct hosted_block *block, const struct err *err) {
  struct parameters_call *call = block->parked, *next;
  block->parked = NULL;
  block->n_parked = 0;
  for (; call; call = next) {
    next = call->next;
    parameters_call_refuse(call, err);
  }
}

void hosted_block_cancel(struct hosted_block *block, const struct err *err) {
  hosted_block_refuse_parked(block, err);
  if (block->snapshot)
    snapshot_cancel(block->snapshot);
}

/* Memory that is asked for because a snapshot holds what would be written is the snapshot's cost: so are the
   page faults of its first use, which are taken here. What a fork holds counts so, too, after a snapshot. */
static struct buffer *settle_buffer(struct hosted_block *block, struct buffer *buffer, uint64_t begin_ns) {
  size_t size_bytes;
  if (!buffer || !block->snapshot)
    return buffer;
  size_bytes = buffer->size_bytes;
  for (size_t at = 0; at < size_bytes; at += PAGE_BYTES)
    ((volatile char *)buffer->data)[at] = 0;
  snapshot_add_stall(block->snapshot, clock_now_ns() - begin_ns);
  return buffer;
}

static struct buffer *new_buffer(struct hosted_block *block, size_t size_bytes) {
  uint64_t begin_ns = clock_now_ns();
  return settle_buffer(block, buffer_new(size_bytes), begin_ns);
}

/* Once there is a worker that can read them there, versions move to shared memory. Not so weights that may be
   replaced before it has: their memory is used again while it reads; and not those that are sent otherwise.
 */
static struct buffer *new_version(struct hosted_block *block) {
  bool is_kept = !block->run->mode.def->applies_units && !hosted_block_compresses(block);
  struct shared_pool *pool = is_kept ? run_shares_pool(&block->run->shares) : NULL;
  struct buffer *spare = block->spare, *shared = NULL;
  bool is_free = spare && buffer_is_sole(spare);
  uint64_t begin_ns = clock_now_ns();
  if (pool && !(is_free && spare->place))
    shared = shared_pool_take(pool, block->current->size_bytes);
  if (shared)
    return settle_buffer(block, shared, begin_ns);
  if (!is_free)
    return new_buffer(block, block->current->size_bytes);
  block->spare = NULL;
  shared_renew(spare);
  return spare;
}

int hosted_block_reserve(struct hosted_block *block, struct err *err) {
  hosted_block_drop_old(block, hosted_run_proven_version(block->run));
  if (!block->next && !(block->next = new_version(block)))
    return hosted_block_no_memory(block, err);
  if (!block->next_slots && hosted_block_slots_are_moved(block) &&
      !(block->next_slots = new_buffer(block, block->slots->size_bytes)))
    return hosted_block_no_memory(block, err);
  return 0;
}

/* No version before it has gone that a step from it on is computed from: each proof that came is of one that
   this block has come to. */
static void hosted_block_pin(struct hosted_block *block) {
  uint64_t version = block->version;
  struct block_content content =
      hosted_block_lend(block, version, (uint32_t)mode_before(&block->run->mode, version));
  CHECK(content.weights);
  snapshot_pin(block->snapshot, (uint32_t)(block - block->run->blocks), block->index, &content);
  block_content_put(&content);
}

void hosted_block_answer_parked(struct hosted_block *block) {
  struct parameters_call *call = block->parked, *next;
  block->parked = NULL;
  block->n_parked = 0;
  for (; call; call = next) {
    next = call->next;
    hosted_block_answer(block, call);
  }
}

/* Of a mode that applies microbatches: only a version that is evaluated stays beside the newest weights. */
static void keep_evaluated(struct hosted_block *block) {
  bool is_kept = block->evaluated && block->evaluated_version == block->version;
  struct buffer **place = &block->spare;
  if (!is_kept && plan_evaluates(&block->run->plan, block->version)) {
    place = &block->evaluated;
    block->evaluated_version = block->version;
  }
  buffer_put(*place);
  *place = block->current;
}

void hosted_block_renew(struct hosted_block *block) {
  CHECK(block->next);
  if (block->run->mode.def->applies_units)
    keep_evaluated(block);
  else
    older_add(&block->older, mode_count(&block->run->mode, block->version), block->current);
  block->current = block->next;
  block->next = NULL;
}

void hosted_block_advance(struct hosted_block *block) {
  hosted_block_renew(block);
  hosted_block_count_version(block);
}

void hosted_block_count_version(struct hosted_block *block) {
  __atomic_store_n(&block->version, mode_next(&block->run->mode, block->version), __ATOMIC_RELEASE);
  hosted_run_advance(block->run, block->version);
  pool_step(block->pool, block->version);
  if (block->snapshot && snapshot_step(block->snapshot) == block->version)
    hosted_block_pin(block);
  hosted_block_answer_parked(block);
  if (hosted_block_is_finished(block))
    hosted_run_finish_block(block->run);
}

bool hosted_block_evaluates(const struct hosted_block *block) {
  return block->has_metrics && plan_evaluates(&block->run->plan, block->version);
}

bool hosted_block_is_held(const struct hosted_block *block) {
  return block->version >= hosted_run_hold(block->run);
}

bool hosted_block_is_finished(const struct hosted_block *block) {
  return block->version == block->run->plan.steps && !hosted_block_evaluates(block);
}

int hosted_block_reserve_slots(struct hosted_block *block, struct err *err) {
  if (!block->update.is_waiting || !block->slots || block->next_slots)
    return 0;
  block->next_slots = new_buffer(block, block->slots->size_bytes);
  return block->next_slots ? 0 : hosted_block_no_memory(block, err);
}

void hosted_block_arm(struct hosted_block *block, struct snapshot *snapshot) {
  uint64_t step = snapshot_step(snapshot);
  bool is_behind = step < block->version || (block->evaluated && block->evaluated_version == step);
  struct err err;
  snapshot_put(block->snapshot);
  block->snapshot = snapshot_get(snapshot);
  if (hosted_run_is_unloaded(block->run, &err))
    snapshot_cancel(snapshot);
  else if (is_behind) {
    err_set(&err, ERR_STALE, "block %u is at version %llu already", block->index,
            (unsigned long long)block->version);
    snapshot_fail(snapshot, &err, true);
  } else if (step == block->version && hosted_block_reserve_slots(block, &err))
    snapshot_fail(snapshot, &err, false);
  else if (step == block->version)
    hosted_block_pin(block);
}

void hosted_block_count(struct hosted_block *block, bool is_push, size_t size_bytes, bool is_shared) {
  struct traffic *traffic = &block->run->traffic;
  if (block->kind == BLOCK_STATISTICS)
    return;
  __atomic_fetch_add(is_push ? &traffic->gradients : &traffic->weights, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(is_push ? &traffic->gradient_bytes : &traffic->weight_bytes, size_bytes,
                     __ATOMIC_RELAXED);
  if (is_shared)
    __atomic_fetch_add(is_push ? &traffic->shared_gradients : &traffic->shared_weights, 1, __ATOMIC_RELAXED);
}
