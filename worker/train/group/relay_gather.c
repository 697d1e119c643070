/* Gradients on their way up: the members' parts of a bucket come to its owner, who adds and pushes them. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/sum.h"
#include "common/trace/trace.h"
#include "worker/train/group/relay_gather.h"
#include "worker/train/run/steps.h"

static bool gather_bucket(struct gatherer *gatherer, const struct bucket *bucket);

void *relay_gather_main(void *argument) {
  struct relay *relay = argument;
  size_t own_parts = (size_t)relay_own(relay)->n, parts = (size_t)relay->n_parts;
  size_t works = parts > own_parts * BUCKET_BLOCKS_MAX ? parts : own_parts * BUCKET_BLOCKS_MAX;
  struct gatherer gatherer = {.relay = relay,
                              .own = mem_new(BUCKET_BLOCKS_MAX * own_parts * sizeof *gatherer.own),
                              .received = mem_new(parts * sizeof *gatherer.received),
                              .landed = mem_new(parts * BUCKET_BLOCKS_MAX * sizeof *gatherer.landed),
                              .works = mem_new(works * sizeof *gatherer.works),
                              .merged = mem_new(parts * sizeof *gatherer.merged),
                              .are_unsound = mem_new(parts * sizeof *gatherer.are_unsound),
                              .are_summed = mem_new(parts * sizeof *gatherer.are_summed)};
  bool is_well = true;
  float_setting_require("gatherer");
  trace_thread("gather", relay->run->trace_number);
  for (gatherer.step = relay->first_step; is_well && gatherer.step < relay->run->loaded.plan.steps;
       gatherer.step++)
    for (uint32_t b = 0; b < relay->plan.n_buckets && is_well; b++)
      is_well = gather_bucket(&gatherer, &relay->plan.buckets[b]);
  free(gatherer.own);
  free(gatherer.received);
  free(gatherer.landed);
  free(gatherer.works);
  free(gatherer.merged);
  free(gatherer.are_unsound);
  free(gatherer.are_summed);
  return NULL;
}

/* Waits until every part of the bucket that is ours is there, and takes them, so that those of the next step
   find their places free. False when the relay stops. */
static bool take_own(struct gatherer *gatherer, const struct bucket *bucket) {
  struct relay *relay = gatherer->relay;
  uint32_t own_parts = (uint32_t)relay_own(relay)->n;
  uint32_t *n_held = &relay->n_held[bucket - relay->plan.buckets];
  bool is_there;
  pthread_mutex_lock(&relay->lock);
  while (*n_held < (bucket->end - bucket->begin) * own_parts && !relay_is_stopping(relay))
    pthread_cond_wait(&relay->changed, &relay->lock);
  is_there = !relay_is_stopping(relay);
  for (uint32_t i = bucket->begin; i < bucket->end && is_there; i++) {
    struct buffer **held = &relay->held[relay->plan.order[i] * own_parts];
    memcpy(&gatherer->own[(i - bucket->begin) * own_parts], held, own_parts * sizeof(struct buffer *));
    memset(held, 0, own_parts * sizeof(struct buffer *));
  }
  *n_held = is_there ? 0 : *n_held;
  pthread_mutex_unlock(&relay->lock);
  return is_there;
}

int gather_start_work(struct gatherer *gatherer, const struct collective_call *call, struct err *err) {
  struct relay *relay = gatherer->relay;
  if (!relay->def->start(relay->up, call, &gatherer->works[gatherer->n_works], err))
    gatherer->n_works++;
  return err->code;
}

int gather_finish_works(struct gatherer *gatherer, struct err *err) {
  struct relay *relay = gatherer->relay;
  if (err->code)
    relay_fail(relay, err);
  for (int i = 0; i < gatherer->n_works; i++) {
    struct err one = ERR_NONE;
    if (!relay->def->wait(gatherer->works[i], &one) || err->code)
      continue;
    *err = one;
    relay_fail(relay, err);
  }
  gatherer->n_works = 0;
  return err->code;
}

/* Sends a buffer to a peer, or receives one. */
static int start_transfer(struct gatherer *gatherer, enum collective_kind kind, int peer,
                          struct buffer *buffer, struct err *err) {
  struct collective_call call = {.kind = kind,
                                 .root = peer,
                                 .in = kind == COLLECTIVE_SEND ? buffer->data : NULL,
                                 .out = kind == COLLECTIVE_SEND ? NULL : buffer->data,
                                 .elems = buffer->size_bytes / sizeof(float)};
  return gather_start_work(gatherer, &call, err);
}

static int send_own(struct gatherer *gatherer, const struct bucket *bucket, struct err *err) {
  int n = (int)(bucket->end - bucket->begin) * relay_own(gatherer->relay)->n;
  for (int i = 0; i < n && !err->code; i++)
    start_transfer(gatherer, COLLECTIVE_SEND, (int)bucket->owner, gatherer->own[i], err);
  return gather_finish_works(gatherer, err);
}

/* The other members' parts of the block; ours are put among them. */
static int receive_block(struct gatherer *gatherer, struct buffer **own, struct err *err) {
  struct relay *relay = gatherer->relay;
  int at = 0;
  for (int rank = 0; rank < relay->group.size; rank++)
    for (int p = 0; p < relay->parts[rank].n && !err->code; p++, at++) {
      bool is_own = rank == relay->group.rank;
      gatherer->merged[at] = (struct group_part){relay->parts[rank].nodes[p], at};
      gatherer->received[at] = is_own ? own[p] : block_pool_take(relay->run->pool, gatherer->block);
      if (is_own)
        own[p] = NULL;
      else if (!gatherer->received[at]) {
        err_set(err, ERR_NO_MEMORY, "no memory for the gradient of block %u", gatherer->block);
        run_fail(relay->run, err, false);
      } else
        start_transfer(gatherer, COLLECTIVE_RECEIVE, rank, gatherer->received[at], err);
    }
  return gather_finish_works(gatherer, err);
}

static void on_add(void *user, int to, int from) {
  struct gatherer *gatherer = user;
  struct buffer *sum = gatherer->received[to], *added = gatherer->received[from];
  gatherer->are_unsound[to] = !sum_add(sum->data, added->data, sum->size_bytes / sizeof(float));
  gatherer->are_summed[to] = true;
  block_pool_give(gatherer->relay->run->pool, gatherer->block, added);
  gatherer->received[from] = NULL;
}

/* The microbatches of an unsound sum, which may be other members', too: whose part it was that was wrong,
   only the parts of each alone can show. */
static void compute_alone(struct gatherer *gatherer, struct tree_node node) {
  struct run *run = gatherer->relay->run;
  pthread_mutex_lock(&run->lock);
  steps_compute_alone(run, gatherer->step, node);
  pthread_mutex_unlock(&run->lock);
}

void gather_push(struct gatherer *gatherer, struct buffer **const *sums, int n) {
  struct run *run = gatherer->relay->run;
  struct transfer_item item = {.kind = TRANSFER_PULL,
                               .server = run->owner[gatherer->block],
                               .block = gatherer->block,
                               .step = gatherer->step,
                               .version = mode_reply(&run->mode, gatherer->step)};
  int last = n - 1;
  while (last >= 0 && gatherer->are_unsound[gatherer->merged[last].index])
    last--;
  if (last < 0)
    transfers_start(run->transfers, &item, 1);
  item.kind = TRANSFER_PUSH;
  for (int k = 0; k < n; k++) {
    const struct group_part *part = &gatherer->merged[k];
    if (gatherer->are_unsound[part->index]) {
      compute_alone(gatherer, part->node);
      continue;
    }
    item.node = part->node;
    item.wait = k == last;
    item.buffer = *sums[k];
    transfers_start(run->transfers, &item, 1);
    *sums[k] = NULL;
  }
}

static bool is_buffer_finite(const struct buffer *buffer) {
  return sum_is_finite((const float *)buffer->data, buffer->size_bytes / sizeof(float));
}

/* Adds the parts. One that nothing is added to may be a sum of its member's that overflowed. */
static void merge_and_push(struct gatherer *gatherer) {
  struct relay *relay = gatherer->relay;
  struct buffer **sums[COLLECTIVE_SIZE_MAX * TREE_COVER_MAX];
  int n;
  memset(gatherer->are_unsound, 0, (size_t)relay->n_parts * sizeof *gatherer->are_unsound);
  memset(gatherer->are_summed, 0, (size_t)relay->n_parts * sizeof *gatherer->are_summed);
  n = group_merge(gatherer->merged, relay->n_parts, relay->run->loaded.plan.microbatches, on_add, gatherer);
  for (int k = 0; k < n; k++) {
    int index = gatherer->merged[k].index;
    sums[k] = &gatherer->received[index];
    if (!gatherer->are_summed[index])
      gatherer->are_unsound[index] = !is_buffer_finite(*sums[k]);
  }
  gather_push(gatherer, sums, n);
}

static int add_and_push(struct gatherer *gatherer, const struct bucket *bucket, struct err *err) {
  struct relay *relay = gatherer->relay;
  int own_parts = relay_own(relay)->n;
  for (uint32_t i = bucket->begin; i < bucket->end && !err->code; i++) {
    gatherer->block = relay->plan.order[i];
    if (!receive_block(gatherer, &gatherer->own[(int)(i - bucket->begin) * own_parts], err))
      merge_and_push(gatherer);
    for (int p = 0; p < relay->n_parts; p++)
      block_pool_give(relay->run->pool, gatherer->block, gatherer->received[p]);
    memset(gatherer->received, 0, (size_t)relay->n_parts * sizeof(struct buffer *));
  }
  return err->code;
}

/* The collective adds the members' sums; the owner's is in the place of its own. */
static int reduce_and_push(struct gatherer *gatherer, const struct bucket *bucket, struct err *err) {
  struct relay *relay = gatherer->relay;
  uint32_t n = bucket->end - bucket->begin, own_parts = (uint32_t)relay_own(relay)->n;
  bool is_owner = (int)bucket->owner == relay->group.rank;
  for (uint32_t i = 0; i < n && !err->code; i++) {
    struct buffer **own = &gatherer->own[i * own_parts];
    size_t elems = own[0]->size_bytes / sizeof(float);
    for (uint32_t p = 1; p < own_parts; p++)
      sum_add(own[0]->data, own[p]->data, elems);
    struct collective_call call = {.kind = COLLECTIVE_REDUCE,
                                   .reduction = COLLECTIVE_SUM,
                                   .root = (int)bucket->owner,
                                   .in = own[0]->data,
                                   .out = is_owner ? own[0]->data : NULL,
                                   .elems = elems};
    gather_start_work(gatherer, &call, err);
  }
  if (gather_finish_works(gatherer, err) || !is_owner)
    return err->code;
  gatherer->merged[0] = (struct group_part){relay->whole, 0};
  for (uint32_t i = 0; i < n; i++) {
    struct buffer **sum = &gatherer->own[i * own_parts];
    gatherer->block = relay->plan.order[bucket->begin + i];
    gatherer->are_unsound[0] = !is_buffer_finite(*sum);
    gather_push(gatherer, &sum, 1);
  }
  return 0;
}

static bool gather_bucket(struct gatherer *gatherer, const struct bucket *bucket) {
  struct relay *relay = gatherer->relay;
  int own_parts = relay_own(relay)->n, n = (int)(bucket->end - bucket->begin) * own_parts;
  struct err err = ERR_NONE;
  uint64_t begun_ns;
  if (!take_own(gatherer, bucket))
    return false;
  begun_ns = trace_now_ns();
  if (relay->memory)
    gather_on_device(gatherer, bucket, &err);
  else if (relay->is_reduced)
    reduce_and_push(gatherer, bucket, &err);
  else if ((int)bucket->owner == relay->group.rank)
    add_and_push(gatherer, bucket, &err);
  else
    send_own(gatherer, bucket, &err);
  trace_span(&(struct trace_span){.category = "relay",
                                  .name = "gather",
                                  .begin_ns = begun_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = gatherer->step,
                                  .index = bucket - relay->plan.buckets});
  for (int i = 0; i < n; i++) {
    block_pool_give(relay->run->pool, relay->plan.order[bucket->begin + (uint32_t)(i / own_parts)],
                    gatherer->own[i]);
    gatherer->own[i] = NULL;
  }
  return !err.code;
}
