/* A run on this server. */
#include "server/parameters/run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/placement.h"
#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/optim/schedule.h"
#include "common/settle/spec_settle.h"

struct run_shard {
  struct shard *shard;
  struct hosted_run *run;
  struct pool pool;
  struct job unload;
};

static int run_read_order(struct hosted_run *run, const Weir__LoadRun *order, struct err *err);
static int run_place(struct hosted_run *run, const struct run_setup *setup, const struct model *model,
                     struct err *err);
static int run_make_exchange(struct hosted_run *run, const struct run_setup *setup, const struct model *model,
                             struct err *err);
static int run_make_blocks(struct hosted_run *run, const struct model *model, struct err *err);

int hosted_run_new(const struct run_setup *setup, struct hosted_run **out, struct err *err) {
  struct hosted_run *run = mem_new(sizeof *run);
  struct model *model = NULL;
  int code;
  run->refs = 1;
  run->step_ns = clock_now_ns();
  run->id = mem_strdup(setup->order->run);
  run->incarnation = setup->order->incarnation;
  report_log_init(&run->log, run->id, run->incarnation, setup->tell, setup->user);
  code = run_read_order(run, setup->order, err);
  if (!code)
    code = model_open(setup->model, setup->model_bytes, run->spec, run->plan.microbatch_samples, &model, err);
  if (!code)
    code = run_place(run, setup, model, err);
  if (!code)
    code = run_make_exchange(run, setup, model, err);
  if (!code)
    code = run_make_blocks(run, model, err);
  model_close(model);
  if (code)
    hosted_run_put(run);
  else
    *out = run;
  return code;
}

static int run_read_order(struct hosted_run *run, const Weir__LoadRun *order, struct err *err) {
  if (!order->spec || !order->plan || order->n_servers == 0)
    return err_set(err, ERR_INVALID, "the order to load run '%s' lacks its spec, plan or servers",
                   order->run);
  run->spec = spec_copy(order->spec);
  if (spec_check(run->spec, err) || spec_settle(run->spec, err) ||
      plan_init(&run->plan, run->spec, order->plan->train_samples, order->plan->eval_samples, err))
    return err->code;
  if (run->plan.steps != order->plan->steps)
    return err_set(err, ERR_INVALID,
                   "the order to load run '%s' says %llu steps, its spec and data make %llu", run->id,
                   (unsigned long long)order->plan->steps, (unsigned long long)run->plan.steps);
  run->base_step = run->proven_step = order->step; /* a checkpoint was complete everywhere */
  if (order->step > run->plan.steps || (order->step > 0 && !*order->manifest))
    return err_set(err, ERR_INVALID,
                   "the order to load run '%s' at version %llu of %llu names no checkpoint of it", run->id,
                   (unsigned long long)order->step, (unsigned long long)run->plan.steps);
  run->mode = hosted_mode_find(run->spec->train->mode);
  run->optimizer = optimizer_find(run->spec->train->optimizer->name);
  return 0;
}

/* Which blocks are ours. */
static int run_place(struct hosted_run *run, const struct run_setup *setup, const struct model *model,
                     struct err *err) {
  const Weir__LoadRun *order = setup->order;
  uint32_t *elems, *owner, self = 0, most = 0;
  while (self < order->n_servers && strcmp(order->servers[self]->id, setup->own_id) != 0)
    self++;
  if (self == order->n_servers)
    return err_set(err, ERR_INVALID, "the order to load run '%s' does not name this server, '%s'", run->id,
                   setup->own_id);
  run->n_servers = (uint32_t)order->n_servers;
  run->self = self;
  run->n_blocks = model->n_blocks;
  run->eval_row_elems = (uint32_t)model->metrics.row_elems;
  run->own = mem_new(run->n_blocks * sizeof *run->own);
  elems = mem_new(run->n_blocks * sizeof *elems);
  owner = mem_new(run->n_blocks * sizeof *owner);
  for (uint32_t b = 0; b < run->n_blocks; b++) {
    elems[b] = model->blocks[b].elems;
    most = elems[b] > most ? elems[b] : most;
  }
  placement_compute(elems, run->n_blocks, (uint32_t)order->n_servers, owner);
  for (uint32_t b = 0; b < run->n_blocks; b++)
    run->own[b] = owner[b] == self ? (int32_t)run->n_own++ : -1;
  free(elems);
  free(owner);
  run->n_shards = setup->n_shards;
  run->shards = mem_new(run->n_shards * sizeof *run->shards);
  for (uint32_t s = 0; s < run->n_shards; s++) {
    run->shards[s] = (struct run_shard){.shard = setup->shards[s], .run = run};
    pool_init(&run->shards[s].pool, most * sizeof(float));
  }
  return 0;
}

static int run_make_exchange(struct hosted_run *run, const struct run_setup *setup, const struct model *model,
                             struct err *err) {
  struct exchange_setup exchange = {.run = run,
                                    .model = model,
                                    .shard = setup->shards[0],
                                    .courier = setup->courier,
                                    .keeper = setup->order->servers[0]->address};
  return exchange_init(&run->exchange, &exchange, err);
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
    block->shard = shard->shard;
    block->pool = &shard->pool;
    if (hosted_block_init(block, run, model, b, err))
      return err->code;
    run->n_unfinished += !hosted_block_is_finished(block);
  }
  CHECK(run->n_own == n_own);
  if (run->n_unfinished == 0)
    report_log_complete(&run->log);
  return 0;
}

struct hosted_run *hosted_run_get(struct hosted_run *run) {
  __atomic_fetch_add(&run->refs, 1, __ATOMIC_RELAXED);
  return run;
}

void hosted_run_put(struct hosted_run *run) {
  if (!run || __atomic_sub_fetch(&run->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  for (uint32_t b = 0; run->blocks && b < run->n_own; b++)
    hosted_block_fini(&run->blocks[b]);
  for (uint32_t s = 0; s < run->n_shards; s++)
    pool_fini(&run->shards[s].pool);
  exchange_fini(&run->exchange);
  free(run->blocks);
  free(run->shards);
  free(run->own);
  spec_free(run->spec);
  free(run->unload_reason);
  report_log_fini(&run->log);
  free(run->id);
  free(run);
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
    if (run->blocks[b].pool == &shard->pool)
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
    shard_post(run->shards[s].shard, &arming->job);
  }
}

/* On each shard: what is parked on its blocks. What comes later finds the run unloaded. */
static void run_unload_shard(struct job *job) {
  struct run_shard *shard = (struct run_shard *)((char *)job - offsetof(struct run_shard, unload));
  struct hosted_run *run = shard->run;
  struct err err;
  hosted_run_is_unloaded(run, &err);
  if (shard == run->shards) /* the exchange's */
    exchange_cancel(&run->exchange, &err);
  for (uint32_t b = 0; b < run->n_own; b++)
    if (run->blocks[b].pool == &shard->pool)
      hosted_block_cancel(&run->blocks[b], &err);
  hosted_run_put(run);
}

void hosted_run_count(struct hosted_run *run, const struct hosted_block *block, bool is_push) {
  struct traffic *traffic = &run->traffic;
  if (block->kind != BLOCK_PARAMETERS)
    return;
  __atomic_fetch_add(is_push ? &traffic->gradients : &traffic->weights, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(is_push ? &traffic->gradient_bytes : &traffic->weight_bytes,
                     block->elems * sizeof(float), __ATOMIC_RELAXED);
}

static void run_log_traffic(const struct hosted_run *run, const char *reason) {
  const struct traffic *traffic = &run->traffic;
  log_event(LOG_INFO, "parameters", "run_unloaded",
            "run=%s incarnation=%llu gradients=%llu gradient_bytes=%llu weights=%llu weight_bytes=%llu "
            "reason=\"%.200s\"",
            run->id, (unsigned long long)run->incarnation,
            (unsigned long long)__atomic_load_n(&traffic->gradients, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&traffic->gradient_bytes, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&traffic->weights, __ATOMIC_RELAXED),
            (unsigned long long)__atomic_load_n(&traffic->weight_bytes, __ATOMIC_RELAXED), reason);
}

void hosted_run_unload(struct hosted_run *run, const char *reason) {
  run_log_traffic(run, reason);
  __atomic_store_n(&run->unload_reason, mem_strdup(reason), __ATOMIC_RELEASE);
  for (uint32_t s = 0; s < run->n_shards; s++) {
    hosted_run_get(run);
    run->shards[s].unload.run = run_unload_shard;
    shard_post(run->shards[s].shard, &run->shards[s].unload);
  }
}

bool hosted_run_is_unloaded(const struct hosted_run *run, struct err *err) {
  const char *reason = __atomic_load_n(&run->unload_reason, __ATOMIC_ACQUIRE);
  if (!reason)
    return false;
  err_set(err, ERR_CANCELLED, "run '%s' was unloaded: %s", run->id, reason);
  return true;
}

double hosted_run_lr(const struct hosted_run *run, double lr, uint64_t step) {
  return schedule_lr(run->spec->train->schedule, lr, step, run->plan.steps);
}

void hosted_run_prove(struct hosted_run *run, uint64_t step) {
  uint64_t proven = __atomic_load_n(&run->proven_step, __ATOMIC_RELAXED);
  while (proven < step && !__atomic_compare_exchange_n(&run->proven_step, &proven, step, false,
                                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED))
    ;
}

uint64_t hosted_run_proven_step(const struct hosted_run *run) {
  return __atomic_load_n(&run->proven_step, __ATOMIC_ACQUIRE);
}

void hosted_run_advance(struct hosted_run *run) {
  __atomic_fetch_add(&run->advances, 1, __ATOMIC_RELEASE);
}

uint64_t hosted_run_lowest(const struct hosted_run *run) {
  return run->base_step + __atomic_load_n(&run->advances, __ATOMIC_ACQUIRE) / run->n_own;
}

/* The mean over labels of which none counts is 0. */
static double loss_of(const struct metrics *metrics) {
  double denominator = metrics->sum[METRIC_DENOMINATOR];
  return denominator > 0 ? metrics->sum[METRIC_LOSS_SUM] / denominator : 0;
}

void hosted_run_report_step(struct hosted_run *run, uint64_t step, const struct metrics *metrics) {
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  uint64_t now_ns = clock_now_ns();
  report.step = step;
  report.loss = loss_of(metrics);
  report.lr = hosted_run_lr(run, run->spec->train->optimizer->lr, step);
  report.samples = (uint64_t)fmax(0, metrics->sum[METRIC_SAMPLES]);
  report.seconds = clock_seconds(now_ns - run->step_ns);
  run->step_ns = now_ns;
  report_log_add_step(&run->log, &report);
}

/* Accuracy has a place of its own: NaN where the loss has no classes and it was not asked for. */
void hosted_run_report_eval(struct hosted_run *run, uint64_t version, const struct statistics *statistics) {
  const struct metric_set *set = &statistics->eval_metrics;
  struct metrics totals = statistics_eval_metrics(statistics);
  Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
  Weir__MetricValue values[METRICS_NAMED_MAX], *list[METRICS_NAMED_MAX];
  double of[METRICS_NAMED_MAX];
  report.step = version;
  report.loss = loss_of(&totals);
  report.accuracy = totals.sum[METRIC_CORRECT] / totals.sum[METRIC_SCORED];
  report.samples = (uint64_t)fmax(0, totals.sum[METRIC_SAMPLES]);
  report.metrics = list;
  statistics_eval_values(statistics, &totals, of);
  for (int m = 0; m < set->n; m++) {
    Weir__MetricValue *value = &values[report.n_metrics];
    if (strcmp(set->items[m]->name, "accuracy") == 0) {
      report.accuracy = of[m];
      continue;
    }
    weir__metric_value__init(value);
    value->name = (char *)set->items[m]->name;
    value->value = of[m];
    list[report.n_metrics++] = value;
  }
  report_log_add_eval(&run->log, &report);
}

void hosted_run_finish_block(struct hosted_run *run) {
  if (__atomic_sub_fetch(&run->n_unfinished, 1, __ATOMIC_ACQ_REL) == 0)
    report_log_complete(&run->log);
}
