/* From the spec of a training run to that of an evaluation. */
#ifndef WEIR_CLIENT_CLUSTER_EVALUATION_SPEC_H
#define WEIR_CLIENT_CLUSTER_EVALUATION_SPEC_H

#include "common/base/err.h"
#include "spec.pb-c.h"

struct evaluation_wishes {
  const char
      *data; /* a YAML file with a section `data`: its eval, or else train, is evaluated; NULL: the run's */
  const char *measure; /* metrics, separated by commas, in place of the spec's; NULL: those */
};

/* Makes of a spec that passed spec_check one that trains nothing and evaluates what is wished; the result has
   passed spec_check. Errors: those of spec_read_file and spec_check; INVALID where there is no data to
   evaluate. */
int evaluation_spec(Weir__RunSpec *spec, const struct evaluation_wishes *wishes, struct err *err);

#endif
