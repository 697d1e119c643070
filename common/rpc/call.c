/* One call on the server: accepted, received from, sent to, closed. Its events come on the one thread of its
   queue; the lock is for whoever sends and finishes from elsewhere. Receiving, sending and closing are
   batches of their own, so that a parked call pins no request and its client's end is noticed. */
#include "common/rpc/call.h"

#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/door/clients.h"
#include "common/metrics/metric.h"

/* How long room is kept for the message of a call: beyond it, its client is slow or gone. */
enum { ROOM_KEPT_MS = 2000, WATCH_MS = 1000 };

struct rpc_call {
  struct rpc_server *server;
  struct rpc_queue *queue;
  const struct rpc_route *route;
  grpc_call *call;
  struct rpc_event accepted, received, sent, closed;
  grpc_call_details details; /* until accepted */
  grpc_metadata_array metadata;
  struct rpc_guest *guest; /* whose certificate came with it; NULL: plaintext */
  struct client *client;   /* among whose calls it is; NULL: it is not counted */
  char *ticket;            /* NULL: none came */
  void *user;
  struct rpc_audit audit;

  /* the queue's thread's own */
  grpc_byte_buffer *incoming;
  int is_cancelled; /* written by gRPC */
  bool is_seen;     /* a callback ran: the owner will finish it */
  bool is_receiving;
  struct rpc_call *before, *after; /* of its watch, with a guest */
  struct rpc_intake_place place;   /* of a call that brings a payload */
  struct rpc_timer idle;           /* of a call that may not be silent for ever, or for which room is kept */
  uint64_t heard_ns;               /* the client's last message, or the call's begin */

  pthread_mutex_t lock;
  int refs; /* the owner's until it finishes, one until on_closed returned, one while sending */
  struct rpc_outbox outbox;
  bool is_sending, has_begun;  /* initial metadata sent */
  bool is_finished, is_ending; /* the owner has finished; the status was sent */
  bool is_closed;
  int status;
  grpc_slice status_text;
  char *peer;
};

static void on_accepted(struct rpc_event *event, bool ok);
static void on_received(struct rpc_event *event, bool ok);
static void on_sent(struct rpc_event *event, bool ok);
static void on_closed(struct rpc_event *event, bool ok);
static void on_idle(struct rpc_timer *timer);
static void on_admitted(struct rpc_intake_place *place);

void rpc_call_accept(struct rpc_server *server, struct rpc_queue *queue) {
  struct rpc_call *call = mem_new(sizeof *call);
  call->server = server;
  call->queue = queue;
  call->refs = 1;
  call->accepted.done = on_accepted;
  call->received.done = on_received;
  call->sent.done = on_sent;
  call->closed.done = on_closed;
  call->idle.expired = on_idle;
  call->status_text = grpc_empty_slice();
  rpc_outbox_init(&call->outbox);
  pthread_mutex_init(&call->lock, NULL);
  grpc_call_details_init(&call->details);
  grpc_metadata_array_init(&call->metadata);
  rpc_server_call_begins(server);
  RPC_HAND_OVER(&call->accepted);
  CHECK(grpc_server_request_call(rpc_server_core(server), &call->call, &call->details, &call->metadata,
                                 queue->cq, queue->cq, &call->accepted) == GRPC_CALL_OK);
}

/* Unlocks, and releases the call with its last reference. */
static void put_and_unlock(struct rpc_call *call) {
  struct rpc_server *server = call->server;
  int refs = --call->refs;
  pthread_mutex_unlock(&call->lock);
  if (refs)
    return;
  if (call->call)
    grpc_call_unref(call->call);
  rpc_outbox_clear(&call->outbox);
  grpc_slice_unref(call->status_text);
  pthread_mutex_destroy(&call->lock);
  gpr_free(call->peer);
  rpc_guest_put(call->guest);
  clients_leave(rpc_server_clients(server), call->client);
  rpc_audit_fini(&call->audit);
  free(call->ticket);
  free(call);
  rpc_server_call_ended(server);
}

/* For how long the client may send nothing; 0: for ever. */
static uint64_t idle_ns(const struct rpc_call *call) {
  const struct rpc_method *method = call->route->method;
  int ms = method->idle_ms || method->is_request_stream ? method->idle_ms : LIMIT_REQUEST_MS;
  return (uint64_t)(call->place.intake ? ROOM_KEPT_MS : ms) * 1000000;
}

static void start_receiving(struct rpc_call *call) {
  grpc_op batch = {.op = GRPC_OP_RECV_MESSAGE};
  batch.data.recv_message.recv_message = &call->incoming;
  rpc_start_batch(call->call, &batch, 1, &call->received);
}

/* The call lives until what it is to receive was received, so that it may be admitted when it is over. */
static void on_admitted(struct rpc_intake_place *place) {
  start_receiving(RPC_EVENT_OWNER(place, struct rpc_call, place));
}

/* The timer is not moved with each message: it looks when it is due. */
static void call_receive(struct rpc_call *call) {
  call->is_receiving = true;
  call->heard_ns = clock_now_ns();
  if (idle_ns(call) && !call->idle.is_set)
    rpc_timer_set(call->queue, &call->idle, call->heard_ns + idle_ns(call));
  if (!call->place.intake || rpc_intake_enter(&call->place, call->route->def->request.bytes_max))
    start_receiving(call);
}

/* A message that we do not hand on, or do not wait for any more. An owner that knows the call is told by
   on_closed. */
static void call_refuse(struct rpc_call *call, const struct err *err) {
  log_event(LOG_DEBUG, "rpc", "refused", "method=%s peer=%s error=\"%s\"", call->route->def->path,
            rpc_call_peer(call), err->text);
  if (call->is_seen)
    grpc_call_cancel_with_status(call->call, (grpc_status_code)err_grpc_status(err->code), err->text, NULL);
  else
    rpc_call_finish(call, err);
}

/* Counts the call among those of its client. */
static int check_count(struct rpc_call *call, struct err *err) {
  const struct cert_holder *holder = call->guest ? rpc_guest_holder(call->guest) : NULL;
  char *name = rpc_callers_client(holder, rpc_call_peer(call));
  if (!rpc_callers_are_members(call->route->def->callers))
    clients_enter(rpc_server_clients(call->server), name, clock_now_ns(), &call->client, err);
  free(name);
  return err->code;
}

static void call_begin(struct rpc_call *call) {
  const struct rpc_method_def *def = call->route->def;
  const struct rpc_method *method = call->route->method;
  struct err err = ERR_NONE;
  /* Before anything of the call is received. The guard logs whom it refuses. */
  if (call->guest && rpc_guard_check(rpc_server_guard(call->server), call->guest, &err)) {
    call_refuse(call, &err);
    return;
  }
  call->ticket = method->on_begin ? rpc_callers_ticket(&call->metadata) : NULL;
  if ((call->guest && rpc_callers_check(def->path, def->callers, rpc_guest_holder(call->guest), &err)) ||
      check_count(call, &err) || (method->on_begin && method->on_begin(call, &err))) {
    log_event(err.code == ERR_DENIED ? LOG_WARN : LOG_DEBUG, "rpc", "denied",
              "method=%s peer=%s reason=\"%s\"", def->path, rpc_call_peer(call), err.text);
    rpc_call_finish(call, &err);
    return;
  }
  if (def->request.bytes_field)
    call->place = (struct rpc_intake_place){rpc_server_intake(call->server), .admitted = on_admitted};
  call_receive(call);
}

static void watch_add(struct rpc_call *call) {
  struct rpc_watch *watch = rpc_server_watch(call->server, call->queue);
  if (!rpc_server_guard(call->server))
    return;
  call->guest = rpc_guard_meet(rpc_server_guard(call->server), call->call);
  if ((call->after = watch->calls))
    watch->calls->before = call;
  watch->calls = call;
}

static void watch_remove(struct rpc_call *call) {
  struct rpc_watch *watch = rpc_server_watch(call->server, call->queue);
  if (!call->guest)
    return;
  *(call->before ? &call->before->after : &watch->calls) = call->after;
  if (call->after)
    call->after->before = call->before;
}

static void on_accepted(struct rpc_event *event, bool ok) {
  struct rpc_call *call = RPC_EVENT_OWNER(event, struct rpc_call, accepted);
  grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                   .data.recv_close_on_server.cancelled = &call->is_cancelled};
  if (ok) {
    rpc_call_accept(call->server, call->queue);
    call->route = rpc_server_route(call->server, call->details.method);
    call->refs = 2;
    watch_add(call);
    rpc_start_batch(call->call, &close, 1, &call->closed);
  }
  if (ok && call->route) {
    call_begin(call);
  } else if (ok) {
    char *path = grpc_slice_to_c_string(call->details.method);
    rpc_call_fail(call, ERR_UNSUPPORTED, "no method '%.200s' is served here", path);
    gpr_free(path);
  }
  grpc_call_details_destroy(&call->details);
  grpc_metadata_array_destroy(&call->metadata);
  if (!ok) { /* the server stops */
    pthread_mutex_lock(&call->lock);
    put_and_unlock(call);
  }
}

/* on_closed follows once nothing else can. */
static void call_settle(struct rpc_call *call) {
  bool is_settled;
  pthread_mutex_lock(&call->lock);
  is_settled = call->is_closed && !call->is_receiving;
  pthread_mutex_unlock(&call->lock);
  if (!is_settled)
    return;
  if (call->is_seen && call->route->method->on_closed)
    call->route->method->on_closed(call);
  pthread_mutex_lock(&call->lock);
  if (!call->is_seen && !call->is_finished) { /* no owner knows of it */
    call->is_finished = true;
    call->refs--;
  }
  put_and_unlock(call);
}

static void hand_on(struct rpc_call *call, grpc_byte_buffer *wire) {
  struct wire_message got;
  struct err err = ERR_NONE;
  bool is_over;
  wire_read(&call->route->def->request, wire, &got, &err);
  if (call->place.intake)
    rpc_intake_came(&call->place, got.bytes);
  grpc_byte_buffer_destroy(wire);
  if (err.code) {
    call_refuse(call, &err);
    return;
  }
  call->is_seen = true;
  rpc_audit_request(&call->audit, call->route->def->callers, got.message);
  call->route->method->on_message(call, got.message, got.bytes);
  protobuf_c_message_free_unpacked(got.message, NULL);
  pthread_mutex_lock(&call->lock);
  is_over = call->is_finished || call->is_closed;
  pthread_mutex_unlock(&call->lock);
  if (call->route->method->is_request_stream && !is_over)
    call_receive(call);
}

/* No more messages: the client has sent all, or is gone. */
static void end_of_messages(struct rpc_call *call) {
  const struct rpc_method *method = call->route->method;
  struct err err;
  if (method->is_request_stream && method->on_half_close &&
      !grpc_call_failed_before_recv_message(call->call)) {
    call->is_seen = true;
    method->on_half_close(call);
  } else if (!call->is_seen) {
    err_set(&err, ERR_INVALID, "the call carries no message");
    rpc_call_finish(call, &err);
  }
}

static void on_received(struct rpc_event *event, bool ok) {
  struct rpc_call *call = RPC_EVENT_OWNER(event, struct rpc_call, received);
  grpc_byte_buffer *wire = call->incoming;
  bool is_dead;
  (void)ok;
  pthread_mutex_lock(&call->lock); /* also orders what gRPC's threads wrote before what follows */
  is_dead = call->is_finished || (call->is_closed && call->is_cancelled);
  pthread_mutex_unlock(&call->lock);
  call->incoming = NULL;
  call->is_receiving = false;
  if (!call->route->method->is_request_stream)
    rpc_timer_clear(call->queue, &call->idle);
  if (!wire || is_dead)
    rpc_intake_leave(&call->place);
  if (wire && is_dead)
    grpc_byte_buffer_destroy(wire);
  else if (wire)
    hand_on(call, wire);
  else if (!is_dead)
    end_of_messages(call);
  call_settle(call);
}

static void on_idle(struct rpc_timer *timer) {
  struct rpc_call *call = RPC_EVENT_OWNER(timer, struct rpc_call, idle);
  uint64_t due_ns = call->heard_ns + idle_ns(call);
  struct err err;
  bool is_finished;
  pthread_mutex_lock(&call->lock);
  is_finished = call->is_finished;
  pthread_mutex_unlock(&call->lock);
  if (!call->is_receiving || is_finished)
    return;
  if (call->place.intake) {
    if (rpc_intake_lapse(&call->place))
      rpc_timer_set(call->queue, &call->idle, clock_now_ns() + idle_ns(call));
    return;
  }
  if (due_ns > clock_now_ns()) {
    rpc_timer_set(call->queue, &call->idle, due_ns);
    return;
  }
  err_set(&err, ERR_CANCELLED, "the client sent nothing for %.3g s, and not all had come",
          call->route->method->idle_ms / 1e3);
  call_refuse(call, &err);
}

/* Ends the calls of certificates that are accepted no more. */
static void on_watch(struct rpc_timer *timer) {
  struct rpc_watch *watch = RPC_EVENT_OWNER(timer, struct rpc_watch, timer);
  struct rpc_guard *guard = rpc_server_guard(watch->server);
  rpc_guard_look(guard);
  for (struct rpc_call *call = watch->calls; call; call = call->after) {
    struct err err = ERR_NONE;
    bool is_finished;
    pthread_mutex_lock(&call->lock);
    is_finished = call->is_finished;
    pthread_mutex_unlock(&call->lock);
    if (!is_finished && call->route && rpc_guard_check(guard, call->guest, &err))
      call_refuse(call, &err);
  }
  rpc_timer_set(watch->queue, timer, clock_now_ns() + WATCH_MS * UINT64_C(1000000));
}

void rpc_watch_begin(struct rpc_watch *watch) {
  watch->timer.expired = on_watch;
  rpc_timer_set(watch->queue, &watch->timer, clock_now_ns() + WATCH_MS * UINT64_C(1000000));
}

static void on_closed(struct rpc_event *event, bool ok) {
  struct rpc_call *call = RPC_EVENT_OWNER(event, struct rpc_call, closed);
  (void)ok;
  rpc_timer_clear(call->queue, &call->idle);
  watch_remove(call);
  if (rpc_intake_leave(&call->place))
    call->is_receiving = false; /* it was not begun */
  pthread_mutex_lock(&call->lock);
  call->is_closed = true;
  rpc_outbox_clear(&call->outbox);
  pthread_mutex_unlock(&call->lock);
  call_settle(call);
}

/* Starts the next batch of sending, if there is something to send and none is on its way: the oldest message,
   and the status with the last one. */
static void send_next_locked(struct rpc_call *call) {
  grpc_op ops[3] = {0};
  size_t n_ops = 0;
  grpc_byte_buffer *message;
  if (call->is_sending || call->is_ending || call->is_closed)
    return;
  message = rpc_outbox_take(&call->outbox);
  if (!message && !call->is_finished)
    return;
  if (!call->has_begun)
    ops[n_ops++].op = GRPC_OP_SEND_INITIAL_METADATA;
  call->has_begun = true;
  if (message)
    ops[n_ops++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message};
  if (call->is_finished && call->outbox.count == 0) {
    call->is_ending = true;
    ops[n_ops].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[n_ops].data.send_status_from_server.status = (grpc_status_code)call->status;
    ops[n_ops++].data.send_status_from_server.status_details = &call->status_text;
  }
  call->is_sending = true;
  call->refs++;
  rpc_start_batch(call->call, ops, n_ops, &call->sent);
  if (message)
    grpc_byte_buffer_destroy(message);
}

static void on_sent(struct rpc_event *event, bool ok) {
  struct rpc_call *call = RPC_EVENT_OWNER(event, struct rpc_call, sent);
  (void)ok; /* a connection that broke closes the call as well */
  pthread_mutex_lock(&call->lock);
  call->is_sending = false;
  send_next_locked(call);
  put_and_unlock(call);
}

static int add_locked(struct rpc_call *call, const void *reply, const struct rpc_payload *payload) {
  CHECK(!call->is_finished);
  if (call->is_closed)
    return ERR_CANCELLED;
  if (call->outbox.count >= RPC_OUTBOX_MAX)
    return ERR_BUSY;
  rpc_outbox_add(&call->outbox, wire_write(&call->route->def->reply, reply, payload));
  return ERR_OK;
}

static void audit(struct rpc_call *call, const struct err *err) {
  if (call->audit.of)
    rpc_audit_log(&call->audit, call->route->def->path, rpc_call_peer(call),
                  call->guest ? rpc_guest_holder(call->guest) : NULL, err);
}

int rpc_call_send(struct rpc_call *call, const void *reply, const struct rpc_payload *payload) {
  int code;
  rpc_audit_reply(&call->audit, call->route->def->callers, reply);
  pthread_mutex_lock(&call->lock);
  code = add_locked(call, reply, payload);
  send_next_locked(call);
  pthread_mutex_unlock(&call->lock);
  return code;
}

/* A text may quote what the caller sent: it is one line all the same. */
static void finish_locked(struct rpc_call *call, const struct err *err) {
  CHECK(!call->is_finished);
  call->is_finished = true;
  metric_add_code(METRIC_CALLS, err ? err->code : ERR_OK);
  if (err && err->code) {
    call->status = err_grpc_status(err->code);
    char *text = text_copy_clean(err->text, sizeof err->text);
    call->status_text = grpc_slice_from_copied_string(text);
    free(text);
  }
  send_next_locked(call);
  put_and_unlock(call);
}

void rpc_call_finish(struct rpc_call *call, const struct err *err) {
  audit(call, err);
  pthread_mutex_lock(&call->lock);
  finish_locked(call, err);
}

void rpc_call_reply(struct rpc_call *call, const void *reply, const struct rpc_payload *payload) {
  rpc_audit_reply(&call->audit, call->route->def->callers, reply);
  audit(call, NULL);
  pthread_mutex_lock(&call->lock);
  add_locked(call, reply, payload);
  finish_locked(call, NULL);
}

void rpc_call_fail(struct rpc_call *call, enum err_code code, const char *format, ...) {
  struct err err = {.code = code};
  va_list args;
  va_start(args, format);
  vsnprintf(err.text, sizeof err.text, format, args);
  va_end(args);
  rpc_call_finish(call, &err);
}

void *rpc_call_context(const struct rpc_call *call) {
  return call->route->context;
}

void rpc_call_set_user(struct rpc_call *call, void *user) {
  call->user = user;
}

void *rpc_call_user(const struct rpc_call *call) {
  return call->user;
}

size_t rpc_call_waiting(struct rpc_call *call) {
  size_t waiting;
  pthread_mutex_lock(&call->lock);
  waiting = call->outbox.count + call->is_sending;
  pthread_mutex_unlock(&call->lock);
  return waiting;
}

bool rpc_call_holder(const struct rpc_call *call, struct cert_holder *holder) {
  const struct cert_holder *shown = call->guest ? rpc_guest_holder(call->guest) : NULL;
  if (shown)
    *holder = *shown;
  return shown;
}

const char *rpc_call_ticket(const struct rpc_call *call) {
  return call->ticket;
}

const char *rpc_call_peer(const struct rpc_call *call) {
  struct rpc_call *own = (struct rpc_call *)call;
  pthread_mutex_lock(&own->lock);
  if (!own->peer)
    own->peer = grpc_call_get_peer(own->call);
  pthread_mutex_unlock(&own->lock);
  return own->peer;
}
