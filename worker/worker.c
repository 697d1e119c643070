/* The worker's process. */
#include "worker/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "build_id.h"
#include "cluster.pb-c.h"
#include "common/agree/libm.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/memory_available.h"
#include "common/base/message.h"
#include "common/rpc/member.h"
#include "worker/collective/host.h"
#include "worker/peers.h"
#include "worker/resting.h"
#include "worker/trace/trace.h"
#include "worker/train/beat.h"
#include "worker/train/run.h"

enum { RPC_THREADS = 2, LEAVE_MS = 5000 };

/* What has happened, in order; acted on by the thread of worker_serve. */
struct event {
  enum { EVENT_CONNECTED, EVENT_LOST, EVENT_ORDER } kind;
  char *id;           /* CONNECTED: ours */
  Weir__Order *order; /* ORDER */
  struct event *next;
};

struct worker {
  const struct worker_options *options;
  struct rpc_client *client;
  struct member *member;
  struct peers *peers; /* NULL: it does not listen */
  pthread_t signals;
  bool has_lost_device; /* atomic */

  char *id;               /* of the newest membership; worker_serve's thread */
  bool is_member;         /* likewise */
  struct run *run;        /* NULL: idle; worker_serve's thread, which changes it under the lock */
  struct resting resting; /* that may come back */

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct event *first, *last;
  uint64_t events_come, events_done;
  bool is_draining; /* we are to be given no work */
  bool is_leaving;  /* a signal came, or the device was lost */
  bool is_ending;   /* nobody acts on events any more */
};

static void on_hello(void *user, Weir__Hello *hello, struct arena *arena);
static void on_beat(void *user, Weir__Heartbeat *heartbeat, struct arena *arena);
static void on_connected(void *user, const char *id);
static void on_order(void *user, const Weir__Order *order);
static void on_lost(void *user, const struct err *err);
static void worker_listen(struct worker *worker);
static void *signals_main(void *argument);
static void worker_loop(struct worker *worker);
static void worker_drop_run(struct worker *worker);
static bool worker_drop_resting(struct worker *worker);

static int worker_executors(const struct worker_options *options) {
  return options->device.n > 0 ? options->device.n : options->threads;
}

static uint64_t worker_leave_ms(const struct worker_options *options) {
  return (uint64_t)(options->leave_ms > 0 ? options->leave_ms : LEAVE_MS);
}

static void worker_join_cluster(struct worker *worker) {
  const struct worker_options *options = worker->options;
  Weir__Hello hello = WEIR__HELLO__INIT;
  char host[256] = "unknown";
  const struct device_choice *device = &options->device;
  char *fingerprint =
      mem_printf("%s %s: %s%s%s, libm %s", WEIR_BUILD, device->backend->name, device->backend->fingerprint(),
                 *device->kind ? " on " : "", device->kind, libm_hash());
  char *shm_host = host_name();
  gethostname(host, sizeof host - 1);
  hello.role = WEIR__ROLE__WORKER;
  hello.host = host;
  hello.pid = (uint32_t)getpid();
  hello.device = (char *)device->name;
  hello.executors = (uint32_t)worker_executors(options);
  hello.shm_host = shm_host;
  hello.labels = options->labels.list;
  hello.n_labels = options->labels.n;
  if (worker->peers)
    hello.address = (char *)peers_address(worker->peers);
  hello.fingerprint = fingerprint;
  worker->member = member_start(&(struct member_options){.client = worker->client,
                                                         .coordinator = options->coordinator,
                                                         .hello = &hello,
                                                         .on_hello = on_hello,
                                                         .on_beat = on_beat,
                                                         .on_connected = on_connected,
                                                         .on_order = on_order,
                                                         .on_lost = on_lost,
                                                         .user = worker});
  free(fingerprint);
  free(shm_host);
}

static int on_boundary(void *user, const Weir__BoundaryPiece *piece, const struct rpc_bytes *bytes,
                       struct err *err) {
  struct worker *worker = user;
  pthread_mutex_lock(&worker->lock);
  if (worker->run && strcmp(run_id(worker->run), piece->run) == 0)
    run_take_boundary(worker->run, piece, bytes, err);
  else
    err_set(err, ERR_BUSY, "this worker does not compute run '%.60s'", piece->run);
  pthread_mutex_unlock(&worker->lock);
  return err->code;
}

static void worker_listen(struct worker *worker) {
  const struct worker_options *options = worker->options;
  struct err err = ERR_NONE;
  if (peers_start(&(struct peers_options){.listen = options->listen,
                                          .advertise = options->advertise,
                                          .coordinator = options->coordinator,
                                          .take = on_boundary,
                                          .user = worker},
                  &worker->peers, &err))
    log_event(LOG_WARN, "worker", "not_listening", "error=\"%s\"", err.text);
}

static void event_free(struct event *event) {
  free(event->id);
  message_free(event->order);
  free(event);
}

bool worker_serve(const struct worker_options *options) {
  struct worker worker = {.options = options};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL); /* in every thread: one of them waits for them */
  pthread_mutex_init(&worker.lock, NULL);
  clock_condition_init(&worker.changed);
  resting_init(&worker.resting);
  CHECK(pthread_create(&worker.signals, NULL, signals_main, &worker) == 0);
  worker.client = rpc_client_new(RPC_THREADS);
  worker_listen(&worker);
  worker_join_cluster(&worker);
  worker_loop(&worker);
  peers_stop(worker.peers);
  worker_drop_run(&worker);
  while (worker_drop_resting(&worker))
    continue;
  resting_fini(&worker.resting);
  member_stop(worker.member);
  rpc_client_free(worker.client);
  pthread_kill(worker.signals, SIGUSR1);
  pthread_join(worker.signals, NULL);
  while (worker.first) {
    struct event *event = worker.first;
    worker.first = event->next;
    event_free(event);
  }
  pthread_cond_destroy(&worker.changed);
  pthread_mutex_destroy(&worker.lock);
  free(worker.id);
  return !worker.has_lost_device;
}

/* The number of the event. */
static uint64_t worker_post(struct worker *worker, struct event event) {
  struct event *copy = mem_new(sizeof *copy);
  uint64_t number;
  *copy = event;
  pthread_mutex_lock(&worker->lock);
  if (worker->last)
    worker->last->next = copy;
  else
    worker->first = copy;
  worker->last = copy;
  number = ++worker->events_come;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
  return number;
}

/* What another coordinator is to know: the run that we went on with, and that we drain. */
static void on_hello(void *user, Weir__Hello *hello, struct arena *arena) {
  struct worker *worker = user;
  uint64_t incarnation;
  pthread_mutex_lock(&worker->lock);
  hello->draining = worker->is_draining;
  if (worker->run && run_is_alive(worker->run, &incarnation)) {
    Weir__HostedRun *hosted = arena_new(arena, sizeof *hosted);
    weir__hosted_run__init(hosted);
    hosted->run = arena_strdup(arena, run_id(worker->run));
    hosted->incarnation = incarnation;
    run_stages(worker->run, &hosted->stage_begin, &hosted->stage_end);
    hello->runs = arena_copy(arena, &hosted, sizeof(Weir__HostedRun *));
    hello->n_runs = 1;
  }
  pthread_mutex_unlock(&worker->lock);
}

static void on_beat(void *user, Weir__Heartbeat *heartbeat, struct arena *arena) {
  struct worker *worker = user;
  pthread_mutex_lock(&worker->lock);
  if (worker->run)
    run_beat(worker->run, heartbeat, arena);
  pthread_mutex_unlock(&worker->lock);
}

static void on_connected(void *user, const char *id) {
  worker_post(user, (struct event){.kind = EVENT_CONNECTED, .id = mem_strdup(id)});
}

static void on_order(void *user, const Weir__Order *order) {
  worker_post(user, (struct event){.kind = EVENT_ORDER, .order = message_copy(order)});
}

/* Returns when every order of the lost membership was acted on and the run was muted, so that nothing of it
   is said in the next one. */
static void on_lost(void *user, const struct err *err) {
  struct worker *worker = user;
  uint64_t number = worker_post(worker, (struct event){.kind = EVENT_LOST});
  (void)err;
  pthread_mutex_lock(&worker->lock);
  while (worker->events_done < number && !worker->is_ending)
    pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
}

/* SIGUSR1 is ours: worker_serve ends the thread with it, on_device_lost tells it. */
static void *signals_main(void *argument) {
  struct worker *worker = argument;
  bool is_ending = false;
  sigset_t set;
  int number;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR1);
  while (!is_ending && sigwait(&set, &number) == 0) {
    pthread_mutex_lock(&worker->lock);
    if (number != SIGUSR1 && worker->is_leaving)
      _exit(128 + number);
    worker->is_leaving |= number != SIGUSR1 || __atomic_load_n(&worker->has_lost_device, __ATOMIC_ACQUIRE);
    is_ending = number == SIGUSR1 && worker->is_ending;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
  }
  return NULL;
}

static void worker_send(void *user, const Weir__MemberMessage *message) {
  struct worker *worker = user;
  int code = member_send(worker->member, message);
  if (code)
    log_event(LOG_WARN, "worker", "not_told", "code=%s", err_name(code));
}

/* Takes no lock: on_hello takes the run's under ours. */
static void on_device_lost(void *user) {
  struct worker *worker = user;
  __atomic_store_n(&worker->has_lost_device, true, __ATOMIC_RELEASE);
  pthread_kill(worker->signals, SIGUSR1);
}

static void worker_set_run(struct worker *worker, struct run *run) {
  pthread_mutex_lock(&worker->lock);
  worker->run = run;
  pthread_mutex_unlock(&worker->lock);
}

/* A thread that hangs cannot be ended, nor its memory freed: as with a device that has failed, only a new
   process could compute again. Whoever watches over this one starts it. */
static void worker_end_if_hung(const struct run *run, bool has_ended) {
  if (has_ended)
    return;
  log_event(LOG_ERROR, "worker", "hung",
            "run=%s: an execution does not come back, so this process ends: start it again", run_id(run));
  trace_close();
  _exit(EXIT_FAILURE);
}

static void worker_drop_run(struct worker *worker) {
  struct run *run = worker->run;
  worker_set_run(worker, NULL);
  worker_end_if_hung(run, run_stop(run));
}

static void worker_forget(struct run *run) {
  log_event(LOG_INFO, "worker", "forgotten", "run=%s", run_id(run));
  worker_end_if_hung(run, run_stop(run));
}

/* False: none rests. */
static bool worker_drop_resting(struct worker *worker) {
  struct run *run = resting_take_oldest(&worker->resting);
  if (run)
    worker_forget(run);
  return run != NULL;
}

/* For a run that has not enough memory. Its thread; runs that rest are nobody else's. */
static bool worker_make_room(void *user) {
  bool is_any = false;
  while (worker_drop_resting(user))
    is_any = true;
  return is_any;
}

/* The run may come back, and is to start at once then. Memory of GPUs is for the run that is computed. */
static void worker_rest_run(struct worker *worker) {
  struct run *run = worker->run;
  if (worker->options->device.n > 0 || !run_rest(run)) {
    worker_drop_run(worker);
    return;
  }
  worker_set_run(worker, NULL);
  run = resting_add(&worker->resting, run);
  if (run)
    worker_forget(run);
}

static struct kept_data *worker_drop_run_but_data(struct worker *worker, const Weir__LoadRun *next) {
  struct run *run = worker->run;
  struct kept_data *kept;
  worker_set_run(worker, NULL);
  worker_end_if_hung(run, run_stop_but_data(run, next, &kept));
  return kept;
}

/* Whether the worker has the run that is ordered, loaded or about to be; one that rests is its run again. */
static bool worker_find_run(struct worker *worker, const char *id) {
  struct run *run;
  if (worker->run && strcmp(run_id(worker->run), id) == 0)
    return true;
  worker_drop_run(worker);
  run = resting_take(&worker->resting, id);
  worker_set_run(worker, run);
  return run != NULL;
}

/* Of the run that it has it only says again that it is loaded. */
static void worker_load(struct worker *worker, const Weir__LoadRun *load) {
  const struct device_choice *device = &worker->options->device;
  struct rpc_channel *coordinator = member_channel(worker->member);
  struct kept_data *kept = NULL;
  bool has_it;
  log_event(LOG_INFO, "worker", "load", "run=%s incarnation=%llu had=\"%s\"", load->run,
            (unsigned long long)load->incarnation, worker->run ? run_id(worker->run) : "");
  has_it = worker_find_run(worker, load->run);
  if (has_it && run_tell_again(worker->run, load, coordinator))
    return;
  if (has_it)
    kept = worker_drop_run_but_data(worker, load);
  while (resting_takes_much(memory_own_bytes(""), memory_available_bytes("")) && worker_drop_resting(worker))
    continue;
  worker_set_run(worker, run_start(&(struct run_options){.client = worker->client,
                                                         .coordinator = coordinator,
                                                         .backend = device->backend,
                                                         .data_root = worker->options->data_root,
                                                         .threads = worker_executors(worker->options),
                                                         .devices = device->indices,
                                                         .n_devices = device->n,
                                                         .device_bytes = device->memory_bytes,
                                                         .memory_bytes = worker->options->memory_bytes,
                                                         .readers = worker->options->threads,
                                                         .kept = kept,
                                                         .end_ms = worker->options->end_ms,
                                                         .send = worker_send,
                                                         .device_lost = on_device_lost,
                                                         .make_room = worker_make_room,
                                                         .user = worker},
                                   load));
}

static void worker_unload(struct worker *worker, const Weir__UnloadRun *unload) {
  if (!worker->run || strcmp(run_id(worker->run), unload->run) != 0)
    return;
  log_event(LOG_INFO, "worker", "unload", "run=%s reason=\"%s\"", unload->run, unload->reason);
  if (unload->may_return)
    worker_rest_run(worker);
  else
    worker_drop_run(worker);
}

static void worker_drain(struct worker *worker) {
  log_event(LOG_INFO, "worker", "drain", "run=%s", worker->run ? run_id(worker->run) : "");
  pthread_mutex_lock(&worker->lock);
  worker->is_draining = true;
  pthread_mutex_unlock(&worker->lock);
}

static void worker_obey(struct worker *worker, const Weir__Order *order) {
  switch (order->body_case) {
  case WEIR__ORDER__BODY_LOAD:
    worker_load(worker, order->load);
    break;
  case WEIR__ORDER__BODY_VIEW:
    if (worker->run && strcmp(run_id(worker->run), order->view->run) == 0)
      run_view(worker->run, order->view, worker->id);
    break;
  case WEIR__ORDER__BODY_REISSUE:
    if (worker->run && strcmp(run_id(worker->run), order->reissue->run) == 0)
      run_reissue(worker->run, order->reissue);
    break;
  case WEIR__ORDER__BODY_UNLOAD:
    worker_unload(worker, order->unload);
    break;
  case WEIR__ORDER__BODY_DRAIN:
    worker_drain(worker);
    break;
  default:
    log_event(LOG_WARN, "worker", "order_unknown", "body=%d", (int)order->body_case);
  }
}

static void worker_act(struct worker *worker, struct event *event) {
  if (event->kind == EVENT_ORDER)
    worker_obey(worker, event->order);
  else if (event->kind == EVENT_LOST && worker->run)
    run_mute(worker->run);
  worker->is_member |= event->kind == EVENT_CONNECTED;
  worker->is_member &= event->kind != EVENT_LOST;
  if (event->kind == EVENT_CONNECTED) {
    free(worker->id);
    worker->id = event->id;
    event->id = NULL;
  }
}

/* Asks for no more work. False: there is nobody to ask, or nothing to hand over. */
static bool worker_leave(struct worker *worker) {
  Weir__Leaving leaving = WEIR__LEAVING__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LEAVING;
  message.leaving = &leaving;
  log_event(LOG_INFO, "worker", "leaving", "run=%s", worker->run ? run_id(worker->run) : "");
  return member_send(worker->member, &message) == 0 && worker->run;
}

static struct event *worker_take_locked(struct worker *worker) {
  struct event *event = worker->first;
  if (!event)
    return NULL;
  worker->first = event->next;
  if (!worker->first)
    worker->last = NULL;
  return event;
}

static void worker_wait_locked(struct worker *worker, uint64_t until_ns) {
  struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
  if (until_ns == 0)
    pthread_cond_wait(&worker->changed, &worker->lock);
  else
    pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
}

/* Acts on events until it is time to end. */
static void worker_loop(struct worker *worker) {
  uint64_t end_ns = 0; /* 0: nobody told us to leave */
  struct event *event;
  pthread_mutex_lock(&worker->lock);
  while (end_ns == 0 || (worker->run && worker->is_member && clock_now_ns() < end_ns)) {
    event = worker_take_locked(worker);
    if (!event && (!worker->is_leaving || end_ns > 0)) {
      worker_wait_locked(worker, end_ns);
      continue;
    }
    pthread_mutex_unlock(&worker->lock);
    if (event) {
      worker_act(worker, event);
      event_free(event);
    } else
      end_ns = worker_leave(worker) ? clock_now_ns() + worker_leave_ms(worker->options) * 1000000ull : 1;
    pthread_mutex_lock(&worker->lock);
    worker->events_done += event != NULL;
    pthread_cond_broadcast(&worker->changed);
  }
  worker->is_ending = true;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}
