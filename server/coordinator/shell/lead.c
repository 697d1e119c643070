/* Leading: from standby over the take-over to the end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/overview/overview.h"
#include "server/coordinator/shell/sweeps.h"

enum { MISSING_AFTER_MS = 5000, SERVER_GRACE_MS = 3000, FOLLOW_MS = 30000, RETRY_MS = 500, LOOK_MS = 50 };

enum news_kind { NEWS_WAITING, NEWS_LEADING, NEWS_STORE, NEWS_EMPTIED, NEWS_DEPOSED };

/* What the lease's thread tells the event loop. */
struct news {
  struct task task;
  struct coordinator_service *shell;
  enum news_kind kind;
  uint64_t term;
  char text[SHELL_TEXT_SIZE];
};

/* The state of the store, read by the jobs for the event loop. */
struct restoring {
  struct task task;
  struct coordinator_service *shell;
  struct stored_runs runs;
  struct shell_sweep *sweeps;
  Weir__Members *members; /* NULL: none are known */
};

static void news_arrive(struct task *task);
static void take_over(struct coordinator_service *shell, uint64_t term);
static void read_state(struct task *task);
static void begin_to_lead(struct task *task);
static void store_emptied(struct coordinator_service *shell);

void shell_lead_init(struct coordinator_service *shell) {
  pthread_mutex_init(&shell->standing.lock, NULL);
  clock_condition_init(&shell->standing.settled);
  snprintf(shell->standing.why, SHELL_TEXT_SIZE, "this coordinator does not lead yet: try again in a moment");
}

void shell_lead_fini(struct coordinator_service *shell) {
  pthread_cond_destroy(&shell->standing.settled);
  pthread_mutex_destroy(&shell->standing.lock);
}

static void news_tell(struct coordinator_service *shell, enum news_kind kind, uint64_t term,
                      const char *text) {
  struct news *news = mem_new(sizeof *news);
  *news = (struct news){.task.run = news_arrive, .shell = shell, .kind = kind, .term = term};
  snprintf(news->text, sizeof news->text, "%s", text);
  task_post(shell->event_loop, &news->task); /* a few a second at most */
}

static void on_waiting(void *user, const char *why) {
  news_tell(user, NEWS_WAITING, 0, why);
}

static void on_leading(void *user, uint64_t term) {
  news_tell(user, NEWS_LEADING, term, "");
}

static void on_store(void *user, const char *message) {
  news_tell(user, NEWS_STORE, 0, message);
}

static void on_emptied(void *user) {
  news_tell(user, NEWS_EMPTIED, 0, "");
}

static void on_deposed(void *user, const char *reason) {
  news_tell(user, NEWS_DEPOSED, 0, reason);
}

void coordinator_service_lead(struct coordinator_service *shell, const char *holder, const char *address) {
  struct lease_options options = {.store = shell->store,
                                  .holder = holder,
                                  .address = address,
                                  .lease_ms = shell->options.lease_ms,
                                  .on_waiting = on_waiting,
                                  .on_leading = on_leading,
                                  .on_store = on_store,
                                  .on_emptied = on_emptied,
                                  .on_deposed = on_deposed,
                                  .user = shell};
  CHECK(!shell->lease);
  shell->lease = lease_start(&options);
}

bool coordinator_service_wait(struct coordinator_service *shell, int timeout_ms) {
  struct standing *standing = &shell->standing;
  uint64_t until_ns = clock_now_ns() + (uint64_t)timeout_ms * 1000000;
  struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
  bool is_leading;
  pthread_mutex_lock(&standing->lock);
  while (!standing->is_settled && clock_now_ns() < until_ns)
    pthread_cond_timedwait(&standing->settled, &standing->lock, &until);
  is_leading = standing->is_leading;
  pthread_mutex_unlock(&standing->lock);
  return is_leading;
}

bool shell_turns_away(struct coordinator_service *shell, struct rpc_call *call) {
  char why[SHELL_TEXT_SIZE];
  if (shell_is_leading(shell, why))
    return false;
  rpc_call_fail(call, ERR_UNAVAILABLE, "%s", why);
  return true;
}

bool shell_is_leading(struct coordinator_service *shell, char text[SHELL_TEXT_SIZE]) {
  bool is_leading;
  pthread_mutex_lock(&shell->standing.lock);
  is_leading = shell->standing.is_leading;
  memcpy(text, shell->standing.why, SHELL_TEXT_SIZE);
  pthread_mutex_unlock(&shell->standing.lock);
  return is_leading;
}

static void set_standing(struct coordinator_service *shell, bool is_leading, bool is_settled,
                         const char *why) {
  struct standing *standing = &shell->standing;
  pthread_mutex_lock(&standing->lock);
  standing->is_leading = is_leading;
  standing->is_settled = is_settled;
  snprintf(standing->why, SHELL_TEXT_SIZE, "%s", why);
  pthread_cond_broadcast(&standing->settled);
  pthread_mutex_unlock(&standing->lock);
}

bool shell_is_ending(const struct coordinator_service *shell) {
  return __atomic_load_n(&shell->is_ending, __ATOMIC_RELAXED);
}

static void news_arrive(struct task *task) {
  struct news *news = TASK_OWNER(task, struct news, task);
  struct coordinator_service *shell = news->shell;
  if (shell->is_stopping)
    ;
  else if (news->kind == NEWS_WAITING)
    set_standing(shell, false, true, news->text);
  else if (news->kind == NEWS_LEADING)
    take_over(shell, news->term);
  else if (news->kind == NEWS_STORE)
    shell_store_message(shell, shell->lease_message, news->text);
  else if (news->kind == NEWS_EMPTIED)
    store_emptied(shell);
  else
    shell_depose(shell, news->text);
  free(news);
}

static void take_over(struct coordinator_service *shell, uint64_t term) {
  struct restoring *restoring = mem_new(sizeof *restoring);
  shell->term = term;
  set_standing(shell, false, false, "this coordinator is taking over: try again in a moment");
  *restoring = (struct restoring){.task.run = read_state, .shell = shell};
  task_post(shell->jobs, &restoring->task);
}

/* Until the store answers: there is nothing else that the jobs could do before. */
static void read_state(struct task *task) {
  struct restoring *restoring = TASK_OWNER(task, struct restoring, task);
  struct coordinator_service *shell = restoring->shell;
  char term[LEASE_TERM_SIZE];
  struct store_record guard = lease_guard(shell->term, term);
  struct err err = ERR_NONE;
  while (!shell_is_ending(shell) && (store_identity_settle(shell->store, &guard, shell->identity, &err) ||
                                     stored_members_read(shell->store, &restoring->members, &err) ||
                                     stored_runs_read(shell->store, &guard, &restoring->runs, &err) ||
                                     sweeps_read(shell, &restoring->sweeps, &err))) {
    char why[SHELL_TEXT_SIZE];
    snprintf(why, sizeof why, "this coordinator is taking over: %.400s", err.text);
    log_event(LOG_WARN, "coordinator", "taking_over", "error=\"%s\"", err.text);
    set_standing(shell, false, true, why);
    for (int waited_ms = 0; waited_ms < RETRY_MS && !shell_is_ending(shell); waited_ms += LOOK_MS)
      nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    message_free(restoring->members);
    restoring->members = NULL;
    stored_runs_fini(&restoring->runs);
    err = ERR_NONE;
  }
  restoring->task.run = begin_to_lead;
  task_post(shell->event_loop, &restoring->task);
}

void shell_run_restore(struct coordinator_service *shell, const struct stored_run *run) {
  struct coordinator_event event = {.kind = EVENT_RUN_RESTORED,
                                    .restored = {.record = run->record,
                                                 .events = run->events,
                                                 .n_events = run->n_events,
                                                 .now_unix_ms = clock_unix_ms()}};
  shell_saves_restored(shell, run);
  shell_step(shell, &event);
}

static void begin_to_lead(struct task *task) {
  struct restoring *restoring = TASK_OWNER(task, struct restoring, task);
  struct coordinator_service *shell = restoring->shell;
  struct coordinator_service_options *options = &shell->options;
  struct coordinator_options core_options = {
      .term = shell->term,
      .store_identity = shell->identity,
      .quotas = &shell->quotas,
      .missing_after_ms =
          (uint64_t)(options->missing_after_ms > 0 ? options->missing_after_ms : MISSING_AFTER_MS),
      .server_grace_ms =
          (uint64_t)(options->server_grace_ms > 0 ? options->server_grace_ms : SERVER_GRACE_MS),
      .follow_ms = (uint64_t)(options->follow_ms > 0 ? options->follow_ms : FOLLOW_MS)};
  ticket_draw_secret(core_options.secret);
  if (shell->is_stopping || shell_is_ending(shell))
    goto out;
  shell->core = coordinator_new(&core_options);
  shell->overview = overview_new(shell->core, clock_unix_ms() - (int64_t)shell_now_ms());
  if (restoring->members)
    shell_step(shell,
               &(struct coordinator_event){.kind = EVENT_MEMBERS_RESTORED, .members = restoring->members});
  for (int i = 0; i < restoring->runs.count; i++)
    shell_run_restore(shell, &restoring->runs.items[i]);
  shell->sweeps = restoring->sweeps;
  restoring->sweeps = NULL;
  for (struct shell_sweep *sweep = shell->sweeps; sweep; sweep = sweep->next)
    shell_sweep_kind_begin(shell, sweep);
  log_event(LOG_INFO, "coordinator", "state_restored", "term=%" PRIu64 " runs=%d left_out=%d", shell->term,
            restoring->runs.count, restoring->runs.left_out);
  if (*shell->lease_message) /* it came while there was no core to tell */
    shell_step(shell,
               &(struct coordinator_event){.kind = EVENT_STORE, .store_message = shell->lease_message});
  set_standing(shell, true, true, "");
  if (options->on_leading)
    options->on_leading(options->user);
  shell_collect_all(shell);
  shell_fetch_models(shell);
  if (shell->was_emptied)
    store_emptied(shell);
out:
  stored_runs_fini(&restoring->runs);
  sweeps_free(restoring->sweeps);
  message_free(restoring->members);
  free(restoring);
}

/* The store is new to us: what it had is written again. */
static void store_emptied(struct coordinator_service *shell) {
  shell->was_emptied = true;
  if (!shell->core)
    return; /* what was there is being read: again once that is done */
  shell_refill(shell);
  shell_saves_emptied(shell);
  shell_sweeps_emptied(shell);
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_STORE_EMPTIED});
  shell_fetch_models(shell); /* those that are not in memory are lost */
}

void shell_store_message(struct coordinator_service *shell, char part[SHELL_TEXT_SIZE], const char *message) {
  char old[SHELL_TEXT_SIZE], *now;
  memcpy(old, *shell->save_message ? shell->save_message : shell->lease_message, sizeof old);
  snprintf(part, SHELL_TEXT_SIZE, "%s", message);
  now = *shell->save_message ? shell->save_message : shell->lease_message;
  if (strcmp(old, now) == 0)
    return;
  log_event(*now ? LOG_WARN : LOG_INFO, "coordinator", *now ? "store_trouble" : "store_well",
            "message=\"%s\"", now);
  if (!*now && shell->core)
    shell_refill(shell); /* it may have come back without its last seconds */
  shell_step(shell, &(struct coordinator_event){.kind = EVENT_STORE, .store_message = now});
}

void shell_let_go(struct coordinator_service *shell, const char *why) {
  shell->is_stopping = true;
  set_standing(shell, false, true, why);
  shell_close_watches(shell, why);
  shell_close_trace(shell, why);
  shell_close_wishes(shell, why);
  shell_close_forks(shell, why);
  shell_sweeps_stop(shell, why);
  shell_close_links(shell, why);
}

void shell_depose(struct coordinator_service *shell, const char *reason) {
  if (shell->is_stopping)
    return;
  log_event(LOG_ERROR, "coordinator", "deposed", "term=%" PRIu64 " reason=\"%s\"", shell->term, reason);
  shell_let_go(shell, reason);
  shell_saves_stop(shell, true);
  if (shell->options.on_deposed)
    shell->options.on_deposed(shell->options.user, reason);
}
