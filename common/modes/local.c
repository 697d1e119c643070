/* Local steps (DiLoCo: Douillard et al., 2023): replicas of the model take `inner_steps` steps of their own
   from a version, and what they moved by on average makes the next one. To servers that is a synchronous
   step: it is named by the version that the replicas begin at, and its parts are replicas. Versions keep
   their numbers, so there is one after each so many steps, and the run's last. */
#include <string.h>

#include "common/agree/spec.h"
#include "common/modes/sync.h"

static uint64_t local_boundary(const Weir__TrainSpec *train, uint64_t version) {
  uint64_t stride = train->local->inner_steps, rest = version % stride;
  return rest ? version + stride - rest : version;
}

static uint64_t local_stride(const Weir__TrainSpec *train) {
  return train->local->inner_steps;
}

/* A worker has the weights of a replica besides. */
static struct mode_bounds local_bounds(const Weir__TrainSpec *train) {
  (void)train;
  return (struct mode_bounds){.versions = 2, .rounds = 1, .sums = 1, .sets = 2, .replica_sets = 1};
}

static int check_steps(const char *key, uint64_t steps, uint64_t stride, struct err *err) {
  uint64_t below = steps / stride * stride;
  if (steps % stride == 0)
    return 0;
  if (below == 0)
    return err_set(err, ERR_INVALID, "%s: %llu is no multiple of train.local.inner_steps: take %llu", key,
                   (unsigned long long)steps, (unsigned long long)stride);
  return err_set(err, ERR_INVALID, "%s: %llu is no multiple of train.local.inner_steps: take %llu or %llu",
                 key, (unsigned long long)steps, (unsigned long long)below,
                 (unsigned long long)(below + stride));
}

/* What the user counts in steps falls on versions that there will be. */
static int check_counts(const Weir__RunSpec *spec, struct err *err) {
  uint64_t stride = spec->train->local->inner_steps;
  if (spec->eval && spec->eval->has_every_steps &&
      check_steps("eval.every_steps", spec->eval->every_steps, stride, err))
    return err->code;
  if (spec->checkpoint && spec->checkpoint->has_every_steps &&
      check_steps("checkpoint.every_steps", spec->checkpoint->every_steps, stride, err))
    return err->code;
  return 0;
}

static int check_replicas(const Weir__TrainSpec *train, struct err *err) {
  uint32_t replicas = train->local->replicas, each = train->microbatches / replicas;
  if (train->microbatches % replicas == 0 && (each & (each - 1)) == 0)
    return 0;
  return err_set(
      err, ERR_INVALID,
      "train.local.replicas: %u replicas of train.microbatches %u: each needs as many, and a power "
      "of two of them",
      replicas, train->microbatches);
}

static int local_check(const Weir__RunSpec *spec, struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  if (!train->local)
    return err_set(err, ERR_INVALID,
                   "train.local: is missing: mode local needs {replicas: 4, inner_steps: 50}, say");
  if (check_replicas(train, err) || check_counts(spec, err))
    return err->code;
  if (strcmp(train->local->inner_state, "reset") != 0 && strcmp(train->local->inner_state, "kept") != 0)
    return err_set(err, ERR_INVALID, "train.local.inner_state: '%.60s' is not known (known: reset, kept)",
                   train->local->inner_state);
  if (train->average)
    return err_set(err, ERR_INVALID, "train.average: mode local keeps no average of the weights");
  if (spec_names_collective(train))
    return err_set(err, ERR_INVALID,
                   "train.collective: mode local trains without it: a replica is computed "
                   "by one worker");
  if (spec->workers && spec->workers->stages != 1)
    return err_set(err, ERR_INVALID,
                   "workers.stages: mode local trains whole models: a replica is computed "
                   "by one worker");
  return 0;
}

const struct mode_def mode_local = {.name = "local",
                                    .option = "local",
                                    .check = local_check,
                                    .version = sync_version,
                                    .arrive = sync_arrive,
                                    .answer = sync_answer,
                                    .oldest = sync_oldest,
                                    .boundary = local_boundary,
                                    .stride = local_stride,
                                    .bounds = local_bounds};
