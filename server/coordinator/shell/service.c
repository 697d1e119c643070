/* The coordinator role: begin, end, and the core's actions carried out. */
#include "server/coordinator/shell/service.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/metrics/metric.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/overview/overview.h"
#include "server/coordinator/shell/piece_hold.h"
#include "server/coordinator/shell/fork.h"
#include "server/coordinator/shell/shell.h"

enum { EVENT_LOOP_TASKS_MAX = 4096, JOBS_MAX = 256, TICK_MS = 100, BEHIND_MS = 5, UNREAD_MS = 60000 };

static const struct rpc_method training_methods[TRAINING_METHODS];
enum { CLUSTER_METHODS = 5 };
static const struct rpc_method cluster_methods[CLUSTER_METHODS];

static int event_loop_turn(void *user);
static void event_loop_stop(struct task *task);
static void carry_out(struct coordinator_service *shell, const struct coordinator_action *action);

struct coordinator_service *coordinator_service_new(const struct coordinator_service_options *options) {
  struct coordinator_service *shell = mem_new(sizeof *shell);
  shell->options = *options;
  shell->store = options->store;
  quotas_move(&shell->quotas, options->quotas);
  pthread_mutex_init(&shell->uploads_lock, NULL);
  memcpy(shell->training, training_methods, sizeof training_methods);
  shell->training[0].idle_ms = options->upload_idle_ms ? options->upload_idle_ms : LIMIT_UPLOAD_IDLE_MS;
  shell->services[0] = (struct rpc_service){shell->training, TRAINING_METHODS, shell};
  shell->services[1] = (struct rpc_service){cluster_methods, CLUSTER_METHODS, shell};
  shell_lead_init(shell);
  shell->jobs = task_thread_start(&(struct task_thread_options){.capacity = JOBS_MAX});
  shell->slow = task_thread_start(&(struct task_thread_options){.capacity = JOBS_MAX});
  shell->searching = task_thread_start(&(struct task_thread_options){.capacity = JOBS_MAX});
  shell->verifying = task_thread_start(&(struct task_thread_options){.capacity = JOBS_MAX});
  reads_init(&shell->reads);
  shell->sender = sender_start(UNREAD_MS);
  shell->event_loop = task_thread_start(&(struct task_thread_options){
      .capacity = EVENT_LOOP_TASKS_MAX, .on_turn = event_loop_turn, .user = shell});
  return shell;
}

const struct rpc_service *coordinator_service_list(const struct coordinator_service *service) {
  return service->services;
}

struct quota_task {
  struct task task;
  struct coordinator_service *shell;
  struct quotas quotas;
};

static void take_quotas(struct task *task) {
  struct quota_task *taken = TASK_OWNER(task, struct quota_task, task);
  struct coordinator_service *shell = taken->shell;
  pthread_mutex_lock(&shell->uploads_lock);
  quotas_fini(&shell->quotas);
  quotas_move(&shell->quotas, &taken->quotas);
  pthread_mutex_unlock(&shell->uploads_lock);
  free(taken);
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_QUOTAS});
}

void coordinator_service_set_quotas(struct coordinator_service *shell, struct quotas *quotas) {
  struct quota_task *task = mem_new(sizeof *task);
  *task = (struct quota_task){.task.run = take_quotas, .shell = shell};
  quotas_move(&task->quotas, quotas);
  task_post(shell->event_loop, &task->task);
}

/* The event loop's last task of its own: tells who waits for it. */
struct stop_task {
  struct task task;
  struct coordinator_service *shell;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool is_done;
};

void coordinator_service_stop(struct coordinator_service *shell) {
  struct stop_task stop = {.task.run = event_loop_stop, .shell = shell};
  __atomic_store_n(&shell->is_ending, true, __ATOMIC_RELAXED);
  pthread_mutex_init(&stop.lock, NULL);
  pthread_cond_init(&stop.changed, NULL);
  task_post(shell->event_loop, &stop.task);
  pthread_mutex_lock(&stop.lock);
  while (!stop.is_done)
    pthread_cond_wait(&stop.changed, &stop.lock);
  pthread_mutex_unlock(&stop.lock);
  pthread_cond_destroy(&stop.changed);
  pthread_mutex_destroy(&stop.lock);
}

static void event_loop_stop(struct task *task) {
  struct stop_task *stop = TASK_OWNER(task, struct stop_task, task);
  if (!stop->shell->is_stopping) { /* else it was deposed */
    shell_let_go(stop->shell, "the coordinator is stopping");
    shell_saves_stop(stop->shell, false);
  }
  pthread_mutex_lock(&stop->lock);
  stop->is_done = true;
  pthread_cond_signal(&stop->changed);
  pthread_mutex_unlock(&stop->lock);
}

void coordinator_service_free(struct coordinator_service *shell) {
  if (!shell)
    return;
  task_thread_stop(
      shell->slow); /* its tasks end on the event loop or with the sender, as those of the jobs do */
  task_thread_stop(shell->verifying);
  task_thread_stop(shell->searching);
  task_thread_stop(shell->jobs);
  lease_stop(shell->lease);
  task_thread_stop(shell->event_loop);
  sender_stop(shell->sender);
  while (shell->models)
    shell_release_model(shell, shell->models->run);
  shell_saves_fini(shell);
  shell_sweeps_fini(shell);
  shell_drops_fini(shell);
  piece_holds_fini(shell);
  block_refs_free(shell->refs);
  coordinator_actions_fini(&shell->actions);
  overview_free(shell->overview);
  coordinator_free(shell->core);
  quotas_fini(&shell->quotas);
  reads_fini(&shell->reads);
  shell_lead_fini(shell);
  pthread_mutex_destroy(&shell->uploads_lock);
  free(shell);
}

uint64_t shell_now_ms(void) {
  return clock_now_ns() / 1000000;
}

static void write_what_is_due(struct coordinator_service *shell, uint64_t now_ms) {
  shell_saves_turn(shell, now_ms);
  if (shell->refill_ms && now_ms >= shell->refill_ms)
    shell_refill(shell);
  if (shell->fetch_ms && now_ms >= shell->fetch_ms)
    shell_fetch_models(shell);
  shell_drops_turn(shell, now_ms);
}

static int event_loop_turn(void *user) {
  struct coordinator_service *shell = user;
  uint64_t now_ms = shell_now_ms();
  bool is_tick = now_ms - shell->ticked_ms >= TICK_MS;
  shell_close_overrun_links(shell);
  if (is_tick) {
    shell->ticked_ms = now_ms;
    shell_step(shell, &(struct coordinator_event){.kind = EVENT_TICK});
    if (!shell->is_stopping)
      write_what_is_due(shell, now_ms);
    if (shell->core)
      overview_tick(shell->overview, shell->core, now_ms);
  }
  shell_sweeps_turn(shell, is_tick);
  shell_wishes_turn(shell, now_ms);
  shell_forks_turn(shell, now_ms);
  shell_trace_turn(shell);
  return shell_pump_watches(shell) ? BEHIND_MS : TICK_MS;
}

void shell_step(struct coordinator_service *shell, const struct coordinator_event *event) {
  uint64_t begin_ns = clock_now_ns();
  if (shell->is_stopping || !shell->core)
    return;
  coordinator_step(shell->core, event, shell_now_ms(), &shell->actions);
  metric_add(METRIC_EVENTS, 1);
  metric_add(METRIC_EVENT_SECONDS, clock_now_ns() - begin_ns);
  for (int i = 0; i < shell->actions.count && !shell->is_stopping; i++)
    carry_out(shell, &shell->actions.items[i]);
}

static void carry_out(struct coordinator_service *shell, const struct coordinator_action *action) {
  switch (action->kind) {
  case ACTION_ORDER:
    if (action->order->body_case == WEIR__ORDER__BODY_VIEW)
      metric_add(METRIC_VIEWS, 1);
    shell_order(shell, action->member, action->order);
    break;
  case ACTION_CLOSE:
    shell_close_link(shell, action->member, action->code, action->reason);
    break;
  case ACTION_PUBLISH: /* watchers are served when the event loop's batch is done */
    shell_saves_published(shell, action->run);
    shell_sweeps_published(shell, action->run);
    break;
  case ACTION_COMMIT:
    shell_commit(shell, action->manifest, action->is_last);
    break;
  case ACTION_DROP:
    shell_drop(shell, action->run, action->step);
    break;
  case ACTION_BASE:
    shell_fork_base(shell, action->run);
    break;
  case ACTION_SAVE:
    shell_save(shell, action);
    break;
  case ACTION_RELEASE:
    shell_release_model(shell, action->run);
    break;
  case ACTION_MEMBERS:
    shell_save_members(shell, action->members);
    break;
  case ACTION_DOUBT:
    lease_doubt(shell->lease);
    break;
  case ACTION_DEPOSED:
    lease_outlived(shell->lease, action->term);
    shell_depose(shell, "another coordinator leads: a member obeys a higher term");
    break;
  }
}

struct live_model *shell_find_model(struct coordinator_service *shell, const char *run) {
  struct live_model *model = shell->models;
  while (model && strcmp(model->run, run))
    model = model->next;
  return model;
}

static void model_add(struct coordinator_service *shell, const char *run, const char *key,
                      struct run_model *model) {
  struct live_model *live = mem_new(sizeof *live);
  *live = (struct live_model){mem_strdup(run), mem_strdup(key), model, shell->models};
  shell->models = live;
}

bool shell_share_model(struct coordinator_service *shell, const char *run, const char *key) {
  const struct live_model *other = shell->models;
  while (other && strcmp(other->key, key))
    other = other->next;
  if (other)
    model_add(shell, run, key, run_model_get(other->model));
  return other != NULL;
}

void shell_keep_model(struct coordinator_service *shell, const char *run, const char *key,
                      struct run_model *model) {
  if (shell_share_model(shell, run, key))
    run_model_put(model);
  else
    model_add(shell, run, key, model);
}

void shell_release_model(struct coordinator_service *shell, const char *run) {
  struct live_model **at = &shell->models, *model = shell_find_model(shell, run);
  if (!model)
    return;
  while (*at != model)
    at = &(*at)->next;
  *at = model->next;
  run_model_put(model->model);
  free(model->run);
  free(model->key);
  free(model);
}

static const struct rpc_method training_methods[TRAINING_METHODS] = {
    {.id = RPC_SUBMIT, /* the first: its idle_ms is an option */
     .is_request_stream = true,
     .on_message = shell_submit_on_message,
     .on_half_close = shell_submit_on_half_close,
     .on_closed = shell_submit_on_closed},
    {.id = RPC_FORK_RUN, .on_message = shell_fork_on_message},
    {.id = RPC_LIST_RUNS, .on_message = shell_list_runs_on_message},
    {.id = RPC_GET_RUN, .on_message = shell_get_run_on_message},
    {.id = RPC_WATCH, .on_message = shell_watch_on_message, .on_closed = shell_watch_on_closed},
    {.id = RPC_CANCEL, .on_message = shell_cancel_on_message},
    {.id = RPC_PAUSE, .on_message = shell_pause_on_message},
    {.id = RPC_STOP, .on_message = shell_stop_on_message},
    {.id = RPC_SET_RUN, .on_message = shell_set_on_message},
    {.id = RPC_RESUME, .on_message = shell_resume_on_message},
    {.id = RPC_LIST_CHECKPOINTS, .on_message = shell_list_checkpoints_on_message},
    {.id = RPC_VERIFY, .on_message = shell_verify_on_message},
    {.id = RPC_COLLECT_GARBAGE, .on_message = shell_collect_garbage_on_message},
    {.id = RPC_LIST_SWEEPS, .on_message = shell_list_sweeps_on_message},
    {.id = RPC_GET_SWEEP, .on_message = shell_get_sweep_on_message},
    {.id = RPC_EXTEND_SWEEP, .on_message = shell_extend_sweep_on_message},
    {.id = RPC_DELETE_SWEEP, .on_message = shell_delete_sweep_on_message},
    {.id = RPC_STOP_SWEEP, .on_message = shell_stop_sweep_on_message},
    {.id = RPC_LIST_WORKERS, .on_message = shell_list_workers_on_message},
    {.id = RPC_DRAIN_WORKER, .on_message = shell_drain_worker_on_message},
    {.id = RPC_DRAIN_SERVER, .on_message = shell_drain_server_on_message},
    {.id = RPC_READMIT_WORKER, .on_message = shell_readmit_worker_on_message},
    {.id = RPC_LIST_SERVERS, .on_message = shell_list_servers_on_message},
    {.id = RPC_GET_OVERVIEW, .on_message = shell_get_overview_on_message},
    {.id = RPC_GET_SERIES, .on_message = shell_get_series_on_message},
    {.id = RPC_TRACE_RUN, .on_message = shell_trace_on_message, .on_closed = shell_trace_on_closed},
    {.id = RPC_GET_MODEL, .on_message = shell_get_model_on_message},
    {.id = RPC_GET_PIECES, .on_message = shell_get_pieces_on_message, .on_closed = shell_pieces_on_closed},
    {.id = RPC_GET_WEIGHTS, .on_message = shell_get_weights_on_message},
    {.id = RPC_GET_LAYOUT, .on_message = shell_get_layout_on_message},
    {.id = RPC_GET_BATCH, .on_message = shell_get_batch_on_message},
};

static const struct rpc_method cluster_methods[CLUSTER_METHODS] = {
    {.id = RPC_JOIN,
     .is_request_stream = true,
     .on_message = shell_join_on_message,
     .on_half_close = shell_join_on_half_close,
     .on_closed = shell_join_on_closed},
    {.id = RPC_FETCH_MODEL, .on_begin = shell_fetch_on_begin, .on_message = shell_fetch_model_on_message},
    {.id = RPC_FETCH_PIECES,
     .on_begin = shell_fetch_on_begin,
     .on_message = shell_fetch_pieces_on_message,
     .on_closed = shell_pieces_on_closed},
    {.id = RPC_FETCH_LAYOUT, .on_begin = shell_fetch_on_begin, .on_message = shell_fetch_layout_on_message},
    {.id = RPC_FETCH_BATCH, .on_begin = shell_fetch_on_begin, .on_message = shell_fetch_batch_on_message},
};
