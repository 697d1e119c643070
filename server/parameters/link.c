/* A parameter server's link to the coordinator. Orders are copied on the queue's thread and carried out one
   after the other on a thread of their own, which may fetch, compute and write at leisure. */
#include "server/parameters/link.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/member.h"
#include "common/message.h"
#include "common/model_fetch.h"
#include "server/parameters/snapshot.h"

struct link_order {
  Weir__Order *order;
  struct link_order *next;
};

struct link {
  struct link_options options;
  struct rpc_channel *channel; /* for models */
  struct model_fetch fetch;
  pthread_t thread;

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct member *member; /* NULL once stopped */
  char *id;              /* in the present membership */
  struct link_order *first, **last;
  bool is_busy;   /* an order is being carried out */
  bool is_losing; /* nothing more is to be carried out: the membership has ended */
  bool is_stopping;
};

static void *link_main(void *argument);
static void link_on_connected(void *user, const char *id);
static void link_on_order(void *user, const Weir__Order *order);
static void link_on_lost(void *user, const struct err *err);

struct link *link_start(const struct link_options *options) {
  struct link *link = mem_new(sizeof *link);
  struct member_options member = {.client = options->client,
                                  .coordinator = options->coordinator,
                                  .hello = options->hello,
                                  .on_connected = link_on_connected,
                                  .on_order = link_on_order,
                                  .on_lost = link_on_lost,
                                  .user = link};
  link->options = *options;
  link->last = &link->first;
  link->channel = rpc_channel_open(options->client, options->coordinator);
  pthread_mutex_init(&link->lock, NULL);
  pthread_cond_init(&link->changed, NULL);
  model_fetch_init(&link->fetch);
  CHECK(pthread_create(&link->thread, NULL, link_main, link) == 0);
  pthread_mutex_lock(&link->lock);
  link->member = member_start(&member);
  pthread_mutex_unlock(&link->lock);
  return link;
}

void link_stop(struct link *link) {
  struct member *member;
  pthread_mutex_lock(&link->lock);
  member = link->member;
  link->member = NULL;
  link->is_stopping = true;
  pthread_mutex_unlock(&link->lock);
  run_table_remove(link->options.runs, NULL, "the server is stopping");
  member_stop(member); /* empties the queue, if there was a membership */
  pthread_mutex_lock(&link->lock);
  pthread_cond_broadcast(&link->changed);
  pthread_mutex_unlock(&link->lock);
  pthread_join(link->thread, NULL);
  rpc_channel_close(link->channel);
}

void link_free(struct link *link) {
  if (!link)
    return;
  model_fetch_fini(&link->fetch);
  pthread_cond_destroy(&link->changed);
  pthread_mutex_destroy(&link->lock);
  free(link->id);
  free(link);
}

static void link_on_connected(void *user, const char *id) {
  struct link *link = user;
  pthread_mutex_lock(&link->lock);
  free(link->id);
  link->id = mem_strdup(id);
  link->is_losing = false;
  model_fetch_cancel(&link->fetch, false);
  pthread_mutex_unlock(&link->lock);
}

static void link_on_order(void *user, const Weir__Order *order) {
  struct link *link = user;
  struct link_order *copy = mem_new(sizeof *copy);
  copy->order = message_copy(order);
  pthread_mutex_lock(&link->lock);
  *link->last = copy;
  link->last = &copy->next;
  pthread_cond_broadcast(&link->changed);
  pthread_mutex_unlock(&link->lock);
}

static struct link_order *link_take_locked(struct link *link) {
  struct link_order *taken = link->first;
  link->first = taken->next;
  if (!link->first)
    link->last = &link->first;
  return taken;
}

static void link_order_free(struct link_order *order) {
  message_free(order->order);
  free(order);
}

/* Returns when nothing of the former membership is left: neither order nor run. */
static void link_on_lost(void *user, const struct err *err) {
  struct link *link = user;
  char *reason =
      mem_printf("the server lost the coordinator: %s", err->code ? err->text : "it ended the link");
  pthread_mutex_lock(&link->lock);
  link->is_losing = true;
  while (link->first)
    link_order_free(link_take_locked(link));
  model_fetch_cancel(&link->fetch, true);
  while (link->is_busy)
    pthread_cond_wait(&link->changed, &link->lock);
  pthread_mutex_unlock(&link->lock);
  run_table_remove(link->options.runs, NULL, reason);
  free(reason);
}

static void link_tell(void *user, const Weir__MemberMessage *message) {
  struct link *link = user;
  int code = ERR_CANCELLED;
  pthread_mutex_lock(&link->lock);
  if (link->member)
    code = member_send(link->member, message);
  pthread_mutex_unlock(&link->lock);
  if (code)
    log_event(LOG_DEBUG, "parameters", "report_lost", "body=%d code=%s", (int)message->body_case,
              err_name(code));
}

static int link_load(struct link *link, const Weir__LoadRun *order, struct hosted_run **out,
                     struct err *err) {
  struct run_setup setup = {.order = order,
                            .model_bytes = order->model_bytes,
                            .shards = link->options.shards,
                            .n_shards = link->options.n_shards,
                            .tell = link_tell,
                            .user = link};
  unsigned char *model;
  char *own_id;
  int code;
  if (model_fetch_run(&link->fetch, link->channel, order, &model, err))
    return err->code;
  pthread_mutex_lock(&link->lock);
  own_id = mem_strdup(link->id);
  pthread_mutex_unlock(&link->lock);
  setup.own_id = own_id;
  setup.model = model;
  code = hosted_run_new(&setup, out, err);
  free(own_id);
  free(model);
  return code;
}

static void link_refuse_run(struct link *link, const Weir__LoadRun *order, const struct err *err) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  log_event(LOG_WARN, "parameters", "run_refused", "run=%s code=%s text=\"%s\"", order->run,
            err_name(err->code), err->text);
  refused.run = order->run;
  refused.incarnation = order->incarnation;
  refused.message = (char *)err->text;
  refused.bad_input = err->code == ERR_INVALID || err->code == ERR_UNSUPPORTED;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_REFUSED;
  message.refused = &refused;
  link_tell(link, &message);
}

static void link_obey_load(struct link *link, const Weir__LoadRun *order) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  struct hosted_run *run;
  struct err err;
  if (link_load(link, order, &run, &err)) {
    link_refuse_run(link, order, &err);
    return;
  }
  hosted_run_get(run);
  if (run_table_add(link->options.runs, run, &err)) {
    link_refuse_run(link, order, &err);
    hosted_run_put(run);
  } else {
    log_event(LOG_INFO, "parameters", "run_loaded", "run=%s incarnation=%llu blocks=%u of=%u", run->id,
              (unsigned long long)run->incarnation, run->n_own, run->n_blocks);
    loaded.run = order->run;
    loaded.incarnation = order->incarnation;
    message.body_case = WEIR__MEMBER_MESSAGE__BODY_LOADED;
    message.loaded = &loaded;
    link_tell(link, &message);
    hosted_run_start(run);
  }
  hosted_run_put(run);
}

static void link_obey_write(struct link *link, const Weir__WriteBlocks *order) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  struct arena arena;
  struct err err = ERR_NONE;
  struct hosted_run *run = run_table_find(link->options.runs, order->run, order->incarnation, &err);
  arena_init(&arena);
  if (run && !link->options.store)
    err_set(&err, ERR_INVALID, "this server has no store: it was started without --store");
  else if (run)
    snapshot_write(run, order->step, link->options.store, &arena, &written, &err);
  if (err.code) {
    log_event(LOG_ERROR, "parameters", "write_failed", "run=%s step=%llu text=\"%s\"", order->run,
              (unsigned long long)order->step, err.text);
    written.error = err.text;
    written.n_blocks = 0;
  }
  written.run = order->run;
  written.incarnation = order->incarnation;
  written.step = order->step;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_WRITTEN;
  message.written = &written;
  link_tell(link, &message);
  hosted_run_put(run);
  arena_fini(&arena);
}

static void link_obey(struct link *link, const Weir__Order *order) {
  switch (order->body_case) {
  case WEIR__ORDER__BODY_LOAD:
    link_obey_load(link, order->load);
    break;
  case WEIR__ORDER__BODY_WRITE:
    link_obey_write(link, order->write);
    break;
  case WEIR__ORDER__BODY_UNLOAD:
    run_table_remove(link->options.runs, order->unload->run, order->unload->reason);
    break;
  default:
    log_event(LOG_WARN, "parameters", "order_unknown", "body=%d", (int)order->body_case);
  }
}

static void *link_main(void *argument) {
  struct link *link = argument;
  struct link_order *order;
  pthread_mutex_lock(&link->lock);
  while (!link->is_stopping || link->first) {
    if (!link->first) {
      pthread_cond_wait(&link->changed, &link->lock);
      continue;
    }
    order = link_take_locked(link);
    link->is_busy = true;
    pthread_mutex_unlock(&link->lock);
    link_obey(link, order->order);
    link_order_free(order);
    pthread_mutex_lock(&link->lock);
    link->is_busy = false;
    pthread_cond_broadcast(&link->changed);
  }
  pthread_mutex_unlock(&link->lock);
  return NULL;
}
