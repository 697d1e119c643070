/* What a late step lacks. */
#include "server/parameters/load/late.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/parameters/round/marks.h"

struct collection {
  struct job job;
  struct hosted_run *run; /* a reference */
  struct pace_late late;
  uint32_t shard;                  /* which it is at */
  uint64_t *microbatches, *chunks; /* marks of what is missing */
};

static void collection_run(struct job *job);

void hosted_run_tell_late(struct hosted_run *run, const struct pace_late *late) {
  struct collection *collection = mem_new(sizeof *collection);
  *collection =
      (struct collection){.job = {.run = collection_run}, .run = hosted_run_get(run), .late = *late};
  collection->microbatches = mem_new(marks_words(plan_units(&run->plan)) * sizeof(uint64_t));
  collection->chunks = mem_new(marks_words(run->plan.eval_chunks) * sizeof(uint64_t));
  shard_post(hosted_run_queue(run, 0), &collection->job);
}

static void collection_free(struct collection *collection) {
  hosted_run_put(collection->run);
  free(collection->microbatches);
  free(collection->chunks);
  free(collection);
}

/* Ranges as a message lists them. */
struct ranges {
  Weir__Range list[LATE_RANGES_MAX];
  Weir__Range *items[LATE_RANGES_MAX];
  size_t n;
};

static void ranges_read(struct ranges *ranges, const uint64_t *marks, uint32_t n) {
  for (uint32_t begin = 0, end; ranges->n < LATE_RANGES_MAX && marks_next(marks, n, &begin, &end);
       begin = end) {
    Weir__Range *range = ranges->items[ranges->n] = &ranges->list[ranges->n];
    weir__range__init(range);
    range->begin = begin;
    range->end = end;
    ranges->n++;
  }
}

static void collection_tell(const struct collection *collection) {
  struct hosted_run *run = collection->run;
  struct ranges *microbatches = mem_new(sizeof *microbatches), *chunks = mem_new(sizeof *chunks);
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Late late = WEIR__LATE__INIT;
  ranges_read(microbatches, collection->microbatches, plan_units(&run->plan));
  ranges_read(chunks, collection->chunks, run->plan.eval_chunks);
  late.run = run->id;
  late.incarnation = run->incarnation;
  late.step = collection->late.step;
  late.waited_seconds = clock_seconds(collection->late.waited_ns);
  late.microbatches = microbatches->items;
  late.n_microbatches = microbatches->n;
  late.chunks = chunks->items;
  late.n_chunks = chunks->n;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LATE;
  message.late = &late;
  if (microbatches->n || chunks->n) {
    log_event(LOG_DEBUG, "parameters", "step_late",
              "run=%s step=%llu waited=%.3fs ranges=%zu chunk_ranges=%zu", run->id,
              (unsigned long long)late.step, late.waited_seconds, microbatches->n, chunks->n);
    report_log_tell(&run->log, &message);
  }
  free(microbatches);
  free(chunks);
}

/* On each shard in turn. Blocks that are a version further lack nothing of the step. */
static void collection_run(struct job *job) {
  struct collection *collection = (struct collection *)job;
  struct hosted_run *run = collection->run;
  const struct job_queue *queue = hosted_run_queue(run, collection->shard);
  struct err err;
  bool is_unloaded = hosted_run_is_unloaded(run, &err);
  for (uint32_t b = 0; !is_unloaded && b < run->n_own; b++) {
    const struct hosted_block *block = &run->blocks[b];
    if (block->queue == queue && block->version == collection->late.step)
      hosted_block_missing(block, collection->microbatches, collection->chunks);
  }
  if (!is_unloaded && ++collection->shard < run->n_shards) {
    shard_post(hosted_run_queue(run, collection->shard), &collection->job);
    return;
  }
  if (!is_unloaded)
    collection_tell(collection);
  collection_free(collection);
}
