/* A run, as a worker takes part in it: its thread and its states. */
#include "worker/train/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/agree/float_setting.h"
#include "common/agree/spec.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/trace/trace.h"
#include "worker/train/executor/edges.h"
#include "worker/train/group/meet.h"
#include "worker/train/group/relay.h"
#include "worker/train/participate.h"
#include "worker/train/run/load_memory.h"
#include "worker/train/run/run_state.h"
#include "worker/train/run/steps.h"
#include "worker/train/workmates.h"

enum { QUESTION_MS = 3000, MEETING_MS = 10000, END_MS = 10000 };

static void *run_main(void *argument);
static int run_load(struct run *run, bool *is_bad_input, struct err *err);
static int run_make_programs(struct run *run, bool *is_bad_input, struct err *err);
static void run_be_loaded_locked(struct run *run);
static void run_tell_loaded_locked(struct run *run);

struct run *run_start(const struct run_options *options, const Weir__LoadRun *load) {
  struct run *run = mem_new(sizeof *run);
  run->options = *options;
  if (run->options.question_ms <= 0)
    run->options.question_ms = QUESTION_MS;
  if (run->options.meeting_ms <= 0)
    run->options.meeting_ms = MEETING_MS;
  if (run->options.end_ms <= 0)
    run->options.end_ms = END_MS;
  run->load = message_copy(load);
  run->incarnation = run->order_incarnation = load->incarnation;
  model_fetch_init(&run->fetch);
  pthread_mutex_init(&run->lock, NULL);
  clock_condition_init(&run->changed);
  CHECK(pthread_create(&run->thread, NULL, run_main, run) == 0);
  return run;
}

const char *run_id(const struct run *run) {
  return run->load->run;
}

void run_mute(struct run *run) {
  pthread_mutex_lock(&run->lock);
  run->is_muted = true;
  pthread_mutex_unlock(&run->lock);
}

/* A view as the newest one in which we have no part: the next one has a higher number in any case. */
static Weir__View *view_without_us(const Weir__View *known) {
  Weir__View view = *known;
  view.workers = NULL;
  view.n_workers = 0;
  return message_copy(&view);
}

/* Whether it leaves its servers, and its executions come to their ends. */
static bool run_wait_idle_locked(struct run *run) {
  struct timespec until = clock_after_ms(run->options.end_ms);
  while (run->phase != RUN_IDLE || run->newest || run->must_rejoin || run->n_under_way > 0)
    if (run->phase == RUN_FAILED || pthread_cond_timedwait(&run->changed, &run->lock, &until) != 0)
      return false;
  return true;
}

bool run_rest(struct run *run) {
  const Weir__View *known;
  bool may_rest;
  pthread_mutex_lock(&run->lock);
  known = run->newest ? run->newest : run->applied;
  may_rest = run->is_loaded && run->phase != RUN_FAILED;
  run->is_muted = true;
  if (may_rest && known) {
    Weir__View *view = view_without_us(known);
    message_free(run->newest);
    run->newest = view;
    run->newest_share = (struct share){0};
    run->is_unreached_told = false;
    run_read_group_locked(run, "");
    run_read_mates_locked(run, "");
    pthread_cond_broadcast(&run->changed);
  }
  may_rest = may_rest && run_wait_idle_locked(run);
  pthread_mutex_unlock(&run->lock);
  return may_rest;
}

bool run_tell_again(struct run *run, const Weir__LoadRun *load, struct rpc_channel *coordinator) {
  bool is_usable;
  pthread_mutex_lock(&run->lock);
  is_usable = run->phase != RUN_FAILED && (run->is_loaded || run->options.coordinator == coordinator) &&
              load->stage_begin == run->load->stage_begin && load->stage_end == run->load->stage_end &&
              strcmp(load->data_root, run->load->data_root) == 0;
  run->is_muted = !is_usable;
  run->order_incarnation = load->incarnation;
  if (is_usable && run->is_loaded)
    run_tell_loaded_locked(run);
  pthread_mutex_unlock(&run->lock);
  return is_usable;
}

bool run_is_alive(struct run *run, uint64_t *incarnation) {
  bool is_alive;
  pthread_mutex_lock(&run->lock);
  is_alive = run->phase != RUN_FAILED;
  *incarnation = run->incarnation;
  pthread_mutex_unlock(&run->lock);
  return is_alive;
}

bool run_is_lost(struct run *run) {
  bool is_lost;
  pthread_mutex_lock(&run->lock);
  is_lost = run->phase == RUN_FAILED && run->is_muted;
  pthread_mutex_unlock(&run->lock);
  return is_lost;
}

void run_stages(const struct run *run, uint32_t *begin, uint32_t *end) {
  *begin = run->load->stage_begin;
  *end = run->load->stage_end;
}

void run_view(struct run *run, const Weir__View *view, const char *worker) {
  const Weir__View *known;
  pthread_mutex_lock(&run->lock);
  known = run->newest ? run->newest : run->applied;
  if (!known || view->number > known->number) {
    message_free(run->newest);
    run->newest = message_copy(view);
    run->newest_share = view_share(view, worker);
    run->newest_worker = worker_number(worker);
    run_read_group_locked(run, worker);
    run_read_mates_locked(run, worker);
    pthread_cond_broadcast(&run->changed);
  }
  pthread_mutex_unlock(&run->lock);
}

bool run_has_peer_key(struct run *run) {
  bool has_key;
  pthread_mutex_lock(&run->lock);
  has_key = run->load->peer_key.len == TICKET_KEY_BYTES;
  pthread_mutex_unlock(&run->lock);
  return has_key;
}

int run_check_peer(struct run *run, const struct ticket *ticket, const char *holder, struct err *err) {
  bool is_genuine;
  pthread_mutex_lock(&run->lock);
  is_genuine = run->load->peer_key.len != TICKET_KEY_BYTES ||
               ticket_is_genuine(ticket, run->load->peer_key.data, holder);
  pthread_mutex_unlock(&run->lock);
  if (is_genuine)
    return 0;
  return err_set(err, ERR_DENIED, "the call's ticket for run '%s' is not one of %s", ticket->run,
                 *holder ? holder : "its coordinator's");
}

int run_take_boundary(struct run *run, const Weir__BoundaryPiece *piece, const struct rpc_bytes *bytes,
                      struct err *err) {
  return edges_take(run, piece, bytes, err);
}

void run_reissue(struct run *run, const Weir__Reissue *order) {
  pthread_mutex_lock(&run->lock);
  steps_reissue(run, order);
  pthread_mutex_unlock(&run->lock);
}

/* Whether the run's thread comes to its end, for which it waits for every execution. Whatever else it is at
   takes as long as it takes: loading, say. */
static bool run_wait_end_locked(struct run *run) {
  struct timespec until = clock_after_ms(run->options.end_ms);
  bool is_late = false;
  while (!run->has_ended && !(is_late && run->n_under_way > 0))
    if (is_late || run->n_under_way == 0)
      pthread_cond_wait(&run->changed, &run->lock);
    else
      is_late = pthread_cond_timedwait(&run->changed, &run->lock, &until) != 0;
  return run->has_ended;
}

static bool run_end(struct run *run, struct kept_data **kept) {
  bool has_ended;
  model_fetch_cancel(&run->fetch, true);
  pthread_mutex_lock(&run->lock);
  run->is_stopping = true;
  run->is_data_kept = kept != NULL;
  if (run->relay)
    relay_abort_locked(run->relay);
  pthread_cond_broadcast(&run->changed);
  has_ended = run_wait_end_locked(run);
  pthread_mutex_unlock(&run->lock);
  if (!has_ended)
    return false;
  pthread_join(run->thread, NULL);
  if (kept)
    *kept = run->kept;
  pthread_cond_destroy(&run->changed);
  pthread_mutex_destroy(&run->lock);
  model_fetch_fini(&run->fetch);
  message_free(run->newest);
  message_free(run->applied);
  reissues_clear(&run->reissues);
  message_free(run->load);
  free(run);
  return true;
}

bool run_stop(struct run *run) {
  return !run || run_end(run, NULL);
}

/* With the same stages it was of no use as it was, perhaps because of its data. */
bool run_stop_but_data(struct run *run, const Weir__LoadRun *next, struct kept_data **kept) {
  bool has_other_stages =
      next->stage_begin != run->load->stage_begin || next->stage_end != run->load->stage_end;
  *kept = NULL;
  return run_end(run, has_other_stages && message_is_same(run->load->spec, next->spec) &&
                              strcmp(next->data_root, run->load->data_root) == 0
                          ? kept
                          : NULL);
}

/* True if run_participate_locked has something to do. */
static bool run_has_news(const struct run *run) {
  if (run->phase == RUN_FAILED)
    return run->transfers || run_may_revive(run);
  return run->newest || run->must_rejoin ||
         (run->phase == RUN_JOINING && (!run->transfers || run->n_unanswered == 0));
}

static void run_release(struct run *run) {
  if (run->loaded.model) {
    executors_join(run);
    log_event(LOG_INFO, "worker", "ended", "run=%s executors=%d data_wait_seconds=%.3f", run->load->run,
              run->options.threads, run->loaded.loader ? loader_wait_seconds(run->loaded.loader) : 0.0);
    steps_fini(run);
    residuals_free(run->residuals);
    replica_free(run->replica);
    weights_free(run->weights);
    block_pool_free(run->pool);
    model_cuts_fini(&run->cuts);
    block_map_fini(&run->map);
    free(run->owner);
    free(run->roles);
    free(run->block_elems);
  }
  if (run->is_data_kept)
    run->kept = loaded_close_but_data(&run->loaded);
  else
    loaded_close(&run->loaded);
}

static void *run_main(void *argument) {
  struct run *run = argument;
  struct err err = ERR_NONE;
  bool is_bad_input = false;
  uint64_t begin_ns = trace_now_ns();
  float_setting_require("run");
  run->trace_number = trace_run_begin(run->load->run);
  trace_thread("run", run->trace_number);
  run_load(run, &is_bad_input, &err);
  trace_span(&(struct trace_span){.category = "load",
                                  .name = run->load->run,
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .index = -1});
  pthread_mutex_lock(&run->lock);
  if (err.code)
    run_fail_locked(run, &err, is_bad_input);
  else
    run_be_loaded_locked(run);
  while (!run->is_stopping) {
    if (run_has_news(run))
      run_participate_locked(run);
    else
      pthread_cond_wait(&run->changed, &run->lock);
  }
  if (run->weights)
    run_leave_locked(run);
  pthread_mutex_unlock(&run->lock);
  run_release(run);
  trace_run_end(run->trace_number);
  pthread_mutex_lock(&run->lock);
  run->has_ended = true;
  pthread_cond_broadcast(&run->changed);
  pthread_mutex_unlock(&run->lock);
  return NULL;
}

static struct load_options run_load_options(struct run *run) {
  struct data_root data_root = run->options.data_root;
  data_root.tenants = run->load->data_root;
  return (struct load_options){.coordinator = run->options.coordinator,
                               .data_root = data_root,
                               .backend = run->options.backend,
                               .executors = run->options.threads,
                               .readers = run->options.readers,
                               .devices = run->options.n_devices > 0 ? run->options.devices : NULL,
                               .device_bytes = run->options.device_bytes,
                               .stage_begin = (int)run->load->stage_begin,
                               .stage_end = (int)run->load->stage_end,
                               .fetch = &run->fetch,
                               .kept = run->options.kept,
                               .trace_number = run->trace_number,
                               .promises = run->options.promises};
}

static bool are_others_beside(const struct run *run) {
  return run->options.are_others_beside && run->options.are_others_beside(run->options.user, run);
}

static bool make_room(const struct run *run) {
  return run->options.make_room && run->options.make_room(run->options.user, run);
}

static int run_make_replica(struct run *run, struct err *err) {
  const struct replica_options options = {.model = run->loaded.model,
                                          .train = run->loaded.spec->train,
                                          .plan = &run->loaded.plan,
                                          .pool = run->pool,
                                          .weights = run->weights};
  return run->bounds.replica_sets ? replica_new(&options, &run->replica, err) : 0;
}

/* Everything that is made once: data, model, weights, programs. Blocks. */
static int run_load(struct run *run, bool *is_bad_input, struct err *err) {
  struct load_options options = run_load_options(run);
  const struct model *model;
  struct mode mode;
  run->is_crowded = are_others_beside(run);
  while (loaded_open(&options, run->load, &run->loaded, is_bad_input, err)) {
    if (err->code != ERR_NO_MEMORY || !make_room(run))
      goto out;
    *err = ERR_NONE;
    options.kept = NULL; /* it was taken */
  }
  model = run->loaded.model;
  block_map_init(&run->map, model);
  run->pool = block_pool_new(model, run->options.backend, run->loaded.plan.inner_steps);
  run->owner = mem_new(model->n_blocks * sizeof *run->owner);
  run->block_elems = mem_new(model->n_blocks * sizeof *run->block_elems);
  run->roles = mem_new(model->n_blocks);
  for (uint32_t b = 0; b < model->n_blocks; b++)
    run->block_elems[b] = model->blocks[b].elems;
  mode = mode_of(run->loaded.spec);
  run->compression = compression_of(run->loaded.spec->train);
  if (compression_has_feedback(&run->compression))
    run->residuals = residuals_new(&run->compression, run->block_elems, model->n_blocks);
  steps_init(run, &mode);
  if (weights_new(model, run->bounds.sets + run->bounds.replica_sets, &run->weights, err) ||
      run_make_replica(run, err) || run_make_programs(run, is_bad_input, err))
    goto out;
  weights_pin(run->weights, run->options.backend); /* by the devices that programs are on now */
  loader_pin(run->loaded.loader, run->options.backend);
out:
  run->is_crowded = err->code && (run->is_crowded || are_others_beside(run));
  return err->code;
}

/* What the programs of all executors take of this machine's memory. */
static uint64_t run_programs_bytes(const struct run *run) {
  const struct backend_def *backend = run->options.backend;
  uint64_t bytes = 0;
  for (int i = 0; i < run->n_executors && run->options.n_devices == 0; i++) {
    const struct executor *executor = &run->executors[i];
    bytes += backend->memory_bytes(executor->train);
    bytes += executor->eval ? backend->memory_bytes(executor->eval) : 0;
  }
  return bytes;
}

static int run_start_executors(struct run *run, struct err *err) {
  struct load_options options = run_load_options(run);
  executors_start(run);
  pthread_mutex_lock(&run->lock);
  while (run->n_prepared < run->n_executors)
    pthread_cond_wait(&run->changed, &run->lock);
  *err = run->prepare_err;
  pthread_mutex_unlock(&run->lock);
  if (err->code == ERR_NO_MEMORY && options.devices && run->cuts.n_stages == 1)
    loaded_advise_memory(&options, &run->loaded, 0, err);
  return err->code;
}

/* Programs that adapt to the memory that there is are given all of it that no other run was promised, and
   nothing else is promised before it is known what they take. */
static int run_try_programs(struct run *run, bool *is_bad_input, struct err *err) {
  const Weir__WorkersSpec *spec = run->loaded.spec->workers;
  bool adapts = strcmp(spec->recompute, "auto") == 0 || spec->stages == SPEC_STAGES_AUTO;
  struct promises *promises = run->options.promises;
  struct promise promise = {0}, room = promises_open(promises, run->options.memory_bytes);
  run->room_bytes =
      run->options.memory_bytes ? room.programs : load_memory_free(run->loaded.model, room.bytes);
  if (!adapts)
    promises_close(promises, &promise);
  *is_bad_input = executors_cut(run, err) == ERR_INVALID;
  if (!err->code && run_start_executors(run, err))
    *is_bad_input = err->code == ERR_UNSUPPORTED || err->code == ERR_INVALID;
  else if (!err->code)
    promise.programs = run_programs_bytes(run);
  if (adapts)
    promise.bytes = promise.programs; /* what it was promised so far is all but these */
  else
    promises_open(promises, 0);
  promises_close(promises, &promise);
  run->loaded.promise.bytes += promise.bytes;
  run->loaded.promise.programs += promise.programs;
  return err->code;
}

static int run_make_programs(struct run *run, bool *is_bad_input, struct err *err) {
  while (run_try_programs(run, is_bad_input, err) == ERR_NO_MEMORY && make_room(run)) {
    executors_join(run);
    model_cuts_fini(&run->cuts);
    run->n_prepared = 0;
    run->prepare_err = *err = (struct err)ERR_NONE;
  }
  return err->code;
}

/* What a stage's program takes, and what it would without replay. */
static void stage_measure(const struct run *run, int executor, size_t *program_bytes,
                          struct backend_replayed *out) {
  const struct backend_def *backend = run->options.backend;
  const struct backend_program *program = run->executors[executor].train;
  *program_bytes = backend->memory_bytes(program);
  *out = (struct backend_replayed){.unreplayed_bytes = *program_bytes};
  if (backend->replayed)
    backend->replayed(program, out);
}

/* Each stage of a team in a line of its own, and their sums; one stage is the whole model. */
static void run_log_loaded(const struct run *run) {
  struct backend_replayed sum = {0}, of;
  size_t program_bytes, sum_bytes = 0;
  int n_stages = run->cuts.n_stages, first = run->part.first;
  for (int s = first; s <= run->part.last; s++) {
    stage_measure(run, s - first, &program_bytes, &of);
    if (n_stages > 1)
      log_event(LOG_INFO, "worker", "stage",
                "run=%s stage=%d in_flight=%d program_bytes=%zu unreplayed_bytes=%zu steps=%d replays=%d",
                run->load->run, s, pipeline_contexts(n_stages, s), program_bytes, of.unreplayed_bytes,
                of.n_steps, of.n_replays);
    sum_bytes += program_bytes;
    sum.unreplayed_bytes += of.unreplayed_bytes;
    sum.n_steps += of.n_steps;
    sum.n_replays += of.n_replays;
  }
  log_event(
      LOG_INFO, "worker", "loaded",
      "run=%s samples=%llu blocks=%u executors=%d stages=%d program_bytes=%zu unreplayed_bytes=%zu steps=%d "
      "replays=%d held_blocks=%u first_stage=%d",
      run->load->run, (unsigned long long)run->loaded.plan.train_samples, run->loaded.model->n_blocks,
      run->n_executors, n_stages, sum_bytes, sum.unreplayed_bytes, sum.n_steps, sum.n_replays,
      run->weights->n_held, first);
}

static void run_be_loaded_locked(struct run *run) {
  run->is_loaded = true;
  run_set_phase_locked(run, RUN_IDLE);
  run_log_loaded(run);
  run_tell_loaded_locked(run);
}

static void run_tell_loaded_locked(struct run *run) {
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  const struct plan *plan = &run->loaded.plan;
  loaded.run = run->load->run;
  loaded.incarnation = run->order_incarnation;
  loaded.train_samples = plan->train_samples;
  loaded.eval_samples = plan->eval_samples;
  loaded.dataset_sha256 = run->loaded.dataset_sha256;
  loaded.probe_sha256 = run->probe_sha256;
  loaded.stage_begin = run->load->stage_begin;
  loaded.stage_end = run->load->stage_end;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LOADED;
  message.loaded = &loaded;
  if (!run->is_muted)
    run->options.send(run->options.user, &message);
}
