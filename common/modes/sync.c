/* Synchronous steps: version s + 1 is made once, from version s and the parts of all microbatches, all of
   them computed at version s. */
#include "common/modes/sync.h"

uint64_t sync_version(const Weir__TrainSpec *train, uint64_t step) {
  (void)train;
  return step;
}

/* One of a later step than its block is at would have been computed from weights that do not exist. So would
   one of the block's step while another block is behind. */
enum mode_arrival sync_arrive(const Weir__TrainSpec *train, const struct mode_part *part) {
  (void)train;
  if (part->step < part->version)
    return MODE_PART_IS_LATE;
  return part->step > part->lowest ? MODE_PART_IS_EARLY : MODE_PART_IS_ADDED;
}

uint64_t sync_answer(const Weir__TrainSpec *train, uint64_t wanted, uint64_t newest) {
  (void)train, (void)newest;
  return wanted;
}

uint64_t sync_oldest(const Weir__TrainSpec *train, uint64_t complete) {
  (void)train;
  return complete;
}

uint64_t sync_boundary(const Weir__TrainSpec *train, uint64_t version) {
  (void)train;
  return version;
}

/* The version before the newest stays until a part proves the newest to be complete everywhere. */
static struct mode_bounds sync_bounds(const Weir__TrainSpec *train) {
  (void)train;
  return (struct mode_bounds){.versions = 2, .rounds = 1, .sums = 1, .sets = 2};
}

const struct mode_def mode_sync = {.name = "sync",
                                   .has_groups = true,
                                   .version = sync_version,
                                   .arrive = sync_arrive,
                                   .answer = sync_answer,
                                   .oldest = sync_oldest,
                                   .boundary = sync_boundary,
                                   .bounds = sync_bounds};
