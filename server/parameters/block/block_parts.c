/* Parts that come to a block, and the versions that they make. What a part is good for is the mode's to say.
   A hold bounds what is applied, not what is taken: workers may learn that it was raised before this server
   does. */
#include "server/parameters/block/block.h"
#include "server/parameters/run/run.h"

struct block_round *hosted_block_round(const struct hosted_block *block, uint64_t step) {
  return &block->rounds[mode_count(&block->run->mode, step) % block->run->bounds.rounds];
}

struct statistics *hosted_block_statistics(const struct hosted_block *block, uint64_t step) {
  return &block->statistics[mode_count(&block->run->mode, step) % block->run->bounds.rounds];
}

/* The version that a part was computed from, at least. */
static uint64_t part_version(const struct hosted_block *block, const struct part *part) {
  return part->is_evaluation ? part->step : mode_version(&block->run->mode, part->step);
}

uint64_t hosted_block_proof(const struct hosted_block *block, const struct part *part) {
  uint64_t version = part_version(block, part);
  return part->is_evaluation ? version : mode_proves(&block->run->mode, version);
}

/* A version is evaluated while it is the newest, in each mode. */
static enum mode_arrival arrive_evaluation(const struct mode_part *of) {
  if (of->step < of->version)
    return MODE_PART_IS_LATE;
  return of->step > of->lowest ? MODE_PART_IS_EARLY : MODE_PART_IS_ADDED;
}

static int block_judge(const struct hosted_block *block, const struct part *part, enum mode_arrival *arrival,
                       struct err *err) {
  uint64_t version = part_version(block, part);
  struct mode_part of = {
      .step = part->step, .version = block->version, .lowest = hosted_run_lowest(block->run)};
  *arrival = part->is_evaluation ? arrive_evaluation(&of) : mode_arrive(&block->run->mode, &of);
  if (*arrival == MODE_PART_IS_APPLIED && part->step > hosted_run_horizon(block->run, of.lowest))
    *arrival = MODE_PART_IS_EARLY;
  if (*arrival != MODE_PART_IS_EARLY)
    return 0;
  if (version > block->version)
    return err_set(err, ERR_INVALID, "computed from version %llu, but the block is at version %llu",
                   (unsigned long long)version, (unsigned long long)block->version);
  return err_set(err, ERR_INVALID,
                 "computed from version %llu, but another block of this server is at version %llu",
                 (unsigned long long)version, (unsigned long long)of.lowest);
}

/* Only a part whose values are sound, or that is covered by one whose values were, proves anything; one that
   is refused must not. */
static int block_take(struct hosted_block *block, const struct part *part, struct err *err) {
  int code = block->kind != BLOCK_STATISTICS
                 ? round_add(&hosted_block_round(block, part->step)->parts, part, err)
                 : statistics_add(hosted_block_statistics(block, part->step), part, err);
  if (code)
    return code;
  hosted_run_prove(block->run, hosted_block_proof(block, part), part);
  return hosted_block_reserve(block, err);
}

/* Whether the present version waits for no evaluation here. One that is complete is reported once. */
static bool block_is_evaluated(struct hosted_block *block, struct statistics *statistics) {
  if (!hosted_block_evaluates(block) || statistics->is_evaluated)
    return true;
  if (!statistics_is_evaluation_complete(statistics))
    return false;
  statistics->is_evaluated = true;
  hosted_run_report_eval(block->run, block->version, statistics);
  hosted_block_answer_parked(block);
  if (block->version == block->run->plan.steps)
    hosted_run_finish_block(block->run);
  return true;
}

/* Whether the next version is to be made. The block with the metrics also waits for the evaluation of the
   present one, so that no worker leaves that version behind while chunks of it are missing. An evaluation
   does not wait for a hold. */
static bool block_is_due(struct hosted_block *block) {
  bool is_complete;
  if (block->kind != BLOCK_STATISTICS)
    is_complete = hosted_block_gradient(block) != NULL;
  else {
    struct statistics *statistics = hosted_block_statistics(block, block->version);
    is_complete = block_is_evaluated(block, statistics) && statistics_is_complete(statistics);
  }
  return is_complete && !hosted_block_is_held(block);
}

static void block_complete_rows(struct hosted_block *block) {
  uint64_t step = block->version;
  uint32_t n_steps = (uint32_t)(mode_next(&block->run->mode, step) - step);
  struct statistics *statistics = hosted_block_statistics(block, step);
  for (uint32_t i = 0; i < n_steps && block->has_metrics; i++) {
    struct metrics metrics = statistics_metrics(statistics, i);
    hosted_run_report_step(block->run, step + i, n_steps - i, &metrics);
  }
  statistics_merge(statistics, block->current->data, block->next->data);
  statistics_clear(statistics);
  hosted_block_advance(block);
}

/* A snapshot may have taken the memory that was reserved when the parts came. */
int hosted_block_make_versions(struct hosted_block *block, struct err *err) {
  while (block_is_due(block)) {
    uint64_t version = block->version;
    if (hosted_block_reserve(block, err))
      return err->code;
    if (block->kind == BLOCK_STATISTICS)
      block_complete_rows(block);
    else if (block->kind == BLOCK_KEPT)
      hosted_block_complete_kept(block);
    else if (hosted_block_complete(block, err))
      return err->code;
    if (block->version == version) /* it waits for totals */
      break;
  }
  return 0;
}

int hosted_block_take(struct hosted_block *block, const struct part *part, uint64_t *version,
                      struct err *err) {
  enum mode_arrival arrival;
  *version = part->is_evaluation ? part->step + 1 : mode_reply(&block->run->mode, part->step);
  if (block_judge(block, part, &arrival, err))
    return err->code;
  if (arrival == MODE_PART_IS_LATE)
    return 0;
  if (arrival == MODE_PART_IS_APPLIED && block->kind == BLOCK_PARAMETERS)
    return hosted_block_apply_unit(block, part, err);
  if (block_take(block, part, err))
    return err->code;
  return hosted_block_make_versions(block, err);
}
