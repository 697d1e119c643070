/* Streams of shared memory. */
#include "server/parameters/service_share.h"

#include <stdlib.h>

#include "common/base/log.h"

/* What a stream is of. */
struct stream {
  struct hosted_run *run; /* a reference */
  struct run_share *share;
};

/* By its ticket; 0 where the run has no key, and anybody may say to be any worker. */
static uint32_t caller_worker(const struct rpc_call *rpc, const struct hosted_run *run) {
  struct ticket ticket;
  struct err ignored;
  if (!run->tickets.has_key || ticket_read(rpc_call_ticket(rpc), &ticket, &ignored))
    return 0;
  return ticket.worker;
}

struct share *service_find_share(const struct rpc_call *rpc, struct hosted_run *run, uint64_t id) {
  return id ? run_shares_find(&run->shares, id, caller_worker(rpc, run)) : NULL;
}

/* The first message says of which run it is. Until that is known nobody else finishes the call. */
static struct stream *stream_open(struct rpc_call *rpc, const Weir__ShareMessage *message) {
  struct run_table *runs = rpc_call_context(rpc);
  struct stream *stream = mem_new(sizeof *stream);
  struct err err = ERR_NONE;
  stream->run = run_table_find_for(runs, rpc_call_ticket(rpc), message->run, message->incarnation, &err);
  if (stream->run && run_shares_open(&stream->run->shares, rpc, caller_worker(rpc, stream->run),
                                     &stream->share, &err) == 0) {
    rpc_call_set_user(rpc, stream);
    return stream;
  }
  log_event(LOG_DEBUG, "parameters", "refused", "peer=%s code=%s text=\"%s\"", rpc_call_peer(rpc),
            err_name(err.code), err.text);
  rpc_call_finish(rpc, &err);
  hosted_run_put(stream->run);
  free(stream);
  return NULL;
}

void service_on_share(struct rpc_call *rpc, const void *message, struct rpc_bytes *bytes) {
  struct stream *stream = rpc_call_user(rpc);
  (void)bytes; /* the method has none */
  if (!stream)
    stream = stream_open(rpc, message);
  if (stream)
    run_shares_take(&stream->run->shares, stream->share, message);
}

void service_on_share_half_close(struct rpc_call *rpc) {
  struct stream *stream = rpc_call_user(rpc);
  struct err err;
  if (stream) {
    run_shares_half_closed(&stream->run->shares, stream->share);
    return;
  }
  err_set(&err, ERR_INVALID, "the stream carries no message");
  rpc_call_finish(rpc, &err);
}

void service_on_share_closed(struct rpc_call *rpc) {
  struct stream *stream = rpc_call_user(rpc);
  if (!stream)
    return;
  run_shares_closed(&stream->run->shares, stream->share);
  hosted_run_put(stream->run);
  free(stream);
}
