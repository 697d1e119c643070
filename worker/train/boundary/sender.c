/* Boundary messages on their way to a neighbour. */
#include "worker/train/boundary/sender.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "common/trace/trace.h"

enum { PIECES_MAX = 8, PAUSE_MS = 5, PAUSE_MS_MAX = 1000, LOG_ATTEMPTS = 8, UNREACHED_MS = 2000 };

struct sender_message {
  struct boundary_key key;
  struct buffer *buffer; /* gRPC may refer to it after it was sent, too; NULL before it is first used */
  size_t size_bytes;
};

/* On its way. */
struct sender_piece {
  struct rpc_request request; /* first: the callback finds the piece by it */
  struct sender *sender;
  bool is_started;
};

struct sender {
  struct sender_options options;
  struct rpc_channel *channel;
  Weir__BoundaryPiece *head;
  char *ticket;
  pthread_t thread;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct sender_message *messages; /* [n_messages] a ring */
  int first, n_waiting;
  struct sender_piece pieces[PIECES_MAX];
  int n_started;
  struct err err; /* of the message that is being sent: the worst of its pieces */
  uint64_t
      failing_ns; /* since when no call was answered, of which one has failed; 0: the newest was answered */
  struct err failure; /* of the newest that was not */
  bool is_stopping;
};

static void *sender_main(void *argument);

struct sender *sender_new(const struct sender_options *options) {
  struct sender *sender = mem_new(sizeof *sender);
  sender->options = *options;
  sender->channel = rpc_channel_open(options->client, options->address, PEER_WORKER);
  sender->head = message_copy(options->head);
  sender->ticket = mem_strdup(options->ticket ? options->ticket : "");
  sender->messages = mem_new((size_t)options->n_messages * sizeof *sender->messages);
  pthread_mutex_init(&sender->lock, NULL);
  clock_condition_init(&sender->changed);
  for (int i = 0; i < PIECES_MAX; i++)
    sender->pieces[i].sender = sender;
  CHECK(pthread_create(&sender->thread, NULL, sender_main, sender) == 0);
  return sender;
}

void sender_free(struct sender *sender) {
  if (!sender)
    return;
  pthread_mutex_lock(&sender->lock);
  sender->is_stopping = true;
  for (int i = 0; i < PIECES_MAX; i++)
    if (sender->pieces[i].is_started)
      rpc_request_cancel(&sender->pieces[i].request);
  pthread_cond_broadcast(&sender->changed);
  pthread_mutex_unlock(&sender->lock);
  pthread_join(sender->thread, NULL);
  rpc_channel_close(sender->channel);
  for (int m = 0; m < sender->options.n_messages; m++)
    buffer_put(sender->messages[m].buffer);
  free(sender->messages);
  message_free(sender->head);
  free(sender->ticket);
  pthread_cond_destroy(&sender->changed);
  pthread_mutex_destroy(&sender->lock);
  free(sender);
}

/* The next message's place in the ring. */
static struct sender_message *message_next_locked(struct sender *sender) {
  int n = sender->options.n_messages;
  return sender->n_waiting < n ? &sender->messages[(sender->first + sender->n_waiting) % n] : NULL;
}

struct buffer *sender_buffer(struct sender *sender, size_t size_bytes) {
  struct sender_message *message;
  pthread_mutex_lock(&sender->lock);
  message = message_next_locked(sender);
  if (message &&
      (!message->buffer || message->buffer->size_bytes < size_bytes || !buffer_is_sole(message->buffer))) {
    buffer_put(message->buffer);
    message->buffer = buffer_new(size_bytes);
  }
  pthread_mutex_unlock(&sender->lock);
  return message ? message->buffer : NULL;
}

void sender_queue(struct sender *sender, const struct boundary_key *key, size_t size_bytes) {
  struct sender_message *message;
  pthread_mutex_lock(&sender->lock);
  message = message_next_locked(sender);
  CHECK(message && message->buffer);
  message->key = *key;
  message->size_bytes = size_bytes;
  sender->n_waiting++;
  pthread_cond_broadcast(&sender->changed);
  pthread_mutex_unlock(&sender->lock);
}

int sender_waiting(struct sender *sender) {
  int waiting;
  pthread_mutex_lock(&sender->lock);
  waiting = sender->n_waiting;
  pthread_mutex_unlock(&sender->lock);
  return waiting;
}

bool sender_is_unreached(struct sender *sender, struct err *failure) {
  bool is_unreached;
  pthread_mutex_lock(&sender->lock);
  is_unreached =
      sender->failing_ns > 0 && clock_now_ns() - sender->failing_ns >= UNREACHED_MS * UINT64_C(1000000);
  *failure = sender->failure;
  pthread_mutex_unlock(&sender->lock);
  return is_unreached;
}

/* Whatever else fails may pass: the neighbour is not there yet, or the network broke. */
static bool is_for_good(const struct err *err) {
  return err->code == ERR_DROPPED || err->code == ERR_INVALID || err->code == ERR_UNSUPPORTED;
}

/* A refusal is an answer, too. That of a ticket passes: a view brings another one. */
static void note_reach_locked(struct sender *sender, const struct err *err) {
  if (err->code == ERR_OK || err->code == ERR_BUSY || err->code == ERR_DENIED || is_for_good(err)) {
    sender->failing_ns = 0;
    return;
  }
  if (!sender->failing_ns)
    sender->failing_ns = clock_now_ns();
  sender->failure = *err;
}

static void on_done(struct rpc_request *request, const struct err *err, const void *reply,
                    struct rpc_bytes *bytes) {
  struct sender_piece *piece = (struct sender_piece *)request;
  struct sender *sender = piece->sender;
  (void)reply;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&sender->lock);
  if (err->code && !is_for_good(&sender->err))
    sender->err = *err;
  note_reach_locked(sender, err);
  piece->is_started = false;
  sender->n_started--;
  pthread_cond_broadcast(&sender->changed);
  pthread_mutex_unlock(&sender->lock);
}

static struct sender_piece *piece_find_locked(struct sender *sender) {
  for (int i = 0; i < PIECES_MAX; i++)
    if (!sender->pieces[i].is_started)
      return &sender->pieces[i];
  return NULL;
}

static void piece_start_locked(struct sender *sender, struct sender_piece *piece,
                               const struct sender_message *message, size_t begin) {
  Weir__BoundaryPiece said = *sender->head;
  size_t left = message->size_bytes - begin;
  struct rpc_payload payload = {.buffer = message->buffer,
                                .offset = begin,
                                .size_bytes = left < BOUNDARY_PIECE_BYTES ? left : BOUNDARY_PIECE_BYTES};
  said.step = message->key.step;
  said.evaluation = message->key.is_chunk;
  said.index = message->key.index;
  said.execution = message->key.execution;
  said.offset = begin;
  said.message_bytes = message->size_bytes;
  piece->is_started = true;
  piece->request.on_done = on_done;
  piece->request.ticket = sender->ticket;
  sender->n_started++;
  rpc_request_start(&piece->request, sender->channel,
                    &(struct rpc_question){.method = RPC_SEND_BOUNDARY, .message = &said, .deadline_ms = -1},
                    payload.size_bytes ? &payload : NULL);
}

/* All pieces of the message, once; sender->err says what became of them. */
static void message_send_locked(struct sender *sender, const struct sender_message *message) {
  size_t begin = 0;
  sender->err = (struct err)ERR_NONE;
  do {
    struct sender_piece *piece;
    while (!(piece = piece_find_locked(sender)))
      pthread_cond_wait(&sender->changed, &sender->lock);
    if (sender->is_stopping || sender->err.code)
      break;
    piece_start_locked(sender, piece, message, begin);
    begin += BOUNDARY_PIECE_BYTES;
  } while (begin < message->size_bytes);
  while (sender->n_started > 0)
    pthread_cond_wait(&sender->changed, &sender->lock);
}

static void pause_locked(struct sender *sender, int attempt) {
  int pause_ms = attempt < 8 ? PAUSE_MS << attempt : PAUSE_MS_MAX;
  struct timespec until = clock_after_ms(pause_ms < PAUSE_MS_MAX ? pause_ms : PAUSE_MS_MAX);
  while (!sender->is_stopping && pthread_cond_timedwait(&sender->changed, &sender->lock, &until) == 0)
    continue;
}

/* Tries until the message is there. False: it is refused for good, or the sender is to stop. */
static bool message_deliver_locked(struct sender *sender, const struct sender_message *message) {
  uint64_t begin_ns = trace_now_ns();
  for (int attempt = 0; !sender->is_stopping; attempt++) {
    message_send_locked(sender, message);
    if (sender->err.code == ERR_OK)
      break;
    if (!sender->is_stopping && is_for_good(&sender->err))
      return false;
    if (attempt == LOG_ATTEMPTS)
      log_event(LOG_INFO, "worker", "boundary_waits", "run=%s team=%u stage=%u step=%llu error=\"%s\"",
                sender->head->run, sender->head->team, sender->head->stage,
                (unsigned long long)message->key.step, sender->err.text);
    pause_locked(sender, attempt);
  }
  trace_span(&(struct trace_span){.category = "boundary",
                                  .name = "message",
                                  .begin_ns = begin_ns,
                                  .end_ns = trace_now_ns(),
                                  .step = message->key.step,
                                  .index = message->key.index});
  return !sender->is_stopping;
}

static void *sender_main(void *argument) {
  struct sender *sender = argument;
  trace_thread("boundary", sender->options.trace_number);
  pthread_mutex_lock(&sender->lock);
  while (!sender->is_stopping) {
    struct err err;
    bool is_sent;
    if (sender->n_waiting == 0) {
      pthread_cond_wait(&sender->changed, &sender->lock);
      continue;
    }
    is_sent = message_deliver_locked(sender, &sender->messages[sender->first]);
    if (sender->is_stopping)
      break;
    err = sender->err;
    sender->first = (sender->first + 1) % sender->options.n_messages;
    sender->n_waiting--;
    pthread_mutex_unlock(&sender->lock);
    if (is_sent)
      sender->options.sent(sender->options.user);
    else
      sender->options.refused(sender->options.user, &err);
    pthread_mutex_lock(&sender->lock);
    while (!is_sent && !sender->is_stopping)
      pthread_cond_wait(&sender->changed, &sender->lock);
  }
  pthread_mutex_unlock(&sender->lock);
  return NULL;
}
