/* RUN@STEP. */
#include "client/cluster/run_step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

int run_step_parse(const char *text, struct run_step *out, struct err *err) {
  const char *at = strrchr(text, '@');
  char *end;
  *out = (struct run_step){.run = mem_strdup(text), .has_step = at != NULL};
  if (!at)
    return ERR_OK;
  out->run[at - text] = '\0';
  errno = 0;
  out->step = strtoull(at + 1, &end, 10);
  if (at[1] >= '0' && at[1] <= '9' && *end == '\0' && errno == 0)
    return ERR_OK;
  free(out->run);
  out->run = NULL;
  return err_set(err, ERR_INVALID, "'%s' in '%s' is not a step", at + 1, text);
}
