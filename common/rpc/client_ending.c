/* How calls end, in words. */
#include <ctype.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <string.h>

#include "common/certs/peer.h"
#include "common/rpc/client_core.h"

/* What gRPC's own descriptions contain, and what we say instead; the first that is found. */
struct phrase {
  int status; /* 0: any */
  const char *needle, *text;
};

/* A server that refuses a certificate just hangs up. */
static const char refused_unsaid[] = "last error: UNAVAILABLE";

static const struct phrase phrases[] = {
    {GRPC_STATUS_UNAVAILABLE, "Connection refused", "connection refused"},
    {GRPC_STATUS_UNAVAILABLE, "DNS resolution failed", "the name cannot be resolved"},
    {GRPC_STATUS_UNAVAILABLE, "Domain name not found", "the name cannot be resolved"},
    {GRPC_STATUS_UNAVAILABLE, "No route to host", "no route to host"},
    {GRPC_STATUS_UNAVAILABLE, "Network is unreachable", "the network is unreachable"},
    {GRPC_STATUS_UNAVAILABLE, "connect() timed out", "connecting timed out"},
    {GRPC_STATUS_UNAVAILABLE, "Timeout occurred", "connecting timed out"},
    {GRPC_STATUS_UNAVAILABLE, "certificate verify failed",
     "TLS: no authority of our ca.pem has signed its certificate, or it is not valid now"},
    {GRPC_STATUS_UNAVAILABLE, "Hostname Verification Check failed",
     "TLS: its certificate is not of the role that is needed"},
    {GRPC_STATUS_UNAVAILABLE, "its name is in denied.txt",
     "TLS: the name of its certificate is in denied.txt here"},
    {GRPC_STATUS_UNAVAILABLE, "names no member or client", "TLS: its certificate names no member of Weir"},
    {GRPC_STATUS_UNAVAILABLE, "wrong version number",
     "it does not speak TLS: start it with --tls, or leave --tls out here"},
    {GRPC_STATUS_UNAVAILABLE, "Tls handshake failed", "no TLS handshake"},
    {GRPC_STATUS_UNAVAILABLE, refused_unsaid,
     "it closed the connection at once (TLS: does one end lack --tls, or an authority that the other "
     "trusts? Or does it have as many connections as it may? Its log says)"},
    {GRPC_STATUS_UNAVAILABLE, "failed to connect to all addresses", "cannot connect"},
    {GRPC_STATUS_UNAVAILABLE, "keepalive watchdog timeout", "connection lost: no answer to keepalive"},
    {GRPC_STATUS_UNAVAILABLE, "Socket closed", "connection lost"},
    {GRPC_STATUS_UNAVAILABLE, "Connection reset by peer", "connection lost"},
    {GRPC_STATUS_UNAVAILABLE, "Broken pipe", "connection lost"},
    {GRPC_STATUS_UNAVAILABLE, "GOAWAY", "the server is stopping"},
    {GRPC_STATUS_UNAVAILABLE, "Server shutdown", "the server is stopping"},
    {GRPC_STATUS_UNAVAILABLE, "Cancelling all calls", "the server is stopping"},
    {GRPC_STATUS_UNAVAILABLE, "Stream removed", "connection lost"},
    {GRPC_STATUS_UNAVAILABLE, "empty address list", "the name has no address"},
    {0, "Received http2 header with status", "not a gRPC server"},
    {0, "Failed to create secure client channel", "not an address"},
    {GRPC_STATUS_CANCELLED, "CANCELLED", "cancelled"},
    {GRPC_STATUS_CANCELLED, "Cancelled", "cancelled"},
};

void rpc_ending_init(struct rpc_ending *ending) {
  *ending = (struct rpc_ending){.status = GRPC_STATUS_UNKNOWN, .text = grpc_empty_slice()};
  grpc_metadata_array_init(&ending->initial);
  grpc_metadata_array_init(&ending->trailing);
}

void rpc_ending_fini(struct rpc_ending *ending) {
  grpc_metadata_array_destroy(&ending->initial);
  grpc_metadata_array_destroy(&ending->trailing);
  grpc_slice_unref(ending->text);
}

void rpc_ending_ops(struct rpc_ending *ending, grpc_op ops[2]) {
  ops[0] = (grpc_op){.op = GRPC_OP_RECV_INITIAL_METADATA,
                     .data.recv_initial_metadata.recv_initial_metadata = &ending->initial};
  ops[1] = (grpc_op){.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                     .data.recv_status_on_client = {.trailing_metadata = &ending->trailing,
                                                    .status = &ending->status,
                                                    .status_details = &ending->text}};
}

/* One line, without control characters. */
static void make_line(char *text) {
  for (; *text; text++)
    if (iscntrl((unsigned char)*text))
      *text = ' ';
}

/* Whether our own certificates are why we are refused: they may have ended since the start. */
static bool own_are_at_fault(const struct rpc_channel *channel, const char *text, struct err *why) {
  const struct rpc_tls *tls = rpc_channel_tls(channel);
  struct rpc_tls *now = NULL;
  if (!tls || !strstr(text, refused_unsaid))
    return false;
  rpc_tls_open(tls->folder, &now, why);
  rpc_tls_close(now);
  return why->code;
}

static const char no_answer[] = "no answer within", no_message[] = "the call failed without a message",
                  of_tls[] = "TLS: ";

static bool begins_with(const char *text, const char *beginning) {
  return strncmp(text, beginning, strlen(beginning)) == 0;
}

bool rpc_channel_has_answered(const struct rpc_channel *channel, const struct err *err) {
  size_t length = strlen(channel->target);
  const char *text;
  if (!err->code || !begins_with(err->text, channel->target) || !begins_with(err->text + length, ": "))
    return false;
  text = err->text + length + 2;
  if (begins_with(text, no_answer) || begins_with(text, no_message) || begins_with(text, of_tls))
    return false;
  for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
    if (strcmp(text, phrases[i].text) == 0)
      return false;
  return true;
}

void rpc_channel_explain(const struct rpc_channel *channel, struct err *err) {
  static const int roles[] = {CERT_COORDINATOR, CERT_SERVER, CERT_WORKER, CERT_PEER_ANY};
  const struct rpc_tls *tls = rpc_channel_tls(channel);
  struct rpc_tls *now = NULL;
  struct err own = ERR_NONE;
  if (err->code != ERR_UNAVAILABLE || !strstr(err->text, "TLS") ||
      (tls && rpc_tls_open(tls->folder, &now, &own))) /* then it says what is wrong with our own */
    return;
  rpc_tls_close(now);
  cert_peer_explain(channel->target, tls ? tls->folder : NULL, roles[channel->peer], err);
}

int rpc_ending_err(const struct rpc_ending *ending, struct rpc_channel *channel, int deadline_ms,
                   struct err *err) {
  const char *target = channel->target;
  char *text;
  const char *shown;
  struct err own = ERR_NONE;
  enum err_code code = err_from_grpc_status((int)ending->status);
  if (code == ERR_OK) {
    *err = ERR_NONE;
    return ERR_OK;
  }
  if (code == ERR_EXPIRED) { /* there may be a new certificate: the call may be tried again */
    rpc_channel_renew(channel);
    code = ERR_UNAVAILABLE;
  }
  text = grpc_slice_to_c_string(ending->text);
  make_line(text);
  shown = text[0] ? text : no_message;
  for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
    if ((!phrases[i].status || phrases[i].status == (int)ending->status) && strstr(text, phrases[i].needle)) {
      shown = phrases[i].text;
      break;
    }
  if (own_are_at_fault(channel, text, &own))
    shown = own.text;
  if (ending->status == GRPC_STATUS_DEADLINE_EXCEEDED && deadline_ms >= 0) {
    err_set(err, code, "%s: %s %d ms", target, no_answer, deadline_ms);
  } else {
    err_set(err, code, "%s: %s", target, shown);
  }
  gpr_free(text);
  return code;
}
