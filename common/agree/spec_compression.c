/* train.compression of a spec. */
#include "common/agree/spec_compression.h"

#include <string.h>

#include "common/agree/spec.h"

/* What is added elsewhere than in executors and on servers knows no wire level. */
static int check_company(const Weir__RunSpec *spec, struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  if (strcmp(train->mode, "sync") != 0)
    return err_set(err, ERR_INVALID,
                   "train.compression: is for train.mode sync, which is '%.60s' here: leave out one of both",
                   train->mode);
  if (spec_names_collective(train))
    return err_set(err, ERR_INVALID,
                   "train.compression: workers that reduce among themselves send f32: set train.collective, "
                   "which is '%.60s', to none",
                   train->collective);
  if (spec->workers->stages != 1)
    return err_set(err, ERR_INVALID,
                   "train.compression: a model in stages is trained without it: set workers.stages to 1, or "
                   "leave out one of both");
  return 0;
}

int spec_compression_check(const Weir__RunSpec *spec, struct err *err) {
  const Weir__TrainSpec *train = spec->train;
  const Weir__CompressionSpec *compression = train->compression;
  if (!compression->gradients && !compression->weights)
    return err_set(err, ERR_INVALID,
                   "train.compression: says of neither gradients nor weights how they are sent, as in "
                   "{gradients: int8, parts: 4}");
  if (compression->gradients && !compression->has_parts)
    return err_set(
        err, ERR_INVALID,
        "train.compression.parts: must be given with gradients, from 1 to train.microbatches, %u: as "
        "many as there are workers is best",
        train->microbatches);
  if (!compression->gradients && compression->has_parts)
    return err_set(err, ERR_INVALID,
                   "train.compression.parts: is of train.compression.gradients, which is not given");
  if (compression->has_parts && (compression->parts == 0 || compression->parts > train->microbatches))
    return err_set(err, ERR_INVALID, "train.compression.parts: must be from 1 to train.microbatches, %u",
                   train->microbatches);
  return check_company(spec, err);
}
