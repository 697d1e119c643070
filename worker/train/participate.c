/* How a run is entered and left. */
#include "worker/train/participate.h"

#include <string.h>

#include "common/agree/placement.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "worker/train/executor/edges.h"
#include "worker/train/group/meet.h"
#include "worker/train/group/relay.h"
#include "worker/train/reach.h"
#include "worker/train/run/follow.h"
#include "worker/train/run/receipt.h"
#include "worker/train/run/steps.h"
#include "worker/train/workmates.h"

static void run_ask_versions_locked(struct run *run);
static void run_arrive_locked(struct run *run);
static void run_begin_locked(struct run *run);

uint32_t worker_number(const char *id) {
  static const char prefix[] = "worker-";
  const char *digits = id + sizeof prefix - 1;
  uint64_t number = 0;
  if (strncmp(id, prefix, sizeof prefix - 1) != 0 || strspn(digits, "0123456789") != strlen(digits))
    return 0;
  for (; *digits && number <= UINT32_MAX; digits++)
    number = number * 10 + (uint64_t)(*digits - '0');
  return number <= UINT32_MAX ? (uint32_t)number : 0;
}

static bool range_is_empty(struct task_range range) {
  return range.begin >= range.end;
}

struct share view_share(const Weir__View *view, const char *worker) {
  struct share share = {0};
  for (size_t i = 0; i < view->n_workers; i++) {
    const Weir__Assignment *assignment = view->workers[i];
    if (strcmp(assignment->worker, worker) != 0)
      continue;
    share.microbatches = (struct task_range){assignment->microbatch_begin, assignment->microbatch_end};
    share.chunks = (struct task_range){assignment->eval_begin, assignment->eval_end};
    share.executors = assignment->executors;
    share.follows = assignment->follows && range_is_empty(share.microbatches) && range_is_empty(share.chunks);
  }
  return share;
}

/* True if the worker has no part in the run. */
static bool share_is_none(const struct share *share) {
  return !share->follows && range_is_empty(share->microbatches) && range_is_empty(share->chunks);
}

/* True if blocks live where they did. */
static bool views_have_same_servers(const Weir__View *a, const Weir__View *b) {
  if (a->incarnation != b->incarnation || a->n_servers != b->n_servers)
    return false;
  for (size_t s = 0; s < a->n_servers; s++)
    if (strcmp(a->servers[s]->id, b->servers[s]->id) != 0 ||
        strcmp(a->servers[s]->address, b->servers[s]->address) != 0)
      return false;
  return true;
}

/* A plan that differs from ours means different data. */
static bool view_fits_plan(struct run *run, const Weir__View *view) {
  const struct plan *plan = &run->loaded.plan;
  struct err err;
  if (!view->plan || (view->plan->train_samples == plan->train_samples &&
                      view->plan->eval_samples == plan->eval_samples && view->plan->steps == plan->steps))
    return true;
  err_set(&err, ERR_INVALID,
          "this worker's data has %llu training and %llu evaluation samples, the run's has %llu and %llu",
          (unsigned long long)plan->train_samples, (unsigned long long)plan->eval_samples,
          (unsigned long long)view->plan->train_samples, (unsigned long long)view->plan->eval_samples);
  run_fail_locked(run, &err, false);
  return false;
}

/* What pushes say of themselves. Those of a group that has ended do not learn of the view that ended it. */
static struct transfers_sender run_sender(const struct run *run) {
  return (struct transfers_sender){.worker = run->worker, .view = run->applied->number};
}

/* Makes the newest view the one that we work by. */
static void run_apply_view_locked(struct run *run) {
  Weir__View *view = run->newest;
  bool has_same_servers, has_same_group, is_idle;
  run->newest = NULL;
  if (!view_fits_plan(run, view)) {
    message_free(view);
    return;
  }
  run->share = run->newest_share;
  run->worker = run->newest_worker;
  is_idle = share_is_none(&run->share) || view->n_servers == 0;
  has_same_servers = run->applied && views_have_same_servers(run->applied, view) &&
                     strcmp(run->applied->ticket, view->ticket) == 0;
  has_same_group = run_apply_group_locked(run);
  has_same_group &= run_apply_mates_locked(run);
  is_idle |= run->edges && run->mates.number == 0 && !run->share.follows;
  log_event(LOG_INFO, "worker", "view",
            "run=%s number=%llu incarnation=%llu microbatches=%u..%u chunks=%u..%u follows=%d executors=%u "
            "hold=%llu",
            run->load->run, (unsigned long long)view->number, (unsigned long long)view->incarnation,
            run->share.microbatches.begin, run->share.microbatches.end, run->share.chunks.begin,
            run->share.chunks.end, run->share.follows, run->share.executors, (unsigned long long)view->hold);
  message_free(run->applied);
  run->applied = view;
  run->incarnation = view->incarnation;
  run->hold = view->hold;
  if (!has_same_servers)
    run->setbacks = run->drops = 0;
  if (is_idle || !has_same_servers || !has_same_group)
    run_leave_locked(run);
  if (run->transfers) {
    struct transfers_sender sender = run_sender(run);
    transfers_set_sender(run->transfers, &sender);
  }
  if (run->phase == RUN_WORKING) {
    steps_assign(run);
    follow_begin(run);
  } else if (run->phase == RUN_IDLE &&
             (!is_idle || run->is_unreached_told)) /* then it looks for the servers */
    run_set_phase_locked(run, RUN_JOINING);
}

bool run_may_revive(const struct run *run) {
  return run->phase == RUN_FAILED && run->is_loaded && run->newest &&
         run->newest->incarnation > run->incarnation;
}

void run_participate_locked(struct run *run) {
  if (run->phase == RUN_FAILED) {
    run_leave_locked(run);
    if (run_may_revive(run))
      run_set_phase_locked(run, RUN_IDLE);
  } else if (run->newest)
    run_apply_view_locked(run);
  else if (run->must_rejoin) {
    run_leave_locked(run);
    run->setbacks++;
    if (run->phase == RUN_IDLE)
      run_set_phase_locked(run, RUN_JOINING);
  } else if (run->phase == RUN_JOINING && run_is_to_meet(run))
    run_meet_locked(run);
  else if (run->phase == RUN_JOINING && !run->transfers)
    run_ask_versions_locked(run);
  else if (run->phase == RUN_JOINING && run->n_unanswered == 0 && run_agree_locked(run))
    run_arrive_locked(run);
}

void run_leave_locked(struct run *run) {
  struct transfers *transfers = run->transfers;
  struct relay *relay = run->relay;
  run->must_rejoin = false;
  if (relay)
    relay_abort_locked(relay);
  if (run->phase == RUN_WORKING)
    run_set_phase_locked(run, RUN_LEAVING);
  if (run->phase == RUN_JOINING)
    run_set_phase_locked(run, RUN_IDLE);
  pthread_cond_broadcast(&run->changed);
  while (weights_are_read(run->weights))
    pthread_cond_wait(&run->changed, &run->lock);
  edges_close_locked(run);
  run->relay = NULL; /* nobody else aborts it from here on */
  run->outlet = NULL;
  pthread_mutex_unlock(&run->lock);
  relay_close(relay);
  transfers_free(transfers);
  pthread_mutex_lock(&run->lock);
  run->transfers = NULL;
  steps_clear(run);
  residuals_clear(run->residuals); /* of gradients of weights that may not be the run's any more */
  if (run->phase == RUN_LEAVING)
    run_set_phase_locked(run, RUN_IDLE);
}

/* Asks the servers where they are. Gives the lock up meanwhile: news end a pause before anybody is asked. */
static void run_ask_versions_locked(struct run *run) {
  const Weir__View *view = run->applied;
  struct transfers_options options = {.client = run->options.client,
                                      .run = run->load->run,
                                      .incarnation = run->incarnation,
                                      .ticket = view->ticket,
                                      .sender = run_sender(run),
                                      .servers = view->servers,
                                      .n_servers = (uint32_t)view->n_servers,
                                      .parked_max = run->options.parked_max,
                                      .trace_number = run->trace_number,
                                      .question_ms = run->options.question_ms,
                                      .silent_ms = run->options.silent_ms,
                                      .unreached_ms = run->options.unreached_ms,
                                      .received = receipt_received,
                                      .failed = receipt_failed,
                                      .ended = receipt_ended,
                                      .unreached = run_on_unreached,
                                      .user = run};
  struct transfers *transfers;
  if (run->setbacks > 0 && !run_pause_locked(run, rpc_backoff_ms(run->setbacks)))
    return;
  pthread_mutex_unlock(&run->lock);
  transfers = transfers_new(&options);
  pthread_mutex_lock(&run->lock);
  run->transfers = transfers;
  run->n_unanswered = options.n_servers;
  run->lowest = UINT64_MAX;
  for (uint32_t s = 0; s < options.n_servers; s++)
    transfers_start(transfers, &(struct transfer_item){.kind = TRANSFER_VERSIONS, .server = s}, 1);
}

/* All servers have answered. */
static void run_arrive_locked(struct run *run) {
  run_tell_reached_locked(run);
  if (share_is_none(&run->share)) /* there was no more to know */
    run_leave_locked(run);
  else
    run_begin_locked(run);
}

/* Asks for every block of the version that the servers' step is computed from. */
static void run_begin_locked(struct run *run) {
  uint32_t blocks = run->loaded.model->n_blocks;
  uint64_t step = run->lowest, version = mode_version(&run->mode, step);
  struct err err;
  if (step > run->loaded.plan.steps) {
    err_set(&err, ERR_CORRUPT, "the servers are at version %llu, the run ends with %llu",
            (unsigned long long)step, (unsigned long long)run->loaded.plan.steps);
    run_fail_locked(run, &err, false);
    return;
  }
  if (run_is_team_over_locked(run))
    return;
  log_event(LOG_INFO, "worker", "joined", "run=%s version=%llu servers=%zu", run->load->run,
            (unsigned long long)step, run->applied->n_servers);
  placement_compute(run->block_elems, blocks, (uint32_t)run->applied->n_servers, run->owner);
  run_set_phase_locked(run, RUN_WORKING);
  steps_join(run, step);
  edges_open_locked(run);
  if (run->relay)
    relay_start(run->relay, step);
  pthread_cond_broadcast(&run->changed);
  for (uint32_t b = 0; b < blocks; b++)
    if (run->roles[b] != BLOCK_ABSENT)
      transfers_start(run->transfers,
                      &(struct transfer_item){
                          .kind = TRANSFER_PULL, .server = run->owner[b], .block = b, .version = version},
                      1);
}
