/* Contributions on their way to the keeper, in batches, and the totals on their way back. */
#include <stdlib.h>
#include <string.h>

#include "server/parameters/exchange/exchange_parts.h"

/* BATCH_VALUES_MAX: a megabyte, well below what a message may have. */
enum { BATCH_VALUES_MAX = 128 * 1024 };

struct batch {
  struct errand errand;
  struct job arrival; /* of the answer */
  struct exchange *exchange;
  Weir__SumsRequest request;
  struct err err; /* of the answer */
  double *values; /* the contributions, then the totals */
  uint32_t *blocks;
  int values_capacity, blocks_capacity;
  struct batch *next; /* among those to be used again */
};

static void batch_on_done(struct errand *errand, const struct err *err, const Weir__SumsReply *reply);
static void batch_on_answer(struct job *job);

static struct batch *batch_take(struct exchange *exchange, uint32_t phase, uint64_t step) {
  struct batch *batch = exchange->batches;
  if (batch)
    exchange->batches = batch->next;
  else
    batch = mem_new(sizeof *batch);
  batch->exchange = exchange;
  batch->errand.request = &batch->request;
  batch->errand.done = batch_on_done;
  batch->arrival.run = batch_on_answer;
  weir__sums_request__init(&batch->request);
  batch->request.run = exchange->run->id;
  batch->request.incarnation = exchange->run->incarnation;
  batch->request.step = step;
  batch->request.phase = phase;
  return batch;
}

void exchange_send_fini(struct exchange *exchange) {
  struct batch *batch, *next;
  for (uint32_t p = 0; exchange->collections && p < exchange->run->sums.n_phases; p++)
    if ((batch = exchange->collections[p].open)) {
      batch->next = exchange->batches;
      exchange->batches = batch;
    }
  for (batch = exchange->batches; batch; batch = next) {
    next = batch->next;
    free(batch->values);
    free(batch->blocks);
    free(batch);
  }
  sums_client_close(exchange->keeper);
}

static void batch_add(struct batch *batch, uint32_t block, const double *values, uint32_t n_values) {
  Weir__SumsRequest *request = &batch->request;
  array_reserve((void **)&batch->blocks, &batch->blocks_capacity, (int)request->n_blocks,
                sizeof *batch->blocks);
  array_reserve((void **)&batch->values, &batch->values_capacity, (int)(request->n_values + n_values),
                sizeof *batch->values);
  batch->blocks[request->n_blocks++] = block;
  memcpy(batch->values + request->n_values, values, n_values * sizeof *values);
  request->n_values += n_values;
  request->blocks = batch->blocks;
  request->values = batch->values;
}

/* The run lives until the answer has been dealt with. */
static void collection_flush(struct collection *collection, struct exchange *exchange) {
  struct batch *batch = collection->open;
  collection->open = NULL;
  hosted_run_get(exchange->run);
  sums_client_send(exchange->keeper, &batch->errand);
}

void exchange_send(struct exchange *exchange, uint32_t phase, struct hosted_block *block, bool is_last) {
  struct collection *collection = &exchange->collections[phase];
  uint32_t n_values = exchange->run->sums.phases[phase].shares[block->index].n_values;
  if (collection->open && collection->open->request.n_values + n_values > BATCH_VALUES_MAX)
    collection_flush(collection, exchange);
  if (!collection->open)
    collection->open = batch_take(exchange, phase, block->version);
  batch_add(collection->open, block->index, collection->values[block->index], n_values);
  if (is_last)
    collection_flush(collection, exchange);
}

/* On any thread. */
static void batch_on_done(struct errand *errand, const struct err *err, const Weir__SumsReply *reply) {
  struct batch *batch = (struct batch *)errand;
  batch->err = *err;
  if (reply && reply->n_totals != batch->request.n_values)
    err_set(&batch->err, ERR_CORRUPT, "the server that keeps the sums answered %zu sums with %zu totals",
            batch->request.n_values, reply->n_totals);
  else if (reply)
    memcpy(batch->values, reply->totals, reply->n_totals * sizeof *reply->totals);
  shard_post(batch->exchange->queue, &batch->arrival);
}

static void batch_give_out(struct batch *batch) {
  const Weir__SumsRequest *request = &batch->request;
  const struct exchange_phase *phase = &batch->exchange->run->sums.phases[request->phase];
  const double *totals = batch->values;
  for (size_t i = 0; i < request->n_blocks; i++) {
    const struct exchange_share *share = &phase->shares[request->blocks[i]];
    struct hosted_block *block = exchange_own_block(batch->exchange, request->phase, request->blocks[i]);
    memcpy((double *)block->update.sums->data + share->begin, totals, share->n_values * sizeof *totals);
    totals += share->n_values;
    exchange_release(batch->exchange, request->phase, block, batch->err.code ? &batch->err : NULL);
  }
}

static void batch_on_answer(struct job *job) {
  struct batch *batch = (struct batch *)((char *)job - offsetof(struct batch, arrival));
  struct exchange *exchange = batch->exchange;
  struct err err;
  if (!hosted_run_is_unloaded(exchange->run,
                              &err)) /* else exchange_cancel has released its blocks, or will */
    batch_give_out(batch);
  batch->next = exchange->batches;
  exchange->batches = batch;
  hosted_run_put(exchange->run);
}
