/* Stale synchronous parallel steps (Ho et al., 2013), with a fixed lag: the gradients of step s are computed
   from version s - K, K being train.staleness, and never from a newer one, so that the weights are the same
   bits on any cluster. The first K + 1 steps are computed from version 0, each from its own batch. As in
   `sync`, version s + 1 is made once, from version s and the parts of all microbatches. A worker may be K
   steps ahead of the slowest. */
#include "common/agree/spec.h"
#include "common/modes/sync.h"

static int ssp_check(const Weir__RunSpec *spec, struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  if (!train->has_staleness)
    return err_set(err, ERR_INVALID,
                   "train.staleness: is missing: by how many steps are gradients late, from 0 to %d?",
                   MODE_BEFORE_MAX);
  if (train->staleness > MODE_BEFORE_MAX)
    return err_set(err, ERR_INVALID, "train.staleness: must be from 0 to %d", MODE_BEFORE_MAX);
  if (spec_names_collective(train))
    return err_set(err, ERR_INVALID,
                   "train.mode: ssp is for workers that reduce by themselves, and train.collective says %s",
                   train->collective);
  if (spec->workers && spec->workers->stages != 1)
    return err_set(err, ERR_INVALID, "train.mode: ssp is for whole models, and workers.stages cuts this one");
  return 0;
}

static uint64_t ssp_version(const Weir__TrainSpec *train, uint64_t step) {
  return step > train->staleness ? step - train->staleness : 0;
}

static enum mode_arrival ssp_arrive(const Weir__TrainSpec *train, const struct mode_part *part) {
  if (part->step < part->version)
    return MODE_PART_IS_LATE;
  return ssp_version(train, part->step) > part->lowest ? MODE_PART_IS_EARLY : MODE_PART_IS_ADDED;
}

/* The step that is the first to be computed again is that of the complete version. */
static uint64_t ssp_oldest(const Weir__TrainSpec *train, uint64_t complete) {
  return ssp_version(train, complete);
}

/* A part for the newest version's step before proves a version that is K + 1 older; steps from that on are
   computed from another K older. Steps before the proof's are over, and K + 1 may be open. */
static struct mode_bounds ssp_bounds(const Weir__TrainSpec *train) {
  uint32_t lag = train->staleness;
  return (struct mode_bounds){.versions = 2 * lag + 2, .rounds = lag + 1, .sums = lag + 1, .sets = lag + 2};
}

static const char *ssp_note(const Weir__TrainSpec *train) {
  if (train->staleness == 0)
    return NULL;
  return "train.mode ssp: gradients that are late cost accuracy at a learning rate that is good for sync, "
         "with momentum "
         "and AdamW, too: docs/OPTIMIZERS.md#late-gradients says how much was measured";
}

const struct mode_def mode_ssp = {.name = "ssp",
                                  .option = "staleness",
                                  .check = ssp_check,
                                  .version = ssp_version,
                                  .arrive = ssp_arrive,
                                  .answer = sync_answer,
                                  .oldest = ssp_oldest,
                                  .boundary = sync_boundary,
                                  .bounds = ssp_bounds,
                                  .note = ssp_note};
