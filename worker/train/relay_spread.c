/* Weights on their way down: the owner of a bucket, who has its next version from the servers, gives it to
   the other members. */
#include <string.h>

#include "worker/trace.h"
#include "worker/train/relay_state.h"
#include "worker/train/steps.h"

/* Of the spreader's thread. */
struct spreader {
  struct relay *relay;
  uint64_t version; /* that is spread */
  const struct bucket *bucket;
  struct weights_set *set;          /* held while we read it: the owner's */
  float *places[BUCKET_BLOCKS_MAX]; /* of each block of the bucket */
  struct collective_work *works[BUCKET_BLOCKS_MAX];
};

static bool spread_bucket(struct spreader *spreader);

void *relay_spread_main(void *argument) {
  struct relay *relay = argument;
  struct spreader spreader = {.relay = relay};
  bool is_well = true;
  trace_thread("spread");
  for (uint64_t step = relay->first_step; is_well && step < relay->run->loaded.plan.steps; step++)
    for (uint32_t b = 0; b < relay->plan.n_buckets && is_well; b++) {
      spreader.version = step + 1;
      spreader.bucket = &relay->plan.buckets[b];
      is_well = spread_bucket(&spreader);
    }
  return NULL;
}

static uint32_t bucket_block(const struct spreader *spreader, uint32_t i) {
  return spreader->relay->plan.order[spreader->bucket->begin + i];
}

/* Where the owner's blocks are, once they have come. False: not yet. */
static bool find_sources_locked(struct spreader *spreader, uint32_t n) {
  struct run *run = spreader->relay->run;
  struct weights_set *set = weights_find(run->weights, spreader->version);
  for (uint32_t i = 0; i < n && set; i++) {
    uint32_t block = bucket_block(spreader, i);
    if (!weights_is_ready(set, (struct block_range){block, block + 1}))
      return false;
    spreader->places[i] = weights_place(run->weights, set, block);
  }
  if (set)
    set->readers++;
  spreader->set = set;
  return set != NULL;
}

/* Where the others' blocks are to go, once the version is open. */
static bool find_places_locked(struct spreader *spreader, uint32_t n) {
  struct run *run = spreader->relay->run;
  if (!run->weights->next->is_open || run->weights->next->version != spreader->version)
    return false;
  for (uint32_t i = 0; i < n; i++) {
    spreader->places[i] = steps_claim_block(run, spreader->version, bucket_block(spreader, i));
    CHECK(spreader->places[i]); /* nobody else fills blocks of parameters while a group works */
  }
  return true;
}

/* False when the relay stops. */
static bool find_memory(struct spreader *spreader, bool is_owner, uint32_t n) {
  struct relay *relay = spreader->relay;
  struct run *run = relay->run;
  bool is_there = false;
  pthread_mutex_lock(&run->lock);
  while (!is_there && run->phase == RUN_WORKING && !relay_is_stopping(relay)) {
    is_there = is_owner ? find_sources_locked(spreader, n) : find_places_locked(spreader, n);
    if (!is_there)
      pthread_cond_wait(&run->changed, &run->lock);
  }
  pthread_mutex_unlock(&run->lock);
  return is_there;
}

static int start_block(struct spreader *spreader, bool is_owner, uint32_t i, struct err *err) {
  struct relay *relay = spreader->relay;
  struct collective_call call = {.kind = COLLECTIVE_BROADCAST,
                                 .root = (int)spreader->bucket->owner,
                                 .in = is_owner ? spreader->places[i] : NULL,
                                 .out = spreader->places[i],
                                 .elems = relay->run->block_elems[bucket_block(spreader, i)]};
  return relay->def->start(relay->down, &call, &spreader->works[i], err);
}

static void end_block(struct spreader *spreader, bool is_owner, uint32_t i, struct err *err) {
  struct relay *relay = spreader->relay;
  struct run *run = relay->run;
  struct err one = ERR_NONE;
  if (relay->def->wait(spreader->works[i], &one)) {
    if (!err->code)
      relay_fail(relay, &one);
    *err = err->code ? *err : one;
    return;
  }
  if (is_owner)
    return;
  pthread_mutex_lock(&run->lock);
  steps_filled(run, bucket_block(spreader, i));
  pthread_mutex_unlock(&run->lock);
}

static bool spread_bucket(struct spreader *spreader) {
  struct relay *relay = spreader->relay;
  uint32_t n = spreader->bucket->end - spreader->bucket->begin, n_works = 0;
  bool is_owner = (int)spreader->bucket->owner == relay->group.rank;
  struct err err = ERR_NONE;
  uint64_t begun_ns;
  if (!find_memory(spreader, is_owner, n))
    return false;
  begun_ns = trace_now_ns();
  while (n_works < n && !start_block(spreader, is_owner, n_works, &err))
    n_works++;
  if (err.code)
    relay_fail(relay, &err);
  for (uint32_t i = 0; i < n_works; i++)
    end_block(spreader, is_owner, i, &err);
  trace_span(TRACE_THREAD, "relay", "spread", begun_ns, trace_now_ns(), spreader->version,
             spreader->bucket - relay->plan.buckets);
  if (is_owner)
    steps_release(relay->run, spreader->set);
  return !err.code;
}
