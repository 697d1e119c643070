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
#include "common/base/message.h"
#include "common/compress/compressor.h"
#include "common/http/metrics_page.h"
#include "common/machine/cores.h"
#include "common/manager/notify.h"
#include "common/orders/trace_order.h"
#include "common/rpc/member.h"
#include "common/share/share_host.h"
#include "worker/collective/host.h"
#include "worker/hosting.h"
#include "worker/peers.h"

enum { RPC_THREADS_MIN = 2, RPC_THREADS_MAX = 8, LEAVE_MS = 5000 };

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
  struct hosting *hosting;
  struct metric_source measures;
  struct metrics_page *metrics; /* NULL: nobody asked for it */
  pthread_t signals;
  bool has_lost_device; /* atomic */

  char *id;       /* of the newest membership; worker_serve's thread */
  bool is_member; /* likewise */

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
static void worker_host(struct worker *worker);
static void worker_listen(struct worker *worker);
static void *signals_main(void *argument);
static void worker_loop(struct worker *worker);

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
  char *shm_host = host_name(), *shares_with = share_host();
  gethostname(host, sizeof host - 1);
  hello.role = WEIR__ROLE__WORKER;
  hello.host = host;
  hello.pid = (uint32_t)getpid();
  hello.device = (char *)device->name;
  hello.executors = (uint32_t)worker_executors(options);
  hello.shm_host = shm_host;
  hello.share_host = shares_with;
  hello.confines = true;
  hello.compressors = (char **)compressor_names(&hello.n_compressors);
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
  free(shares_with);
}

static int on_peer(void *user, const char *ticket, const char *holder, struct err *err) {
  struct worker *worker = user;
  return hosting_admit_peer(worker->hosting, ticket, holder, err);
}

static int on_boundary(void *user, const char *ticket, const Weir__BoundaryPiece *piece,
                       const struct rpc_bytes *bytes, struct err *err) {
  struct worker *worker = user;
  return hosting_take_boundary(worker->hosting, ticket, piece, bytes, err);
}

static void worker_listen(struct worker *worker) {
  const struct worker_options *options = worker->options;
  struct err err = ERR_NONE;
  if (peers_start(&(struct peers_options){.listen = options->listen,
                                          .tls = options->tls,
                                          .is_insecure = options->security.is_insecure,
                                          .advertise = options->advertise,
                                          .coordinator = options->coordinator,
                                          .admit = on_peer,
                                          .take = on_boundary,
                                          .user = worker},
                  &worker->peers, &err))
    log_event(LOG_WARN, "worker", "not_listening", "error=\"%s\"", err.text);
}

static void worker_measure(void *user, struct metric_page *page) {
  struct worker *worker = user;
  metric_tell(page, METRIC_WORKER_RUNS, hosting_count(worker->hosting));
  metric_tell(page, METRIC_WORKER_EXECUTORS, worker_executors(worker->options));
}

static int worker_open_metrics(struct worker *worker, struct err *err) {
  const struct worker_options *options = worker->options;
  if (!options->http)
    return 0;
  worker->measures = (struct metric_source){worker_measure, worker};
  return metrics_page_open(
      &(struct metrics_page_options){
          .listen = options->http,
          .tls = options->tls,
          .is_insecure = options->security.is_insecure,
          .question = {.programs = METRIC_WORKER, .sources = &worker->measures, .n_sources = 1}},
      &worker->metrics, err);
}

static void event_free(struct event *event) {
  free(event->id);
  message_free(event->order);
  free(event);
}

static void worker_take_part(struct worker *worker, struct err *err) {
  worker_listen(worker);
  worker_join_cluster(worker);
  notify_manager("READY=1\nSTATUS=looks for a coordinator");
  worker_loop(worker);
  peers_stop(worker->peers);
  hosting_end(worker->hosting);
  member_stop(worker->member);
  if (worker->has_lost_device)
    err_set(err, ERR_LOST_DEVICE, "the device has failed");
}

static void worker_give_up(struct worker *worker) {
  pthread_mutex_lock(&worker->lock);
  worker->is_ending = true;
  pthread_mutex_unlock(&worker->lock);
  hosting_end(worker->hosting);
}

/* SIGUSR1 is ours: worker_serve ends the thread with it, on_device_lost tells it. */
static void own_signals(sigset_t *set) {
  sigemptyset(set);
  sigaddset(set, SIGTERM);
  sigaddset(set, SIGINT);
  sigaddset(set, SIGUSR1);
}

void worker_block_signals(void) {
  sigset_t set;
  own_signals(&set);
  pthread_sigmask(SIG_BLOCK, &set, NULL); /* in every thread: one of them waits for them */
}

/* Each serves some servers' channels, and copies the weights that come: a core in two. */
static int rpc_threads(void) {
  int threads = cores_available("") / 2;
  return threads < RPC_THREADS_MIN ? RPC_THREADS_MIN : threads < RPC_THREADS_MAX ? threads : RPC_THREADS_MAX;
}

bool worker_serve(const struct worker_options *options, struct err *err) {
  struct worker worker = {.options = options};
  pthread_mutex_init(&worker.lock, NULL);
  clock_condition_init(&worker.changed);
  CHECK(pthread_create(&worker.signals, NULL, signals_main, &worker) == 0);
  worker.client = rpc_client_new(rpc_threads(), options->tls);
  if (options->security.is_insecure)
    rpc_client_set_insecure(worker.client);
  rpc_security_warn(&options->security);
  worker_host(&worker);
  if (worker_open_metrics(&worker, err) == 0)
    worker_take_part(&worker, err);
  else
    worker_give_up(&worker);
  metrics_page_close(worker.metrics);
  hosting_free(worker.hosting);
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
  return err->code == 0;
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

/* What another coordinator is to know: the runs that we went on with, and that we drain. */
static void on_hello(void *user, Weir__Hello *hello, struct arena *arena) {
  struct worker *worker = user;
  pthread_mutex_lock(&worker->lock);
  hello->draining = worker->is_draining;
  pthread_mutex_unlock(&worker->lock);
  hosting_hello(worker->hosting, hello, arena);
}

static void on_beat(void *user, Weir__Heartbeat *heartbeat, struct arena *arena) {
  struct worker *worker = user;
  hosting_beat(worker->hosting, heartbeat, arena);
}

static void on_connected(void *user, const char *id) {
  worker_post(user, (struct event){.kind = EVENT_CONNECTED, .id = mem_strdup(id)});
}

static void on_order(void *user, const Weir__Order *order) {
  worker_post(user, (struct event){.kind = EVENT_ORDER, .order = message_copy(order)});
}

/* Returns when every order of the lost membership was acted on and the runs were muted, so that nothing of
   them is said in the next one. */
static void on_lost(void *user, const struct err *err) {
  struct worker *worker = user;
  uint64_t number = worker_post(worker, (struct event){.kind = EVENT_LOST});
  (void)err;
  pthread_mutex_lock(&worker->lock);
  while (worker->events_done < number && !worker->is_ending)
    pthread_cond_wait(&worker->changed, &worker->lock);
  pthread_mutex_unlock(&worker->lock);
}

static void *signals_main(void *argument) {
  struct worker *worker = argument;
  bool is_ending = false;
  sigset_t set;
  int number;
  own_signals(&set);
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

/* Takes no lock: a run calls it under its own. */
static void on_device_lost(void *user) {
  struct worker *worker = user;
  __atomic_store_n(&worker->has_lost_device, true, __ATOMIC_RELEASE);
  pthread_kill(worker->signals, SIGUSR1);
}

static void worker_host(struct worker *worker) {
  const struct worker_options *options = worker->options;
  worker->hosting = hosting_new(&(struct hosting_options){.client = worker->client,
                                                          .device = &options->device,
                                                          .data_root = options->data_root,
                                                          .memory_bytes = options->memory_bytes,
                                                          .executors = worker_executors(options),
                                                          .readers = options->threads,
                                                          .end_ms = options->end_ms,
                                                          .send = worker_send,
                                                          .device_lost = on_device_lost,
                                                          .user = worker});
}

static void worker_drain(struct worker *worker) {
  log_event(LOG_INFO, "worker", "drain", "is_idle=%d", hosting_is_idle(worker->hosting));
  pthread_mutex_lock(&worker->lock);
  worker->is_draining = true;
  pthread_mutex_unlock(&worker->lock);
}

static void worker_obey(struct worker *worker, const Weir__Order *order) {
  switch (order->body_case) {
  case WEIR__ORDER__BODY_LOAD:
    hosting_load(worker->hosting, order->load, member_channel(worker->member));
    break;
  case WEIR__ORDER__BODY_VIEW:
    hosting_view(worker->hosting, order->view, worker->id);
    break;
  case WEIR__ORDER__BODY_REISSUE:
    hosting_reissue(worker->hosting, order->reissue);
    break;
  case WEIR__ORDER__BODY_UNLOAD:
    hosting_unload(worker->hosting, order->unload);
    break;
  case WEIR__ORDER__BODY_DRAIN:
    worker_drain(worker);
    break;
  case WEIR__ORDER__BODY_TRACE:
    member_trace(worker->member, order->trace);
    break;
  default:
    log_event(LOG_WARN, "worker", "order_unknown", "body=%d", (int)order->body_case);
  }
}

static void worker_act(struct worker *worker, struct event *event) {
  if (event->kind == EVENT_ORDER)
    worker_obey(worker, event->order);
  else if (event->kind == EVENT_LOST)
    hosting_mute(worker->hosting);
  worker->is_member |= event->kind == EVENT_CONNECTED;
  worker->is_member &= event->kind != EVENT_LOST;
  if (event->kind == EVENT_CONNECTED) {
    free(worker->id);
    worker->id = event->id;
    event->id = NULL;
    notify_manager("STATUS=is %s", worker->id);
  } else if (event->kind == EVENT_LOST)
    notify_manager("STATUS=looks for a coordinator");
}

/* Asks for no more work. False: there is nobody to ask, or nothing to hand over. */
static bool worker_leave(struct worker *worker) {
  Weir__Leaving leaving = WEIR__LEAVING__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LEAVING;
  message.leaving = &leaving;
  log_event(LOG_INFO, "worker", "leaving", "is_idle=%d", hosting_is_idle(worker->hosting));
  notify_manager("STOPPING=1");
  return member_send(worker->member, &message) == 0 && !hosting_is_idle(worker->hosting);
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

static bool worker_is_told_to_leave(struct worker *worker) {
  bool is_leaving;
  pthread_mutex_lock(&worker->lock);
  is_leaving = worker->is_leaving;
  pthread_mutex_unlock(&worker->lock);
  return is_leaving;
}

/* Acts on events until it is time to end. */
static void worker_loop(struct worker *worker) {
  uint64_t end_ns = 0, forget_ns = 0; /* 0: nobody told us to leave; there is nothing to forget */
  struct event *event;
  pthread_mutex_lock(&worker->lock);
  while (end_ns == 0 || (!hosting_is_idle(worker->hosting) && worker->is_member && clock_now_ns() < end_ns)) {
    event = worker_take_locked(worker);
    if (!event && (!worker->is_leaving || end_ns > 0) && (!forget_ns || clock_now_ns() < forget_ns)) {
      worker_wait_locked(worker, end_ns && (!forget_ns || end_ns < forget_ns) ? end_ns : forget_ns);
      continue;
    }
    pthread_mutex_unlock(&worker->lock);
    if (event) {
      worker_act(worker, event);
      event_free(event);
    } else if (worker_is_told_to_leave(worker) && end_ns == 0)
      end_ns = worker_leave(worker) ? clock_now_ns() + worker_leave_ms(worker->options) * 1000000ull : 1;
    forget_ns = hosting_forget_old(worker->hosting);
    pthread_mutex_lock(&worker->lock);
    worker->events_done += event != NULL;
    pthread_cond_broadcast(&worker->changed);
  }
  worker->is_ending = true;
  pthread_cond_broadcast(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}
