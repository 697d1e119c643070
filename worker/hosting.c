/* The runs of a worker. */
#include "worker/hosting.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/memory_available.h"
#include "worker/resting.h"
#include "worker/trace/trace.h"
#include "worker/train/beat.h"
#include "worker/train/run.h"

struct hosting {
  struct hosting_options options;
  pthread_mutex_t lock;
  struct run *run; /* NULL: idle; changed by the one thread, under the lock */
  struct resting resting;
};

static void drop_run(struct hosting *hosting);
static bool drop_resting(struct hosting *hosting);

struct hosting *hosting_new(const struct hosting_options *options) {
  struct hosting *hosting = mem_new(sizeof *hosting);
  hosting->options = *options;
  pthread_mutex_init(&hosting->lock, NULL);
  resting_init(&hosting->resting);
  return hosting;
}

void hosting_end(struct hosting *hosting) {
  drop_run(hosting);
  while (drop_resting(hosting))
    continue;
}

void hosting_free(struct hosting *hosting) {
  resting_fini(&hosting->resting);
  pthread_mutex_destroy(&hosting->lock);
  free(hosting);
}

static void set_run(struct hosting *hosting, struct run *run) {
  pthread_mutex_lock(&hosting->lock);
  hosting->run = run;
  pthread_mutex_unlock(&hosting->lock);
}

static bool computes(const struct hosting *hosting, const char *run) {
  return hosting->run && strcmp(run_id(hosting->run), run) == 0;
}

/* A thread that hangs cannot be ended, nor its memory freed: as with a device that has failed, only a new
   process could compute again. Whoever watches over this one starts it. */
static void end_if_hung(const struct run *run, bool has_ended) {
  if (has_ended)
    return;
  log_event(LOG_ERROR, "worker", "hung",
            "run=%s: an execution does not come back, so this process ends: start it again", run_id(run));
  trace_close();
  _exit(EXIT_FAILURE);
}

static void drop_run(struct hosting *hosting) {
  struct run *run = hosting->run;
  set_run(hosting, NULL);
  end_if_hung(run, run_stop(run));
}

static struct kept_data *drop_run_but_data(struct hosting *hosting, const Weir__LoadRun *next) {
  struct run *run = hosting->run;
  struct kept_data *kept;
  set_run(hosting, NULL);
  end_if_hung(run, run_stop_but_data(run, next, &kept));
  return kept;
}

/* NULL is ignored. Whether there was one. */
static bool forget(struct run *run) {
  if (!run)
    return false;
  log_event(LOG_INFO, "worker", "forgotten", "run=%s", run_id(run));
  end_if_hung(run, run_stop(run));
  return true;
}

static bool drop_resting(struct hosting *hosting) {
  return forget(resting_take_any(&hosting->resting));
}

/* For a run that has not enough memory. Its thread; runs that rest are nobody else's. */
static bool make_room(void *user) {
  struct hosting *hosting = user;
  bool is_any = false;
  while (drop_resting(hosting))
    is_any = true;
  return is_any;
}

static void on_send(void *user, const Weir__MemberMessage *message) {
  struct hosting *hosting = user;
  hosting->options.send(hosting->options.user, message);
}

static void on_device_lost(void *user) {
  struct hosting *hosting = user;
  hosting->options.device_lost(hosting->options.user);
}

/* Memory of GPUs is for the run that is computed. */
static void rest_run(struct hosting *hosting, bool is_over) {
  struct run *run = hosting->run;
  if (hosting->options.device->n > 0 || !run_rest(run)) {
    drop_run(hosting);
    return;
  }
  set_run(hosting, NULL);
  forget(resting_add(&hosting->resting, run, is_over, clock_now_ns()));
}

/* Whether the run that is ordered is there, loaded or about to be, for it to say so. */
static bool find_run(struct hosting *hosting, const Weir__LoadRun *load, struct rpc_channel *coordinator,
                     struct kept_data **kept) {
  struct run *run;
  if (!computes(hosting, load->run)) {
    drop_run(hosting);
    set_run(hosting, resting_take(&hosting->resting, load->run));
  }
  if (hosting->run && run_tell_again(hosting->run, load, coordinator))
    return true;
  if (hosting->run) {
    *kept = drop_run_but_data(hosting, load);
    return false;
  }
  run = resting_take_fitting(&hosting->resting, load, hosting->options.data_root);
  if (!run || !run_become(run, load, coordinator)) {
    forget(run);
    return false;
  }
  set_run(hosting, run);
  return true;
}

void hosting_load(struct hosting *hosting, const Weir__LoadRun *load, struct rpc_channel *coordinator) {
  const struct hosting_options *options = &hosting->options;
  struct kept_data *kept = NULL;
  log_event(LOG_INFO, "worker", "load", "run=%s incarnation=%llu had=\"%s\"", load->run,
            (unsigned long long)load->incarnation, hosting->run ? run_id(hosting->run) : "");
  if (find_run(hosting, load, coordinator, &kept))
    return;
  while (resting_takes_much(memory_own_bytes(""), memory_available_bytes("")) && drop_resting(hosting))
    continue;
  set_run(hosting, run_start(&(struct run_options){.client = options->client,
                                                   .coordinator = coordinator,
                                                   .backend = options->device->backend,
                                                   .data_root = options->data_root,
                                                   .threads = options->executors,
                                                   .devices = options->device->indices,
                                                   .n_devices = options->device->n,
                                                   .device_bytes = options->device->memory_bytes,
                                                   .memory_bytes = options->memory_bytes,
                                                   .readers = options->readers,
                                                   .kept = kept,
                                                   .end_ms = options->end_ms,
                                                   .send = on_send,
                                                   .device_lost = on_device_lost,
                                                   .make_room = make_room,
                                                   .user = hosting},
                             load));
}

void hosting_unload(struct hosting *hosting, const Weir__UnloadRun *unload) {
  if (!computes(hosting, unload->run))
    return;
  log_event(LOG_INFO, "worker", "unload", "run=%s reason=\"%s\"", unload->run, unload->reason);
  rest_run(hosting, !unload->may_return);
}

void hosting_view(struct hosting *hosting, const Weir__View *view, const char *worker) {
  if (computes(hosting, view->run))
    run_view(hosting->run, view, worker);
}

void hosting_reissue(struct hosting *hosting, const Weir__Reissue *order) {
  if (computes(hosting, order->run))
    run_reissue(hosting->run, order);
}

void hosting_mute(struct hosting *hosting) {
  if (hosting->run)
    run_mute(hosting->run);
}

uint64_t hosting_forget_old(struct hosting *hosting) {
  while (forget(resting_take_old(&hosting->resting, clock_now_ns())))
    continue;
  return resting_due_ns(&hosting->resting);
}

bool hosting_is_idle(struct hosting *hosting) {
  bool is_idle;
  pthread_mutex_lock(&hosting->lock);
  is_idle = !hosting->run;
  pthread_mutex_unlock(&hosting->lock);
  return is_idle;
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
  hello->runs = arena_new(arena, (RESTING_MAX + 1) * sizeof *hello->runs);
  pthread_mutex_lock(&hosting->lock);
  if (hosting->run && run_is_alive(hosting->run, &incarnation)) {
    Weir__HostedRun *hosted = hello_add(hello, arena, run_id(hosting->run));
    hosted->incarnation = incarnation;
    run_stages(hosting->run, &hosted->stage_begin, &hosted->stage_end);
  }
  pthread_mutex_unlock(&hosting->lock);
  for (int i = 0; i < n_resting; i++)
    hello_add(hello, arena, resting[i])->rests = true;
}

void hosting_beat(struct hosting *hosting, Weir__Heartbeat *heartbeat, struct arena *arena) {
  Weir__RunCounters *counters;
  pthread_mutex_lock(&hosting->lock);
  counters = hosting->run ? run_beat(hosting->run, arena) : NULL;
  if (counters) {
    heartbeat->runs = arena_new(arena, sizeof *heartbeat->runs);
    heartbeat->runs[heartbeat->n_runs++] = counters;
  }
  pthread_mutex_unlock(&hosting->lock);
}

int hosting_take_boundary(struct hosting *hosting, const Weir__BoundaryPiece *piece,
                          const struct rpc_bytes *bytes, struct err *err) {
  pthread_mutex_lock(&hosting->lock);
  if (computes(hosting, piece->run))
    run_take_boundary(hosting->run, piece, bytes, err);
  else
    err_set(err, ERR_BUSY, "this worker does not compute run '%.60s'", piece->run);
  pthread_mutex_unlock(&hosting->lock);
  return err->code;
}
