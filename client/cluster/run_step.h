/* RUN@STEP: a checkpoint of a run, on a command line. */
#ifndef WEIR_CLIENT_CLUSTER_RUN_STEP_H
#define WEIR_CLIENT_CLUSTER_RUN_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct run_step {
  char *run; /* an id or a prefix of one */
  bool has_step;
  uint64_t step;
};

/* RUN or RUN@STEP. The caller frees out->run where there was no error. Errors: INVALID. */
int run_step_parse(const char *text, struct run_step *out, struct err *err);

#endif
