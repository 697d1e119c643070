/* The keeper of sums, for other servers: their calls bring contributions and wait for the totals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/parameters/exchange/exchange_parts.h"

/* PARKED_COPIES: so often may all values of other servers be parked: once, and again where a connection broke
   and that is not known here yet. */
enum { PARKED_MAX = 4096, PARKED_COPIES = 4 };

/* Parked, answered, or forgotten when its client has gone. */
struct sums_call {
  struct job arrival, departure;
  struct hosted_run *run; /* a reference */
  Weir__SumsRequest *request;
  struct rpc_call *rpc; /* the shard's; not to be touched once answered */
  struct sums_call *next;
  bool is_answered; /* atomic */
  uint32_t refs;    /* atomic: the shard's until answered, the queue's until closed */
};

static void sums_call_arrived(struct job *job);
static void sums_call_departed(struct job *job);

/* Where other servers' contributions are kept until they are added. */
int exchange_serve_init(struct exchange *exchange, struct err *err) {
  struct exchange_plan *plan = &exchange->run->sums;
  for (uint32_t p = 0; p < plan->n_phases; p++) {
    struct collection *collection = &exchange->collections[p];
    uint64_t n = 0;
    collection->foreign_begin = arena_new(&plan->arena, plan->n_blocks * sizeof *collection->foreign_begin);
    for (uint32_t b = 0; b < plan->n_blocks; b++) {
      collection->foreign_begin[b] = n;
      if (exchange->run->own[b] < 0 && plan->phases[p].shares[b].is_shared)
        n += plan->phases[p].shares[b].n_values;
    }
    collection->foreign = buffer_new(n * sizeof(double));
    if (!collection->foreign)
      return err_set(err, ERR_NO_MEMORY, "no memory for %llu sums of other servers' blocks",
                     (unsigned long long)n);
  }
  return 0;
}

static void sums_call_put(struct sums_call *call) {
  if (__atomic_sub_fetch(&call->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  hosted_run_put(call->run);
  message_free(call->request);
  free(call);
}

/* From here on the client's end of the call is no longer the shard's business. */
static struct rpc_call *sums_call_end(struct sums_call *call) {
  struct rpc_call *rpc = call->rpc;
  call->rpc = NULL;
  __atomic_store_n(&call->is_answered, true, __ATOMIC_RELEASE);
  return rpc;
}

static void sums_call_refuse(struct sums_call *call, const struct err *err) {
  struct rpc_call *rpc = sums_call_end(call);
  log_event(LOG_DEBUG, "parameters", "refused", "code=%s text=\"%s\"", err_name(err->code), err->text);
  rpc_call_finish(rpc, err);
  sums_call_put(call);
}

static int check_block(const struct exchange *exchange, const Weir__SumsRequest *request, uint32_t block,
                       struct err *err) {
  if (block >= exchange->run->sums.n_blocks)
    return err_set(err, ERR_INVALID, "there is no parameter block %u, the model has %u", block,
                   exchange->run->sums.n_blocks);
  if (!exchange->run->sums.phases[request->phase].shares[block].is_shared)
    return err_set(err, ERR_INVALID, "block %u exchanges nothing in phase %u", block, request->phase);
  if (exchange->run->own[block] >= 0)
    return err_set(err, ERR_INVALID, "block %u is this server's own", block);
  return 0;
}

/* All that can be said without looking at the step that is collected. */
static int check_request(const struct exchange *exchange, const Weir__SumsRequest *request, struct err *err) {
  const struct plan *plan = &exchange->run->plan;
  uint64_t n_values = 0;
  if (!exchange_is_keeper(exchange) || request->phase >= exchange->run->sums.n_phases)
    return err_set(err, ERR_INVALID, "this server keeps no sums of phase %u", request->phase);
  if (request->step >= plan->steps)
    return err_set(err, ERR_INVALID, "there is no step %llu, the run has %llu",
                   (unsigned long long)request->step, (unsigned long long)plan->steps);
  if (request->n_blocks == 0)
    return err_set(err, ERR_INVALID, "it names no block");
  for (size_t i = 0; i < request->n_blocks; i++) {
    if (check_block(exchange, request, request->blocks[i], err))
      return err->code;
    n_values += exchange->run->sums.phases[request->phase].shares[request->blocks[i]].n_values;
  }
  if (n_values != request->n_values)
    return err_set(err, ERR_INVALID, "%zu values, but its %zu blocks have %llu", request->n_values,
                   request->n_blocks, (unsigned long long)n_values);
  for (size_t i = 0; i < request->n_values; i++)
    if (!isfinite(request->values[i]))
      return err_set(err, ERR_INVALID, "value %zu is %g, not a finite number", i, request->values[i]);
  return 0;
}

static int sums_prefix(const struct exchange *exchange, const Weir__SumsRequest *request, struct err *err) {
  return err_prefix(err, "run '%s': sums of step %llu", exchange->run->id, (unsigned long long)request->step);
}

void exchange_serve(struct exchange *exchange, struct rpc_call *rpc, const Weir__SumsRequest *request) {
  struct sums_call *call;
  struct err err;
  if (check_request(exchange, request, &err)) {
    sums_prefix(exchange, request, &err);
    log_event(LOG_DEBUG, "parameters", "refused", "peer=%s text=\"%s\"", rpc_call_peer(rpc), err.text);
    rpc_call_finish(rpc, &err);
    return;
  }
  call = mem_new(sizeof *call);
  call->arrival = (struct job){.run = sums_call_arrived, .size_bytes = request->n_values * sizeof(double)};
  call->run = hosted_run_get(exchange->run);
  call->request = message_copy(request);
  call->rpc = rpc;
  call->refs = 2;
  rpc_call_set_user(rpc, call);
  if (shard_offer(exchange->queue, &call->arrival) == 0)
    return;
  rpc_call_set_user(rpc, NULL);
  rpc_call_fail(rpc, ERR_BUSY, "run '%s': too many calls wait for the shard that adds sums",
                exchange->run->id);
  sums_call_put(call);
  sums_call_put(call);
}

void exchange_on_closed(struct rpc_call *rpc) {
  struct sums_call *call = rpc_call_user(rpc);
  if (!call)
    return;
  if (__atomic_load_n(&call->is_answered, __ATOMIC_ACQUIRE)) {
    sums_call_put(call);
    return;
  }
  call->departure = (struct job){.run = sums_call_departed};
  shard_post(call->run->exchange->queue, &call->departure);
}

static void sums_call_departed(struct job *job) {
  struct sums_call *call = (struct sums_call *)((char *)job - offsetof(struct sums_call, departure));
  struct collection *collection = &call->run->exchange->collections[call->request->phase];
  struct sums_call **link = &collection->parked;
  struct err err;
  while (*link && *link != call)
    link = &(*link)->next;
  if (*link) {
    *link = call->next;
    collection->n_parked--;
    collection->parked_values -= call->request->n_values;
    err_set(&err, ERR_CANCELLED, "the client has gone");
    sums_call_refuse(call, &err);
  }
  sums_call_put(call);
}

/* Of its blocks' windows, in its order. */
static void sums_call_answer(struct sums_call *call) {
  const struct exchange *exchange = call->run->exchange;
  const Weir__SumsRequest *request = call->request;
  Weir__SumsReply reply = WEIR__SUMS_REPLY__INIT;
  struct rpc_call *rpc = sums_call_end(call);
  reply.totals = request->values;
  for (size_t i = 0; i < request->n_blocks; i++) {
    const struct exchange_share *share =
        &exchange->run->sums.phases[request->phase].shares[request->blocks[i]];
    collection_read(&exchange->collections[request->phase], share, reply.totals + reply.n_totals);
    reply.n_totals += share->n_values;
  }
  rpc_call_reply(rpc, &reply, NULL);
  sums_call_put(call);
}

/* What is there already changes nothing: a server that asks again may have lost the answer. */
static void sums_call_collect(struct sums_call *call) {
  /* The call may be answered before the end of its blocks is reached: one could be named twice. */
  struct exchange *exchange = call->run->exchange;
  const Weir__SumsRequest *request = call->request;
  struct collection *collection = &exchange->collections[request->phase];
  const double *values = request->values;
  __atomic_fetch_add(&call->refs, 1, __ATOMIC_RELAXED);
  for (size_t i = 0; i < request->n_blocks; i++) {
    uint32_t block = request->blocks[i];
    uint32_t n = exchange->run->sums.phases[request->phase].shares[block].n_values;
    double *kept = (double *)collection->foreign->data + collection->foreign_begin[block];
    if (collection->step == request->step && !collection->values[block]) {
      memcpy(kept, values, n * sizeof *kept);
      exchange_collect(exchange, request->phase, block, kept);
    }
    values += n;
  }
  sums_call_put(call);
}

/* Calls may name a block again and again, and take memory until they are answered. */
static bool collection_has_room(const struct collection *collection, uint64_t n_values) {
  uint64_t foreign = collection->foreign->size_bytes / sizeof(double);
  return collection->n_parked < PARKED_MAX && collection->parked_values + n_values <= PARKED_COPIES * foreign;
}

static int sums_call_check_step(const struct sums_call *call, struct err *err) {
  const struct collection *collection = &call->run->exchange->collections[call->request->phase];
  uint64_t step = call->request->step;
  if (hosted_run_is_unloaded(call->run, err))
    return err->code;
  if (step > collection->step)
    err_set(err, ERR_INVALID, "step %llu is collected now", (unsigned long long)collection->step);
  else if (step + 1 < collection->step || (step < collection->step && step < call->run->base_step))
    err_set(err, ERR_STALE, "they were dropped, step %llu is collected now",
            (unsigned long long)collection->step);
  else if (step == collection->step && !collection_has_room(collection, call->request->n_values))
    err_set(err, ERR_BUSY, "%d calls wait for totals already", collection->n_parked);
  else
    return 0;
  return sums_prefix(call->run->exchange, call->request, err);
}

static void sums_call_arrived(struct job *job) {
  struct sums_call *call = (struct sums_call *)((char *)job - offsetof(struct sums_call, arrival));
  struct collection *collection = &call->run->exchange->collections[call->request->phase];
  struct err err;
  if (sums_call_check_step(call, &err)) {
    sums_call_refuse(call, &err);
    return;
  }
  if (collection->step > call->request->step) {
    sums_call_answer(call);
    return;
  }
  call->next = collection->parked;
  collection->parked = call;
  collection->n_parked++;
  collection->parked_values += call->request->n_values;
  sums_call_collect(call); /* which may answer it */
}

void exchange_answer_parked(struct exchange *exchange, uint32_t phase) {
  struct collection *collection = &exchange->collections[phase];
  struct sums_call *call = collection->parked, *next;
  collection->parked = NULL;
  collection->n_parked = 0;
  collection->parked_values = 0;
  for (; call; call = next) {
    next = call->next;
    sums_call_answer(call);
  }
}

void exchange_refuse_parked(struct exchange *exchange, uint32_t phase, const struct err *err) {
  struct collection *collection = &exchange->collections[phase];
  struct sums_call *call = collection->parked, *next;
  collection->parked = NULL;
  collection->n_parked = 0;
  collection->parked_values = 0;
  for (; call; call = next) {
    next = call->next;
    sums_call_refuse(call, err);
  }
}
