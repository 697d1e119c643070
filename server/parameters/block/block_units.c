/* Microbatches that are applied by themselves, each exactly once. What was applied is marked in the block's
   slots, behind what the optimizer keeps: so a checkpoint has of each block weights, slots and marks of one
   moment, whatever other blocks have then, and a microbatch that is computed again counts where it is not
   marked. */
#include <string.h>

#include "server/parameters/block/block.h"
#include "server/parameters/round/marks.h"
#include "server/parameters/run/run.h"

enum { WORD_BITS = 32 };

/* Of a step that is not over; of another one where the number is another. */
struct step_marks {
  uint32_t step;    /* the lower half of its number */
  uint32_t units[]; /* a bit for each */
};

/* Behind it come the marks of steps, those of step s at s % rounds. */
struct marks {
  uint32_t count[2]; /* of updates since the slots began, the lower half first */
};
_Static_assert(sizeof(uint32_t) == sizeof(float), "marks lie among slots");

static uint32_t step_words(const struct hosted_block *block) {
  return 1 + (plan_units(&block->run->plan) + WORD_BITS - 1) / WORD_BITS;
}

uint32_t hosted_block_mark_elems(const struct hosted_block *block) {
  const struct hosted_run *run = block->run;
  uint32_t count_words = sizeof(struct marks) / sizeof(uint32_t);
  return run->mode.def->applies_units ? count_words + run->bounds.rounds * step_words(block) : 0;
}

static struct marks *block_marks(const struct hosted_block *block) {
  return (struct marks *)((float *)block->slots->data + (block->slot_elems - block->mark_elems));
}

static struct step_marks *step_marks(const struct hosted_block *block, uint64_t step) {
  uint32_t *steps = (uint32_t *)(block_marks(block) + 1);
  return (struct step_marks *)(steps + step % block->run->bounds.rounds * step_words(block));
}

static bool is_applied(const struct hosted_block *block, uint64_t step, uint32_t unit) {
  const struct step_marks *marks = step_marks(block, step);
  return marks->step == (uint32_t)step && (marks->units[unit / WORD_BITS] >> unit % WORD_BITS & 1);
}

static void mark_applied(struct hosted_block *block, uint64_t step, uint32_t unit) {
  struct step_marks *marks = step_marks(block, step);
  if (marks->step != (uint32_t)step)
    memset(marks->units, 0, (step_words(block) - 1) * sizeof(uint32_t));
  marks->step = (uint32_t)step;
  marks->units[unit / WORD_BITS] |= UINT32_C(1) << unit % WORD_BITS;
}

static uint64_t count_updates(const struct marks *marks) {
  return marks->count[0] | (uint64_t)marks->count[1] << WORD_BITS;
}

static void set_updates(struct marks *marks, uint64_t count) {
  marks->count[0] = (uint32_t)count;
  marks->count[1] = (uint32_t)(count >> WORD_BITS);
}

void hosted_block_take_marks(struct hosted_block *block, const void *marks, bool has_slots) {
  if (block->mark_elems == 0)
    return;
  memcpy(block_marks(block), marks, block->mark_elems * sizeof(float));
  if (!has_slots)
    set_updates(block_marks(block), 0);
}

void hosted_block_unmarked(const struct hosted_block *block, uint64_t *microbatches) {
  for (uint32_t m = 0; m < plan_units(&block->run->plan); m++)
    if (!is_applied(block, block->version, m))
      marks_set(microbatches, m, m + 1);
}

static bool is_step_over(const struct hosted_block *block) {
  for (uint32_t m = 0; m < plan_units(&block->run->plan); m++)
    if (!is_applied(block, block->version, m))
      return false;
  return true;
}

/* Behind the update the slots are the block's alone, whatever referred to those before. */
static int block_apply(struct hosted_block *block, const struct part *part, struct err *err) {
  struct buffer *grad = pool_take(block->pool, block->elems * sizeof(float));
  uint64_t count = count_updates(block_marks(block));
  if (!grad)
    return hosted_block_no_memory(block, err);
  if (!hosted_block_reserve(block, err) && !part_read(part, block->elems * sizeof(float), grad->data, err) &&
      !part_check(grad->data, block->elems, err)) {
    hosted_block_prepare(block, part->step, count, grad->data);
    hosted_block_update(block);
    mark_applied(block, part->step, part->node.first);
    set_updates(block_marks(block), count + 1);
    hosted_block_renew(block);
  }
  pool_give(block->pool, grad);
  return err->code;
}

/* A block that was restored may have come with a step that is over: its microbatches come again. */
int hosted_block_apply_unit(struct hosted_block *block, const struct part *part, struct err *err) {
  *err = (struct err)ERR_NONE;
  if (part->node.level > 0)
    return err_set(err, ERR_INVALID, "mode %s takes microbatches by themselves: level must be 0, not %u",
                   block->run->mode.def->name, part->node.level);
  if (!is_applied(block, part->step, part->node.first) && block_apply(block, part, err))
    return err->code;
  hosted_run_prove(block->run, hosted_block_proof(block, part), part);
  while (block->version < block->run->plan.steps && is_step_over(block))
    hosted_block_count_version(block);
  return 0;
}
