/* The options of weir-server, and its help. */
#ifndef WEIR_SERVER_HELP_H
#define WEIR_SERVER_HELP_H

#include "common/manager/program_option.h"

/* The keys of server_program_options. */
enum server_option {
  SERVER_ROLE = PROGRAM_OPTION_KEYS,
  SERVER_LISTEN,
  SERVER_ADVERTISE,
  SERVER_COORDINATOR,
  SERVER_STORE,
  SERVER_WAIT_STORE,
  SERVER_GRACE,
  SERVER_FOLLOW_LIMIT,
  SERVER_LEAVE_LIMIT,
  SERVER_QUOTA,
  SERVER_QUOTAS,
  SERVER_THREADS,
  SERVER_MEMORY,
  SERVER_HTTP,
  SERVER_HTTP_NAMES,
  SERVER_LOG_FORMAT,
  SERVER_TLS,
  SERVER_INSECURE,
  SERVER_NO_SHM,
  SERVER_ANNOUNCE_FD,
  SERVER_HELP,
  SERVER_MAN,
  SERVER_VERSION,
};

extern const struct program_option server_program_options[]; /* ends with {0} */

/* The page of `weir-server --help`, or its man page. */
void server_help_print(const struct page *page);

#endif
