/* Pushes and pulls on their way through a shard. */
#include "server/parameters/block/call.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/metrics/metric.h"
#include "parameters.pb-c.h"
#include "server/parameters/block/block.h"
#include "server/parameters/block/bundle.h"
#include "server/parameters/run/run.h"

struct parameters_call *parameters_call_new(struct rpc_call *rpc, struct hosted_run *run,
                                            struct hosted_block *block) {
  struct parameters_call *call = mem_new(sizeof *call);
  call->rpc = rpc;
  call->run = hosted_run_get(run);
  call->block = block;
  call->refs = 2;
  return call;
}

void parameters_call_put(struct parameters_call *call) {
  if (__atomic_sub_fetch(&call->refs, 1, __ATOMIC_ACQ_REL) > 0)
    return;
  parameters_call_drop_part(call);
  share_put(call->share);
  bundle_put(call->bundle);
  hosted_run_put(call->run);
  free(call);
}

static struct budget *call_budget(const struct parameters_call *call) {
  return &shard_budgets(call->block->queue->shard)->calls;
}

bool parameters_call_park(struct parameters_call *call, uint64_t version) {
  if (!call->is_parked)
    call->is_parked = budget_try(call_budget(call), PARKED_CALL_BYTES);
  if (call->is_parked && call->bundle)
    bundle_wait(call->bundle, call->place, version);
  return call->is_parked;
}

void parameters_call_drop_part(struct parameters_call *call) {
  rpc_bytes_free(call->bytes);
  call->bytes = NULL;
  shared_bytes_put(&call->shared);
}

/* From here on the client's end of the call is no longer the shard's business. */
static struct rpc_call *parameters_call_end(struct parameters_call *call) {
  struct rpc_call *rpc = call->rpc;
  if (call->is_parked)
    budget_give(call_budget(call), PARKED_CALL_BYTES);
  call->is_parked = false;
  parameters_call_drop_part(call);
  call->rpc = NULL;
  __atomic_store_n(&call->is_answered, true, __ATOMIC_RELEASE);
  return rpc;
}

/* As part of an answer. */
static void reply_together(struct parameters_call *call, uint64_t version, const struct buffer *shared) {
  if (bundle_answer(call->bundle, call->place, version, call->share, shared)) {
    metric_add(METRIC_SERVER_SENT, shared->size_bytes);
    hosted_block_count(call->block, false, shared->size_bytes, true);
  }
}

static void reply_alone(struct parameters_call *call, struct rpc_call *rpc, uint64_t version,
                        struct buffer *data, bool is_shared) {
  struct rpc_payload payload = {.buffer = data, .size_bytes = data ? data->size_bytes : 0};
  Weir__PushReply push = WEIR__PUSH_REPLY__INIT;
  Weir__PullReply pull = WEIR__PULL_REPLY__INIT;
  Weir__SharedBytes shared = WEIR__SHARED_BYTES__INIT;
  is_shared = is_shared && share_name(call->share, data, &shared);
  push.version = pull.version = version;
  metric_add(METRIC_SERVER_SENT, payload.size_bytes);
  if (is_shared)
    push.shared = pull.shared = &shared;
  if (data)
    hosted_block_count(call->block, false, payload.size_bytes, is_shared);
  rpc_call_reply(rpc, call->is_push ? (const void *)&push : &pull, data && !is_shared ? &payload : NULL);
}

void parameters_call_reply(struct parameters_call *call, uint64_t version, struct buffer *data) {
  struct rpc_call *rpc = parameters_call_end(call);
  bool is_shared = data && shared_pool_has(run_shares_pool(&call->run->shares), data);
  if (call->bundle)
    reply_together(call, version, is_shared ? data : NULL);
  else
    reply_alone(call, rpc, version, data, is_shared);
  parameters_call_put(call);
}

void parameters_call_refuse(struct parameters_call *call, const struct err *err) {
  struct rpc_call *rpc = parameters_call_end(call);
  if (call->is_push)
    metric_add_code(METRIC_PUSHES_REFUSED, err->code);
  log_event(LOG_DEBUG, "parameters", "refused", "code=%s text=\"%s\"", err_name(err->code), err->text);
  if (call->bundle)
    bundle_refuse(call->bundle, call->place, err);
  else
    rpc_call_finish(rpc, err);
  parameters_call_put(call);
}
