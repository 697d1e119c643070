/* A parameter server's link to the coordinator. Orders are carried out on the queue's thread, for none takes
   long: loading and writing have threads of their own. One more tells what reports had to wait. */
#include "server/parameters/link.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/orders/trace_order.h"
#include "common/rpc/member.h"
#include "common/trace/trace.h"
#include "server/parameters/load/run_loader.h"
#include "server/parameters/watcher.h"

enum { TELLER_PAUSE_MS = 20 };

struct link {
  struct link_options options;
  struct run_loader *loader;
  struct snapshot_writer *writer; /* NULL without a store */
  struct sums_client *sums_client;
  struct watcher *watcher;
  pthread_t report_sender;

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct member *member; /* NULL once stopped */
  char *id;              /* in the present membership */
  uint64_t membership;   /* the number of the present or last one, from 1 */
  bool is_member;
  bool is_behind;   /* a report waits, or may */
  bool is_draining; /* we are to be given no blocks */
  bool is_leaving;  /* we have asked for that */
  bool is_refused;  /* and there is nobody to take our blocks */
  bool is_stopping;
};

static void *report_sender_main(void *argument);
static void link_on_hello(void *user, Weir__Hello *hello, struct arena *arena);
static void link_on_connected(void *user, const char *id);
static void link_on_order(void *user, const Weir__Order *order);
static void link_on_lost(void *user, const struct err *err);
static void link_tell(void *user, uint64_t membership, const Weir__MemberMessage *message);
static int link_report(void *user, uint64_t membership, const Weir__MemberMessage *message);
static void link_on_loaded(void *user, struct run_loaded *loaded);

struct link *link_start(const struct link_options *options) {
  struct link *link = mem_new(sizeof *link);
  struct member_options member = {.client = options->client,
                                  .coordinator = options->coordinator,
                                  .hello = options->hello,
                                  .on_hello = link_on_hello,
                                  .on_connected = link_on_connected,
                                  .on_order = link_on_order,
                                  .on_lost = link_on_lost,
                                  .user = link};
  struct run_loader_options loader = {.shards = options->shards,
                                      .n_shards = options->n_shards,
                                      .runs = options->runs,
                                      .sums_client = sums_client_new(options->client),
                                      .store = options->store,
                                      .store_url = options->store_url,
                                      .store_patience_ms = options->store_patience_ms,
                                      .keeper_patience_ms = options->keeper_patience_ms,
                                      .tell = link_report,
                                      .done = link_on_loaded,
                                      .user = link};
  struct snapshot_writer_options writer = {.store = options->store, .tell = link_tell, .user = link};
  link->options = *options;
  pthread_mutex_init(&link->lock, NULL);
  clock_condition_init(&link->changed);
  link->sums_client = loader.sums_client;
  link->watcher = watcher_start(options->runs, &options->pace);
  link->loader = run_loader_new(&loader);
  link->writer = options->store ? snapshot_writer_new(&writer) : NULL;
  CHECK(pthread_create(&link->report_sender, NULL, report_sender_main, link) == 0);
  pthread_mutex_lock(&link->lock);
  link->member = member_start(&member);
  pthread_mutex_unlock(&link->lock);
  return link;
}

/* The next Hello says the same to a coordinator that is not there now. */
void link_ask_to_leave(struct link *link) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Leaving leaving = WEIR__LEAVING__INIT;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LEAVING;
  message.leaving = &leaving;
  pthread_mutex_lock(&link->lock);
  log_event(LOG_INFO, "parameters", "asks_to_leave", "id=%s", link->id ? link->id : "");
  link->is_leaving = true;
  if (link->is_member)
    member_send(link->member, &message);
  pthread_mutex_unlock(&link->lock);
}

bool link_may_leave(struct link *link) {
  struct hosted_run **runs;
  int n = run_table_list(link->options.runs, &runs);
  bool is_refused;
  for (int i = 0; i < n; i++)
    hosted_run_put(runs[i]);
  free(runs);
  pthread_mutex_lock(&link->lock);
  is_refused = link->is_refused && !link->is_draining;
  pthread_mutex_unlock(&link->lock);
  return n == 0 || is_refused;
}

void link_stop(struct link *link) {
  struct member *member;
  pthread_mutex_lock(&link->lock);
  member = link->member;
  link->member = NULL;
  link->is_stopping = true;
  pthread_cond_broadcast(&link->changed);
  pthread_mutex_unlock(&link->lock);
  run_loader_stop(link->loader);
  member_stop(member); /* no order comes any more */
  trace_close();
  watcher_stop(link->watcher);
  run_table_remove(link->options.runs, NULL, "the server is stopping");
  sums_client_stop(link->sums_client);
  if (link->writer)
    snapshot_writer_stop(link->writer);
  pthread_join(link->report_sender, NULL);
}

void link_free(struct link *link) {
  if (!link)
    return;
  snapshot_writer_free(link->writer);
  run_loader_free(link->loader);
  sums_client_free(link->sums_client);
  pthread_cond_destroy(&link->changed);
  pthread_mutex_destroy(&link->lock);
  free(link->id);
  free(link);
}

static void link_on_hello(void *user, Weir__Hello *hello, struct arena *arena) {
  struct link *link = user;
  struct hosted_run **runs;
  int n = run_table_list(link->options.runs, &runs);
  pthread_mutex_lock(&link->lock);
  link->is_draining |= link->is_leaving;
  hello->draining = link->is_draining;
  pthread_mutex_unlock(&link->lock);
  hello->runs = arena_new(arena, (size_t)n * sizeof *hello->runs);
  for (int i = 0; i < n; i++) {
    Weir__HostedRun *hosted = arena_new(arena, sizeof *hosted);
    uint64_t highest;
    weir__hosted_run__init(hosted);
    hosted->run = arena_strdup(arena, runs[i]->id);
    hosted->incarnation = runs[i]->incarnation;
    hosted_run_versions(runs[i], &hosted->version, &highest);
    hosted->hold = hosted_run_hold(runs[i]) == UINT64_MAX ? 0 : hosted_run_hold(runs[i]);
    hello->runs[hello->n_runs++] = hosted;
    hosted_run_put(runs[i]);
  }
  free(runs);
}

static void link_on_connected(void *user, const char *id) {
  struct link *link = user;
  pthread_mutex_lock(&link->lock);
  free(link->id);
  link->id = mem_strdup(id);
  link->membership++;
  link->is_member = true;
  pthread_mutex_unlock(&link->lock);
}

/* What was ordered and is not done is no longer wanted: the next coordinator cannot know of it. */
static void link_on_lost(void *user, const struct err *err) {
  struct link *link = user;
  (void)err;
  pthread_mutex_lock(&link->lock);
  link->is_member = false;
  pthread_mutex_unlock(&link->lock);
  run_loader_cancel(link->loader, NULL);
  if (link->writer)
    snapshot_writer_cancel(link->writer, NULL);
}

static bool link_is_in_locked(const struct link *link, uint64_t membership) {
  return link->member && link->is_member && link->membership == membership;
}

/* What must not be lost: if there is no room for it, the membership ends. */
static void link_tell(void *user, uint64_t membership, const Weir__MemberMessage *message) {
  struct link *link = user;
  int code = ERR_CANCELLED;
  pthread_mutex_lock(&link->lock);
  if (link_is_in_locked(link, membership))
    code = member_send(link->member, message);
  pthread_mutex_unlock(&link->lock);
  if (code)
    log_event(LOG_DEBUG, "parameters", "message_lost", "body=%d code=%s", (int)message->body_case,
              err_name(code));
}

/* What waits in the run's log while there is no room. */
static int link_report(void *user, uint64_t membership, const Weir__MemberMessage *message) {
  struct link *link = user;
  int code = ERR_CANCELLED;
  pthread_mutex_lock(&link->lock);
  if (link_is_in_locked(link, membership))
    code = member_offer(link->member, message);
  if (code == ERR_BUSY) {
    link->is_behind = true;
    pthread_cond_broadcast(&link->changed);
  }
  pthread_mutex_unlock(&link->lock);
  return code;
}

/* True if something still has to wait. */
static bool report_sender_resume(struct link *link) {
  struct hosted_run **runs;
  bool is_behind = false;
  int n = run_table_list(link->options.runs, &runs);
  for (int i = 0; i < n; i++) {
    is_behind |= report_log_resume(&runs[i]->log);
    hosted_run_put(runs[i]);
  }
  free(runs);
  return is_behind;
}

static void report_sender_pause_locked(struct link *link) {
  struct timespec until = clock_after_ms(TELLER_PAUSE_MS);
  while (!link->is_stopping && pthread_cond_timedwait(&link->changed, &link->lock, &until) == 0)
    continue;
}

static void *report_sender_main(void *argument) {
  struct link *link = argument;
  bool is_behind;
  pthread_mutex_lock(&link->lock);
  while (!link->is_stopping) {
    if (!link->is_behind) {
      pthread_cond_wait(&link->changed, &link->lock);
      continue;
    }
    link->is_behind = false;
    pthread_mutex_unlock(&link->lock);
    is_behind = report_sender_resume(link);
    pthread_mutex_lock(&link->lock);
    if (is_behind)
      report_sender_pause_locked(link);
  }
  pthread_mutex_unlock(&link->lock);
  return NULL;
}

/* From `step` on, in this membership. */
static void link_open_log(struct link *link, struct hosted_run *run, uint64_t membership, uint64_t step) {
  report_log_open(&run->log, membership, step);
  watcher_begin(link->watcher, run);
  pthread_mutex_lock(&link->lock);
  link->is_behind = true;
  pthread_cond_broadcast(&link->changed);
  pthread_mutex_unlock(&link->lock);
}

static void link_tell_loaded(struct link *link, uint64_t membership, const Weir__LoadRun *order) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  loaded.run = order->run;
  loaded.incarnation = order->incarnation;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LOADED;
  message.loaded = &loaded;
  link_tell(link, membership, &message);
}

static void link_refuse(struct link *link, uint64_t membership, Weir__RunRefused *refused,
                        const struct err *err) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  log_event(LOG_WARN, "parameters", "run_refused", "run=%s code=%s text=\"%s\"", refused->run,
            err_name(err->code), err->text);
  refused->message = (char *)err->text;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_REFUSED;
  message.refused = refused;
  link_tell(link, membership, &message);
}

/* Into the table only while the membership lasts: otherwise nobody would know of the run. */
static int link_add_run(struct link *link, const struct run_loaded *loaded, struct err *err) {
  int code;
  pthread_mutex_lock(&link->lock);
  code = link_is_in_locked(link, loaded->membership)
             ? run_table_add(link->options.runs, loaded->run, err)
             : err_set(err, ERR_CANCELLED, "the membership that it was loaded for has ended");
  pthread_mutex_unlock(&link->lock);
  return code;
}

static void link_on_loaded(void *user, struct run_loaded *loaded) {
  struct link *link = user;
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  struct hosted_run *run = loaded->run;
  if (run) {
    hosted_run_get(run);
    if (!link_add_run(link, loaded, &loaded->err)) {
      log_event(LOG_INFO, "parameters", "run_loaded",
                "run=%s incarnation=%llu version=%llu blocks=%u of=%u seconds=%.4f", run->id,
                (unsigned long long)run->incarnation, (unsigned long long)run->base_step, run->n_own,
                run->n_blocks, clock_seconds(clock_now_ns() - loaded->ordered_ns));
      link_tell_loaded(link, loaded->membership, loaded->order);
      link_open_log(link, run, loaded->membership, run->base_step);
      hosted_run_put(run);
      return;
    }
    hosted_run_put(run);
    hosted_run_put(run);
  }
  refused.run = loaded->order->run;
  refused.incarnation = loaded->order->incarnation;
  refused.bad_input = loaded->is_bad_input;
  refused.lost_checkpoint = loaded->is_lost_checkpoint;
  refused.wrong_store = loaded->is_wrong_store;
  link_refuse(link, loaded->membership, &refused, &loaded->err);
}

/* The same incarnation of the same blocks: there is nothing to load. */
static bool link_has_run(struct link *link, uint64_t membership, const Weir__LoadRun *order) {
  struct err err;
  struct hosted_run *run = run_table_find(link->options.runs, order->run, order->incarnation, &err);
  bool has_it = run && run->n_servers == order->n_servers &&
                strcmp(order->servers[run->self]->id, link->id) == 0 && run->base_step == order->step;
  if (has_it) {
    link_tell_loaded(link, membership, order);
    link_open_log(link, run, membership, order->step);
  }
  hosted_run_put(run);
  return has_it;
}

/* The incarnation before goes first: two of them need not fit into memory. */
static void link_obey_load(struct link *link, uint64_t membership, const Weir__LoadRun *order) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  struct member *member; /* lives while its order is obeyed */
  struct err err;
  run_loader_cancel(link->loader, order->run);
  if (link_has_run(link, membership, order))
    return;
  if (run_table_remove_older(link->options.runs, order->run, order->incarnation,
                             "a newer incarnation is loaded", &err)) {
    refused.run = order->run;
    refused.incarnation = order->incarnation;
    link_refuse(link, membership, &refused, &err);
    return;
  }
  pthread_mutex_lock(&link->lock);
  member = link->member;
  pthread_mutex_unlock(&link->lock); /* the loader's callback takes it under the loader's own */
  if (member)
    run_loader_add(link->loader, order, link->id, member_channel(member), membership);
}

static void link_obey_write(struct link *link, uint64_t membership, Weir__WriteBlocks *order) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  struct snapshot *snapshot;
  struct err err = ERR_NONE;
  struct hosted_run *run = run_table_find(link->options.runs, order->run, order->incarnation, &err);
  if (run && !link->writer)
    err_set(&err, ERR_INVALID, "this server has no store: it was started without --store");
  else if (run && order->step > run->plan.steps)
    err_set(&err, ERR_INVALID, "run '%s': there will be no version %llu, the run's last is %llu", run->id,
            (unsigned long long)order->step, (unsigned long long)run->plan.steps);
  if (!err.code) {
    snapshot = snapshot_start(link->writer, order, run->n_own, membership);
    hosted_run_arm(run, snapshot);
    snapshot_put(snapshot);
  } else {
    log_event(LOG_ERROR, "parameters", "write_refused", "run=%s step=%llu text=\"%s\"", order->run,
              (unsigned long long)order->step, err.text);
    written.run = order->run;
    written.incarnation = order->incarnation;
    written.step = order->step;
    written.error = err.text;
    written.is_last = true;
    message.body_case = WEIR__MEMBER_MESSAGE__BODY_WRITTEN;
    message.written = &written;
    link_tell(link, membership, &message);
  }
  hosted_run_put(run);
}

/* 0 stands for none, which is the highest. */
static void run_obey_hold(struct hosted_run *run, uint64_t step) {
  hosted_run_raise_hold(run, step ? step : UINT64_MAX);
}

static void link_obey_keep(struct link *link, uint64_t membership, const Weir__KeepRun *order) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  struct err err;
  struct hosted_run *run = run_table_find(link->options.runs, order->run, order->incarnation, &err);
  if (run) {
    run_obey_hold(run, order->hold);
    link_open_log(link, run, membership, order->step);
  } else {
    refused.run = order->run;
    refused.incarnation = order->incarnation;
    link_refuse(link, membership, &refused, &err);
  }
  hosted_run_put(run);
}

/* A run that is not here any more has no use for it: who loads it anew is told its hold. */
static void link_obey_hold(struct link *link, const Weir__Hold *order) {
  struct err err;
  struct hosted_run *run = run_table_find(link->options.runs, order->run, order->incarnation, &err);
  if (run)
    run_obey_hold(run, order->step);
  if (run && order->reached)
    hosted_run_rest(run, order->step);
  hosted_run_put(run);
}

static void link_obey_unload(struct link *link, const Weir__UnloadRun *order) {
  run_loader_cancel(link->loader, order->run);
  if (link->writer)
    snapshot_writer_cancel(link->writer, order->run);
  run_table_remove(link->options.runs, order->run, order->reason);
}

/* The coordinator takes what we have away; its successor is to know, too. */
static void link_obey_drain(struct link *link) {
  log_event(LOG_INFO, "parameters", "drain", "id=%s", link->id);
  pthread_mutex_lock(&link->lock);
  link->is_draining = true;
  pthread_mutex_unlock(&link->lock);
}

/* We end with what we have. */
static void link_obey_no_other(struct link *link) {
  log_event(LOG_WARN, "parameters", "no_other_server", "id=%s", link->id);
  pthread_mutex_lock(&link->lock);
  link->is_refused = true;
  pthread_mutex_unlock(&link->lock);
}

static void link_obey_trace(struct link *link, const Weir__Trace *order) {
  struct member *member;
  pthread_mutex_lock(&link->lock);
  member = link->member;
  pthread_mutex_unlock(&link->lock);
  if (member) /* lives while its order is obeyed */
    member_trace(member, order);
}

static void link_on_order(void *user, const Weir__Order *order) {
  struct link *link = user;
  uint64_t membership = link->membership; /* which ends only after this callback */
  switch (order->body_case) {
  case WEIR__ORDER__BODY_LOAD:
    link_obey_load(link, membership, order->load);
    break;
  case WEIR__ORDER__BODY_WRITE:
    link_obey_write(link, membership, order->write);
    break;
  case WEIR__ORDER__BODY_KEEP:
    link_obey_keep(link, membership, order->keep);
    break;
  case WEIR__ORDER__BODY_HOLD:
    link_obey_hold(link, order->hold);
    break;
  case WEIR__ORDER__BODY_DRAIN:
    link_obey_drain(link);
    break;
  case WEIR__ORDER__BODY_NO_OTHER:
    link_obey_no_other(link);
    break;
  case WEIR__ORDER__BODY_TRACE:
    link_obey_trace(link, order->trace);
    break;
  case WEIR__ORDER__BODY_UNLOAD:
    link_obey_unload(link, order->unload);
    break;
  default:
    log_event(LOG_WARN, "parameters", "order_unknown", "body=%d", (int)order->body_case);
  }
}
