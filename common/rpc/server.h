/* The server's side of RPC. */
#ifndef WEIR_COMMON_RPC_SERVER_H
#define WEIR_COMMON_RPC_SERVER_H

#include "common/rpc/rpc.h"
#include "common/rpc/tls.h"

struct rpc_server;

/* One call in progress. It lives until it is both closed (on_closed returned, or the client's end is known)
   and finished: every call must be finished exactly once, also one whose client has gone. */
struct rpc_call;

/* One method of a service. All callbacks run on a thread of the completion queue: they never block and do no
   heavy work, but may park the call (keep the pointer) to send and finish it later from any thread. Callbacks
   of one call never overlap. */
struct rpc_method {
  enum rpc_method_id id;
  bool is_request_stream; /* false: exactly one message comes */
  /* Before anything of the call is received: an error ends it with that. rpc_call_ticket is there. May be
     NULL. */
  int (*on_begin)(struct rpc_call *call, struct err *err);
  /* A request. message belongs to the caller and ends with the callback; bytes (NULL without a bytes field)
     belongs to the callee. A message that does not parse never gets here: the call is answered
     INVALID_ARGUMENT. */
  void (*on_message)(struct rpc_call *call, const void *message, struct rpc_bytes *bytes);
  void (*on_half_close)(struct rpc_call *call); /* request streams: the client has sent all; may be NULL */
  void (*on_closed)(
      struct rpc_call *call); /* the client is gone or has the answer; last callback; may be NULL */
  /* Request streams: a client that has sent nothing for so long, its first message or the end included, is
     answered CANCELLED. An owner that knows the call is told by on_closed. 0: it may be silent for ever.
     Other calls: how long their only message may take; 0: LIMIT_REQUEST_MS. For one with a payload see the
     intake.
   */
  int idle_ms;
};

struct rpc_service {
  const struct rpc_method *methods;
  int n_methods;
  void *context; /* rpc_call_context of its calls */
};

struct rpc_server_options {
  const char *listen; /* HOST:PORT, where port 0 takes a free one, or unix:/PATH */
  const struct rpc_service *services;
  int n_services;
  const struct rpc_tls *tls; /* clients need a certificate of its authorities; NULL: plaintext */
  bool is_insecure;          /* plaintext may be spoken beyond this machine */
  int threads;               /* of the completion queue; 0: one */
  /* What payloads (bytes fields of requests) may take at a time, those that come and those that handlers
     keep. Beyond it calls that bring one are not read until there is room. 0: without a bound. */
  size_t received_bytes_max;
  bool begins_not_serving; /* as after rpc_server_set_serving(false) */
};

/* Listens and serves. Health and reflection are served beside the given services. Errors: INVALID for what is
   no address, and for one beyond this machine without tls, unless is_insecure; UNAVAILABLE with the address
   when it cannot be bound. */
int rpc_server_start(const struct rpc_server_options *options, struct rpc_server **out, struct err *err);
int rpc_server_port(const struct rpc_server *server);                    /* of unix:/PATH it means nothing */
void rpc_server_set_serving(struct rpc_server *server, bool is_serving); /* health */
/* Cancels every call, waits for its callbacks, releases everything. Parked calls must be finished by their
   owners, before or while it waits. NULL is ignored. */
void rpc_server_stop(struct rpc_server *server);

/* Sends a reply message; payload (may be NULL) is its bytes field. Any thread. Of a unary call: at most once.
   Errors: CANCELLED (the client is gone), BUSY (more than 4096 messages are waiting: the client does not
   read). */
int rpc_call_send(struct rpc_call *call, const void *reply, const struct rpc_payload *payload);

/* Ends the call: err NULL or OK for success (after what was sent), else its status and text. Any thread. The
   pointer is not to be used afterwards. */
void rpc_call_finish(struct rpc_call *call, const struct err *err);

/* send, then finish with success. */
void rpc_call_reply(struct rpc_call *call, const void *reply, const struct rpc_payload *payload);

/* finish with an error made on the spot. */
void rpc_call_fail(struct rpc_call *call, enum err_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void *rpc_call_context(const struct rpc_call *call);
void rpc_call_set_user(struct rpc_call *call, void *user);
void *rpc_call_user(const struct rpc_call *call);
size_t rpc_call_waiting(struct rpc_call *call); /* messages not yet written */
/* Whose certificate the caller has shown. False: there is no TLS, or the certificate names nobody. */
bool rpc_call_holder(const struct rpc_call *call, struct cert_holder *holder);
/* What the caller has sent as its ticket; NULL: none. */
const char *rpc_call_ticket(const struct rpc_call *call);
const char *rpc_call_peer(const struct rpc_call *call); /* "ipv4:127.0.0.1:4242", for logs */

#endif
