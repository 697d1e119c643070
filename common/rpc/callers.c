/* Who may call a method. */
#include "common/rpc/callers.h"

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
