/* Weights on their way down: the owner of a bucket, who has its next version from the servers, gives it to
   the other members. In a group on devices it goes from where it landed in the owner's host memory to every
   member's device, the owner's too: one broadcast for each range of blocks that adjoin. */
#include <stdlib.h>

#include "common/agree/float_setting.h"
#include "common/trace/trace.h"
#include "worker/train/group/relay_state.h"
#include "worker/train/run/steps.h"

/* What one broadcast carries: blocks [begin, end). */
struct spread_range {
  struct block_range blocks;
  struct collective_work *work;
};

/* Of the spreader's thread. */
struct spreader {
  struct relay *relay;
  uint64_t version; /* that is spread */
  const struct bucket *bucket;
  bool is_owner;               /* of the bucket */
  struct weights_set *set;     /* that has or receives the version; held while the owner reads it */
  struct spread_range *ranges; /* of the bucket */
  uint32_t n_ranges;
};

static bool spread_bucket(struct spreader *spreader);
static void find_ranges(struct spreader *spreader);

void *relay_spread_main(void *argument) {
  struct relay *relay = argument;
  struct spreader spreader = {.relay = relay};
  bool is_well = true;
  spreader.ranges = mem_new(relay->run->loaded.model->n_param_blocks * sizeof *spreader.ranges);
  float_setting_require("spreader");
  trace_thread("spread", relay->run->trace_number);
  for (uint64_t step = relay->first_step; is_well && step < relay->run->loaded.plan.steps; step++)
    for (uint32_t b = 0; b < relay->plan.n_buckets && is_well; b++) {
      spreader.version = mode_reply(&relay->run->mode, step);
      spreader.bucket = &relay->plan.buckets[b];
      spreader.is_owner = (int)spreader.bucket->owner == relay->group.rank;
      find_ranges(&spreader);
      is_well = spread_bucket(&spreader);
    }
  free(spreader.ranges);
  return NULL;
}

static int compare_ranges(const void *a, const void *b) {
  const struct spread_range *x = a, *y = b;
  return x->blocks.begin < y->blocks.begin ? -1 : x->blocks.begin > y->blocks.begin;
}

/* A range for each block, in the order in which they are complete; on devices, where a broadcast costs more
   to begin than a block to carry, as few as there can be: blocks that follow each other adjoin. */
static void find_ranges(struct spreader *spreader) {
  const struct bucket_plan *plan = &spreader->relay->plan;
  struct spread_range *ranges = spreader->ranges;
  uint32_t n = spreader->bucket->end - spreader->bucket->begin;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t block = plan->order[spreader->bucket->begin + i];
    ranges[i].blocks = (struct block_range){block, block + 1};
  }
  spreader->n_ranges = n;
  if (!spreader->relay->outlet.is_on_device)
    return;
  qsort(ranges, n, sizeof *ranges, compare_ranges);
  spreader->n_ranges = 1;
  for (uint32_t i = 1; i < n; i++) {
    struct block_range *last = &ranges[spreader->n_ranges - 1].blocks;
    if (ranges[i].blocks.begin == last->end)
      last->end++;
    else
      ranges[spreader->n_ranges++] = ranges[i];
  }
}

/* Whether the owner's blocks have come. */
static bool find_sources_locked(struct spreader *spreader) {
  struct weights_set *set = weights_find(spreader->relay->run->weights, spreader->version);
  for (uint32_t r = 0; set && r < spreader->n_ranges; r++)
    for (uint32_t b = spreader->ranges[r].blocks.begin; b < spreader->ranges[r].blocks.end; b++)
      if (!weights_has_landed(set, b))
        return false;
  if (set)
    set->readers++;
  spreader->set = set;
  return set != NULL;
}

/* Whether the version is open, into which the others' blocks are to go. */
static bool find_places_locked(struct spreader *spreader) {
  struct run *run = spreader->relay->run;
  spreader->set = run->weights->next;
  if (!spreader->set->is_open || spreader->set->version != spreader->version)
    return false;
  for (uint32_t r = 0; r < spreader->n_ranges; r++)
    for (uint32_t b = spreader->ranges[r].blocks.begin; b < spreader->ranges[r].blocks.end; b++)
      CHECK(steps_claim_block(run, spreader->version, b)); /* nobody else fills blocks of parameters here */
  return true;
}

/* False when the relay stops. */
static bool find_memory(struct spreader *spreader) {
  struct relay *relay = spreader->relay;
  struct run *run = relay->run;
  bool is_there = false;
  pthread_mutex_lock(&run->lock);
  while (!is_there && run->phase == RUN_WORKING && !relay_is_stopping(relay)) {
    is_there = spreader->is_owner ? find_sources_locked(spreader) : find_places_locked(spreader);
    if (!is_there)
      pthread_cond_wait(&run->changed, &run->lock);
  }
  pthread_mutex_unlock(&run->lock);
  return is_there;
}

static int start_range(struct spreader *spreader, struct spread_range *range, struct err *err) {
  struct relay *relay = spreader->relay;
  const struct weights *weights = relay->run->weights;
  struct collective_call call = {.kind = COLLECTIVE_BROADCAST,
                                 .root = (int)spreader->bucket->owner,
                                 .out = weights_place(weights, spreader->set, range->blocks.begin)};
  if (spreader->is_owner)
    call.in = weights_landing(weights, spreader->set, range->blocks.begin);
  for (uint32_t b = range->blocks.begin; b < range->blocks.end; b++)
    call.elems += relay->run->block_elems[b];
  return relay->def->start(relay->down, &call, &range->work, err);
}

static void end_range(struct spreader *spreader, const struct spread_range *range, struct err *err) {
  struct relay *relay = spreader->relay;
  struct run *run = relay->run;
  struct err one = ERR_NONE;
  if (relay->def->wait(range->work, &one)) {
    if (!err->code)
      relay_fail(relay, &one);
    *err = err->code ? *err : one;
    return;
  }
  if (spreader->is_owner && !spreader->set->is_on_device)
    return;
  pthread_mutex_lock(&run->lock);
  for (uint32_t b = range->blocks.begin; b < range->blocks.end; b++)
    steps_filled(run, b);
  pthread_mutex_unlock(&run->lock);
}

static bool spread_bucket(struct spreader *spreader) {
  struct relay *relay = spreader->relay;
  uint32_t n_works = 0;
  struct err err = ERR_NONE;
  uint64_t begun_ns;
  if (!find_memory(spreader))
    return false;
  begun_ns = trace_now_ns();
  while (n_works < spreader->n_ranges && !start_range(spreader, &spreader->ranges[n_works], &err))
    n_works++;
  if (err.code)
    relay_fail(relay, &err);
  for (uint32_t i = 0; i < n_works; i++)
    end_range(spreader, &spreader->ranges[i], &err);
  trace_span(&(struct trace_span){.category = "relay",
                                  .name = "spread",
                                  .begin_ns = begun_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = spreader->version,
                                  .index = spreader->bucket - relay->plan.buckets});
  if (spreader->is_owner)
    steps_release(relay->run, spreader->set);
  return !err.code;
}
