/* How a block's complete gradient becomes its next version: clipped, in phases where sums over other blocks
   are needed, then by the optimizer. */
#include <stdlib.h>
#include <string.h>

#include "common/optim/vector.h"
#include "common/trace/trace.h"
#include "server/parameters/block/average.h"
#include "server/parameters/block/block.h"
#include "server/parameters/run/run.h"

/* Where each piece's values lie among the block's sums, as the plan has them. */
static void block_place_sums(struct hosted_block *block) {
  const struct exchange_plan *plan = &block->run->sums;
  const struct optimizer_def *optimizer = block->run->optimizer;
  for (uint32_t phase = 0; phase < optimizer->n_phases; phase++) {
    uint32_t at = plan->phases[phase + plan->has_norm].shares[block->index].begin;
    for (uint32_t p = 0; p < block->update.n_pieces; p++) {
      struct piece *piece = &block->update.pieces[p];
      struct optimizer_window windows[OPTIMIZER_WINDOWS_MAX];
      uint32_t n = optimizer->windows(phase, piece, windows);
      piece->sums_begin[phase] = at;
      for (uint32_t w = 0; w < n; w++)
        at += windows[w].count;
    }
  }
}

static uint32_t piece_slots(const struct hosted_block *block, const struct piece *piece) {
  const struct optimizer_def *optimizer = block->run->optimizer;
  if (optimizer->state)
    return optimizer->state(piece);
  return optimizer->slots(block->options) * piece->elems;
}

int hosted_block_init_update(struct hosted_block *block, const struct model *model, struct err *err) {
  struct hosted_run *run = block->run;
  struct exchange_plan *plan = &run->sums;
  uint32_t n_values = exchange_plan_values(plan, block->index);
  if (run->optimizer->n_phases > 0) {
    block->update.pieces =
        pieces_of(model, &model->blocks[block->index], &plan->arena, &block->update.n_pieces);
    block_place_sums(block);
    for (uint32_t p = 0; p < block->update.n_pieces; p++)
      block->slot_elems += piece_slots(block, &block->update.pieces[p]);
  } else
    block->slot_elems = run->optimizer->slots(block->options) * block->elems;
  if (run->spec->train->average)
    block->slot_elems += block->elems;
  block->mark_elems = hosted_block_mark_elems(block);
  block->slot_elems += block->mark_elems;
  frozen_ranges_init(&block->update.frozen, model, &model->blocks[block->index]);
  if (n_values && !(block->update.sums = buffer_new(n_values * sizeof(double))))
    return err_set(err, ERR_NO_MEMORY, "no memory for %u sums of block %u", n_values, block->index);
  return 0;
}

void hosted_block_fini_update(struct hosted_block *block) {
  buffer_put(block->update.sums);
  frozen_ranges_fini(&block->update.frozen);
  free(block->update.fault);
}

bool hosted_block_slots_are_moved(const struct hosted_block *block) {
  return block->slots && (block->run->optimizer->has_drafts || !buffer_is_sole(block->slots));
}

float *hosted_block_gradient(const struct hosted_block *block) {
  return block->rounds ? round_sum(&hosted_block_round(block, block->version)->parts) : NULL;
}

float *hosted_block_average(const struct hosted_block *block, const struct buffer *slots) {
  return (float *)slots->data + (block->slot_elems - block->mark_elems - block->elems);
}

/* The update of the block, or with pieces of the one whose slots begin at `slot`. */
static struct optimizer_update block_update_of(const struct hosted_block *block, const struct piece *piece,
                                               uint32_t slot, bool is_moved) {
  const struct hosted_run *run = block->run;
  uint32_t begin = piece ? piece->begin : 0;
  struct optimizer_update update = {
      .step = block->update.count,
      .lr = update_rule_lr(&run->rule, block->options->lr, block->update.step, run->plan.steps),
      .elems = piece ? piece->elems : block->elems,
      .weights = (const float *)block->current->data + begin,
      .grad = block->update.grad + begin,
      .out = (float *)block->next->data + begin,
      .piece = piece};
  if (block->slots) {
    update.slots = (const float *)block->slots->data + slot;
    update.next_slots = (float *)(is_moved ? block->next_slots : block->slots)->data + slot;
  }
  for (uint32_t phase = 0; piece && phase < run->optimizer->n_phases; phase++)
    update.totals[phase] = (const double *)block->update.sums->data + piece->sums_begin[phase];
  return update;
}

/* The optimizer's options for the block at this step. */
static const Weir__OptimizerSpec *block_options(const struct hosted_block *block, struct step_options *own) {
  const struct hosted_run *run = block->run;
  return update_rule_options(&run->rule, block->options, block->update.step, run->plan.steps, own);
}

static void block_optimize(struct hosted_block *block, bool is_moved) {
  const struct hosted_run *run = block->run;
  struct step_options own;
  const Weir__OptimizerSpec *options = block_options(block, &own);
  struct optimizer_update update;
  uint32_t slot = 0;
  if (run->optimizer->n_phases == 0) {
    update = block_update_of(block, NULL, 0, is_moved);
    run->optimizer->update(options, &update);
  }
  for (uint32_t p = 0; p < block->update.n_pieces; p++) {
    update = block_update_of(block, &block->update.pieces[p], slot, is_moved);
    run->optimizer->update(options, &update);
    slot += piece_slots(block, &block->update.pieces[p]);
  }
}

static void block_update_average(struct hosted_block *block, bool is_moved) {
  const Weir__AverageSpec *spec = block->run->spec->train->average;
  const struct buffer *next_slots = is_moved ? block->next_slots : block->slots;
  struct average_update update = {.version = mode_next(&block->run->mode, block->version),
                                  .elems = block->elems,
                                  .weights = block->next->data};
  if (!spec)
    return;
  update.average = hosted_block_average(block, block->slots);
  update.next = hosted_block_average(block, next_slots);
  average_update(spec, &update);
}

static void block_keep_marks(struct hosted_block *block, bool is_moved) {
  size_t at = block->slot_elems - block->mark_elems;
  if (is_moved && block->mark_elems)
    memcpy((float *)block->next_slots->data + at, (const float *)block->slots->data + at,
           block->mark_elems * sizeof(float));
}

/* Slots that nothing refers to any more are the next drafts. */
static void block_move_slots(struct hosted_block *block, bool is_moved) {
  struct buffer *old = block->next_slots;
  if (is_moved) {
    old = block->slots;
    block->slots = block->next_slots;
  }
  block->next_slots = NULL;
  if (old && block->run->optimizer->has_drafts && buffer_is_sole(old))
    block->next_slots = old;
  else
    buffer_put(old);
}

/* The round is that of a later step from here on. */
static void block_end_round(struct hosted_block *block) {
  struct block_round *round = hosted_block_round(block, block->version);
  round_clear(&round->parts);
  for (uint32_t i = 0; i < block->run->bounds.rounds; i++)
    round->step = mode_next(&block->run->mode, round->step);
}

void hosted_block_update(struct hosted_block *block) {
  /* Asked once: a snapshot may let go of them meanwhile. */
  bool is_moved = hosted_block_slots_are_moved(block);
  struct trace_span span = {.category = "apply",
                            .name = "apply",
                            .begin_ns = trace_now_ns(),
                            .step = block->update.step,
                            .index = block->index,
                            .run = block->run->trace_number};
  block_optimize(block, is_moved);
  frozen_ranges_keep(&block->update.frozen, block->current->data, block->next->data);
  block_update_average(block, is_moved);
  block_keep_marks(block, is_moved);
  block_move_slots(block, is_moved);
  span.end_ns = trace_now_ns();
  trace_span(&span);
}

static void block_make_version(struct hosted_block *block) {
  hosted_block_update(block);
  block_end_round(block);
  block->update.phase = 0;
  hosted_block_advance(block);
}

void hosted_block_complete_kept(struct hosted_block *block) {
  memcpy(block->next->data, hosted_block_gradient(block), block->elems * sizeof(float));
  block_end_round(block);
  hosted_block_advance(block);
}

static bool block_phase_is_norm(const struct hosted_block *block) {
  return block->run->sums.has_norm && block->update.phase == 0;
}

/* Its sums of the phase that it is in. */
static void block_make_sums(struct hosted_block *block, double *sums) {
  const struct hosted_run *run = block->run;
  uint32_t phase = block->update.phase - run->sums.has_norm, slot = 0;
  struct step_options own;
  const Weir__OptimizerSpec *options = block_options(block, &own);
  if (block_phase_is_norm(block)) {
    sums[0] = vector_sum_squares(block->update.grad, block->elems);
    return;
  }
  for (uint32_t p = 0; p < block->update.n_pieces; p++) {
    struct optimizer_update update =
        block_update_of(block, &block->update.pieces[p], slot, run->optimizer->has_drafts);
    sums += run->optimizer->sums(options, &update, phase, sums);
    slot += piece_slots(block, &block->update.pieces[p]);
  }
}

/* What is done with totals at once; optimizers find theirs in the update. */
static void block_use_totals(struct hosted_block *block, const double *totals) {
  if (block_phase_is_norm(block))
    update_rule_scale(&block->run->rule, totals[0], block->update.grad, block->elems);
}

/* The step can never be made: whoever waits for it, or will, is told. */
void hosted_block_set_fault(struct hosted_block *block, const struct err *err) {
  block->update.fault = mem_new(sizeof *err);
  *block->update.fault = *err;
}

static int block_find_overflow(struct hosted_block *block, struct err *err) {
  err_set(err, ERR_INVALID, "a sum over weights and gradient that its update takes is not finite");
  hosted_block_set_fault(block, err);
  return err->code;
}

/* Until totals have to be waited for, or the next version is there. */
static int block_go_on(struct hosted_block *block, struct err *err) {
  const struct exchange_plan *plan = &block->run->sums;
  for (; block->update.phase < plan->n_phases; block->update.phase++) {
    const struct exchange_share *share = &plan->phases[block->update.phase].shares[block->index];
    double *sums = (double *)block->update.sums->data + share->begin;
    block_make_sums(block, sums);
    if (!vector_is_finite(sums, share->n_values))
      return block_find_overflow(block, err);
    if (share->is_shared) {
      block->update.is_waiting = true;
      block->run->contribute(block->run->exchange, block);
      return 0;
    }
    block_use_totals(block, sums);
  }
  block_make_version(block);
  return 0;
}

bool hosted_block_is_faulty(const struct hosted_block *block, struct err *err) {
  if (block->update.is_waiting || !block->update.fault) /* in this order: it is the exchange's first */
    return false;
  *err = *block->update.fault;
  err_prefix(err, "run '%s': block %u of step %llu", block->run->id, block->index,
             (unsigned long long)block->version);
  return true;
}

/* Who has come before the fault was found. */
static void block_refuse_parked(struct hosted_block *block) {
  struct err err;
  if (hosted_block_is_faulty(block, &err))
    hosted_block_refuse_parked(block, &err);
}

void hosted_block_prepare(struct hosted_block *block, uint64_t step, uint64_t count, float *grad) {
  const struct update_rule *rule = &block->run->rule;
  block->update.step = step;
  block->update.count = count;
  block->update.grad = grad;
  frozen_ranges_clear(&block->update.frozen, grad);
  if (rule->clip_value > 0)
    vector_clamp(grad, block->elems, (float)rule->clip_value);
}

int hosted_block_complete(struct hosted_block *block, struct err *err) {
  const struct hosted_run *run = block->run;
  uint64_t count = mode_count(&run->mode, block->version) - mode_count(&run->mode, run->slots_step);
  if (block->update.is_waiting) /* first: the fault is the exchange's then */
    return 0;
  if (block->update.fault) {
    *err = *block->update.fault;
    return err->code;
  }
  hosted_block_prepare(block, block->version, count, hosted_block_gradient(block));
  if (!block_go_on(block, err))
    return 0;
  block_refuse_parked(block);
  return err->code;
}

void hosted_block_take_totals(struct hosted_block *block) {
  const struct exchange_plan *plan = &block->run->sums;
  const struct exchange_share *share = &plan->phases[block->update.phase].shares[block->index];
  const double *totals = (const double *)block->update.sums->data + share->begin;
  bool is_faulty = block->update.fault != NULL; /* and once it goes on, only what it says counts */
  struct err err;
  block->update.is_waiting = false;
  if (!is_faulty && !vector_is_finite(totals, share->n_values)) /* of finite sums, where a sender lies */
    is_faulty = block_find_overflow(block, &err) != 0;
  if (!is_faulty) {
    block_use_totals(block, totals);
    block->update.phase++;
    is_faulty = block_go_on(block, &err) != 0;
  }
  if (is_faulty)
    block_refuse_parked(block);
  else if (!block->update.is_waiting)
    hosted_block_go_on(block);
}
