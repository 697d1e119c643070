/* Asynchronous updates, each of them made exactly once. Each microbatch of a step is an update by itself when
   its gradient comes to a block; the block marks it, and does nothing when it comes again. Nobody waits for
   the other microbatches of a step, but no worker is more than train.window steps ahead of the lowest step
   that is not over: so many steps a block has marks of. Version s is there once all of steps below s were
   applied; its weights may have updates of later steps, too, unless it is evaluated: no step from it on
   begins before it is there. Which updates a gradient misses depends on who is fast, so two runs differ. */
#include "common/agree/spec.h"
#include "common/modes/sync.h"

enum { WINDOW = 8, WINDOW_MAX = MODE_ROUNDS_MAX - 1 };

static uint64_t window_of(const Weir__TrainSpec *train) {
  return train->has_window ? train->window : WINDOW;
}

static int async_check(const Weir__RunSpec *spec, struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  if (train->has_window && (train->window == 0 || train->window > WINDOW_MAX))
    return err_set(err, ERR_INVALID, "train.window: must be from 1 to %d", WINDOW_MAX);
  if (train->has_deterministic && train->deterministic)
    return err_set(err, ERR_INVALID,
                   "train.deterministic: no two runs of mode async are alike: leave it out, or say false");
  if (train->has_clip_norm)
    return err_set(err, ERR_INVALID,
                   "train.clip_norm: is of the gradients of all blocks together, and mode async updates each "
                   "block by itself: train.clip_value would do");
  if (train->average)
    return err_set(err, ERR_INVALID, "train.average: mode async keeps no average of the weights");
  if (spec_names_collective(train))
    return err_set(err, ERR_INVALID,
                   "train.collective: %s adds what workers have computed, and in mode async nothing is added",
                   train->collective);
  if (spec->workers && spec->workers->stages != 1)
    return err_set(err, ERR_INVALID, "workers.stages: mode async trains whole models");
  return 0;
}

/* Whoever has all of a version was given each block of it by a server no further behind than the window. */
static uint64_t async_proves(const Weir__TrainSpec *train, uint64_t version) {
  uint64_t window = window_of(train);
  return version > window ? version - window : 0;
}

static uint64_t async_horizon(const Weir__TrainSpec *train, uint64_t newest) {
  return newest + window_of(train);
}

static enum mode_arrival async_arrive(const Weir__TrainSpec *train, const struct mode_part *part) {
  if (part->step < part->version)
    return MODE_PART_IS_LATE;
  return part->step > async_horizon(train, part->lowest) ? MODE_PART_IS_EARLY : MODE_PART_IS_APPLIED;
}

/* A block keeps an evaluated version beside the newest weights until its evaluation is known to be over. */
static struct mode_bounds async_bounds(const Weir__TrainSpec *train) {
  return (struct mode_bounds){.versions = 2, .rounds = (uint32_t)window_of(train) + 1, .sums = 1, .sets = 2};
}

static const char *async_note(const Weir__TrainSpec *train) {
  (void)train;
  return "train.mode async: each microbatch is an update of its own, at the learning rate of its step, and "
         "no "
         "two runs end in the same weights: docs/OPTIMIZERS.md#asynchronous-updates says what was measured";
}

const struct mode_def mode_async = {.name = "async",
                                    .option = "window",
                                    .applies_units = true,
                                    .check = async_check,
                                    .version = sync_version,
                                    .proves = async_proves,
                                    .arrive = async_arrive,
                                    .horizon = async_horizon,
                                    .answer = sync_answer,
                                    .oldest = sync_oldest,
                                    .boundary = sync_boundary,
                                    .bounds = async_bounds,
                                    .note = async_note};
