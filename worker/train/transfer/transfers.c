/* Pushes and pulls of blocks, under way to the servers of a run. */
#include "worker/train/transfer/transfers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "parameters.pb-c.h"
#include "worker/trace/trace.h"

enum { CHANNELS = 2, SENDING_MAX = 16, LOG_PAUSE_MS = 5000, TRACE_BLOCK_SIZE = 32 };
enum { ACK_DEADLINE_MS = 60000 };
/* Three times the longest pause before a call is tried again; how often what is not reached is told. */
enum { UNREACHED_MS = 6000, TELL_MS = 2000 };

/* One item and the call that carries it now. Belongs to its link for good. */
struct transfer {
  struct rpc_request request;
  struct transfer_item item;
  struct transfers_sender sender;
  struct link *link;
  struct transfer *next; /* in the link's queue, pauses or spares */
  bool is_started;       /* between rpc_request_start and on_done */
  bool is_sending;       /* counts in the window */
  int attempt;
  uint64_t due_ns;            /* while it pauses */
  uint64_t begin_ns, sent_ns; /* of the call, on the timeline; 0: tracing is off */
};

struct transfer_list {
  struct transfer *first, *last;
};

/* The way to one server. */
struct link {
  struct transfers *transfers;
  char *id, *address;
  struct rpc_channel *channels[CHANNELS];

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct transfer_list queue;  /* wait for window space */
  struct transfer_list pauses; /* failed, will be tried again */
  struct transfer *spares;
  struct transfer **all; /* every transfer ever made, to cancel */
  int n_all, all_capacity;
  int sending, outstanding;
  unsigned turn; /* of the channels */
  bool is_stopping;
  uint64_t logged_ns;  /* when a failure was last told */
  uint64_t failing_ns; /* since when no call gets through; 0: the newest did */
  bool is_unreached;   /* for so long that it is to be told */
  struct err failure;  /* the newest of a call that did not */
};

struct transfers {
  struct transfers_options options;
  struct link *links;
  pthread_t timer;
  pthread_mutex_t lock; /* what follows; taken inside a link's */
  pthread_cond_t changed;
  struct transfers_sender sender;
  uint64_t due_ns; /* when the earliest pause ends, or something may be to tell; UINT64_MAX: never */
  bool is_stopping;
  const char **unreached; /* [n_servers] the timer's own, as what follows: what was told last, and when */
  size_t n_unreached;
  uint64_t told_ns;
};

static void *timer_main(void *argument);
static void trace_sent(const struct transfer *transfer);
static void trace_answered(const struct transfer *transfer);
static const char *trace_block(const struct transfer_item *item, char name[TRACE_BLOCK_SIZE]);
static void timer_note(struct transfers *transfers, uint64_t due_ns);
static void link_reached_locked(struct link *link);
static void link_fini(struct link *link);
static void link_start_queued_locked(struct link *link);

static void link_init(struct link *link, struct transfers *transfers, const Weir__Endpoint *server) {
  link->transfers = transfers;
  link->id = mem_strdup(server->id);
  link->address = mem_strdup(server->address);
  for (int i = 0; i < CHANNELS; i++)
    link->channels[i] = rpc_channel_open(transfers->options.client, server->address);
  pthread_mutex_init(&link->lock, NULL);
  pthread_cond_init(&link->changed, NULL);
}

struct transfers *transfers_new(const struct transfers_options *options) {
  struct transfers *transfers = mem_new(sizeof *transfers);
  transfers->options = *options;
  transfers->sender = options->sender;
  transfers->due_ns = UINT64_MAX;
  transfers->links = mem_new(options->n_servers * sizeof *transfers->links);
  for (uint32_t s = 0; s < options->n_servers; s++)
    link_init(&transfers->links[s], transfers, options->servers[s]);
  transfers->unreached = mem_new(options->n_servers * sizeof *transfers->unreached);
  transfers->options.servers = NULL;
  pthread_mutex_init(&transfers->lock, NULL);
  clock_condition_init(&transfers->changed);
  CHECK(pthread_create(&transfers->timer, NULL, timer_main, transfers) == 0);
  return transfers;
}

void transfers_free(struct transfers *transfers) {
  if (!transfers)
    return;
  pthread_mutex_lock(&transfers->lock);
  transfers->is_stopping = true;
  pthread_cond_signal(&transfers->changed);
  pthread_mutex_unlock(&transfers->lock);
  pthread_join(transfers->timer, NULL);
  for (uint32_t s = 0; s < transfers->options.n_servers; s++)
    link_fini(&transfers->links[s]);
  pthread_cond_destroy(&transfers->changed);
  pthread_mutex_destroy(&transfers->lock);
  free(transfers->unreached);
  free(transfers->links);
  free(transfers);
}

static void list_append(struct transfer_list *list, struct transfer *transfer) {
  transfer->next = NULL;
  if (list->last)
    list->last->next = transfer;
  else
    list->first = transfer;
  list->last = transfer;
}

static struct transfer *list_take(struct transfer_list *list) {
  struct transfer *transfer = list->first;
  if (!transfer)
    return NULL;
  list->first = transfer->next;
  if (!list->first)
    list->last = NULL;
  return transfer;
}

/* Tells the caller and keeps the transfer for another item. */
static void transfer_end(struct transfer *transfer) {
  struct link *link = transfer->link;
  struct transfers_options *options = &link->transfers->options;
  options->ended(options->user, &transfer->item);
  pthread_mutex_lock(&link->lock);
  transfer->next = link->spares;
  link->spares = transfer;
  link->outstanding--;
  pthread_cond_signal(&link->changed);
  pthread_mutex_unlock(&link->lock);
}

static void link_fini(struct link *link) {
  struct transfer *transfer;
  pthread_mutex_lock(&link->lock);
  link->is_stopping = true;
  for (int i = 0; i < link->n_all; i++)
    if (link->all[i]->is_started)
      rpc_request_cancel(&link->all[i]->request);
  while ((transfer = list_take(&link->queue)) || (transfer = list_take(&link->pauses))) {
    pthread_mutex_unlock(&link->lock);
    transfer_end(transfer);
    pthread_mutex_lock(&link->lock);
  }
  while (link->outstanding > 0)
    pthread_cond_wait(&link->changed, &link->lock);
  pthread_mutex_unlock(&link->lock);
  for (int i = 0; i < CHANNELS; i++)
    rpc_channel_close(link->channels[i]);
  for (int i = 0; i < link->n_all; i++)
    free(link->all[i]);
  pthread_cond_destroy(&link->changed);
  pthread_mutex_destroy(&link->lock);
  free(link->all);
  free(link->id);
  free(link->address);
}

void transfers_start(struct transfers *transfers, const struct transfer_item *item) {
  struct link *link = &transfers->links[item->server];
  struct transfer *transfer;
  pthread_mutex_lock(&link->lock);
  transfer = link->spares;
  if (transfer) {
    link->spares = transfer->next;
  } else {
    transfer = mem_new(sizeof *transfer);
    transfer->link = link;
    array_reserve((void **)&link->all, &link->all_capacity, link->n_all, sizeof(struct transfer *));
    link->all[link->n_all++] = transfer;
  }
  transfer->item = *item;
  pthread_mutex_lock(&transfers->lock);
  transfer->sender = transfers->sender;
  pthread_mutex_unlock(&transfers->lock);
  transfer->attempt = 0;
  link->outstanding++;
  list_append(&link->queue, transfer);
  link_start_queued_locked(link);
  pthread_mutex_unlock(&link->lock);
}

void transfers_set_sender(struct transfers *transfers, const struct transfers_sender *sender) {
  pthread_mutex_lock(&transfers->lock);
  transfers->sender = *sender;
  pthread_mutex_unlock(&transfers->lock);
}

static void link_sent_locked(struct transfer *transfer) {
  transfer->link->sending -= transfer->is_sending;
  transfer->is_sending = false;
}

static void on_sent(struct rpc_request *request) {
  struct transfer *transfer = (struct transfer *)request;
  struct link *link = transfer->link;
  pthread_mutex_lock(&link->lock);
  link_sent_locked(transfer);
  if (request->is_written)
    link_reached_locked(link);
  link_start_queued_locked(link);
  pthread_mutex_unlock(&link->lock);
  transfer->sent_ns = trace_now_ns();
  trace_sent(transfer);
}

/* A part is shown while it is sent. */
static void trace_sent(const struct transfer *transfer) {
  const struct transfer_item *item = &transfer->item;
  char name[TRACE_BLOCK_SIZE];
  if (item->kind == TRANSFER_PUSH)
    trace_span(&(struct trace_span){.row = TRACE_SENDS,
                                    .category = "push",
                                    .name = trace_block(item, name),
                                    .begin_ns = transfer->begin_ns,
                                    .end_ns = transfer->sent_ns,
                                    .step = item->version,
                                    .index = item->block});
}

/* And every call while it is parked, which one that carries nothing is at once. */
static void trace_answered(const struct transfer *transfer) {
  static const char *const categories[] = {
      [TRANSFER_PUSH] = "parked", [TRANSFER_PULL] = "pull", [TRANSFER_VERSIONS] = "question"};
  const struct transfer_item *item = &transfer->item;
  char name[TRACE_BLOCK_SIZE];
  trace_span(&(struct trace_span){.row = TRACE_WAITS,
                                  .category = categories[item->kind],
                                  .name = trace_block(item, name),
                                  .begin_ns = transfer->sent_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = item->version,
                                  .index = item->block});
}

static const char *trace_block(const struct transfer_item *item, char name[TRACE_BLOCK_SIZE]) {
  snprintf(name, TRACE_BLOCK_SIZE, "%s %u", item->is_evaluation ? "evaluation" : "block", item->block);
  return name;
}

static void timer_note(struct transfers *transfers, uint64_t due_ns) {
  pthread_mutex_lock(&transfers->lock);
  if (due_ns < transfers->due_ns) {
    transfers->due_ns = due_ns;
    pthread_cond_signal(&transfers->changed);
  }
  pthread_mutex_unlock(&transfers->lock);
}

/* A connection took a call, or it was answered. */
static void link_reached_locked(struct link *link) {
  link->failing_ns = 0;
  if (link->is_unreached)
    timer_note(link->transfers, clock_now_ns());
}

/* What a server answers is no failure of the way to it. */
static void link_failed_locked(struct link *link, const struct err *err, uint64_t now_ns) {
  if (err->code != ERR_UNAVAILABLE && err->code != ERR_TIMEOUT) {
    link_reached_locked(link);
    return;
  }
  link->failure = *err;
  if (link->failing_ns)
    return;
  link->failing_ns = now_ns;
  timer_note(link->transfers, now_ns + UNREACHED_MS * 1000000ull);
}

/* True if the transfer pauses before another attempt. Says so once in a while. */
static bool transfer_pause_locked(struct transfer *transfer, const struct err *err) {
  struct link *link = transfer->link;
  uint64_t now_ns = clock_now_ns();
  link_failed_locked(link, err, now_ns);
  if (link->is_stopping || !err_is_retryable(err->code))
    return false;
  transfer->due_ns = now_ns + (uint64_t)rpc_backoff_ms(transfer->attempt++) * 1000000;
  list_append(&link->pauses, transfer);
  timer_note(link->transfers, transfer->due_ns);
  if (link->logged_ns == 0 || now_ns - link->logged_ns >= LOG_PAUSE_MS * 1000000ull) {
    link->logged_ns = now_ns;
    log_event(LOG_WARN, "worker", "transfer_retried", "server=%s code=%s error=\"%s\"", link->address,
              err_name(err->code), err->text);
  }
  return true;
}

static uint64_t reply_version(const struct transfer *transfer, const void *reply) {
  switch (transfer->item.kind) {
  case TRANSFER_PUSH:
    return ((const Weir__PushReply *)reply)->version;
  case TRANSFER_PULL:
    return ((const Weir__PullReply *)reply)->version;
  default:
    return ((const Weir__VersionsReply *)reply)->lowest;
  }
}

static void on_done(struct rpc_request *request, const struct err *err, const void *reply,
                    struct rpc_bytes *bytes) {
  struct transfer *transfer = (struct transfer *)request;
  struct link *link = transfer->link;
  struct transfers_options *options = &link->transfers->options;
  bool is_ok = err->code == ERR_OK, is_paused, is_stopping;
  trace_answered(transfer);
  pthread_mutex_lock(&link->lock);
  transfer->is_started = false;
  link_sent_locked(transfer);
  is_stopping = link->is_stopping;
  if (is_ok)
    link_reached_locked(link);
  is_paused = !is_ok && transfer_pause_locked(transfer, err);
  link_start_queued_locked(link);
  pthread_mutex_unlock(&link->lock);
  if (is_paused) /* no longer ours */
    return;
  if (!is_stopping && is_ok && (transfer->item.kind != TRANSFER_PUSH || transfer->item.wait))
    options->received(options->user, &transfer->item, reply_version(transfer, reply), bytes);
  else if (!is_stopping && !is_ok)
    options->failed(options->user, &transfer->item, err);
  rpc_bytes_free(bytes);
  transfer_end(transfer);
}

static void transfer_send_push(struct transfer *transfer, struct rpc_channel *channel) {
  const struct transfers_options *options = &transfer->link->transfers->options;
  const struct transfer_item *item = &transfer->item;
  struct rpc_payload payload = {item->buffer, 0, item->buffer->size_bytes};
  Weir__PushRequest push = WEIR__PUSH_REQUEST__INIT;
  push.run = (char *)options->run;
  push.incarnation = options->incarnation;
  push.step = item->version;
  push.block = item->block;
  push.first = item->node.first;
  push.level = item->node.level;
  push.evaluation = item->is_evaluation;
  push.wait = item->wait;
  push.worker = transfer->sender.worker;
  push.view = transfer->sender.view;
  rpc_request_start(&transfer->request, channel,
                    &(struct rpc_question){RPC_PUSH, &push, item->wait ? -1 : ACK_DEADLINE_MS}, &payload);
}

static void transfer_send_pull(struct transfer *transfer, struct rpc_channel *channel) {
  const struct transfers_options *options = &transfer->link->transfers->options;
  Weir__PullRequest pull = WEIR__PULL_REQUEST__INIT;
  pull.run = (char *)options->run;
  pull.incarnation = options->incarnation;
  pull.block = transfer->item.block;
  pull.version = transfer->item.version;
  rpc_request_start(&transfer->request, channel, &(struct rpc_question){RPC_PULL, &pull, -1}, NULL);
}

static void transfer_send_question(struct transfer *transfer, struct rpc_channel *channel) {
  const struct transfers_options *options = &transfer->link->transfers->options;
  Weir__VersionsRequest versions = WEIR__VERSIONS_REQUEST__INIT;
  versions.run = (char *)options->run;
  versions.incarnation = options->incarnation;
  rpc_request_start(&transfer->request, channel,
                    &(struct rpc_question){RPC_VERSIONS, &versions, options->question_ms}, NULL);
}

static void transfer_send_locked(struct transfer *transfer) {
  struct link *link = transfer->link;
  struct rpc_channel *channel = link->channels[link->turn++ % CHANNELS];
  transfer->request = (struct rpc_request){.on_sent = on_sent, .on_done = on_done};
  transfer->is_started = true;
  transfer->begin_ns = trace_now_ns();
  if (transfer->item.kind == TRANSFER_PUSH)
    transfer_send_push(transfer, channel);
  else if (transfer->item.kind == TRANSFER_PULL)
    transfer_send_pull(transfer, channel);
  else
    transfer_send_question(transfer, channel);
}

static void link_start_queued_locked(struct link *link) {
  struct transfer *transfer;
  while (!link->is_stopping && link->sending < SENDING_MAX && (transfer = list_take(&link->queue))) {
    transfer->is_sending = true;
    link->sending++;
    transfer_send_locked(transfer);
  }
}

/* Looks whether the server is reached; when to look again. */
static uint64_t link_look_locked(struct link *link, uint64_t now_ns) {
  uint64_t due_ns = link->failing_ns + UNREACHED_MS * 1000000ull;
  link->is_unreached = link->failing_ns && now_ns >= due_ns;
  if (link->is_unreached)
    return now_ns + TELL_MS * 1000000ull;
  return link->failing_ns ? due_ns : UINT64_MAX;
}

/* Moves what has paused long enough to the queue; when there is something to do again. */
static uint64_t link_resume(struct link *link, uint64_t now_ns) {
  struct transfer_list pauses;
  struct transfer *transfer;
  uint64_t due_ns;
  pthread_mutex_lock(&link->lock);
  due_ns = link_look_locked(link, now_ns);
  pauses = link->pauses;
  link->pauses = (struct transfer_list){0};
  while ((transfer = list_take(&pauses))) {
    if (transfer->due_ns > now_ns && transfer->due_ns < due_ns)
      due_ns = transfer->due_ns;
    list_append(transfer->due_ns > now_ns ? &link->pauses : &link->queue, transfer);
  }
  link_start_queued_locked(link);
  pthread_mutex_unlock(&link->lock);
  return due_ns;
}

/* Of links' is_unreached, which the timer alone changes. */
static void tell_unreached(struct transfers *transfers, uint64_t now_ns) {
  struct transfers_options *options = &transfers->options;
  struct transfers_unreached unreached = {options->incarnation, transfers->unreached, 0, ""};
  bool has_changed = false;
  struct err failure;
  for (uint32_t s = 0; s < options->n_servers; s++) {
    struct link *link = &transfers->links[s];
    if (!link->is_unreached)
      continue;
    if (unreached.n == 0) {
      pthread_mutex_lock(&link->lock);
      failure = link->failure;
      pthread_mutex_unlock(&link->lock);
      unreached.error = failure.text;
    }
    has_changed |= unreached.n >= transfers->n_unreached || unreached.servers[unreached.n] != link->id;
    unreached.servers[unreached.n++] = link->id;
  }
  has_changed |= unreached.n != transfers->n_unreached;
  if (!has_changed && (unreached.n == 0 || now_ns - transfers->told_ns < TELL_MS * 1000000ull))
    return;
  transfers->n_unreached = unreached.n;
  transfers->told_ns = now_ns;
  options->unreached(options->user, &unreached);
}

static void *timer_main(void *argument) {
  struct transfers *transfers = argument;
  pthread_mutex_lock(&transfers->lock);
  while (!transfers->is_stopping) {
    uint64_t due_ns = transfers->due_ns, now_ns = clock_now_ns();
    struct timespec until = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)};
    if (due_ns == UINT64_MAX) {
      pthread_cond_wait(&transfers->changed, &transfers->lock);
      continue;
    }
    if (due_ns > now_ns) {
      pthread_cond_timedwait(&transfers->changed, &transfers->lock, &until);
      continue;
    }
    transfers->due_ns = UINT64_MAX;
    pthread_mutex_unlock(&transfers->lock);
    due_ns = UINT64_MAX;
    for (uint32_t s = 0; s < transfers->options.n_servers; s++) {
      uint64_t link_due_ns = link_resume(&transfers->links[s], now_ns);
      due_ns = link_due_ns < due_ns ? link_due_ns : due_ns;
    }
    tell_unreached(transfers, now_ns);
    pthread_mutex_lock(&transfers->lock);
    transfers->due_ns = due_ns < transfers->due_ns ? due_ns : transfers->due_ns;
  }
  pthread_mutex_unlock(&transfers->lock);
  return NULL;
}

const char *transfers_address(const struct transfers *transfers, uint32_t server) {
  return transfers->links[server].address;
}
