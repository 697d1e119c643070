/* The steps of a run. */
#include "worker/train/run/steps.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "worker/train/run/follow.h"

static void steps_advance(struct run *run);

static void version_tasks_assign(const struct run *run, struct version_tasks *tasks, uint64_t version) {
  const struct plan *plan = &run->loaded.plan;
  tasks->is_due |= version < plan->steps && (run->hold == 0 || version < run->hold);
  if (tasks->is_due)
    tasks_assign(&tasks->microbatches, run->share.microbatches);
  if (plan_evaluates(plan, version))
    tasks_assign(&tasks->chunks, run->share.chunks);
}

static void version_tasks_open(const struct run *run, struct version_tasks *tasks, uint64_t version) {
  tasks_clear(&tasks->microbatches);
  tasks_clear(&tasks->chunks);
  tasks->is_due = false;
  version_tasks_assign(run, tasks, version);
}

void steps_send(struct run *run, const struct transfer_item *item) {
  bool is_sum = item->kind == TRANSFER_PUSH && item->block < run->loaded.model->n_param_blocks;
  if (run->outlet && is_sum)
    run->outlet->give(run->outlet, item);
  else
    transfers_start(run->transfers, item);
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

static void steps_drop_unsent(struct run *run) {
  while (run->n_unsent > 0) {
    const struct transfer_item *item = &run->unsent[--run->n_unsent];
    block_pool_give(run->pool, item->block, item->buffer);
  }
}

/* From the reducer, under the lock, where nobody waits for a device. */
static void on_send(void *user, const struct reducer_send *send) {
  struct run *run = user;
  struct transfer_item item = {.kind = send->buffer ? TRANSFER_PUSH : TRANSFER_PULL,
                               .server = run->owner[send->block],
                               .block = send->block,
                               .version = run->weights->current->version + (send->buffer ? 0 : 1),
                               .node = send->node,
                               .wait = send->wait,
                               .buffer = send->buffer};
  if (!item.buffer || !steps_must_land(run, item.buffer)) {
    steps_send(run, &item);
    return;
  }
  array_reserve((void **)&run->unsent, &run->unsent_capacity, run->n_unsent, sizeof *run->unsent);
  run->unsent[run->n_unsent++] = item;
}

static void on_drop(void *user, uint32_t block, struct buffer *buffer) {
  struct run *run = user;
  block_pool_give(run->pool, block, buffer);
}

void steps_init(struct run *run) {
  const struct plan *plan = &run->loaded.plan;
  run->current = &run->versions[0];
  run->next = &run->versions[1];
  for (int i = 0; i < 2; i++) {
    tasks_init(&run->versions[i].microbatches, plan->microbatches);
    tasks_init(&run->versions[i].chunks, plan->eval_chunks);
  }
  extras_init(&run->extra_microbatches, plan->microbatches);
  extras_init(&run->extra_chunks, plan->eval_chunks);
}

void steps_fini(struct run *run) {
  for (int i = 0; i < 2; i++) {
    tasks_fini(&run->versions[i].microbatches);
    tasks_fini(&run->versions[i].chunks);
  }
  extras_fini(&run->extra_microbatches);
  extras_fini(&run->extra_chunks);
  free(run->unsent);
  run->unsent = NULL;
}

void steps_join(struct run *run, uint64_t version) {
  run->reducer = reducer_new(&(struct reducer_options){.microbatches = run->loaded.plan.microbatches,
                                                       .blocks = run->loaded.model->n_blocks,
                                                       .summed_blocks = run->loaded.model->n_param_blocks,
                                                       .roles = run->roles,
                                                       .send = on_send,
                                                       .drop = on_drop,
                                                       .user = run});
  weights_open_next(run->weights, version, false); /* by plain pulls, each member for itself */
  version_tasks_open(run, run->next, version);
  run->follow = (struct follow){0};
  loader_expect(run->loaded.loader, version, run->share.microbatches.begin, run->share.microbatches.end);
}

static void steps_drop_extras(struct run *run) {
  extras_clear(&run->extra_microbatches);
  extras_clear(&run->extra_chunks);
}

void steps_clear(struct run *run) {
  reducer_free(run->reducer);
  run->reducer = NULL;
  steps_drop_unsent(run);
  steps_drop_extras(run);
  weights_clear(run->weights);
}

/* Tells the reducer which microbatches of the current step will be delivered. */
static void steps_tell_reducer(struct run *run, void (*tell)(struct reducer *reducer, const bool *mine)) {
  bool mine[MICROBATCHES_MAX];
  tasks_mine(&run->current->microbatches, mine);
  tell(run->reducer, mine);
}

/* The current version's gradients make the next one, which fills from now on. */
static void steps_open(struct run *run) {
  struct weights *weights = run->weights;
  uint64_t version = weights->current->version;
  weights_open_next(weights, version + 1, run->outlet && run->outlet->is_on_device);
  version_tasks_open(run, run->next, version + 1);
  steps_tell_reducer(run, reducer_begin);
  loader_expect(run->loaded.loader, version, run->share.microbatches.begin, run->share.microbatches.end);
}

void steps_assign(struct run *run) {
  struct weights *weights = run->weights;
  struct weights_set *sets[2] = {weights->current, weights->next};
  struct version_tasks *versions[2] = {run->current, run->next};
  for (int i = 0; i < 2; i++)
    if (sets[i]->is_open)
      version_tasks_assign(run, versions[i], sets[i]->version);
  if (weights->current->is_open && run->current->is_due && !weights->next->is_open)
    steps_open(run); /* it was held there */
  else if (weights->current->is_open && run->current->is_due) {
    steps_tell_reducer(run, reducer_assign);
    loader_expect(run->loaded.loader, weights->current->version, run->share.microbatches.begin,
                  run->share.microbatches.end);
  }
  pthread_cond_broadcast(&run->changed);
}

/* True if extra tasks of the version would do: it is whole, and so is no later one. */
static bool is_at(const struct run *run, uint64_t version) {
  const struct weights *weights = run->weights;
  return run->phase == RUN_WORKING && weights->current->is_open && weights->current->version == version &&
         !weights_next_is_complete(weights);
}

/* Takes in the order that was kept, if its step is here. */
static void steps_obey(struct run *run) {
  const struct plan *plan = &run->loaded.plan;
  Weir__Reissue *order = run->reissue;
  uint64_t step;
  if (!order || order->incarnation != run->incarnation || !is_at(run, order->step))
    return;
  step = order->step;
  extras_order(&run->extra_microbatches, order->microbatches,
               run->current->is_due ? order->n_microbatches : 0);
  extras_order(&run->extra_chunks, order->chunks, plan_evaluates(plan, step) ? order->n_chunks : 0);
  log_event(LOG_INFO, "worker", "reissue", "run=%s step=%llu", run->load->run, (unsigned long long)step);
  message_free(order);
  run->reissue = NULL;
  pthread_cond_broadcast(&run->changed);
}

void steps_reissue(struct run *run, const Weir__Reissue *order) {
  if (run->edges) /* a task takes the whole team */
    return;
  message_free(run->reissue);
  run->reissue = message_copy(order);
  if (run->is_loaded)
    steps_obey(run);
}

void steps_compute_alone(struct run *run, uint64_t step, struct tree_node node) {
  uint32_t end = tree_node_end(node, run->loaded.plan.microbatches);
  if (!is_at(run, step) || !extras_add(&run->extra_microbatches, (struct task_range){node.first, end}))
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

/* Nothing is computed from the current version, for good or for now. */
static void steps_rest(const struct run *run) {
  uint64_t version = run->weights->current->version;
  bool is_last = version == run->loaded.plan.steps;
  log_event(LOG_INFO, "worker", is_last ? "last_version" : "held",
            "run=%s version=%llu data_wait_seconds=%.3f", run->load->run, (unsigned long long)version,
            loader_wait_seconds(run->loaded.loader));
}

/* The next version becomes the current one once every block of it is here and nobody reads the old one, whose
   memory the version after it will fill. */
static void steps_advance(struct run *run) {
  struct weights *weights = run->weights;
  struct version_tasks *old = run->current;
  if (run->phase != RUN_WORKING || !weights_next_is_complete(weights) || weights->current->readers > 0)
    return;
  weights_advance(weights);
  steps_drop_unsent(run);
  steps_drop_extras(run);
  run->current = run->next;
  run->next = old;
  run->setbacks = run->drops = 0;
  if (run->current->is_due)
    steps_open(run);
  else
    steps_rest(run);
  steps_obey(run);
  follow_look(run);
}

/* Whether a part of the microbatch's alone will be added to one of another of ours. */
static bool has_sibling_here(const struct run *run, uint32_t microbatch) {
  const struct task_range *share = &run->share.microbatches;
  uint32_t n = run->loaded.plan.microbatches;
  struct tree_node sibling;
  return tree_sibling(tree_canonical((struct tree_node){microbatch, 0}, n), n, &sibling) &&
         sibling.first >= share->begin && tree_node_end(sibling, n) <= share->end;
}

static bool version_tasks_begin(const struct plan *plan, struct version_tasks *tasks, struct weights_set *set,
                                struct work *work) {
  if (!set->is_open)
    return false;
  if (tasks_begin(&tasks->chunks, &work->index))
    work->kind = WORK_CHUNK;
  else if (set->version < plan->steps && tasks_begin(&tasks->microbatches, &work->index))
    work->kind = WORK_MICROBATCH;
  else
    return false;
  work->version = set->version;
  work->set = set;
  set->readers++;
  return true;
}

/* Never of the next version: whatever is late is late at the present one. */
static bool extra_begin(struct run *run, struct work *work) {
  struct weights_set *set = run->weights->current;
  if (!set->is_open || weights_next_is_complete(run->weights))
    return false;
  if (extras_begin(&run->extra_chunks, &work->index))
    work->kind = WORK_CHUNK;
  else if (extras_begin(&run->extra_microbatches, &work->index))
    work->kind = WORK_MICROBATCH;
  else
    return false;
  work->version = set->version;
  work->set = set;
  work->is_extra = true;
  work->is_for_device = false;
  set->readers++;
  return true;
}

/* Whether tasks of the current version are owed, by which the next one's are put off. */
static bool current_is_owed(const struct run *run) {
  return run->weights->current->is_open && !weights_next_is_complete(run->weights) &&
         (run->current->microbatches.n_owed + run->current->chunks.n_owed > 0 ||
          extras_are_owed(&run->extra_microbatches) || extras_are_owed(&run->extra_chunks));
}

bool steps_begin(struct run *run, const struct weights_set *beside, struct work *work) {
  const struct plan *plan = &run->loaded.plan;
  struct weights *weights = run->weights;
  if (run->phase != RUN_WORKING || (beside && (beside == weights->current) != current_is_owed(run)))
    return false;
  if (extra_begin(run, work))
    return true;
  work->is_extra = false;
  if ((weights_next_is_complete(weights) ||
       !version_tasks_begin(plan, run->current, weights->current, work)) &&
      !version_tasks_begin(plan, run->next, weights->next, work))
    return false;
  work->is_for_device = work->kind == WORK_MICROBATCH &&
                        (has_sibling_here(run, work->index) || (run->outlet && run->outlet->is_on_device));
  return true;
}

struct version_tasks *steps_find(const struct run *run, uint64_t version) {
  const struct weights *weights = run->weights;
  if (run->phase != RUN_WORKING)
    return NULL;
  if (weights->current->is_open && weights->current->version == version)
    return run->current;
  return weights->next->is_open && weights->next->version == version ? run->next : NULL;
}

bool steps_begin_at(struct run *run, struct work *work) {
  struct version_tasks *tasks = steps_find(run, work->version);
  if (!tasks ||
      !tasks_begin_at(work->kind == WORK_CHUNK ? &tasks->chunks : &tasks->microbatches, work->index))
    return false;
  work->set = tasks == run->current ? run->weights->current : run->weights->next;
  work->is_extra = work->is_for_device = false;
  work->set->readers++;
  return true;
}

/* A task of our share. */
static void share_end(struct run *run, const struct work *work, bool is_done) {
  struct version_tasks *version = work->set == run->weights->current ? run->current : run->next;
  bool is_chunk = work->kind == WORK_CHUNK;
  struct task_list *tasks = is_chunk ? &version->chunks : &version->microbatches;
  tasks_end(tasks, work->index, is_done);
  if (!is_done) {
    tasks_assign(tasks, is_chunk ? run->share.chunks : run->share.microbatches);
    if (!is_chunk && steps_is_current(run, work)) /* another's now, maybe: no part is to wait for it */
      steps_tell_reducer(run, reducer_assign);
  }
}

static void reader_end(struct run *run, struct weights_set *set) {
  set->readers--;
  steps_advance(run);
  follow_look(run);
  pthread_cond_broadcast(&run->changed);
}

void steps_end(struct run *run, const struct work *work, bool is_done) {
  if (!work->is_extra)
    share_end(run, work, is_done);
  else
    extras_end(work->kind == WORK_CHUNK ? &run->extra_chunks : &run->extra_microbatches, work->index,
               is_done);
  reader_end(run, work->set);
}

void steps_release(struct run *run, struct weights_set *set) {
  pthread_mutex_lock(&run->lock);
  reader_end(run, set);
  pthread_mutex_unlock(&run->lock);
}

bool steps_is_wanted(const struct run *run, const struct work *work) {
  if (run->phase != RUN_WORKING)
    return false;
  return work->set == run->weights->next || !weights_next_is_complete(run->weights);
}

bool steps_is_current(const struct run *run, const struct work *work) {
  return run->phase == RUN_WORKING && work->set == run->weights->current &&
         !weights_next_is_complete(run->weights);
}

bool steps_should_yield(const struct run *run, const struct work *work) {
  return !run->edges && work->set == run->weights->next && current_is_owed(run);
}
