/* The steps of a run. */
#include "worker/train/run/steps.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "worker/train/run/follow.h"
#include "worker/train/run/sending.h"

static void steps_advance(struct run *run);

/* A replica that is under way has said itself what it takes; where several are owed, one comes after another.
 */
static void steps_expect(const struct run *run, uint64_t step) {
  struct task_range share = run->share.microbatches;
  uint32_t each = plan_unit_microbatches(&run->loaded.plan);
  if (run->is_replicating)
    return;
  if (run->replica && share.end > share.begin)
    share.end = share.begin + 1;
  loader_expect(run->loaded.loader, step, share.begin * each, share.end * each);
}

static struct step_tasks *step_at(const struct run *run, uint64_t step) {
  return &run->steps[mode_count(&run->mode, step) % (run->bounds.rounds + 1)];
}

static uint64_t steps_end_of(const struct run *run) {
  uint64_t end = run->first_step;
  for (uint32_t i = 0; i < run->n_steps; i++)
    end = mode_next(&run->mode, end);
  return end;
}

static uint32_t reducer_of(const struct run *run, uint64_t step) {
  return (uint32_t)(mode_count(&run->mode, step) % run->bounds.rounds);
}

static bool is_open(const struct run *run, uint64_t step) {
  return step >= run->first_step && step < steps_end_of(run);
}

struct reducer *steps_reducer(const struct run *run, uint64_t step) {
  return run->reducers[reducer_of(run, step)];
}

/* The lowest step that is not known to be over: whoever has all of a version knows that steps are. */
static uint64_t steps_lowest(const struct run *run) {
  const struct weights *weights = run->weights;
  uint64_t over = weights_next_is_complete(weights) ? mode_proves(&run->mode, weights->next->version) : 0;
  return over > run->first_step ? over : run->first_step;
}

/* Whether all of the version is here. */
static bool has_version(const struct run *run, uint64_t version) {
  return run->weights->current->is_open && version <= run->weights->current->version;
}

uint64_t steps_version(const struct run *run, uint64_t step, enum work_kind kind) {
  uint64_t version = kind == WORK_CHUNK ? step : mode_version(&run->mode, step);
  bool takes_newer = kind == WORK_MICROBATCH && run->mode.def->applies_units;
  return takes_newer && has_version(run, version) ? run->weights->current->version : version;
}

static void step_tasks_assign(const struct run *run, struct step_tasks *tasks) {
  const struct plan *plan = &run->loaded.plan;
  tasks->is_due |= tasks->step < plan->steps && (run->hold == 0 || tasks->step < run->hold);
  if (tasks->is_due)
    tasks_assign(&tasks->microbatches, run->share.microbatches);
  if (tasks->step <= plan->steps && plan_evaluates(plan, tasks->step))
    tasks_assign(&tasks->chunks, run->share.chunks);
}

/* Opens the steps that are computed from what is here, or fills. */
static void steps_open_tasks(struct run *run) {
  uint64_t step;
  while (mode_version(&run->mode, step = steps_end_of(run)) <= run->weights->next->version) {
    struct step_tasks *tasks = step_at(run, step);
    CHECK(run->n_steps < run->bounds.rounds + 1);
    tasks_clear(&tasks->microbatches);
    tasks_clear(&tasks->chunks);
    tasks->step = step;
    tasks->is_due = tasks->is_begun = false;
    step_tasks_assign(run, tasks);
    run->n_steps++;
  }
}

static void step_tasks_close(struct step_tasks *tasks) {
  extras_clear(&tasks->extra_microbatches);
  extras_clear(&tasks->extra_chunks);
}

void steps_send(struct run *run, const struct transfer_item *items, int n) {
  if (!run->outlet)
    sending_start(run, items, n);
  for (int i = 0; run->outlet && i < n; i++)
    if (items[i].kind == TRANSFER_PUSH && items[i].block < run->loaded.model->n_param_blocks)
      run->outlet->give(run->outlet, &items[i]);
    else
      sending_start(run, &items[i], 1);
}

bool steps_must_land(const struct run *run, const struct buffer *buffer) {
  return block_pool_device(buffer) >= 0 && !(run->outlet && run->outlet->is_on_device);
}

bool steps_next_unsent(struct run *run, struct transfer_item *item) {
  if (run->n_unsent == 0 || run->phase != RUN_WORKING)
    return false;
  *item = run->unsent[--run->n_unsent];
  return true;
}

/* Those of steps before `step`. */
static void steps_drop_unsent(struct run *run, uint64_t step) {
  int n = 0;
  for (int i = 0; i < run->n_unsent; i++) {
    const struct transfer_item *item = &run->unsent[i];
    if (item->step < step)
      block_pool_give(run->pool, item->block, item->buffer);
    else
      run->unsent[n++] = *item;
  }
  run->n_unsent = n;
}

/* From the reducer of a step, under the lock, where nobody waits for a device. */
static void on_send(void *user, const struct reducer_send *send) {
  struct step_sends *sends = user;
  struct run *run = sends->run;
  struct transfer_item item = {.kind = send->buffer ? TRANSFER_PUSH : TRANSFER_PULL,
                               .server = run->owner[send->block],
                               .block = send->block,
                               .step = sends->step,
                               .version = mode_reply(&run->mode, sends->step),
                               .node = send->node,
                               .wait = send->wait,
                               .buffer = send->buffer};
  if (!item.buffer || !steps_must_land(run, item.buffer)) {
    steps_send(run, &item, 1);
    return;
  }
  array_reserve((void **)&run->unsent, &run->unsent_capacity, run->n_unsent, sizeof *run->unsent);
  run->unsent[run->n_unsent++] = item;
}

static void on_drop(void *user, uint32_t block, struct buffer *buffer) {
  struct step_sends *sends = user;
  block_pool_give(sends->run->pool, block, buffer);
}

/* Whether gradients of microbatches are added, here and on servers. */
static bool adds_parts(const struct run *run) {
  return !run->mode.def->applies_units;
}

void steps_join(struct run *run, uint64_t step) {
  for (uint32_t i = 0; i < run->bounds.rounds; i++) {
    run->sends[i].run = run;
    run->reducers[i] = reducer_new(
        &(struct reducer_options){.microbatches = plan_units(&run->loaded.plan),
                                  .blocks = run->loaded.model->n_blocks,
                                  .summed_blocks = adds_parts(run) ? run->loaded.model->n_summed_blocks : 0,
                                  .sum_level = compression_sum_level(&run->compression),
                                  .roles = run->roles,
                                  .send = on_send,
                                  .drop = on_drop,
                                  .user = &run->sends[i]});
  }
  run->first_step = step;
  run->n_steps = 0;
  weights_open_next(run->weights, mode_version(&run->mode, step), false); /* each member for itself */
  steps_open_tasks(run);
  run->follow = (struct follow){0};
  steps_expect(run, step);
}

void steps_clear(struct run *run) {
  for (uint32_t i = 0; run->reducers && i < run->bounds.rounds; i++) {
    reducer_free(run->reducers[i]);
    run->reducers[i] = NULL;
  }
  for (uint32_t i = 0; run->steps && i <= run->bounds.rounds; i++)
    step_tasks_close(&run->steps[i]);
  steps_drop_unsent(run, UINT64_MAX);
  run->n_steps = 0;
  weights_clear(run->weights);
}

/* Tells the step's reducer which microbatches will be delivered. */
static void step_tell_reducer(const struct run *run, const struct step_tasks *tasks) {
  bool mine[MICROBATCHES_MAX];
  tasks_mine(&tasks->microbatches, mine);
  reducer_assign(steps_reducer(run, tasks->step), mine);
}

/* What the step is computed from is here: its gradients may be handed over. */
static void step_begin(struct run *run, struct step_tasks *tasks) {
  bool mine[MICROBATCHES_MAX];
  tasks->is_begun = true;
  run->sends[reducer_of(run, tasks->step)].step = tasks->step;
  tasks_mine(&tasks->microbatches, mine);
  reducer_begin(steps_reducer(run, tasks->step), mine, mode_brings_version(&run->mode, tasks->step));
}

/* The version after the current one fills from now on. */
static void steps_open(struct run *run) {
  struct weights *weights = run->weights;
  uint64_t version = weights->current->version;
  bool is_first = true;
  weights_open_next(weights, mode_next(&run->mode, version), run->outlet && run->outlet->is_on_device);
  steps_open_tasks(run);
  for (uint64_t step = run->first_step; step < steps_end_of(run); step = mode_next(&run->mode, step)) {
    struct step_tasks *tasks = step_at(run, step);
    if (tasks->is_begun || mode_version(&run->mode, step) > version)
      continue;
    step_begin(run, tasks);
    if (is_first)
      steps_expect(run, step);
    is_first = false;
  }
}

/* Whether the version after the current one is made: of a step that is over it is there. */
static bool next_is_due(const struct run *run) {
  uint64_t step = run->weights->current->version;
  return step < run->first_step || step_at(run, step)->is_due;
}

void steps_assign(struct run *run) {
  struct weights *weights = run->weights;
  for (uint64_t step = run->first_step; step < steps_end_of(run); step = mode_next(&run->mode, step)) {
    step_tasks_assign(run, step_at(run, step));
    if (step_at(run, step)->is_begun)
      step_tell_reducer(run, step_at(run, step));
  }
  if (weights->current->is_open && next_is_due(run)) {
    if (!weights->next->is_open)
      steps_open(run); /* it was held there */
    else
      steps_expect(run, run->first_step);
  }
  pthread_cond_broadcast(&run->changed);
}

/* True if extra tasks of the step would do: what it is computed from is whole, and it is not over. */
static bool is_at(const struct run *run, uint64_t step) {
  return run->phase == RUN_WORKING && is_open(run, step) && step >= steps_lowest(run) &&
         has_version(run, mode_version(&run->mode, step));
}

/* Takes in an order that was kept. Its step is here. */
static void step_obey(struct run *run, const Weir__Reissue *order) {
  const struct plan *plan = &run->loaded.plan;
  struct step_tasks *tasks = step_at(run, order->step);
  extras_order(&tasks->extra_microbatches, order->microbatches, tasks->is_due ? order->n_microbatches : 0);
  extras_order(&tasks->extra_chunks, order->chunks, plan_evaluates(plan, tasks->step) ? order->n_chunks : 0);
  log_event(LOG_INFO, "worker", "reissue", "run=%s step=%llu", run->load->run,
            (unsigned long long)tasks->step);
  pthread_cond_broadcast(&run->changed);
}

/* Those of the steps that are here. */
static void steps_obey(struct run *run) {
  for (uint32_t i = 0; i < MODE_ROUNDS_MAX; i++) {
    const Weir__Reissue *order = run->reissues.orders[i];
    if (!order || order->incarnation != run->incarnation || !is_at(run, order->step))
      continue;
    step_obey(run, order);
    reissues_drop(&run->reissues, i);
  }
}

void steps_reissue(struct run *run, const Weir__Reissue *order) {
  if (run->edges) /* a task takes the whole team */
    return;
  reissues_keep(&run->reissues, order);
  if (run->is_loaded)
    steps_obey(run);
}

void steps_compute_alone(struct run *run, uint64_t step, struct tree_node node) {
  uint32_t end = tree_node_end(node, plan_units(&run->loaded.plan));
  if (!is_at(run, step) ||
      !extras_add(&step_at(run, step)->extra_microbatches, (struct task_range){node.first, end}))
    return;
  log_event(LOG_WARN, "worker", "sum_overflows",
            "run=%s step=%llu microbatches=%u..%u: each is computed again and pushed by itself",
            run->load->run, (unsigned long long)step, node.first, end);
  pthread_cond_broadcast(&run->changed);
}

float *steps_claim_block(struct run *run, uint64_t version, uint32_t block) {
  return run->phase == RUN_WORKING ? weights_claim(run->weights, version, block) : NULL;
}

void steps_landed(struct run *run, uint32_t block) {
  weights_land(run->weights, block);
  steps_advance(run);
  pthread_cond_broadcast(&run->changed);
}

void steps_filled(struct run *run, uint32_t block) {
  weights_fill(run->weights, block);
  steps_advance(run);
  pthread_cond_broadcast(&run->changed);
}

/* No version after the current one is made, for good or for now. */
static void steps_rest(const struct run *run) {
  uint64_t version = run->weights->current->version;
  bool is_last = version == run->loaded.plan.steps;
  log_event(LOG_INFO, "worker", is_last ? "last_version" : "held",
            "run=%s version=%llu data_wait_seconds=%.3f", run->load->run, (unsigned long long)version,
            loader_wait_seconds(run->loaded.loader));
}

/* Of the steps before `step`, which are over. */
static void steps_close(struct run *run, uint64_t step) {
  while (run->n_steps > 0 && run->first_step < step) {
    step_tasks_close(step_at(run, run->first_step));
    run->first_step = mode_next(&run->mode, run->first_step);
    run->n_steps--;
  }
  steps_drop_unsent(run, run->first_step);
}

/* The next version becomes the current one once every block of it is here and nobody reads the version whose
   memory the one after it will fill. */
static void steps_advance(struct run *run) {
  struct weights *weights = run->weights;
  if (run->phase != RUN_WORKING || !weights_may_advance(weights))
    return;
  weights_advance(weights);
  steps_close(run, mode_proves(&run->mode, weights->current->version));
  run->setbacks = run->drops = 0;
  if (next_is_due(run))
    steps_open(run);
  else
    steps_rest(run);
  steps_obey(run);
  follow_look(run);
}

/* Whether a part of the microbatch's alone will be added to one of another of ours. */
static bool has_sibling_here(const struct run *run, uint32_t microbatch) {
  const struct task_range *share = &run->share.microbatches;
  uint32_t n = plan_units(&run->loaded.plan);
  struct tree_node sibling, part = tree_canonical((struct tree_node){microbatch, 0}, n);
  return adds_parts(run) && part.level < compression_sum_level(&run->compression) &&
         tree_sibling(part, n, &sibling) && sibling.first >= share->begin &&
         tree_node_end(sibling, n) <= share->end;
}

/* Of a task that was begun: what it reads is kept for it. */
static void work_set(struct run *run, struct work *work, uint64_t step) {
  run->is_replicating |= run->replica && work->kind == WORK_MICROBATCH;
  work->step = step;
  work->version = steps_version(run, step, work->kind);
  work->set = weights_find(run->weights, work->version);
  work->set->readers++;
}

/* Whether tasks of that kind can be computed: what they read is here or, with is_ahead, fills, and of
   replicas there is none under way. */
static bool is_readable(const struct run *run, uint64_t step, enum work_kind kind, bool is_ahead) {
  uint64_t version = steps_version(run, step, kind);
  if (kind == WORK_MICROBATCH && run->is_replicating)
    return false;
  return weights_find(run->weights, version) && (is_ahead || has_version(run, version));
}

static bool step_tasks_begin(struct run *run, struct step_tasks *tasks, bool is_ahead, struct work *work) {
  if (is_readable(run, tasks->step, WORK_CHUNK, is_ahead) && tasks_begin(&tasks->chunks, &work->index))
    work->kind = WORK_CHUNK;
  else if (is_readable(run, tasks->step, WORK_MICROBATCH, is_ahead) && tasks->step < run->loaded.plan.steps &&
           tasks_begin(&tasks->microbatches, &work->index))
    work->kind = WORK_MICROBATCH;
  else
    return false;
  work_set(run, work, tasks->step);
  return true;
}

/* Never of weights that are not all here: whatever is late is late at the steps before. */
static bool extra_begin(struct run *run, struct work *work) {
  for (uint64_t step = steps_lowest(run); step < steps_end_of(run) && is_at(run, step);
       step = mode_next(&run->mode, step)) {
    struct step_tasks *tasks = step_at(run, step);
    if (is_readable(run, step, WORK_CHUNK, false) && extras_begin(&tasks->extra_chunks, &work->index))
      work->kind = WORK_CHUNK;
    else if (!run->is_replicating && extras_begin(&tasks->extra_microbatches, &work->index))
      work->kind = WORK_MICROBATCH;
    else
      continue;
    work->is_extra = true;
    work->is_for_device = false;
    work_set(run, work, step);
    return true;
  }
  return false;
}

bool steps_are_owed(const struct run *run) {
  for (uint64_t step = steps_lowest(run); step < steps_end_of(run) && is_at(run, step);
       step = mode_next(&run->mode, step)) {
    const struct step_tasks *tasks = step_at(run, step);
    if (tasks->microbatches.n_owed > 0 || extras_are_owed(&tasks->extra_microbatches))
      return true;
    if (is_readable(run, step, WORK_CHUNK, false) &&
        (tasks->chunks.n_owed > 0 || extras_are_owed(&tasks->extra_chunks)))
      return true;
  }
  return false;
}

static bool any_begin(struct run *run, bool is_ahead, struct work *work) {
  for (uint64_t step = steps_lowest(run); step < steps_end_of(run); step = mode_next(&run->mode, step))
    if (step_tasks_begin(run, step_at(run, step), is_ahead, work))
      return true;
  return false;
}

/* What need not wait for weights comes first: they may be waiting for its parts. */
bool steps_begin(struct run *run, const struct weights_set *beside, struct work *work) {
  if (run->phase != RUN_WORKING || (beside && (beside == run->weights->current) != steps_are_owed(run)))
    return false;
  if (extra_begin(run, work))
    return true;
  work->is_extra = false;
  if (!any_begin(run, false, work) && !any_begin(run, true, work))
    return false;
  work->is_for_device = work->kind == WORK_MICROBATCH &&
                        (has_sibling_here(run, work->index) || (run->outlet && run->outlet->is_on_device));
  return true;
}

struct step_tasks *steps_find(const struct run *run, uint64_t step) {
  return run->phase == RUN_WORKING && is_open(run, step) ? step_at(run, step) : NULL;
}

bool steps_begin_at(struct run *run, struct work *work) {
  struct step_tasks *tasks = steps_find(run, work->step);
  if (!tasks || !is_readable(run, work->step, work->kind, true) ||
      !tasks_begin_at(work->kind == WORK_CHUNK ? &tasks->chunks : &tasks->microbatches, work->index))
    return false;
  work->is_extra = work->is_for_device = false;
  work_set(run, work, work->step);
  return true;
}

/* A task of our share. */
static void share_end(struct run *run, struct step_tasks *step, const struct work *work, bool is_done) {
  bool is_chunk = work->kind == WORK_CHUNK;
  struct task_list *tasks = is_chunk ? &step->chunks : &step->microbatches;
  tasks_end(tasks, work->index, is_done);
  if (!is_done) {
    tasks_assign(tasks, is_chunk ? run->share.chunks : run->share.microbatches);
    if (!is_chunk && steps_is_current(run, work)) /* another's now, maybe: no part is to wait for it */
      step_tell_reducer(run, step);
  }
}

static void reader_end(struct run *run, struct weights_set *set) {
  set->readers--;
  steps_advance(run);
  follow_look(run);
  pthread_cond_broadcast(&run->changed);
}

/* Its step may be over, and closed. */
void steps_end(struct run *run, const struct work *work, bool is_done) {
  struct step_tasks *step = is_open(run, work->step) ? step_at(run, work->step) : NULL;
  run->is_replicating &= work->kind != WORK_MICROBATCH;
  if (step && !work->is_extra)
    share_end(run, step, work, is_done);
  else if (step)
    extras_end(work->kind == WORK_CHUNK ? &step->extra_chunks : &step->extra_microbatches, work->index,
               is_done);
  reader_end(run, work->set);
}

void steps_release(struct run *run, struct weights_set *set) {
  pthread_mutex_lock(&run->lock);
  reader_end(run, set);
  pthread_mutex_unlock(&run->lock);
}

bool steps_is_wanted(const struct run *run, const struct work *work) {
  return run->phase == RUN_WORKING && work->step >= steps_lowest(run);
}

bool steps_is_current(const struct run *run, const struct work *work) {
  return steps_is_wanted(run, work) && has_version(run, work->version);
}

bool steps_should_yield(const struct run *run, const struct work *work) {
  return !run->edges && !has_version(run, work->version) && steps_are_owed(run);
}
