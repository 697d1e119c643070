/* Making, finding, arming and unloading the blocks of a run on this server. */
#include "server/parameters/load/hosted_run.h"

#include <stdlib.h>
#include <string.h>

#include "common/agree/placement.h"
#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/settle/spec_settle.h"
#include "common/trace/trace.h"
#include "server/parameters/load/initial.h"

struct run_shard {
  struct job_queue queue;
  struct hosted_run *run;
  struct pool pool;
  struct job unload;
};

static void run_dispose(struct hosted_run *run);
static int run_read_order(struct hosted_run *run, const Weir__LoadRun *order, struct err *err);
static int run_place(struct hosted_run *run, const struct run_setup *setup, const struct model *model,
                     struct err *err);
static int run_make_exchange(struct hosted_run *run, const struct run_setup *setup, const struct model *model,
                             struct err *err);
static int run_make_blocks(struct hosted_run *run, const struct model *model, struct err *err);

int hosted_run_new(const struct run_setup *setup, struct hosted_run **out, struct err *err) {
  struct hosted_run *run = mem_new(sizeof *run);
  const struct model *model = NULL;
  int code;
  run->refs = 1;
  run->dispose = run_dispose;
  run->step_ns = clock_now_ns();
  pace_init(&run->pace, setup->order->step, run->step_ns);
  run->id = mem_strdup(setup->order->run);
  run->trace_number = trace_run_begin(run->id);
  run->incarnation = setup->order->incarnation;
  run_tickets_init(&run->tickets);
  run_shares_init(&run->shares);
  report_log_init(&run->log, run->id, run->incarnation, setup->tell, setup->user);
  code = run_read_order(run, setup->order, err);
  if (!code)
    code = opened_models_get(setup->models,
                             &(struct model_wanted){.order = setup->order,
                                                    .spec = run->spec,
                                                    .samples = run->plan.microbatch_samples,
                                                    .fetch = setup->fetch,
                                                    .user = setup->fetch_user},
                             &model, err);
  if (!code)
    code = run_place(run, setup, model, err);
  if (!code)
    code = run_make_exchange(run, setup, model, err);
  if (!code)
    code = run_make_blocks(run, model, err);
  if (!code && run->base_step == 0)
    code = initial_blocks(run, model, setup->pieces, err);
  opened_models_trim(setup->models);
  if (code)
    hosted_run_put(run);
  else
    *out = run;
  return code;
}

static void run_leave_shard(struct run_shard *shard) {
  pool_fini(&shard->pool);
  shard_close_queue(&shard->queue);
}

static void run_dispose(struct hosted_run *run) {
  trace_run_end(run->trace_number);
  for (uint32_t b = 0; run->blocks && b < run->n_own; b++)
    hosted_block_fini(&run->blocks[b]);
  for (uint32_t s = 0; s < run->n_shards; s++)
    run_leave_shard(&run->shards[s]);
  if (run->exchange)
    exchange_fini(run->exchange);
  exchange_plan_fini(&run->sums);
  free(run->exchange);
  free(run->blocks);
  free(run->shards);
}

static int run_read_order(struct hosted_run *run, const Weir__LoadRun *order, struct err *err) {
  if (!order->spec || !order->plan || order->n_servers == 0)
    return err_set(err, ERR_INVALID, "the order to load run '%s' lacks its spec, plan or servers",
                   order->run);
  if (run_tickets_set_key(&run->tickets, &order->key, err))
    return err_prefix(err, "run '%s'", order->run);
  run->spec = spec_copy(order->spec);
  if (spec_check(run->spec, err) || spec_settle(run->spec, err) ||
      plan_init(&run->plan, run->spec, order->plan->train_samples, order->plan->eval_samples, err))
    return err->code;
  if (run->plan.steps != order->plan->steps)
    return err_set(err, ERR_INVALID,
                   "the order to load run '%s' says %llu steps, its spec and data make %llu", run->id,
                   (unsigned long long)order->plan->steps, (unsigned long long)run->plan.steps);
  run->base_step = run->proven_version = run->lowest = order->step; /* a checkpoint was complete everywhere */
  run->slots_step = order->slots_step;
  if (order->slots_step > order->step)
    return err_set(err, ERR_INVALID,
                   "the order to load run '%s' at version %llu has its optimizer begin at %llu", run->id,
                   (unsigned long long)order->step, (unsigned long long)order->slots_step);
  if (order->step > run->plan.steps || (order->step > 0 && !*order->manifest))
    return err_set(err, ERR_INVALID,
                   "the order to load run '%s' at version %llu of %llu names no checkpoint of it", run->id,
                   (unsigned long long)order->step, (unsigned long long)run->plan.steps);
  run->hold = run->spec->train->has_hold ? run->spec->train->hold : UINT64_MAX;
  if (order->hold && order->hold < run->hold)
    run->hold = order->hold;
  run->mode = mode_of(run->spec);
  run->mode.last = run->plan.steps;
  if (!mode_makes(&run->mode, order->step))
    return err_set(err, ERR_INVALID, "the order to load run '%s' at version %llu: there is no such version",
                   run->id, (unsigned long long)order->step);
  run->bounds = mode_bounds(&run->mode);
  run->compression = compression_of(run->spec->train);
  run->n_reached = mem_new((run->bounds.rounds + 1) * sizeof *run->n_reached);
  run->rule = update_rule_of_servers(run->spec->train);
  run->optimizer = run->rule.optimizer;
  return 0;
}

static uint64_t hash_add(uint64_t hash, uint64_t value) {
  uint64_t both[2] = {hash, value};
  return hash_bytes(both, sizeof both);
}

/* Of the tensors and of the blocks that they are cut into. */
static uint64_t hash_cut(const struct model *model, const char *model_sha256) {
  uint64_t hash = hash_bytes(model_sha256, strlen(model_sha256));
  for (int p = 0; p < model->n_params; p++) {
    const struct param *param = &model->params[p];
    hash = hash_add(hash_add(hash, hash_bytes(param->name, strlen(param->name))), param->elems);
  }
  for (uint32_t b = 0; b < model->n_blocks; b++)
    hash = hash_add(hash_add(hash_add(hash, model->blocks[b].kind), model->blocks[b].elems),
                    model->blocks[b].group);
  return hash;
}

/* Which blocks are ours. */
static int run_place(struct hosted_run *run, const struct run_setup *setup, const struct model *model,
                     struct err *err) {
  const Weir__LoadRun *order = setup->order;
  uint32_t *elems, *owner, self = 0;
  while (self < order->n_servers && strcmp(order->servers[self]->id, setup->own_id) != 0)
    self++;
  if (self == order->n_servers)
    return err_set(err, ERR_INVALID, "the order to load run '%s' does not name this server, '%s'", run->id,
                   setup->own_id);
  run->n_servers = (uint32_t)order->n_servers;
  run->self = self;
  run->n_blocks = model->n_blocks;
  run->cut_hash = hash_cut(model, order->model_sha256);
  run->eval_row_elems = (uint32_t)model->metrics.row_elems;
  run->own = mem_new(run->n_blocks * sizeof *run->own);
  elems = mem_new(run->n_blocks * sizeof *elems);
  owner = mem_new(run->n_blocks * sizeof *owner);
  for (uint32_t b = 0; b < run->n_blocks; b++)
    elems[b] = model->blocks[b].elems;
  placement_compute(elems, run->n_blocks, (uint32_t)order->n_servers, owner);
  for (uint32_t b = 0; b < run->n_blocks; b++)
    run->own[b] = owner[b] == self ? (int32_t)run->n_own++ : -1;
  for (uint32_t b = 0; b < run->n_blocks; b++)
    if (run->own[b] >= 0)
      run->shares.version_bytes += shared_bytes_of(elems[b] * sizeof(float));
  free(elems);
  free(owner);
  run->n_shards = setup->n_shards;
  run->shards = mem_new(run->n_shards * sizeof *run->shards);
  for (uint32_t s = 0; s < run->n_shards; s++) {
    run->shards[s] = (struct run_shard){.run = run};
    shard_open_queue(setup->shards[s], &run->shards[s].queue, run->spec->workers->weight);
    pool_init(&run->shards[s].pool, &shard_budgets(setup->shards[s])->parts);
  }
  return 0;
}

static int run_make_exchange(struct hosted_run *run, const struct run_setup *setup, const struct model *model,
                             struct err *err) {
  struct exchange_setup exchange = {.run = run,
                                    .queue = &run->shards[0].queue,
                                    .sums_client = setup->sums_client,
                                    .keeper = setup->order->servers[0]->address};
  exchange_plan_init(&run->sums, model, run->optimizer, run->rule.clip_norm > 0);
  run->exchange = mem_new(sizeof *run->exchange);
  run->contribute = exchange_contribute;
  return exchange_init(run->exchange, &exchange, err);
}

static int run_make_blocks(struct hosted_run *run, const struct model *model, struct err *err) {
  uint32_t n_own = run->n_own;
  run->blocks = mem_new(n_own * sizeof *run->blocks);
  run->n_own = 0; /* the number made, for hosted_run_put */
  for (uint32_t b = 0; b < run->n_blocks; b++) {
    struct run_shard *shard = &run->shards[run->n_own % run->n_shards];
    struct hosted_block *block = &run->blocks[run->n_own];
    if (run->own[b] < 0)
      continue;
    run->n_own++;
    block->queue = &shard->queue;
    block->pool = &shard->pool;
    if (hosted_block_init(block, run, model, b, err))
      return err->code;
    run->n_unfinished += !hosted_block_is_finished(block);
  }
  CHECK(run->n_own == n_own);
  hosted_run_tell_held(run);
  if (run->n_unfinished == 0)
    report_log_complete(&run->log);
  return 0;
}

struct hosted_block *hosted_run_block(struct hosted_run *run, uint32_t index, struct err *err) {
  if (index >= run->n_blocks) {
    err_set(err, ERR_INVALID, "run '%s': there is no block %u, the model has %u", run->id, index,
            run->n_blocks);
    return NULL;
  }
  if (run->own[index] < 0) {
    err_set(err, ERR_INVALID, "run '%s': block %u belongs to another server", run->id, index);
    return NULL;
  }
  return &run->blocks[run->own[index]];
}

void hosted_run_versions(const struct hosted_run *run, uint64_t *lowest, uint64_t *highest) {
  *lowest = run->plan.steps;
  *highest = 0;
  for (uint32_t b = 0; b < run->n_own; b++) {
    uint64_t version = __atomic_load_n(&run->blocks[b].version, __ATOMIC_ACQUIRE);
    *lowest = version < *lowest ? version : *lowest;
    *highest = version > *highest ? version : *highest;
  }
}

/* On each shard: what its blocks have kept may be due. A job looks at one of them, since it may have to be
   updated, and other runs have their turns in between. */
struct raising {
  struct job job;
  struct run_shard *shard;
  uint32_t block; /* the first that has not been looked at */
};

static void run_go_on_shard(struct job *job) {
  struct raising *raising = (struct raising *)job;
  struct run_shard *shard = raising->shard;
  struct hosted_run *run = shard->run;
  while (raising->block < run->n_own && run->blocks[raising->block].queue != &shard->queue)
    raising->block++;
  if (raising->block < run->n_own) {
    hosted_block_go_on(&run->blocks[raising->block++]);
    shard_post(&shard->queue, &raising->job);
    return;
  }
  hosted_run_put(run);
  free(raising);
}

void hosted_run_raise_hold(struct hosted_run *run, uint64_t hold) {
  uint64_t was = hosted_run_hold(run);
  while (hold > was &&
         !__atomic_compare_exchange_n(&run->hold, &was, hold, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    continue;
  if (hold <= was)
    return;
  log_event(LOG_INFO, "parameters", "hold_raised", "run=%s incarnation=%llu from=%llu to=%llu", run->id,
            (unsigned long long)run->incarnation, (unsigned long long)was,
            (unsigned long long)(hold == UINT64_MAX ? 0 : hold));
  pace_go_on(&run->pace, clock_now_ns());
  hosted_run_tell_held(run);
  for (uint32_t s = 0; s < run->n_shards; s++) {
    struct raising *raising = mem_new(sizeof *raising);
    *raising = (struct raising){.job = {.run = run_go_on_shard}, .shard = &run->shards[s]};
    hosted_run_get(run);
    shard_post(&run->shards[s].queue, &raising->job);
  }
}

/* On each shard: its blocks rest. */
struct resting {
  struct job job;
  struct run_shard *shard;
};

static void run_rest_shard(struct job *job) {
  struct resting *resting = (struct resting *)job;
  struct run_shard *shard = resting->shard;
  struct hosted_run *run = shard->run;
  for (uint32_t b = 0; b < run->n_own; b++)
    if (run->blocks[b].queue == &shard->queue)
      hosted_block_rest(&run->blocks[b]);
  pool_trim(&shard->pool);
  if (run_shares_pool(&run->shares))
    shared_pool_trim(run_shares_pool(&run->shares));
  hosted_run_put(run);
  free(resting);
}

void hosted_run_rest(struct hosted_run *run, uint64_t hold) {
  if (hosted_run_hold(run) != hold)
    return;
  for (uint32_t s = 0; s < run->n_shards; s++) {
    struct resting *resting = mem_new(sizeof *resting);
    *resting = (struct resting){.job = {.run = run_rest_shard}, .shard = &run->shards[s]};
    hosted_run_get(run);
    shard_post(&run->shards[s].queue, &resting->job);
  }
}

/* On each shard: its blocks are to be in a snapshot. */
struct arming {
  struct job job;
  struct run_shard *shard;
  struct snapshot *snapshot;
};

static void run_arm_shard(struct job *job) {
  struct arming *arming = (struct arming *)job;
  struct run_shard *shard = arming->shard;
  struct hosted_run *run = shard->run;
  for (uint32_t b = 0; b < run->n_own; b++)
    if (run->blocks[b].queue == &shard->queue)
      hosted_block_arm(&run->blocks[b], arming->snapshot);
  snapshot_put(arming->snapshot);
  hosted_run_put(run);
  free(arming);
}

void hosted_run_arm(struct hosted_run *run, struct snapshot *snapshot) {
  for (uint32_t s = 0; s < run->n_shards; s++) {
    struct arming *arming = mem_new(sizeof *arming);
    *arming = (struct arming){
        .job = {.run = run_arm_shard}, .shard = &run->shards[s], .snapshot = snapshot_get(snapshot)};
    hosted_run_get(run);
    shard_post(&run->shards[s].queue, &arming->job);
  }
}

/* On each shard: what is parked on its blocks. What comes later finds the run unloaded. */
static void run_unload_shard(struct job *job) {
  struct run_shard *shard = (struct run_shard *)((char *)job - offsetof(struct run_shard, unload));
  struct hosted_run *run = shard->run;
  struct err err;
  hosted_run_is_unloaded(run, &err);
  if (shard == run->shards) /* the exchange's */
    exchange_cancel(run->exchange, &err);
  for (uint32_t b = 0; b < run->n_own; b++)
    if (run->blocks[b].queue == &shard->queue)
      hosted_block_cancel(&run->blocks[b], &err);
  hosted_run_put(run);
}

uint64_t hosted_run_served_ns(struct hosted_run *run) {
  uint64_t served_ns = 0;
  for (uint32_t s = 0; s < run->n_shards; s++)
    served_ns += shard_served_ns(&run->shards[s].queue);
  return served_ns;
}

struct job_queue *hosted_run_queue(const struct hosted_run *run, uint32_t s) {
  return &run->shards[s].queue;
}

static void run_log_traffic(struct hosted_run *run, const char *reason) {
  const struct traffic *traffic = &run->traffic;
  uint64_t served_ns = hosted_run_served_ns(run);
  log_event(LOG_INFO, "parameters", "run_unloaded",
            "run=%s incarnation=%llu gradients=%llu gradient_bytes=%llu weights=%llu weight_bytes=%llu "
            "shared_gradients=%llu shared_weights=%llu shard_seconds=%.3f reason=\"%.200s\"",
            run->id, (unsigned long long)run->incarnation,
            (unsigned long long)__atomic_load_n(&traffic->gradients, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&traffic->gradient_bytes, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&traffic->weights, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&traffic->weight_bytes, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&traffic->shared_gradients, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&traffic->shared_weights, __ATOMIC_RELAXED),
            clock_seconds(served_ns), reason);
}

void hosted_run_unload(struct hosted_run *run, const char *reason) {
  struct err err;
  run_log_traffic(run, reason);
  __atomic_store_n(&run->unload_reason, mem_strdup(reason), __ATOMIC_RELEASE);
  hosted_run_is_unloaded(run, &err);
  run_shares_end(&run->shares, &err);
  for (uint32_t s = 0; s < run->n_shards; s++) {
    hosted_run_get(run);
    run->shards[s].unload.run = run_unload_shard;
    shard_post(&run->shards[s].queue, &run->shards[s].unload);
  }
}
