/* The client's side of RPC. */
#ifndef WEIR_COMMON_RPC_CLIENT_H
#define WEIR_COMMON_RPC_CLIENT_H

#include "common/rpc/rpc.h"
#include "common/rpc/tls.h"

/* Threads and a completion queue for calls; a process has one. */
struct rpc_client;
struct rpc_channel;

/* tls: of all its channels; NULL: they are plaintext, and lead to this machine alone. */
struct rpc_client *rpc_client_new(int threads, const struct rpc_tls *tls);
void rpc_client_set_insecure(
    struct rpc_client *client); /* plaintext may lead beyond it; before any channel */
int rpc_client_threads(const struct rpc_client *client);
/* All calls must have ended, all channels be closed. Waits up to half a second for connections in the making.
 */
void rpc_client_free(struct rpc_client *client);

/* What the other end of a channel is, as its certificate must say; without TLS nobody asks. */
enum rpc_peer { PEER_COORDINATOR, PEER_SERVER, PEER_WORKER, PEER_ANY };

/* A connection of its own (not shared), made when first used and again whenever it broke. Where its client
   may not connect (rpc_security_check) all calls fail with UNSUPPORTED, and say why. */
struct rpc_channel *rpc_channel_open(struct rpc_client *client, const char *target, enum rpc_peer peer);
void rpc_channel_close(struct rpc_channel *channel); /* NULL is ignored; its calls must have ended */
const char *rpc_channel_target(const struct rpc_channel *channel);
bool rpc_channel_has_tls(const struct rpc_channel *channel);
const struct rpc_tls *rpc_channel_tls(const struct rpc_channel *channel); /* NULL: plaintext */
/* The certificate that the channel's connection has shown is accepted no more, or is not ours any more: the
   calls that follow go by a new connection, which shows the one that our folder has now. Any thread. */
void rpc_channel_renew(struct rpc_channel *channel);
/* Appends what the other end's certificate says to an error of a call that TLS is the cause of. Blocks, for
   some seconds at most: not on a queue's thread. */
void rpc_channel_explain(const struct rpc_channel *channel, struct err *err);
/* Whether the error of a call, before it is explained, is what the other end has answered: not that a
   connection was refused or lost, or that no answer came. */
bool rpc_channel_has_answered(const struct rpc_channel *channel, const struct err *err);
/* Whether its connection is open, as far as this end knows. Any thread; connects nothing. */
bool rpc_channel_is_connected(const struct rpc_channel *channel);

/* What a unary call asks: the method, its request, and how long the reply may take. The message is read
   before the call's function returns. */
struct rpc_question {
  enum rpc_method_id method;
  const void *message;
  int deadline_ms; /* < 0: none */
};

/* Blocking: for clients and set-up, never on a queue's thread. */

/* One unary call. *reply: to be freed with protobuf_c_message_free_unpacked(*reply, NULL). With retry,
   retryable errors (see err.def) are tried again with growing, jittered pauses until the deadline. Error
   texts name the target. */
int rpc_unary(struct rpc_channel *channel, const struct rpc_question *question, bool retry, void **reply,
              struct err *err);

/* The standard health check of the process behind the channel. *is_serving is set only on success. */
int rpc_health_probe(struct rpc_channel *channel, int deadline_ms, bool *is_serving, struct err *err);
/* Whether its connections beyond its machine are plaintext, as its health service tells. */
int rpc_health_probe_insecure(struct rpc_channel *channel, int deadline_ms, bool *is_insecure,
                              struct err *err);

/* A stream read and written by one blocking thread: any of the streaming kinds. deadline_ms < 0: none. */
struct rpc_reader;
struct rpc_reader *rpc_reader_open(struct rpc_channel *channel, enum rpc_method_id method, int deadline_ms);
/* The same with a ticket, which is copied; NULL or "": none is sent. */
struct rpc_reader *rpc_reader_open_with(struct rpc_channel *channel, enum rpc_method_id method,
                                        int deadline_ms, const char *ticket);
int rpc_reader_send(struct rpc_reader *reader, const void *request,
                    struct err *err); /* waits until written */
void rpc_reader_half_close(struct rpc_reader *reader);
/* The next reply (to be freed as above), or *reply = NULL and 0 at the end of a stream that ended well. */
int rpc_reader_next(struct rpc_reader *reader, void **reply, struct err *err);
void rpc_reader_cancel(struct rpc_reader *reader); /* any thread, also from a signal-handling one */
void rpc_reader_close(struct rpc_reader *reader);  /* cancels what is left, then frees */

/* Embedded in the caller's struct and left alone between start and on_done. Callbacks run on a queue's
   thread, one after the other, on_sent first; they never block. */
struct rpc_request {
  /* The request's bytes were written (or the call failed): window space. May be NULL. */
  void (*on_sent)(struct rpc_request *request);
  /* The end. err->code OK: reply (ends with the callback) and bytes (belongs to the callee). Otherwise reply
     and bytes are NULL. After it the struct may be reused or freed. */
  void (*on_done)(struct rpc_request *request, const struct err *err, const void *reply,
                  struct rpc_bytes *bytes);
  const char *ticket;              /* read at the start; NULL or "": none is sent */
  bool is_written;                 /* from on_sent on: a connection took the bytes */
  struct rpc_request_state *state; /* rpc's own */
};

/* Sends the question, with a payload where its method carries one (else NULL). A parked call has no
   deadline. on_done always follows, also at failure. */
void rpc_request_start(struct rpc_request *request, struct rpc_channel *channel,
                       const struct rpc_question *question, const struct rpc_payload *payload);
/* on_done follows with CANCELLED (or with the reply that was faster). Only between start and the return of
   on_done; the caller sees to it with a lock of its own. */
void rpc_request_cancel(struct rpc_request *request);

/* A bidirectional stream. */
struct rpc_stream;
struct rpc_stream_handlers {
  void (*on_message)(void *user, const void *message); /* ends with the callback */
  void (*on_end)(void *user,
                 const struct err *err); /* last callback, always; err OK when the server ended it */
  void *user;
};
struct rpc_stream *rpc_stream_open(struct rpc_channel *channel, enum rpc_method_id method,
                                   const struct rpc_stream_handlers *handlers);
/* The same with a ticket, which is copied; NULL or "": none is sent. */
struct rpc_stream *rpc_stream_open_with(struct rpc_channel *channel, enum rpc_method_id method,
                                        const char *ticket, const struct rpc_stream_handlers *handlers);
/* Any thread. Errors: CANCELLED when it has ended, BUSY above 4096 waiting messages. */
int rpc_stream_send(struct rpc_stream *stream, const void *message);
int rpc_stream_waiting(struct rpc_stream *stream); /* messages that wait to be sent */
void rpc_stream_half_close(struct rpc_stream *stream);
/* Cancels, waits for on_end (so: not from a callback), frees. */
void rpc_stream_close(struct rpc_stream *stream);

/* A pause before attempt n (from 0): 50 ms doubling to 2 s, with +-25 % jitter. */
int rpc_backoff_ms(int attempt);

#endif
