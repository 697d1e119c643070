/* Synchronous steps on a server: a part counts for the version that its block is at. A hold bounds what is
   applied, not what is taken: workers may learn that it was raised before this server does. */
#include "server/parameters/block/block.h"
#include "server/parameters/block/hosted_mode.h"
#include "server/parameters/run/run.h"

/* Whether a part belongs to the step that the block is at. A part of a step that is complete is late and
   covered. One of a later step cannot be: it would have been computed from weights that do not exist. So
   would one of the block's step while another block of this server is behind: a worker pushes for a version
   when it holds all of it. */
static int sync_arrive(struct hosted_block *block, const struct part *part, uint64_t *version, bool *is_late,
                       struct err *err) {
  uint64_t lowest = hosted_run_lowest(block->run);
  *version = part->step + 1;
  *is_late = part->step < block->version;
  if (part->step > block->version)
    return err_set(err, ERR_INVALID, "computed from version %llu, but the block is at version %llu",
                   (unsigned long long)part->step, (unsigned long long)block->version);
  if (part->step > lowest)
    return err_set(err, ERR_INVALID,
                   "computed from version %llu, but another block of this server is at version %llu",
                   (unsigned long long)part->step, (unsigned long long)lowest);
  return 0;
}

/* The round has the part: its values are sound, or it is covered by one whose values were. Only such a part
   proves anything; one that is refused must not. */
static int sync_accept(struct hosted_block *block, const struct part *part, struct err *err) {
  hosted_run_prove(block->run, part);
  return hosted_block_reserve(block, err);
}

static int sync_push(struct hosted_block *block, const struct part *part, uint64_t *version,
                     struct err *err) {
  bool is_late;
  if (sync_arrive(block, part, version, &is_late, err))
    return err->code;
  if (is_late)
    return 0;
  if (round_add(&block->round, part, err) || sync_accept(block, part, err))
    return err->code;
  return round_sum(&block->round) && !hosted_block_is_held(block) ? hosted_block_complete(block, err) : 0;
}

static void sync_complete_rows(struct hosted_block *block) {
  struct statistics *statistics = &block->statistics;
  uint64_t step = block->version;
  struct metrics metrics = statistics_metrics(statistics);
  statistics_merge(statistics, block->current->data, block->next->data);
  statistics_clear(statistics);
  if (block->has_metrics)
    hosted_run_report_step(block->run, step, &metrics);
  hosted_block_advance(block);
}

/* The block with the metrics also waits for the evaluation of the present version, so that no worker leaves
   that version behind while chunks of it are missing. An evaluation does not wait for a hold. */
static void sync_look_at_rows(struct hosted_block *block) {
  struct statistics *statistics = &block->statistics;
  if (hosted_block_evaluates(block) && !statistics->is_evaluated) {
    if (!statistics_is_evaluation_complete(statistics))
      return;
    statistics->is_evaluated = true;
    hosted_run_report_eval(block->run, block->version, statistics);
    if (block->version == block->run->plan.steps)
      hosted_run_finish_block(block->run);
  }
  if (statistics_is_complete(statistics) && !hosted_block_is_held(block))
    sync_complete_rows(block);
}

static int sync_push_row(struct hosted_block *block, const struct part *part, uint64_t *version,
                         struct err *err) {
  struct statistics *statistics = &block->statistics;
  bool is_late;
  if (sync_arrive(block, part, version, &is_late, err))
    return err->code;
  if (is_late)
    return 0;
  if (statistics_add(statistics, part, err) || sync_accept(block, part, err))
    return err->code;
  sync_look_at_rows(block);
  return 0;
}

/* A snapshot may have taken the memory that was reserved when the parts came. */
static int sync_go_on(struct hosted_block *block, struct err *err) {
  bool is_parameters = block->kind == BLOCK_PARAMETERS;
  bool is_due = is_parameters ? round_sum(&block->round) != NULL : statistics_is_complete(&block->statistics);
  if (!is_due || hosted_block_is_held(block))
    return 0;
  if (hosted_block_reserve(block, err))
    return err->code;
  if (is_parameters)
    return hosted_block_complete(block, err);
  sync_look_at_rows(block);
  return 0;
}

const struct hosted_mode_def hosted_mode_sync = {
    .name = "sync", .push = sync_push, .push_row = sync_push_row, .go_on = sync_go_on};
