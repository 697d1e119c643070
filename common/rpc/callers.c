/* Who may call a method. */
#include "common/rpc/callers.h"

#include <grpc/slice.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/rpc/core.h"

static bool is_client(const struct cert_holder *holder, enum cert_access least) {
  return holder->role == CERT_ALL || (holder->role == CERT_CLIENT && holder->access >= least);
}

bool rpc_callers_hold(enum rpc_callers callers, const struct cert_holder *holder) {
  switch (callers) {
  case CALLERS_ANYBODY:
    return true;
  case CALLERS_MEMBERS:
    return cert_role_covers(holder->role, CERT_SERVER) || cert_role_covers(holder->role, CERT_WORKER);
  case CALLERS_SERVERS:
    return cert_role_covers(holder->role, CERT_SERVER);
  case CALLERS_WORKERS:
    return cert_role_covers(holder->role, CERT_WORKER);
  case CALLERS_VIEWERS:
    return is_client(holder, CERT_VIEWER);
  case CALLERS_SUBMITTERS:
    return is_client(holder, CERT_SUBMITTER);
  case CALLERS_OPERATORS:
    return is_client(holder, CERT_OPERATOR);
  }
  return false;
}

const char *rpc_callers_name(enum rpc_callers callers) {
  static const char *const names[] = {
      "everybody",
      "servers and workers",
      "servers",
      "workers",
      "clients",
      "clients with the access submitter or operator",
      "clients with the access operator",
  };
  return names[callers];
}

char *rpc_callers_client(const struct cert_holder *holder, const char *peer) {
  const char *address = strchr(peer, ':'), *port = strrchr(peer, ':');
  char uri[CERT_TEXT_SIZE];
  if (holder)
    cert_holder_uri(holder, uri);
  if (holder || !address || port == address)
    return mem_strdup(holder ? uri : peer);
  return mem_printf("%.*s", (int)(port - address - 1), address + 1);
}

bool rpc_callers_are_members(enum rpc_callers callers) {
  return callers == CALLERS_MEMBERS || callers == CALLERS_SERVERS || callers == CALLERS_WORKERS;
}

int rpc_callers_check(const char *path, enum rpc_callers callers, const struct cert_holder *holder,
                      struct err *err) {
  char uri[CERT_TEXT_SIZE];
  if (rpc_callers_hold(callers, holder))
    return 0;
  cert_holder_uri(holder, uri);
  return err_set(err, ERR_DENIED, "%s is for %s: the certificate is that of %s", path,
                 rpc_callers_name(callers), uri);
}

char *rpc_callers_ticket(const grpc_metadata_array *metadata) {
  for (size_t i = 0; i < metadata->count; i++)
    if (grpc_slice_str_cmp(metadata->metadata[i].key, RPC_TICKET_KEY) == 0) {
      grpc_slice value = metadata->metadata[i].value;
      return mem_printf("%.*s", (int)GRPC_SLICE_LENGTH(value), (const char *)GRPC_SLICE_START_PTR(value));
    }
  return NULL;
}
