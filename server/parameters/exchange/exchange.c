/* Sums of blocks become totals. */
#include "server/parameters/exchange/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "server/parameters/exchange/exchange_parts.h"

/* To the collection here. */
static uint32_t phase_contributors(const struct exchange *exchange, uint32_t number) {
  const struct exchange_phase *phase = &exchange->run->sums.phases[number];
  uint32_t n = 0;
  if (exchange_is_keeper(exchange))
    return phase->n_contributors;
  for (uint32_t b = 0; b < exchange->run->sums.n_blocks; b++)
    n += exchange->run->own[b] >= 0 && phase->shares[b].is_shared;
  return n;
}

static int collection_init(struct exchange *exchange, uint32_t number, struct err *err) {
  struct exchange_plan *plan = &exchange->run->sums;
  const struct exchange_phase *phase = &plan->phases[number];
  struct collection *collection = &exchange->collections[number];
  collection->step = exchange->run->base_step;
  collection->values = arena_new(&plan->arena, plan->n_blocks * sizeof *collection->values);
  collection->n_missing = phase_contributors(exchange, number);
  if (!exchange_is_keeper(exchange))
    return 0;
  collection->totals = buffer_new(phase->n_totals * sizeof(double));
  if (!collection->totals)
    return err_set(err, ERR_NO_MEMORY, "no memory for %llu sums over blocks",
                   (unsigned long long)phase->n_totals);
  return 0;
}

/* Every server of the run has its key, so no name binds the ticket to one of them. */
static struct sums_route *open_keeper(const struct exchange_setup *setup) {
  const struct hosted_run *run = setup->run;
  struct ticket_owner owner = {run->id, run->incarnation, TICKET_SERVERS, 0};
  char ticket[TICKET_TEXT_SIZE] = "";
  if (run->tickets.has_key)
    ticket_make(run->tickets.key, &owner, ticket);
  return sums_client_open(setup->sums_client, setup->keeper, ticket);
}

int exchange_init(struct exchange *exchange, const struct exchange_setup *setup, struct err *err) {
  struct hosted_run *run = setup->run;
  exchange->run = run;
  exchange->queue = setup->queue;
  exchange->collections = mem_new(exchange->run->sums.n_phases * sizeof *exchange->collections);
  for (uint32_t p = 0; p < exchange->run->sums.n_phases; p++)
    if (collection_init(exchange, p, err))
      return err->code;
  if (exchange_is_keeper(exchange))
    return exchange_serve_init(exchange, err);
  if (exchange->run->sums.n_phases > 0)
    exchange->keeper = open_keeper(setup);
  return 0;
}

void exchange_fini(struct exchange *exchange) {
  for (uint32_t p = 0; exchange->collections && p < exchange->run->sums.n_phases; p++) {
    buffer_put(exchange->collections[p].totals);
    buffer_put(exchange->collections[p].foreign);
  }
  exchange_send_fini(exchange);
  free(exchange->collections);
}

struct hosted_block *exchange_own_block(const struct exchange *exchange, uint32_t phase, uint32_t block) {
  const struct hosted_run *run = exchange->run;
  if (run->own[block] < 0 || !exchange->run->sums.phases[phase].shares[block].is_shared)
    return NULL;
  return &run->blocks[run->own[block]];
}

static struct hosted_block *block_of_ticket(struct job *job) {
  return (struct hosted_block *)((char *)job - offsetof(struct hosted_block, update.ticket));
}

static void exchange_post(struct hosted_block *block, struct job_queue *queue, void (*run)(struct job *job)) {
  block->update.ticket = (struct job){.run = run};
  shard_post(queue, &block->update.ticket);
}

/* On the exchange's shard. */
static void exchange_on_contribution(struct job *job) {
  struct hosted_block *block = block_of_ticket(job);
  struct hosted_run *run = block->run;
  uint32_t phase = block->update.phase;
  const struct exchange_share *share = &run->sums.phases[phase].shares[block->index];
  struct err err;
  if (hosted_run_is_unloaded(run, &err)) {
    hosted_run_put(run);
    return;
  }
  CHECK(run->exchange->collections[phase].step == block->version);
  exchange_collect(run->exchange, phase, block->index,
                   (const double *)block->update.sums->data + share->begin);
}

void exchange_contribute(struct exchange *exchange, struct hosted_block *block) {
  hosted_run_get(exchange->run);
  exchange_post(block, exchange->queue, exchange_on_contribution);
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

void exchange_release(struct exchange *exchange, uint32_t phase, struct hosted_block *block,
                      const struct err *err) {
  exchange->collections[phase].values[block->index] = NULL;
  if (err)
    hosted_block_set_fault(block, err);
  exchange_post(block, block->queue, exchange_deliver);
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

void collection_read(const struct collection *collection, const struct exchange_share *share, double *out) {
  const double *totals = collection->totals->data;
  for (uint32_t w = 0; w < share->n_windows; w++)
    memcpy(out + share->windows[w].at, totals + share->windows[w].place,
           share->windows[w].count * sizeof *out);
}

static void exchange_complete(struct exchange *exchange, uint32_t number) {
  const struct exchange_plan *plan = &exchange->run->sums;
  const struct exchange_phase *phase = &plan->phases[number];
  struct collection *collection = &exchange->collections[number];
  collection_add_up(collection, plan, phase);
  for (uint32_t b = 0; b < plan->n_blocks; b++) {
    struct hosted_block *block = exchange_own_block(exchange, number, b);
    collection->values[b] = NULL;
    if (!block)
      continue;
    collection_read(collection, &phase->shares[b],
                    (double *)block->update.sums->data + phase->shares[b].begin);
    exchange_release(exchange, number, block, NULL);
  }
}

void exchange_collect(struct exchange *exchange, uint32_t phase, uint32_t block, const double *values) {
  struct collection *collection = &exchange->collections[phase];
  bool is_keeper = exchange_is_keeper(exchange), is_complete;
  CHECK(!collection->values[block]);
  collection->values[block] = values;
  is_complete = --collection->n_missing == 0;
  if (is_complete) {
    collection->step++;
    collection->n_missing = phase_contributors(exchange, phase);
  }
  if (!is_keeper)
    exchange_send(exchange, phase, exchange_own_block(exchange, phase, block), is_complete);
  else if (is_complete) {
    exchange_complete(exchange, phase);
    exchange_answer_parked(exchange, phase);
  }
}

void exchange_cancel(struct exchange *exchange, const struct err *err) {
  sums_client_cancel(exchange->keeper);
  for (uint32_t p = 0; p < exchange->run->sums.n_phases; p++) {
    exchange_refuse_parked(exchange, p, err);
    for (uint32_t b = 0; b < exchange->run->sums.n_blocks; b++)
      if (exchange->collections[p].values[b] && exchange_own_block(exchange, p, b)) {
        exchange->collections[p].values[b] = NULL;
        hosted_run_put(exchange->run);
      }
  }
}
