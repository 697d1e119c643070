/* Who may call a method. */
#include "common/rpc/callers.h"

#include <grpc/slice.h>

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

char *rpc_callers_ticket(const grpc_metadata_array *metadata) {
  for (size_t i = 0; i < metadata->count; i++)
    if (grpc_slice_str_cmp(metadata->metadata[i].key, RPC_TICKET_KEY) == 0) {
      grpc_slice value = metadata->metadata[i].value;
      return mem_printf("%.*s", (int)GRPC_SLICE_LENGTH(value), (const char *)GRPC_SLICE_START_PTR(value));
    }
  return NULL;
}
