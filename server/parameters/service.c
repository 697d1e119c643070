/* The methods of the Parameters service. Its callbacks run on threads of the completion queue: they check and
   hand over, and leave the arithmetic to the block's shard. */
#include "server/parameters/service.h"

#include <stdio.h>

#include "common/base/log.h"
#include "common/metrics/metric.h"
#include "common/trace/trace.h"
#include "parameters.pb-c.h"
#include "server/parameters/block/bundle.h"
#include "server/parameters/service_share.h"

enum { BLOCK_NAME_SIZE = 32 };

static void service_log_refusal(struct rpc_call *rpc, const struct err *err) {
  log_event(LOG_DEBUG, "parameters", "refused", "peer=%s code=%s text=\"%s\"", rpc_call_peer(rpc),
            err_name(err->code), err->text);
}

static void service_refuse(struct rpc_call *rpc, const struct err *err) {
  service_log_refusal(rpc, err);
  rpc_call_finish(rpc, err);
}

/* The holder of the caller's certificate, as tickets name it. */
static const char *service_holder(const struct rpc_call *rpc, char uri[CERT_TEXT_SIZE]) {
  struct cert_holder holder;
  *uri = '\0';
  if (rpc_call_holder(rpc, &holder))
    cert_holder_uri(&holder, uri);
  return uri;
}

/* A worker that is one tenant's is not told which runs of others are here. */
static int hide_absence(const struct rpc_call *rpc, const char *uri, struct err *err) {
  struct cert_holder holder;
  struct ticket ticket;
  struct err ignored;
  if (err->code != ERR_NOT_FOUND || !rpc_call_holder(rpc, &holder) || holder.role != CERT_WORKER ||
      !*holder.tenant || ticket_read(rpc_call_ticket(rpc), &ticket, &ignored))
    return err->code;
  return run_tickets_refuse(&ticket, uri, err);
}

static int service_on_begin(struct rpc_call *rpc, struct err *err) {
  char uri[CERT_TEXT_SIZE];
  run_table_admit(rpc_call_context(rpc), rpc_call_ticket(rpc), service_holder(rpc, uri), err);
  return hide_absence(rpc, uri, err);
}

static int service_on_begin_sums(struct rpc_call *rpc, struct err *err) {
  return run_table_admit(rpc_call_context(rpc), rpc_call_ticket(rpc), TICKET_SERVERS, err);
}

static struct hosted_run *find_run(const struct rpc_call *rpc, const char *id, uint64_t incarnation,
                                   struct err *err) {
  return run_table_find_for(rpc_call_context(rpc), rpc_call_ticket(rpc), id, incarnation, err);
}

/* Whoever is found to have pushed what is wrong is the ticket's worker, not the one that the message names.
 */
static int check_sender(const struct rpc_call *rpc, const struct hosted_run *run,
                        const Weir__PushRequest *push, struct err *err) {
  struct ticket ticket;
  if (!run->tickets.has_key || ticket_read(rpc_call_ticket(rpc), &ticket, err) ||
      ticket.worker == push->worker)
    return err->code;
  return err_set(err, ERR_DENIED,
                 "run '%s': the push says that worker-%u sends it, its ticket is that of worker-%u", run->id,
                 push->worker, ticket.worker);
}

/* What is wrong with a push of statistics or of an eval chunk. */
static int check_row(const struct hosted_block *block, const Weir__PushRequest *push, struct err *err) {
  const struct plan *plan = &block->run->plan;
  if (push->level != 0)
    return err_set(err, ERR_INVALID, "rows are of one microbatch: level must be 0, not %u", push->level);
  if (!push->evaluation)
    return 0;
  if (!block->has_metrics)
    return err_set(err, ERR_INVALID, "it has no metrics to evaluate");
  if (!plan_evaluates(plan, push->step))
    return err_set(err, ERR_INVALID, "version %llu is not evaluated", (unsigned long long)push->step);
  if (push->first >= plan->eval_chunks)
    return err_set(err, ERR_INVALID, "there is no eval chunk %u, the plan has %u", push->first,
                   plan->eval_chunks);
  return 0;
}

/* An evaluation's row has a size of its own. */
static int check_plain_size(const struct hosted_block *block, const Weir__PushRequest *push,
                            size_t size_bytes, struct err *err) {
  uint32_t elems = push->evaluation ? block->run->eval_row_elems : block->part_elems;
  if (size_bytes == elems * sizeof(float))
    return 0;
  return err_set(err, ERR_INVALID, "%zu bytes of data, but %s %u elements are %zu bytes", size_bytes,
                 push->evaluation ? "an evaluation row's" : "its", elems, elems * sizeof(float));
}

/* The node is one. */
static int check_form(const struct hosted_block *block, const Weir__PushRequest *push, size_t size_bytes,
                      struct err *err) {
  const struct compression *compression = &block->run->compression;
  enum sum_form form = SUM_IS_PLAIN;
  size_t compressed_bytes;
  if (block->kind == BLOCK_PARAMETERS)
    form = compression_form(compression, (struct tree_node){push->first, push->level});
  if (form == SUM_IS_PLAIN)
    return check_plain_size(block, push, size_bytes, err);
  if (form == SUM_IS_TOO_HIGH)
    return err_set(err, ERR_INVALID,
                   "first %u, level %u: sums are sent in %s from level %u, and none from above it",
                   push->first, push->level, compression->gradients->name, compression->level);
  compressed_bytes = compressor_bytes(compression->gradients, block->elems);
  if (size_bytes == compressed_bytes)
    return 0;
  return err_set(err, ERR_INVALID, "%zu bytes of data, but its %u elements are %zu bytes in %s", size_bytes,
                 block->elems, compressed_bytes, compression->gradients->name);
}

static int check_push(const struct hosted_block *block, const Weir__PushRequest *push, size_t size_bytes,
                      struct err *err) {
  const struct plan *plan = &block->run->plan;
  struct tree_node node = {push->first, push->level};
  if (push->evaluation && block->kind != BLOCK_STATISTICS)
    return err_set(err, ERR_INVALID, "it is no statistics block: nothing of it is evaluated");
  if (block->kind == BLOCK_STATISTICS && check_row(block, push, err))
    return err->code;
  if (!push->evaluation && !tree_node_is_valid(node, plan_units(plan)))
    return err_set(err, ERR_INVALID, "first %u, level %u is no node of the tree over %u %s", push->first,
                   push->level, plan_units(plan), plan->replicas ? "replicas" : "microbatches");
  if (check_form(block, push, size_bytes, err))
    return err->code;
  if (push->step >= plan->steps && (!push->evaluation || push->wait))
    return err_set(err, ERR_INVALID, "nothing follows version %llu, the run's last is %llu",
                   (unsigned long long)push->step, (unsigned long long)plan->steps);
  return 0;
}

/* Into the queue of the block's shard; the call is the shard's then. Errors: BUSY, and the call is still
   ours. */
static int offer(struct parameters_call *call, struct err *err) {
  if (shard_offer(call->block->queue, &call->arrival) == 0)
    return 0;
  return err_set(err, ERR_BUSY, "run '%s': too many of its calls wait for block %u's shard", call->run->id,
                 call->block->index);
}

static void service_hand_over(struct parameters_call *call, struct rpc_call *rpc) {
  struct err err;
  rpc_call_set_user(rpc, call);
  if (offer(call, &err) == 0)
    return;
  rpc_call_set_user(rpc, NULL);
  parameters_call_refuse(call, &err);
  parameters_call_put(call);
}

static void service_push_arrived(struct job *job) {
  struct parameters_call *call =
      (struct parameters_call *)((char *)job - offsetof(struct parameters_call, arrival));
  char name[BLOCK_NAME_SIZE];
  struct trace_span span = {.category = "part", .name = name, .begin_ns = trace_now_ns()};
  if (span.begin_ns) { /* the call may be over behind it */
    snprintf(name, sizeof name, call->part.is_evaluation ? "evaluation %u" : "block %u", call->block->index);
    span.step = call->part.step;
    span.index = call->block->index;
    span.run = call->run->trace_number;
  }
  hosted_block_push(call->block, call);
  span.end_ns = trace_now_ns();
  trace_span(&span);
}

static void service_pull_arrived(struct job *job) {
  struct parameters_call *call =
      (struct parameters_call *)((char *)job - offsetof(struct parameters_call, arrival));
  hosted_block_pull(call->block, call);
}

static void service_departed(struct job *job) {
  struct parameters_call *call =
      (struct parameters_call *)((char *)job - offsetof(struct parameters_call, departure));
  hosted_block_forget(call->block, call);
  parameters_call_put(call);
}

/* What a push brings, in either way. */
struct payload {
  struct rpc_bytes *bytes;
  struct shared_bytes shared; /* in place of bytes */
  struct share *share;        /* a reference, or NULL */
};

static size_t payload_bytes(const struct payload *payload) {
  return rpc_bytes_size(payload->bytes) + payload->shared.size_bytes;
}

static void payload_fini(struct payload *payload) {
  rpc_bytes_free(payload->bytes);
  shared_bytes_put(&payload->shared);
  share_put(payload->share);
}

/* The worker's share, and its bytes in that. A share that is over is no error of a push that can be sent
   again with its bytes. */
static int find_shared(const struct rpc_call *rpc, struct hosted_run *run, const Weir__PushRequest *push,
                       struct payload *payload, struct err *err) {
  payload->share = service_find_share(rpc, run, push->share);
  if (!push->shared)
    return 0;
  if (payload->bytes)
    return err_set(err, ERR_INVALID, "the push has data, and names other bytes");
  if (!payload->share)
    return err_set(err, ERR_BUSY, "share %llu is over", (unsigned long long)push->share);
  return share_find(payload->share, push->shared, &payload->shared, err);
}

/* The block, or NULL for what is wrong with the push. */
static struct hosted_block *find_pushed(const struct rpc_call *rpc, struct hosted_run *run,
                                        const Weir__PushRequest *push, struct payload *payload,
                                        struct err *err) {
  struct hosted_block *block = NULL;
  if (check_sender(rpc, run, push, err) == 0)
    block = hosted_run_block(run, push->block, err);
  if (!block)
    return NULL;
  if (find_shared(rpc, run, push, payload, err) == 0 &&
      check_push(block, push, payload_bytes(payload), err) == 0)
    return block;
  err_prefix(err, "run '%s': block %u of step %llu", run->id, push->block, (unsigned long long)push->step);
  return NULL;
}

static struct parameters_call *push_call_new(struct rpc_call *rpc, struct hosted_block *block,
                                             const Weir__PushRequest *push, const struct payload *payload) {
  struct parameters_call *call = parameters_call_new(rpc, block->run, block);
  call->arrival = (struct job){.run = service_push_arrived, .size_bytes = rpc_bytes_size(payload->bytes)};
  call->is_push = true;
  call->waits = push->wait;
  call->bytes = payload->bytes;
  call->shared = payload->shared;
  call->share = payload->share;
  call->part = (struct part){.step = push->step,
                             .node = {push->first, push->level},
                             .is_evaluation = push->evaluation,
                             .bytes = payload->bytes,
                             .shared = call->shared.segment ? &call->shared : NULL,
                             .worker = push->worker,
                             .view = push->view};
  return call;
}

/* refused (may be NULL): why it is. */
static void count_push(const struct payload *payload, const struct err *refused) {
  metric_add(METRIC_PUSHES, 1);
  metric_add(METRIC_SERVER_RECEIVED, payload_bytes(payload));
  if (refused)
    metric_add_code(METRIC_PUSHES_REFUSED, refused->code);
}

/* Of a push that is sound; NULL with what is wrong with it, and nothing is left of its payload. */
static struct parameters_call *take_push(struct rpc_call *rpc, struct hosted_run *run,
                                         const Weir__PushRequest *push, struct payload *payload,
                                         struct err *err) {
  struct hosted_block *block = find_pushed(rpc, run, push, payload, err);
  struct parameters_call *call;
  count_push(payload, block ? NULL : err);
  if (!block) {
    payload_fini(payload);
    return NULL;
  }
  call = push_call_new(rpc, block, push, payload);
  if (!push->evaluation)
    hosted_block_count(block, true, payload_bytes(payload), call->part.shared);
  return call;
}

/* One of several: what is wrong with it says nothing of the others. */
static struct parameters_call *take_part(struct rpc_call *rpc, struct hosted_run *run,
                                         const Weir__PushRequest *pushes, uint32_t part,
                                         struct bundle *bundle) {
  const Weir__FurtherPart *further = part > 0 ? pushes->further[part - 1] : NULL;
  Weir__PushRequest push = *pushes;
  struct payload payload = {NULL};
  struct parameters_call *call;
  struct err err = ERR_NONE;
  if (further) {
    push.block = further->block;
    push.shared = further->shared;
  }
  call = take_push(rpc, run, &push, &payload, &err);
  if (!call) {
    service_log_refusal(rpc, &err);
    bundle_refuse(bundle, part, &err);
    return NULL;
  }
  call->bundle = bundle_get(bundle);
  call->place = part;
  return call;
}

/* Pushes that came together. The call goes on at least until the last of them is handed over. */
static void take_parts(struct rpc_call *rpc, struct hosted_run *run, const Weir__PushRequest *pushes) {
  uint32_t n = 1 + (uint32_t)pushes->n_further;
  struct bundle *bundle = bundle_new(rpc, n);
  struct parameters_call *any = NULL, *call;
  struct err err;
  for (uint32_t i = 0; i < n; i++) {
    call = take_part(rpc, run, pushes, i, bundle);
    bundle_set_call(bundle, i, call);
    any = call ? call : any;
  }
  if (!any) { /* all is answered, and the call has ended */
    bundle_put(bundle);
    return;
  }
  rpc_call_set_user(rpc, any);
  for (uint32_t i = 0; i < n; i++) {
    call = bundle_call(bundle, i);
    if (call && offer(call, &err))
      parameters_call_refuse(call, &err);
  }
}

static int check_parts(const Weir__PushRequest *push, const struct rpc_bytes *bytes, struct err *err) {
  bool are_named = !bytes && push->shared;
  for (size_t i = 0; i < push->n_further; i++)
    are_named &= push->further[i]->shared != NULL;
  if (push->n_further >= SHARE_PARTS_MAX)
    return err_set(err, ERR_INVALID, "the push brings %zu parts; at most %d come together",
                   1 + push->n_further, SHARE_PARTS_MAX);
  if (push->n_further && !are_named)
    return err_set(err, ERR_INVALID, "the push brings further parts: each must name its bytes");
  return 0;
}

static void service_on_push(struct rpc_call *rpc, const void *message, struct rpc_bytes *bytes) {
  const Weir__PushRequest *push = message;
  struct err err = ERR_NONE;
  struct payload payload = {.bytes = bytes};
  struct parameters_call *call = NULL;
  struct hosted_run *run = find_run(rpc, push->run, push->incarnation, &err);
  if (!run || check_parts(push, bytes, &err)) {
    for (size_t i = 0; i <= push->n_further; i++)
      count_push(&payload, &err);
    payload_fini(&payload);
  } else if (push->n_further) {
    take_parts(rpc, run, push);
    hosted_run_put(run);
    return;
  } else
    call = take_push(rpc, run, push, &payload, &err);
  if (call)
    service_hand_over(call, rpc);
  else
    service_refuse(rpc, &err);
  hosted_run_put(run);
}

static void service_on_pull(struct rpc_call *rpc, const void *message, struct rpc_bytes *bytes) {
  const Weir__PullRequest *pull = message;
  struct err err;
  struct hosted_block *block = NULL;
  struct parameters_call *call;
  struct hosted_run *run = find_run(rpc, pull->run, pull->incarnation, &err);
  metric_add(METRIC_PULLS, 1);
  rpc_bytes_free(bytes);
  if (run)
    block = hosted_run_block(run, pull->block, &err);
  if (block && pull->version > run->plan.steps) {
    err_set(&err, ERR_INVALID, "run '%s': block %u: there will be no version %llu, the run's last is %llu",
            run->id, pull->block, (unsigned long long)pull->version, (unsigned long long)run->plan.steps);
    block = NULL;
  }
  if (!block) {
    service_refuse(rpc, &err);
    hosted_run_put(run);
    return;
  }
  call = parameters_call_new(rpc, run, block);
  call->arrival = (struct job){.run = service_pull_arrived};
  call->waits = true;
  call->version = pull->version;
  call->share = service_find_share(rpc, run, pull->share);
  hosted_run_put(run);
  service_hand_over(call, rpc);
}

static void service_on_sums(struct rpc_call *rpc, const void *message, struct rpc_bytes *bytes) {
  const Weir__SumsRequest *request = message;
  struct err err;
  struct hosted_run *run = find_run(rpc, request->run, request->incarnation, &err);
  rpc_bytes_free(bytes);
  if (run)
    exchange_serve(run->exchange, rpc, request);
  else
    service_refuse(rpc, &err);
  hosted_run_put(run);
}

static void service_on_versions(struct rpc_call *rpc, const void *message, struct rpc_bytes *bytes) {
  const Weir__VersionsRequest *request = message;
  Weir__VersionsReply reply = WEIR__VERSIONS_REPLY__INIT;
  struct err err;
  struct hosted_run *run = find_run(rpc, request->run, request->incarnation, &err);
  rpc_bytes_free(bytes);
  if (!run) {
    service_refuse(rpc, &err);
    return;
  }
  hosted_run_versions(run, &reply.lowest, &reply.highest);
  hosted_run_put(run);
  rpc_call_reply(rpc, &reply, NULL);
}

/* The client has its answer or is gone. Behind the arrival in the same queue, so the shard has seen that. */
static void close_call(struct parameters_call *call) {
  if (__atomic_load_n(&call->is_answered, __ATOMIC_ACQUIRE)) {
    parameters_call_put(call);
    return;
  }
  call->departure = (struct job){.run = service_departed};
  shard_post(call->block->queue, &call->departure);
}

static void service_on_closed(struct rpc_call *rpc) {
  struct parameters_call *call = rpc_call_user(rpc);
  struct bundle *bundle = call ? call->bundle : NULL;
  if (call && !bundle)
    close_call(call);
  for (uint32_t i = 0; bundle && i < bundle_parts(bundle); i++)
    if (bundle_call(bundle, i))
      close_call(bundle_call(bundle, i));
  if (bundle)
    bundle_put(bundle);
}

static const struct rpc_method service_methods[] = {
    {.id = RPC_PUSH,
     .on_begin = service_on_begin,
     .on_message = service_on_push,
     .on_closed = service_on_closed},
    {.id = RPC_PULL,
     .on_begin = service_on_begin,
     .on_message = service_on_pull,
     .on_closed = service_on_closed},
    {.id = RPC_SUMS,
     .on_begin = service_on_begin_sums,
     .on_message = service_on_sums,
     .on_closed = exchange_on_closed},
    {.id = RPC_VERSIONS, .on_begin = service_on_begin, .on_message = service_on_versions},
    {.id = RPC_SHARE,
     .is_request_stream = true,
     .on_begin = service_on_begin,
     .on_message = service_on_share,
     .on_half_close = service_on_share_half_close,
     .on_closed = service_on_share_closed},
};

struct rpc_service service_over(struct run_table *runs) {
  return (struct rpc_service){.methods = service_methods,
                              .n_methods = sizeof service_methods / sizeof *service_methods,
                              .context = runs};
}
