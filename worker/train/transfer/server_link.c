/* Queues and windows, calls that begin and end, and those that are tried again. */
#include "worker/train/transfer/server_link.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/metrics/metric.h"

/* PARKED_MAX: a call that waits takes 12 KiB at either end, and a server has hundreds of workers; a version
   that is pulled costs a call more. Of its own host a server has few workers, and where blocks are only named
   the call is what they cost. */
enum { SENDING_MAX = 16, PARKED_MAX = 64, PARKED_SHARED_MAX = 1024, LOG_PAUSE_MS = 5000 };

static void link_start_queued_locked(struct server_link *link);

/* So many that all threads of the client have work where there are few servers. */
static int channels_of(const struct transfers_options *options) {
  int channels = options->n_servers > 0 ? rpc_client_threads(options->client) / (int)options->n_servers : 0;
  channels = channels < LINK_CHANNELS_MAX ? channels : LINK_CHANNELS_MAX;
  return channels > LINK_CHANNELS_MIN ? channels : LINK_CHANNELS_MIN;
}

void server_link_init(struct server_link *link, const Weir__Endpoint *server) {
  struct rpc_client *client = link->options->client;
  link->id = mem_strdup(server->id);
  link->address = mem_strdup(server->address);
  link->n_channels = channels_of(link->options);
  for (int i = 0; i < link->n_channels; i++)
    link->channels[i] = rpc_channel_open(client, server->address, PEER_SERVER);
  link_reach_begin(&link->reach, link->options->silent_ms, link->options->unreached_ms, clock_now_ns());
  pthread_mutex_init(&link->lock, NULL);
  pthread_cond_init(&link->changed, NULL);
}

void server_link_begin(struct server_link *link) {
  struct rpc_channel *channel = rpc_channel_open(link->options->client, link->address, PEER_SERVER);
  link->question = (struct link_question){.link = link, .channel = channel};
  link->share = (struct link_share){.options = link->options,
                                    .channel = link->question.channel,
                                    .note = link->note,
                                    .transfers = link->transfers};
  link_share_begin(&link->share);
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
  struct server_link *link = transfer->link;
  link->options->ended(link->options->user, &transfer->item);
  pthread_mutex_lock(&link->lock);
  transfer->next = link->spares;
  link->spares = transfer;
  link->outstanding--;
  pthread_cond_signal(&link->changed);
  pthread_mutex_unlock(&link->lock);
}

void server_link_fini(struct server_link *link) {
  struct transfer *transfer;
  pthread_mutex_lock(&link->lock);
  link->is_stopping = true;
  for (int i = 0; i < link->n_all; i++)
    if (link->all[i]->is_started)
      rpc_request_cancel(&link->all[i]->request);
  if (link->reach.is_asking)
    rpc_request_cancel(&link->question.request);
  while ((transfer = list_take(&link->queue)) || (transfer = list_take(&link->pulls)) ||
         (transfer = list_take(&link->pauses))) {
    pthread_mutex_unlock(&link->lock);
    transfer_end(transfer);
    pthread_mutex_lock(&link->lock);
  }
  while (link->outstanding > 0)
    pthread_cond_wait(&link->changed, &link->lock);
  pthread_mutex_unlock(&link->lock);
  link_share_end(&link->share);
  for (int i = 0; i < link->n_channels; i++)
    rpc_channel_close(link->channels[i]);
  rpc_channel_close(link->question.channel);
  for (int i = 0; i < link->n_all; i++)
    free(link->all[i]);
  pthread_cond_destroy(&link->changed);
  pthread_mutex_destroy(&link->lock);
  free(link->all);
  free(link->id);
  free(link->address);
}

static void link_add_locked(struct server_link *link, const struct transfer_item *item,
                            const struct transfers_sender *sender) {
  struct transfer *transfer;
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
  transfer->sender = *sender;
  transfer->attempt = 0;
  transfer->is_taken = false;
  link->outstanding++;
  list_append(&link->queue, transfer);
}

void server_link_start(struct server_link *link, uint32_t server, const struct transfer_item *items, int n,
                       const struct transfers_sender *sender) {
  pthread_mutex_lock(&link->lock);
  for (int i = 0; i < n; i++)
    if (items[i].server == server)
      link_add_locked(link, &items[i], sender);
  link_start_queued_locked(link);
  pthread_mutex_unlock(&link->lock);
}

static void link_sent_locked(struct transfer *transfer) {
  transfer->link->sending -= transfer->is_sending;
  transfer->is_sending = false;
}

/* That a connection took a call says nothing of its other end. */
static void on_sent(struct rpc_request *request) {
  struct transfer *transfer = (struct transfer *)request;
  struct server_link *link = transfer->link;
  pthread_mutex_lock(&link->lock);
  link_sent_locked(transfer);
  link_start_queued_locked(link);
  pthread_mutex_unlock(&link->lock);
  for (; transfer; transfer = transfer->further) {
    if (transfer->item.kind == TRANSFER_PUSH && !transfer->is_taken)
      metric_add(METRIC_WORKER_SENT, transfer_bytes(&transfer->item));
    transfer_trace_sent(transfer, link->options);
  }
}

/* A call has ended: if it was answered, what was told of the server is told otherwise soon. */
static void link_ended_locked(struct server_link *link, const struct err *err) {
  uint64_t now_ns = clock_now_ns();
  if (err->code)
    link_reach_failed(&link->reach, err, now_ns);
  else
    link_reach_heard(&link->reach, now_ns);
  if (link->reach.is_unreached && !link->reach.is_failing)
    link->note(link->transfers, now_ns);
}

/* True if the transfer pauses before another attempt. Says so once in a while. */
static bool transfer_pause_locked(struct transfer *transfer, const struct err *err) {
  struct server_link *link = transfer->link;
  uint64_t now_ns = clock_now_ns();
  if (link->is_stopping || !err_is_retryable(err->code))
    return false;
  transfer->due_ns = now_ns + (uint64_t)rpc_backoff_ms(transfer->attempt++) * 1000000;
  list_append(&link->pauses, transfer);
  link->note(link->transfers, transfer->due_ns);
  if (link->logged_ns == 0 || now_ns - link->logged_ns >= LOG_PAUSE_MS * 1000000ull) {
    link->logged_ns = now_ns;
    log_event(LOG_WARN, "worker", "transfer_retried", "server=%s code=%s error=\"%s\"", link->address,
              err_name(err->code), err->text);
  }
  return true;
}

/* The call has ended, and leaves its places to others. */
static void link_leave_locked(struct transfer *transfer) {
  transfer->is_started = false;
  link_sent_locked(transfer);
  transfer->link->parked -= transfer->is_parked;
  transfer->is_parked = false;
}

/* True if the server has the part, and the version is to be pulled. */
static bool transfer_put_off_locked(struct transfer *transfer, const struct received *received) {
  struct server_link *link = transfer->link;
  if (link->is_stopping || !transfer_is_put_off(transfer, received))
    return false;
  transfer->is_taken = true;
  transfer->attempt = 0;
  list_append(&link->pulls, transfer);
  return true;
}

/* What the call has brought, to its owner or to a call that follows it. True if there is one. */
static bool transfer_answered(struct transfer *transfer, const struct err *err, const void *reply,
                              const struct received *received) {
  struct server_link *link = transfer->link;
  const struct transfers_options *options = link->options;
  bool is_ok = err->code == ERR_OK, goes_on, is_stopping;
  transfer_trace_answered(transfer, options);
  pthread_mutex_lock(&link->lock);
  link_leave_locked(transfer);
  is_stopping = link->is_stopping;
  link_ended_locked(link, err);
  goes_on = is_ok ? transfer_put_off_locked(transfer, received) : transfer_pause_locked(transfer, err);
  link_start_queued_locked(link);
  pthread_mutex_unlock(&link->lock);
  if (goes_on) /* no longer ours */
    return true;
  if (!is_stopping && is_ok && (transfer->item.kind != TRANSFER_PUSH || transfer->item.wait))
    options->received(options->user, &transfer->item, transfer_reply_version(transfer, reply), received);
  else if (!is_stopping && !is_ok)
    options->failed(options->user, &transfer->item, err);
  return false;
}

/* What its call has come to, of which it may have been a part. */
static void transfer_done(struct transfer *transfer, const struct err *err, const void *reply,
                          struct rpc_bytes *bytes) {
  struct received received = {.bytes = bytes};
  struct share *share = transfer->with.share;
  struct err found = *err;
  bool goes_on;
  if (!err->code)
    transfer_find_shared(transfer, reply, &received.shared, &found);
  transfer->with.share = NULL;
  transfer->further = NULL;
  goes_on = transfer_answered(transfer, &found, reply, &received);
  rpc_bytes_free(bytes);
  shared_bytes_put(&received.shared);
  share_put(share);
  if (!goes_on)
    transfer_end(transfer);
}

/* The answer to one of several parts, as that to a push which brings it alone. */
static Weir__PushReply part_reply(const struct transfer *transfer, const Weir__PushReply *reply, size_t part,
                                  struct err *err) {
  const char *server = transfer->link->address;
  Weir__PushReply own = WEIR__PUSH_REPLY__INIT;
  const Weir__PartAnswer *answer;
  if (part >= reply->n_answers) {
    err_set(err, ERR_CORRUPT, "%s: it has answered %zu of its parts alone", server, reply->n_answers);
    return own;
  }
  answer = reply->answers[part];
  if (answer->status) {
    char *text = text_copy_clean(answer->error, sizeof err->text);
    err_set(err, err_from_grpc_status((int)answer->status), "%s: %s", server, text);
    free(text);
  }
  own.version = answer->version;
  own.shared = answer->shared;
  return own;
}

static void on_done(struct rpc_request *request, const struct err *err, const void *reply,
                    struct rpc_bytes *bytes) {
  struct transfer *transfer = (struct transfer *)request, *further = transfer->further;
  if (!further) {
    transfer_done(transfer, err, reply, bytes);
    return;
  }
  rpc_bytes_free(bytes);
  for (size_t part = 0; transfer; part++) {
    struct err found = *err;
    Weir__PushReply own = WEIR__PUSH_REPLY__INIT;
    further = transfer->further;
    if (!err->code)
      own = part_reply(transfer, reply, part, &found);
    transfer_done(transfer, &found, &own, NULL);
    transfer = further;
  }
}

/* What is sent next: first who was made to wait. */
static struct transfer *link_next_locked(struct server_link *link, bool may_park) {
  struct transfer *transfer = may_park ? list_take(&link->pulls) : NULL;
  while (!transfer && (transfer = list_take(&link->queue)))
    if (transfer_is_pull(transfer) && !may_park) {
      list_append(&link->pulls, transfer);
      transfer = NULL;
    }
  return transfer;
}

static bool link_may_park_locked(const struct server_link *link) {
  int usual_max = link->is_shared ? PARKED_SHARED_MAX : PARKED_MAX;
  return link->parked < (link->options->parked_max > 0 ? link->options->parked_max : usual_max);
}

/* Further parts that wait behind a push go with it: what is named costs a call and little else. */
static void link_gather_locked(struct server_link *link, struct transfer *push) {
  struct transfer **end = &push->further, *next;
  for (uint32_t n = 1; n < push->with.parts_max && n < SHARE_PARTS_MAX; n++) {
    next = link->queue.first;
    if (!next || !transfer_fits(push, next) || (push->is_parked && !link_may_park_locked(link)))
      return;
    next->with = push->with;
    transfer_name(next);
    if (!next->is_named) {
      next->with.share = NULL;
      return;
    }
    share_get(next->with.share);
    next->is_parked = push->is_parked;
    link->parked += next->is_parked;
    list_take(&link->queue);
    *end = next;
    end = &next->further;
  }
}

static void link_start_queued_locked(struct server_link *link) {
  struct transfer *transfer;
  bool may_park = link_may_park_locked(link);
  while (!link->is_stopping && link->sending < SENDING_MAX && (transfer = link_next_locked(link, may_park))) {
    transfer->is_parked = may_park && (transfer->item.wait || transfer_is_pull(transfer));
    link->parked += transfer->is_parked;
    transfer->is_sending = transfer->is_started = true;
    transfer->request = (struct rpc_request){.on_sent = on_sent, .on_done = on_done};
    link->sending++;
    transfer->with = link_share_get(&link->share);
    link->is_shared = transfer->with.share && share_is_up(transfer->with.share);
    transfer_name(transfer);
    if (transfer->is_named)
      link_gather_locked(link, transfer);
    may_park = link_may_park_locked(link);
    transfer_send(transfer, link->options, link->channels[link->turn++ % (unsigned)link->n_channels]);
  }
}

static void on_question_done(struct rpc_request *request, const struct err *err, const void *reply,
                             struct rpc_bytes *bytes) {
  struct server_link *link = ((struct link_question *)request)->link;
  (void)reply;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&link->lock);
  if (link_reach_asked(&link->reach, clock_now_ns()) || !err->code)
    link_ended_locked(link, err);
  link->outstanding--;
  pthread_cond_signal(&link->changed);
  pthread_mutex_unlock(&link->lock);
}

static void link_ask_locked(struct server_link *link) {
  link->question.request = (struct rpc_request){.on_done = on_question_done};
  link->outstanding++;
  transfer_ask(&link->question.request, link->options, link->question.channel);
}

uint64_t server_link_step(struct server_link *link, uint64_t now_ns, uint64_t away_ns) {
  struct transfer_list pauses;
  struct transfer *transfer;
  uint64_t due_ns, share_due_ns;
  pthread_mutex_lock(&link->lock);
  if (link_reach_look(&link->reach, now_ns, away_ns))
    link_ask_locked(link);
  due_ns = link_reach_due_ns(&link->reach, now_ns);
  pauses = link->pauses;
  link->pauses = (struct transfer_list){0};
  while ((transfer = list_take(&pauses))) {
    if (transfer->due_ns > now_ns && transfer->due_ns < due_ns)
      due_ns = transfer->due_ns;
    list_append(transfer->due_ns > now_ns ? &link->pauses : &link->queue, transfer);
  }
  link_start_queued_locked(link);
  pthread_mutex_unlock(&link->lock);
  share_due_ns = link_share_step(&link->share, now_ns);
  return share_due_ns < due_ns ? share_due_ns : due_ns;
}

bool server_link_is_unreached(struct server_link *link, struct err *failure) {
  bool is_unreached;
  pthread_mutex_lock(&link->lock);
  is_unreached = link->reach.is_unreached;
  *failure = link->reach.failure;
  pthread_mutex_unlock(&link->lock);
  return is_unreached;
}

bool server_link_is_reached(struct server_link *link) {
  bool is_reached;
  pthread_mutex_lock(&link->lock);
  is_reached = link_reach_is_fresh(&link->reach, clock_now_ns());
  pthread_mutex_unlock(&link->lock);
  for (int i = 0; is_reached && i < link->n_channels; i++)
    if (rpc_channel_is_connected(link->channels[i]))
      return true;
  return is_reached && rpc_channel_is_connected(link->question.channel);
}
