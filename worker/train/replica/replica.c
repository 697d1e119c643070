/* A replica of mode `local`. */
#include "worker/train/replica/replica.h"

#include <stdlib.h>
#include <string.h>

#include "common/optim/frozen_ranges.h"
#include "common/optim/update_rule.h"
#include "common/optim/vector.h"

struct replica {
  struct replica_options options;
  struct update_rule rule;
  uint32_t share; /* microbatches of each replica */
  struct weights_set *set;
  struct reducer *reducer;
  bool *mine;           /* [microbatches] that are the replica's */
  struct buffer **sums; /* [n_param_blocks] of the present step's gradients; NULL: not there yet */
  float **slots;        /* [n_param_blocks] what the optimizer keeps; NULL: nothing. The set's where */
  bool keeps_slots;     /* it is handed on to the next version */
  double square;        /* of all gradients, where they are clipped by their norm */
  struct frozen_ranges *frozen; /* [n_param_blocks] */
  float *momenta;               /* f32[row_elems] of running statistics */
  float *rows;                  /* f32[share, row_elems] of the present step */
  float *metrics;               /* f32[inner_steps, METRICS] */

  uint32_t index, n_steps;
  uint64_t first_step, step;
  const struct weights_set *start;
  enum replica_job_kind phase;
  uint32_t n_jobs, n_taken, n_done; /* of the phase */
  bool is_begun, is_dropped;
};

static void enter_phase(struct replica *replica, enum replica_job_kind phase);

static const Weir__OptimizerSpec *group_of(const struct replica *replica, uint32_t block) {
  return update_rule_group(&replica->rule, replica->options.model->blocks[block].group);
}

static size_t slot_elems(const struct update_rule *rule, const struct block *block) {
  return (size_t)rule->optimizer->slots(update_rule_group(rule, block->group)) * block->elems;
}

uint64_t replica_state_bytes(const struct model *model, const Weir__TrainSpec *train, uint32_t n_sets) {
  struct update_rule rule = update_rule_of_steps(train);
  uint64_t bytes = 0;
  if (model->kept_elems)
    return model->kept_elems * n_sets * sizeof(float);
  for (uint32_t b = 0; b < model->n_param_blocks; b++)
    bytes += slot_elems(&rule, &model->blocks[b]) * sizeof(float);
  return bytes;
}

/* Of a parameter block they are one behind the other in the set, too. */
static void find_slots(struct replica *replica) {
  const struct model *model = replica->options.model;
  for (uint32_t b = model->n_param_blocks; b < model->n_summed_blocks; b++)
    if (model->blocks[b].kept_n == 0)
      replica->slots[model->blocks[b].kept_of] = replica->set->kept + model->blocks[b].begin;
}

static bool make_slots(struct replica *replica) {
  replica->keeps_slots = replica->options.model->kept_elems > 0;
  if (replica->keeps_slots) {
    find_slots(replica);
    return true;
  }
  for (uint32_t b = 0; b < replica->options.model->n_param_blocks; b++) {
    size_t elems = slot_elems(&replica->rule, &replica->options.model->blocks[b]);
    if (elems && !(replica->slots[b] = malloc(elems * sizeof(float))))
      return false;
  }
  return true;
}

static void drop_sum(void *user, uint32_t block, struct buffer *buffer) {
  struct replica *replica = user;
  block_pool_give(replica->options.pool, block, buffer);
}

static void find_momenta(struct replica *replica) {
  const struct model *model = replica->options.model;
  for (int s = 0; s < model->n_statistics; s++)
    for (uint64_t i = 0; i < model->statistics[s].elems; i++)
      replica->momenta[model->statistics[s].begin + i] = model->statistics[s].momentum;
}

int replica_new(const struct replica_options *options, struct replica **out, struct err *err) {
  const struct model *model = options->model;
  struct replica *replica = mem_new(sizeof *replica);
  replica->options = *options;
  replica->rule = update_rule_of_steps(options->train);
  replica->share = plan_unit_microbatches(options->plan);
  replica->set = weights_set_apart(options->weights);
  replica->mine = mem_new(options->plan->microbatches * sizeof *replica->mine);
  replica->sums = mem_new(model->n_param_blocks * sizeof(struct buffer *));
  replica->slots = mem_new(model->n_param_blocks * sizeof(float *));
  replica->frozen = mem_new(model->n_param_blocks * sizeof *replica->frozen);
  replica->momenta = mem_new(model->row_elems * sizeof(float));
  replica->rows = mem_new(replica->share * model->row_elems * sizeof(float));
  replica->metrics = mem_new((size_t)options->plan->inner_steps * METRICS * sizeof(float));
  replica->reducer = reducer_new(&(struct reducer_options){.microbatches = options->plan->microbatches,
                                                           .blocks = model->n_blocks,
                                                           .summed_blocks = model->n_summed_blocks,
                                                           .sum_level = UINT32_MAX,
                                                           .drop = drop_sum,
                                                           .user = replica});
  for (uint32_t b = 0; b < model->n_param_blocks; b++)
    frozen_ranges_init(&replica->frozen[b], model, &model->blocks[b]);
  find_momenta(replica);
  if (!make_slots(replica)) {
    replica_free(replica);
    return err_set(err, ERR_NO_MEMORY, "no memory for what the optimizer keeps of a replica: %llu bytes",
                   (unsigned long long)replica_state_bytes(model, options->train, 1));
  }
  *out = replica;
  return 0;
}

static void drop_sums(struct replica *replica) {
  for (uint32_t b = 0; b < replica->options.model->n_param_blocks; b++) {
    block_pool_give(replica->options.pool, b, replica->sums[b]);
    replica->sums[b] = NULL;
  }
}

void replica_free(struct replica *replica) {
  if (!replica)
    return;
  drop_sums(replica);
  reducer_free(replica->reducer);
  for (uint32_t b = 0; b < replica->options.model->n_param_blocks; b++) {
    if (!replica->keeps_slots)
      free(replica->slots[b]);
    frozen_ranges_fini(&replica->frozen[b]);
  }
  free(replica->mine);
  free(replica->sums);
  free(replica->slots);
  free(replica->frozen);
  free(replica->momenta);
  free(replica->rows);
  free(replica->metrics);
  free(replica);
}

void replica_begin(struct replica *replica, uint32_t index, uint64_t step, uint32_t n_steps,
                   const struct weights_set *start) {
  const struct plan *plan = replica->options.plan;
  CHECK(!replica->is_begun && n_steps <= plan->inner_steps);
  replica->index = index;
  replica->first_step = replica->step = step;
  replica->n_steps = n_steps;
  replica->start = start;
  replica->is_begun = true;
  replica->is_dropped = false;
  for (uint32_t m = 0; m < plan->microbatches; m++)
    replica->mine[m] = m / replica->share == index;
  memset(replica->metrics, 0, (size_t)plan->inner_steps * METRICS * sizeof(float));
  enter_phase(replica, REPLICA_BEGIN);
}

static uint32_t count_jobs(const struct replica *replica, enum replica_job_kind phase) {
  if (phase == REPLICA_MICROBATCH)
    return replica->share;
  return phase == REPLICA_NORM ? 1 : replica->options.model->n_blocks;
}

static void enter_phase(struct replica *replica, enum replica_job_kind phase) {
  replica->phase = phase;
  replica->n_jobs = count_jobs(replica, phase);
  replica->n_taken = replica->n_done = 0;
  if (phase != REPLICA_MICROBATCH)
    return;
  replica->set->opening = ++replica->options.weights->openings; /* programs keep what they made of the last */
  reducer_begin(replica->reducer, replica->mine, false);
}

static void next_phase(struct replica *replica) {
  if (replica->phase == REPLICA_MICROBATCH)
    enter_phase(replica, replica->rule.clip_norm > 0 ? REPLICA_NORM : REPLICA_UPDATE);
  else if (replica->phase == REPLICA_NORM)
    enter_phase(replica, REPLICA_UPDATE);
  else {
    replica->step += replica->phase == REPLICA_UPDATE;
    if (!replica_is_complete(replica))
      enter_phase(replica, REPLICA_MICROBATCH);
  }
}

bool replica_take(struct replica *replica, struct replica_job *job) {
  uint32_t first = replica->phase == REPLICA_MICROBATCH ? replica->index * replica->share : 0;
  if (!replica_is_under_way(replica) || replica->n_taken == replica->n_jobs)
    return false;
  *job = (struct replica_job){replica->phase, first + replica->n_taken++, replica->step, replica->set};
  return true;
}

void replica_give(struct replica *replica) {
  if (++replica->n_done == replica->n_jobs && !replica->is_dropped)
    next_phase(replica);
}

void replica_drop(struct replica *replica) {
  replica->is_dropped = true;
}

bool replica_is_busy(const struct replica *replica) {
  return replica->n_done < replica->n_taken;
}

bool replica_is_complete(const struct replica *replica) {
  return replica->is_begun && replica->step == replica->first_step + replica->n_steps;
}

bool replica_is_under_way(const struct replica *replica) {
  return replica->is_begun && !replica->is_dropped && !replica_is_complete(replica);
}

/* The reducer lets go of what it holds. */
void replica_end(struct replica *replica) {
  CHECK(!replica_is_busy(replica) || replica_is_complete(replica));
  drop_sums(replica);
  reducer_begin(replica->reducer, replica->mine, false);
  replica->is_begun = false;
}

struct reducer *replica_reducer(struct replica *replica) {
  return replica->reducer;
}

void replica_receive(struct replica *replica, uint32_t block, uint32_t microbatch, struct buffer *buffer) {
  const struct model *model = replica->options.model;
  const struct block *of = &model->blocks[block];
  if (block < model->n_param_blocks) {
    replica->sums[block] = buffer;
    return;
  }
  memcpy(replica->rows + (size_t)(microbatch % replica->share) * model->row_elems + of->begin, buffer->data,
         of->elems * sizeof(float));
  block_pool_give(replica->options.pool, block, buffer);
}

/* The block's f32s, of a version or of the replica. */
static float *block_of(const struct replica *replica, const struct weights_set *set, uint32_t block) {
  return weights_landing(replica->options.weights, set, block);
}

static void block_begin(struct replica *replica, uint32_t block) {
  const struct optimizer_def *optimizer = replica->rule.optimizer;
  const struct block *of = &replica->options.model->blocks[block];
  memcpy(block_of(replica, replica->set, block), block_of(replica, replica->start, block),
         of->elems * sizeof(float));
  if (of->kind != BLOCK_PARAMETERS || !replica->slots[block] || replica->keeps_slots)
    return;
  memset(replica->slots[block], 0, slot_elems(&replica->rule, of) * sizeof(float));
  if (optimizer->init_slots)
    optimizer->init_slots(group_of(replica, block), of->elems, replica->slots[block]);
}

/* Of what the update takes, in the order in which servers add it in other modes. */
static void find_norm(struct replica *replica) {
  const struct model *model = replica->options.model;
  replica->square = 0;
  for (uint32_t b = 0; b < model->n_param_blocks; b++) {
    float *grad = (float *)replica->sums[b]->data;
    frozen_ranges_clear(&replica->frozen[b], grad);
    replica->square += vector_sum_squares(grad, model->blocks[b].elems);
  }
}

/* By the code that servers run in other modes, in place; the optimizer counts from where what it keeps began.
 */
static void block_update(struct replica *replica, uint32_t block) {
  const struct update_rule *rule = &replica->rule;
  const Weir__OptimizerSpec *group = group_of(replica, block);
  uint32_t elems = replica->options.model->blocks[block].elems;
  uint64_t steps = replica->options.plan->steps;
  float *weights = block_of(replica, replica->set, block), *grad = (float *)replica->sums[block]->data;
  struct step_options own;
  struct optimizer_update update = {.step = replica->step - (replica->keeps_slots ? 0 : replica->first_step),
                                    .lr = update_rule_lr(rule, group->lr, replica->step, steps),
                                    .elems = elems,
                                    .weights = weights,
                                    .grad = grad,
                                    .out = weights,
                                    .slots = replica->slots[block],
                                    .next_slots = replica->slots[block]};
  frozen_ranges_clear(&replica->frozen[block], grad);
  update_rule_scale(rule, replica->square, grad, elems);
  if (rule->clip_value > 0)
    vector_clamp(grad, elems, (float)rule->clip_value);
  rule->optimizer->update(update_rule_options(rule, group, replica->step, steps, &own), &update);
  frozen_ranges_keep(&replica->frozen[block], block_of(replica, replica->start, block), weights);
  block_pool_give(replica->options.pool, block, replica->sums[block]);
  replica->sums[block] = NULL;
}

/* One update a microbatch, in order, as servers merge rows in other modes. */
static void rows_merge(struct replica *replica, uint32_t block) {
  const struct model *model = replica->options.model;
  const struct block *of = &model->blocks[block];
  float *metrics = replica->metrics + (size_t)(replica->step - replica->first_step) * METRICS;
  float *state = replica->set->state;
  for (uint64_t i = of->begin; i < of->begin + of->elems; i++) {
    double sum = 0;
    for (uint32_t m = 0; m < replica->share; m++) {
      float value = replica->rows[m * model->row_elems + i], momentum = replica->momenta[i];
      sum += (double)value;
      state[i] = state[i] * momentum + value * (1 - momentum);
    }
    if (i < METRICS)
      metrics[i] = (float)sum;
  }
}

void replica_do(struct replica *replica, const struct replica_job *job) {
  if (job->kind == REPLICA_BEGIN)
    block_begin(replica, job->index);
  else if (job->kind == REPLICA_NORM)
    find_norm(replica);
  else if (job->index < replica->options.model->n_param_blocks)
    block_update(replica, job->index);
  else if (job->index >= replica->options.model->n_summed_blocks)
    rows_merge(replica, job->index);
}

void replica_part(const struct replica *replica, uint32_t block, float *out) {
  const struct model *model = replica->options.model;
  const struct plan *plan = replica->options.plan;
  const struct block *of = &model->blocks[block];
  const float *start = block_of(replica, replica->start, block),
              *end = block_of(replica, replica->set, block);
  if (block < model->n_summed_blocks) {
    for (uint32_t i = 0; i < of->elems; i++)
      out[i] = (of->kind == BLOCK_KEPT ? end[i] : start[i] - end[i]) / (float)plan->replicas;
    return;
  }
  memcpy(out, end, of->elems * sizeof *out);
  if (of->begin == 0)
    memcpy(out + of->elems, replica->metrics, (size_t)plan->inner_steps * METRICS * sizeof *out);
}
