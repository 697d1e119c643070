/* The calls that carry items, and their spans on the timeline. */
#include "worker/train/transfer/transfer.h"

#include <stdio.h>

#include "common/share/share.h"
#include "parameters.pb-c.h"
#include "common/trace/trace.h"

enum { TRACE_BLOCK_SIZE = 32, ACK_DEADLINE_MS = 60000 };

static bool is_unsent_push(const struct transfer *transfer) {
  return transfer->item.kind == TRANSFER_PUSH && !transfer->is_taken;
}

void transfer_name(struct transfer *transfer) {
  weir__shared_bytes__init(&transfer->name);
  transfer->is_named =
      is_unsent_push(transfer) && share_name(transfer->with.share, transfer->item.buffer, &transfer->name);
  if (transfer->is_named)
    transfer->name.size = transfer_bytes(&transfer->item);
}

bool transfer_fits(const struct transfer *push, const struct transfer *further) {
  const struct transfer_item *one = &push->item, *other = &further->item;
  return is_unsent_push(push) && is_unsent_push(further) && one->step == other->step &&
         tree_is_same(one->node, other->node) && one->is_evaluation == other->is_evaluation &&
         one->wait == other->wait && push->sender.worker == further->sender.worker &&
         push->sender.view == further->sender.view;
}

bool transfer_is_pull(const struct transfer *transfer) {
  return transfer->item.kind == TRANSFER_PULL || transfer->is_taken;
}

bool transfer_is_put_off(const struct transfer *transfer, const struct received *received) {
  return transfer->item.kind == TRANSFER_PUSH && transfer->item.wait && !transfer->is_taken &&
         received_bytes(received) == 0;
}

size_t received_bytes(const struct received *received) {
  return received->bytes ? rpc_bytes_size(received->bytes) : received->shared.size_bytes;
}

int received_copy(const struct received *received, void *out, struct err *err) {
  if (received->shared.segment)
    return shared_bytes_copy(&received->shared, out, err);
  rpc_bytes_copy(received->bytes, out);
  return 0;
}

size_t transfer_bytes(const struct transfer_item *push) {
  return push->size_bytes ? push->size_bytes : push->buffer->size_bytes;
}

static void transfer_push(struct transfer *transfer, const struct transfers_options *options,
                          struct rpc_channel *channel) {
  const struct transfer_item *item = &transfer->item;
  struct rpc_payload payload = {item->buffer, 0, transfer_bytes(item)};
  Weir__PushRequest push = WEIR__PUSH_REQUEST__INIT;
  Weir__FurtherPart parts[SHARE_PARTS_MAX], *list[SHARE_PARTS_MAX];
  for (struct transfer *further = transfer->further; further; further = further->further) {
    Weir__FurtherPart *part = list[push.n_further] = &parts[push.n_further];
    weir__further_part__init(part);
    part->block = further->item.block;
    part->shared = &further->name;
    push.n_further++;
  }
  push.further = list;
  push.run = (char *)options->run;
  push.incarnation = options->incarnation;
  push.step = item->step;
  push.block = item->block;
  push.first = item->node.first;
  push.level = item->node.level;
  push.evaluation = item->is_evaluation;
  push.wait = transfer->is_parked;
  push.worker = transfer->sender.worker;
  push.view = transfer->sender.view;
  push.share = transfer->with.id;
  push.shared = transfer->is_named ? &transfer->name : NULL;
  rpc_request_start(&transfer->request, channel,
                    &(struct rpc_question){RPC_PUSH, &push, push.wait ? -1 : ACK_DEADLINE_MS},
                    transfer->is_named ? NULL : &payload);
}

static void transfer_pull(struct transfer *transfer, const struct transfers_options *options,
                          struct rpc_channel *channel) {
  Weir__PullRequest pull = WEIR__PULL_REQUEST__INIT;
  pull.run = (char *)options->run;
  pull.incarnation = options->incarnation;
  pull.block = transfer->item.block;
  pull.version = transfer->item.version;
  pull.share = transfer->with.id;
  rpc_request_start(&transfer->request, channel, &(struct rpc_question){RPC_PULL, &pull, -1}, NULL);
}

void transfer_ask(struct rpc_request *request, const struct transfers_options *options,
                  struct rpc_channel *channel) {
  Weir__VersionsRequest versions = WEIR__VERSIONS_REQUEST__INIT;
  versions.run = (char *)options->run;
  versions.incarnation = options->incarnation;
  request->ticket = options->ticket;
  rpc_request_start(request, channel, &(struct rpc_question){RPC_VERSIONS, &versions, options->question_ms},
                    NULL);
}

void transfer_send(struct transfer *transfer, const struct transfers_options *options,
                   struct rpc_channel *channel) {
  transfer->begin_ns = trace_now_ns();
  for (struct transfer *further = transfer->further; further; further = further->further)
    further->begin_ns = transfer->begin_ns;
  transfer->request.ticket = options->ticket;
  if (transfer_is_pull(transfer))
    transfer_pull(transfer, options, channel);
  else if (transfer->item.kind == TRANSFER_PUSH)
    transfer_push(transfer, options, channel);
  else
    transfer_ask(&transfer->request, options, channel);
}

uint64_t transfer_reply_version(const struct transfer *transfer, const void *reply) {
  if (transfer_is_pull(transfer))
    return ((const Weir__PullReply *)reply)->version;
  if (transfer->item.kind == TRANSFER_PUSH)
    return ((const Weir__PushReply *)reply)->version;
  return ((const Weir__VersionsReply *)reply)->lowest;
}

int transfer_find_shared(const struct transfer *transfer, const void *reply, struct shared_bytes *shared,
                         struct err *err) {
  const Weir__SharedBytes *name = NULL;
  if (transfer_is_pull(transfer))
    name = ((const Weir__PullReply *)reply)->shared;
  else if (transfer->item.kind == TRANSFER_PUSH)
    name = ((const Weir__PushReply *)reply)->shared;
  *shared = (struct shared_bytes){0};
  if (!name)
    return 0;
  if (!transfer->with.share)
    err_set(err, ERR_CORRUPT, "the answer names shared memory, of which there is none");
  else if (share_find(transfer->with.share, name, shared, err) == 0)
    return 0;
  err->code = ERR_CORRUPT;
  return err->code;
}

static const char *trace_block(const struct transfer_item *item, char name[TRACE_BLOCK_SIZE]) {
  snprintf(name, TRACE_BLOCK_SIZE, "%s %u", item->is_evaluation ? "evaluation" : "block", item->block);
  return name;
}

/* A part is shown while it is sent. */
void transfer_trace_sent(struct transfer *transfer, const struct transfers_options *options) {
  const struct transfer_item *item = &transfer->item;
  char name[TRACE_BLOCK_SIZE];
  transfer->sent_ns = trace_now_ns();
  if (item->kind == TRANSFER_PUSH && !transfer->is_taken)
    trace_span(&(struct trace_span){.row = TRACE_SENDS,
                                    .category = "push",
                                    .name = trace_block(item, name),
                                    .begin_ns = transfer->begin_ns,
                                    .end_ns = transfer->sent_ns,
                                    .step = item->step,
                                    .index = item->block,
                                    .run = options->trace_number});
}

/* And every call while it is parked, which one that carries nothing is at once. */
void transfer_trace_answered(const struct transfer *transfer, const struct transfers_options *options) {
  static const char *const categories[] = {
      [TRANSFER_PUSH] = "parked", [TRANSFER_PULL] = "pull", [TRANSFER_VERSIONS] = "question"};
  const struct transfer_item *item = &transfer->item;
  char name[TRACE_BLOCK_SIZE];
  trace_span(&(struct trace_span){.row = TRACE_WAITS,
                                  .category = categories[transfer->is_taken ? TRANSFER_PULL : item->kind],
                                  .name = trace_block(item, name),
                                  .begin_ns = transfer->sent_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = item->kind == TRANSFER_PUSH ? item->step : item->version,
                                  .index = item->block,
                                  .run = options->trace_number});
}
