/* The runs of a worker. */
#include "worker/hosting.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/machine/memory_available.h"
#include "common/certs/names.h"
#include "worker/ending.h"
#include "worker/resting.h"
#include "worker/train/beat.h"
#include "worker/train/run.h"
#include "worker/train/run/promises.h"

struct hosting {
  struct hosting_options options;
  struct promises promises;
  pthread_mutex_t lock;
  struct run *runs[HOSTED_MAX]; /* those that it computes; changed by the one thread, under the lock */
  int n_runs;
  struct resting resting;
  struct ending *ending;
};

struct hosting *hosting_new(const struct hosting_options *options) {
  struct hosting *hosting = mem_new(sizeof *hosting);
  hosting->options = *options;
  promises_init(&hosting->promises);
  pthread_mutex_init(&hosting->lock, NULL);
  resting_init(&hosting->resting);
  hosting->ending = ending_new();
  return hosting;
}

static bool is_on_devices(const struct hosting *hosting) {
  return hosting->options.device->n > 0;
}

static void add_run(struct hosting *hosting, struct run *run) {
  pthread_mutex_lock(&hosting->lock);
  hosting->runs[hosting->n_runs++] = run;
  pthread_mutex_unlock(&hosting->lock);
}

/* It is computed no more, and is the caller's. */
static struct run *take_run(struct hosting *hosting, int at) {
  struct run *run = hosting->runs[at];
  pthread_mutex_lock(&hosting->lock);
  hosting->n_runs--;
  memmove(hosting->runs + at, hosting->runs + at + 1,
          (size_t)(hosting->n_runs - at) * sizeof hosting->runs[0]);
  pthread_mutex_unlock(&hosting->lock);
  return run;
}

/* By the one thread, or under the lock. -1: it is not computed. */
static int find_run(const struct hosting *hosting, const char *run) {
  for (int i = 0; i < hosting->n_runs; i++)
    if (strcmp(run_id(hosting->runs[i]), run) == 0)
      return i;
  return -1;
}

/* NULL is ignored. Whether there was one. */
static bool forget_later(struct hosting *hosting, struct run *run) {
  if (run)
    log_event(LOG_INFO, "worker", "forgotten", "run=%s", run_id(run));
  ending_add(hosting->ending, run);
  return run != NULL;
}

static bool forget_resting(struct hosting *hosting) {
  struct run *run = resting_take_any(&hosting->resting);
  if (!run)
    return false;
  log_event(LOG_INFO, "worker", "forgotten", "run=%s", run_id(run));
  ending_check(run, run_stop(run));
  return true;
}

void hosting_end(struct hosting *hosting) {
  while (hosting->n_runs > 0)
    ending_add(hosting->ending, take_run(hosting, 0));
  while (forget_later(hosting, resting_take_any(&hosting->resting)))
    continue;
  ending_wait(hosting->ending, NULL);
}

void hosting_free(struct hosting *hosting) {
  ending_free(hosting->ending);
  resting_fini(&hosting->resting);
  pthread_mutex_destroy(&hosting->lock);
  promises_fini(&hosting->promises);
  free(hosting);
}

/* For a run that has not enough memory: waits for what ends, and forgets what rests. The run's thread. */
static bool make_room(void *user, const struct run *run) {
  struct hosting *hosting = user;
  bool is_any = ending_wait(hosting->ending, run);
  while (forget_resting(hosting))
    is_any = true;
  return is_any;
}

/* The run's thread. */
static bool are_others_beside(void *user, const struct run *run) {
  struct hosting *hosting = user;
  bool are_others = false;
  pthread_mutex_lock(&hosting->lock);
  for (int i = 0; i < hosting->n_runs; i++)
    are_others |= hosting->runs[i] != run;
  pthread_mutex_unlock(&hosting->lock);
  return are_others;
}

static void on_send(void *user, const Weir__MemberMessage *message) {
  struct hosting *hosting = user;
  hosting->options.send(hosting->options.user, message);
}

static void on_device_lost(void *user) {
  struct hosting *hosting = user;
  hosting->options.device_lost(hosting->options.user);
}

/* Its memory is free again later, that of GPUs at once. */
static void end_run(struct hosting *hosting, struct run *run) {
  if (is_on_devices(hosting))
    ending_check(run, run_stop(run));
  else
    ending_add(hosting->ending, run);
}

/* A run that has failed while nobody listened: Hello did not name it, so no order about it will come. */
static void drop_lost(struct hosting *hosting) {
  for (int i = hosting->n_runs - 1; i >= 0; i--)
    if (run_is_lost(hosting->runs[i]))
      end_run(hosting, take_run(hosting, i));
}

static void refuse(struct hosting *hosting, const Weir__LoadRun *load) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  char text[128];
  snprintf(text, sizeof text, "this worker computes %d run%s already%s, and no more at a time",
           hosting->n_runs, hosting->n_runs == 1 ? "" : "s", is_on_devices(hosting) ? " on its GPUs" : "");
  log_event(LOG_WARN, "worker", "refused", "run=%s error=\"%s\"", load->run, text);
  refused.run = load->run;
  refused.incarnation = load->incarnation;
  refused.message = text;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_REFUSED;
  message.refused = &refused;
  on_send(hosting, &message);
}

/* The run is of no use as it is. *kept: of its data, where only other stages of its model are wanted. */
static void drop_for(struct hosting *hosting, struct run *run, const Weir__LoadRun *load,
                     struct kept_data **kept) {
  uint32_t begin, end;
  run_stages(run, &begin, &end);
  if (begin == load->stage_begin && end == load->stage_end)
    end_run(hosting, run);
  else
    ending_check(run, run_stop_but_data(run, load, kept));
}

/* Whether the run that is ordered is there, loaded or about to be, for it to say so. at: of those that are
   computed; -1. */
static bool take_up(struct hosting *hosting, int at, const Weir__LoadRun *load,
                    struct rpc_channel *coordinator, struct kept_data **kept) {
  struct run *run;
  if (at >= 0 && run_tell_again(hosting->runs[at], load, coordinator))
    return true;
  run = at >= 0 ? take_run(hosting, at) : resting_take(&hosting->resting, load->run);
  if (at < 0 && run && run_tell_again(run, load, coordinator)) {
    add_run(hosting, run);
    return true;
  }
  if (run) {
    drop_for(hosting, run, load, kept);
    return false;
  }
  run = resting_take_fitting(&hosting->resting, load, &hosting->options.data_root);
  if (!run || !run_become(run, load, coordinator)) {
    forget_later(hosting, run);
    return false;
  }
  add_run(hosting, run);
  return true;
}

void hosting_load(struct hosting *hosting, const Weir__LoadRun *load, struct rpc_channel *coordinator) {
  const struct hosting_options *options = &hosting->options;
  struct kept_data *kept = NULL;
  int at;
  log_event(LOG_INFO, "worker", "load", "run=%s incarnation=%llu computed=%d", load->run,
            (unsigned long long)load->incarnation, hosting->n_runs);
  drop_lost(hosting);
  at = find_run(hosting, load->run);
  if (at < 0 && hosting->n_runs == (is_on_devices(hosting) ? 1 : HOSTED_MAX)) {
    refuse(hosting, load);
    return;
  }
  if (take_up(hosting, at, load, coordinator, &kept))
    return;
  while (resting_takes_much(memory_own_bytes(""), memory_available_bytes("")) && forget_resting(hosting))
    continue;
  add_run(hosting, run_start(&(struct run_options){.client = options->client,
                                                   .coordinator = coordinator,
                                                   .backend = options->device->backend,
                                                   .data_root = options->data_root,
                                                   .threads = options->executors,
                                                   .devices = options->device->indices,
                                                   .n_devices = options->device->n,
                                                   .device_bytes = options->device->memory_bytes,
                                                   .memory_bytes = options->memory_bytes,
                                                   .promises = &hosting->promises,
                                                   .readers = options->readers,
                                                   .kept = kept,
                                                   .end_ms = options->end_ms,
                                                   .send = on_send,
                                                   .device_lost = on_device_lost,
                                                   .make_room = make_room,
                                                   .are_others_beside = are_others_beside,
                                                   .user = hosting},
                             load));
}

/* Memory of GPUs is for the run that is computed. */
void hosting_unload(struct hosting *hosting, const Weir__UnloadRun *unload) {
  int at = find_run(hosting, unload->run);
  struct run *run;
  if (at < 0)
    return;
  log_event(LOG_INFO, "worker", "unload", "run=%s reason=\"%s\"", unload->run, unload->reason);
  run = take_run(hosting, at);
  if (!is_on_devices(hosting) && run_rest(run))
    forget_later(hosting, resting_add(&hosting->resting, run, !unload->may_return, clock_now_ns()));
  else
    end_run(hosting, run);
}

void hosting_view(struct hosting *hosting, const Weir__View *view, const char *worker) {
  int at = find_run(hosting, view->run);
  if (at >= 0)
    run_view(hosting->runs[at], view, worker);
}

void hosting_reissue(struct hosting *hosting, const Weir__Reissue *order) {
  int at = find_run(hosting, order->run);
  if (at >= 0)
    run_reissue(hosting->runs[at], order);
}

void hosting_mute(struct hosting *hosting) {
  for (int i = 0; i < hosting->n_runs; i++)
    run_mute(hosting->runs[i]);
}

uint64_t hosting_forget_old(struct hosting *hosting) {
  while (forget_later(hosting, resting_take_old(&hosting->resting, clock_now_ns())))
    continue;
  return resting_due_ns(&hosting->resting);
}

int hosting_count(struct hosting *hosting) {
  int count;
  pthread_mutex_lock(&hosting->lock);
  count = hosting->n_runs;
  pthread_mutex_unlock(&hosting->lock);
  return count;
}

bool hosting_is_idle(struct hosting *hosting) {
  return hosting_count(hosting) == 0;
}

static Weir__HostedRun *hello_add(Weir__Hello *hello, struct arena *arena, const char *run) {
  Weir__HostedRun *hosted = hello->runs[hello->n_runs++] = arena_new(arena, sizeof *hosted);
  weir__hosted_run__init(hosted);
  hosted->run = arena_strdup(arena, run);
  return hosted;
}

void hosting_hello(struct hosting *hosting, Weir__Hello *hello, struct arena *arena) {
  uint64_t incarnation;
  char *resting[RESTING_MAX];
  int n_resting = resting_ids(&hosting->resting, arena, resting);
  hello->runs = arena_new(arena, (RESTING_MAX + HOSTED_MAX) * sizeof *hello->runs);
  pthread_mutex_lock(&hosting->lock);
  for (int i = 0; i < hosting->n_runs; i++)
    if (run_is_alive(hosting->runs[i], &incarnation)) {
      Weir__HostedRun *hosted = hello_add(hello, arena, run_id(hosting->runs[i]));
      hosted->incarnation = incarnation;
      run_stages(hosting->runs[i], &hosted->stage_begin, &hosted->stage_end);
    }
  pthread_mutex_unlock(&hosting->lock);
  for (int i = 0; i < n_resting; i++)
    hello_add(hello, arena, resting[i])->rests = true;
}

void hosting_beat(struct hosting *hosting, Weir__Heartbeat *heartbeat, struct arena *arena) {
  heartbeat->runs = arena_new(arena, HOSTED_MAX * sizeof *heartbeat->runs);
  pthread_mutex_lock(&hosting->lock);
  for (int i = 0; i < hosting->n_runs; i++) {
    Weir__RunCounters *counters = run_beat(hosting->runs[i], arena);
    if (counters)
      heartbeat->runs[heartbeat->n_runs++] = counters;
  }
  pthread_mutex_unlock(&hosting->lock);
}

static int admit_without_locked(const struct hosting *hosting, struct err *err) {
  for (int i = 0; i < hosting->n_runs; i++)
    if (!run_has_peer_key(hosting->runs[i]))
      return 0;
  return err_set(err, ERR_DENIED, "the call has no ticket for a run of this worker");
}

/* A worker that is one tenant's is not told which runs of others are here. */
static bool is_one_tenants(const char *holder) {
  struct cert_holder read;
  struct err err;
  return cert_holder_read(holder, &read, &err) == 0 && read.role == CERT_WORKER && *read.tenant;
}

static int admit_locked(const struct hosting *hosting, const struct ticket *ticket, const char *holder,
                        struct err *err) {
  int at = find_run(hosting, ticket->run);
  int rc = at < 0 ? 0 : run_check_peer(hosting->runs[at], ticket, holder, err);
  bool is_stranger = at < 0 || rc == ERR_DENIED || !run_has_peer_key(hosting->runs[at]);
  if (at < 0 || (is_stranger && is_one_tenants(holder)))
    return err_set(err, ERR_BUSY, "this worker does not compute run '%.60s'", ticket->run);
  return rc;
}

int hosting_admit_peer(struct hosting *hosting, const char *text, const char *holder, struct err *err) {
  struct ticket ticket;
  if (text && ticket_read(text, &ticket, err))
    return err->code;
  pthread_mutex_lock(&hosting->lock);
  if (text)
    admit_locked(hosting, &ticket, holder, err);
  else
    admit_without_locked(hosting, err);
  pthread_mutex_unlock(&hosting->lock);
  return err->code;
}

static bool is_of_another(const char *text, const char *run) {
  struct ticket ticket;
  struct err err;
  return text && ticket_read(text, &ticket, &err) == 0 && strcmp(ticket.run, run) != 0;
}

static int refuse_piece(const Weir__BoundaryPiece *piece, struct err *err) {
  return err_set(err, ERR_DENIED, "the piece is of run '%.60s' in incarnation %llu, the call's ticket is not",
                 piece->run, (unsigned long long)piece->incarnation);
}

static bool is_ticket_for(const char *text, const Weir__BoundaryPiece *piece) {
  struct ticket ticket;
  struct err err;
  return text && ticket_read(text, &ticket, &err) == 0 && strcmp(ticket.run, piece->run) == 0 &&
         ticket.incarnation == piece->incarnation;
}

int hosting_take_boundary(struct hosting *hosting, const char *ticket, const Weir__BoundaryPiece *piece,
                          const struct rpc_bytes *bytes, struct err *err) {
  int at;
  pthread_mutex_lock(&hosting->lock);
  at = find_run(hosting, piece->run);
  if (is_of_another(ticket, piece->run)) /* whether that is here or not */
    refuse_piece(piece, err);
  else if (at < 0)
    err_set(err, ERR_BUSY, "this worker does not compute run '%.60s'", piece->run);
  else if (run_has_peer_key(hosting->runs[at]) && !is_ticket_for(ticket, piece))
    refuse_piece(piece, err);
  else
    run_take_boundary(hosting->runs[at], piece, bytes, err);
  pthread_mutex_unlock(&hosting->lock);
  return err->code;
}
