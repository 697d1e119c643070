/* What the first workers of a run found the probe to be: of the whole model, and of each of the stages that
   some have. One text, which the run's record keeps: hashes, those of stages as BEGIN-END:HASH, separated by
   spaces. */
#ifndef WEIR_SERVER_COORDINATOR_CORE_PROBES_H
#define WEIR_SERVER_COORDINATOR_CORE_PROBES_H

#include <stdbool.h>

#include "server/coordinator/state/assignment.h"

/* The hash for these stages (an empty range: all of them), freed by the caller; NULL: none is known. */
char *probes_find(const char *probes, struct range stages);

/* What a worker says as it may stand in the text: without what separates hashes. Freed by the caller. */
char *probes_clean(const char *hash);

/* The text with a clean hash added, freed by the caller. probes may be NULL. */
char *probes_add(const char *probes, struct range stages, const char *hash);

#endif
