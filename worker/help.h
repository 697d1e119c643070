/* The options of weir-worker, and its help. */
#ifndef WEIR_WORKER_HELP_H
#define WEIR_WORKER_HELP_H

#include "common/manager/program_option.h"

/* The keys of worker_program_options. */
enum worker_option {
  WORKER_COORDINATOR = PROGRAM_OPTION_KEYS,
  WORKER_DATA_ROOT,
  WORKER_FOLLOW_LINKS,
  WORKER_DEVICE,
  WORKER_THREADS,
  WORKER_MEMORY,
  WORKER_LABEL,
  WORKER_BACKEND,
  WORKER_TRACE,
  WORKER_HTTP,
  WORKER_LOG_FORMAT,
  WORKER_LISTEN,
  WORKER_ADVERTISE,
  WORKER_TLS,
  WORKER_INSECURE,
  WORKER_NO_SHM,
  WORKER_HELP,
  WORKER_MAN,
  WORKER_VERSION,
};

extern const struct program_option worker_program_options[]; /* ends with {0} */

/* The page of `weir-worker --help`, or its man page. */
void worker_help_print(const struct page *page);

#endif
