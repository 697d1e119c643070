/* Sums of blocks become totals. */
#include "server/parameters/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "server/parameters/run.h"

/* One phase. Blocks contribute to a step only when all have the totals of the step before, so these stay
   until all contributions to the next step are there. */
struct collection {
  uint64_t step;         /* that is collected; the totals are of the step before, if there was one */
  const double **values; /* [n_blocks]: the contributions to it; NULL: not there yet */
  uint32_t n_missing;
  struct buffer *totals; /* f64[n_totals] */
};

int exchange_init(struct exchange *exchange, struct hosted_run *run, struct shard *shard,
                  const struct model *model, struct err *err) {
  struct exchange_plan *plan = &exchange->plan;
  exchange->run = run;
  exchange->shard = shard;
  exchange_plan_init(plan, model, run->optimizer, run->spec->train->has_clip_norm);
  if (plan->n_phases > 0 && run->n_servers > 1)
    return err_set(err, ERR_UNSUPPORTED, "train.clip_norm: needs all blocks on one server, not on %u",
                   run->n_servers);
  exchange->collections = mem_new(plan->n_phases * sizeof *exchange->collections);
  for (uint32_t p = 0; p < plan->n_phases; p++) {
    const struct exchange_phase *phase = &plan->phases[p];
    struct collection *collection = &exchange->collections[p];
    collection->step = run->base_step;
    collection->values = arena_new(&plan->arena, plan->n_blocks * sizeof *collection->values);
    collection->n_missing = phase->n_contributors;
    collection->totals = buffer_new(phase->n_totals * sizeof(double));
    if (!collection->totals)
      return err_set(err, ERR_NO_MEMORY, "no memory for %llu sums over blocks",
                     (unsigned long long)phase->n_totals);
  }
  return 0;
}

void exchange_fini(struct exchange *exchange) {
  for (uint32_t p = 0; exchange->collections && p < exchange->plan.n_phases; p++)
    buffer_put(exchange->collections[p].totals);
  free(exchange->collections);
  exchange_plan_fini(&exchange->plan);
}

/* Ours, of that index in the model, if it takes part in the phase. */
static struct hosted_block *exchange_own_block(const struct exchange *exchange, uint32_t phase,
                                               uint32_t block) {
  const struct hosted_run *run = exchange->run;
  if (run->own[block] < 0 || !exchange->plan.phases[phase].shares[block].is_shared)
    return NULL;
  return &run->blocks[run->own[block]];
}

static struct hosted_block *block_of_ticket(struct job *job) {
  return (struct hosted_block *)((char *)job - offsetof(struct hosted_block, update.ticket));
}

/* On the block's shard. The reference is its contribution's. */
static void exchange_deliver(struct job *job) {
  struct hosted_block *block = block_of_ticket(job);
  struct hosted_run *run = block->run;
  struct err err;
  if (!hosted_run_is_unloaded(run, &err))
    hosted_block_take_totals(block);
  hosted_run_put(run);
}

static void exchange_post(struct hosted_block *block, struct shard *shard, void (*run)(struct job *job)) {
  block->update.ticket = (struct job){.run = run};
  shard_post(shard, &block->update.ticket);
}

/* Always in the order of blocks. */
static void collection_add_up(struct collection *collection, const struct exchange_plan *plan,
                              const struct exchange_phase *phase) {
  double *totals = collection->totals->data;
  memset(totals, 0, collection->totals->size_bytes);
  for (uint32_t b = 0; b < plan->n_blocks; b++) {
    const struct exchange_share *share = &phase->shares[b];
    for (uint32_t w = 0; w < share->n_windows; w++) {
      const struct exchange_window *window = &share->windows[w];
      const double *values = collection->values[b] + window->at;
      double *into = totals + window->place;
      for (uint32_t i = 0; i < window->count; i++)
        into[i] += values[i];
    }
  }
}

/* The totals of a block's windows, as its own values lie. */
static void collection_read(const struct collection *collection, const struct exchange_share *share,
                            double *out) {
  const double *totals = collection->totals->data;
  for (uint32_t w = 0; w < share->n_windows; w++)
    memcpy(out + share->windows[w].at, totals + share->windows[w].place,
           share->windows[w].count * sizeof *out);
}

static void exchange_complete(struct exchange *exchange, uint32_t number) {
  const struct exchange_plan *plan = &exchange->plan;
  const struct exchange_phase *phase = &plan->phases[number];
  struct collection *collection = &exchange->collections[number];
  collection_add_up(collection, plan, phase);
  collection->step++;
  collection->n_missing = phase->n_contributors;
  memset(collection->values, 0, plan->n_blocks * sizeof *collection->values);
  for (uint32_t b = 0; b < plan->n_blocks; b++) {
    struct hosted_block *block = exchange_own_block(exchange, number, b);
    if (!block)
      continue;
    collection_read(collection, &phase->shares[b],
                    (double *)block->update.sums->data + phase->shares[b].begin);
    exchange_post(block, block->shard, exchange_deliver);
  }
}

static void exchange_on_contribution(struct job *job) {
  struct hosted_block *block = block_of_ticket(job);
  struct hosted_run *run = block->run;
  struct exchange *exchange = &run->exchange;
  uint32_t phase = block->update.phase;
  struct collection *collection = &exchange->collections[phase];
  struct err err;
  if (hosted_run_is_unloaded(run, &err)) {
    hosted_run_put(run);
    return;
  }
  CHECK(collection->step == block->version && !collection->values[block->index]);
  collection->values[block->index] =
      (double *)block->update.sums->data + exchange->plan.phases[phase].shares[block->index].begin;
  if (--collection->n_missing == 0)
    exchange_complete(exchange, phase);
}

void exchange_contribute(struct exchange *exchange, struct hosted_block *block) {
  hosted_run_get(exchange->run);
  exchange_post(block, exchange->shard, exchange_on_contribution);
}

void exchange_cancel(struct exchange *exchange, const struct err *err) {
  (void)err;
  for (uint32_t p = 0; p < exchange->plan.n_phases; p++)
    for (uint32_t b = 0; b < exchange->plan.n_blocks; b++)
      if (exchange->collections[p].values[b] && exchange_own_block(exchange, p, b)) {
        exchange->collections[p].values[b] = NULL;
        hosted_run_put(exchange->run);
      }
}
