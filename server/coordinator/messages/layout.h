/* What spec and model agree on, told to those who do not compute it themselves. */
#ifndef WEIR_SERVER_COORDINATOR_MESSAGES_LAYOUT_H
#define WEIR_SERVER_COORDINATOR_MESSAGES_LAYOUT_H

#include "common/base/err.h"
#include "common/base/memory.h"
#include "training.pb-c.h"

struct coordinator;
struct model;

/* Of the run (whole id) its blocks' sizes and their owners, as of the last step; layout_fill has the rest.
   Built in the arena. */
void coordinator_run_layout(const struct coordinator *coordinator, const char *id, struct arena *arena,
                            Weir__Layout *layout);
/* Adds what the run's model says, which outlives the layout. Any thread. Errors: INTERNAL: it is another
   run's. */
int layout_fill(const struct model *model, struct arena *arena, Weir__Layout *layout, struct err *err);

/* The samples of a microbatch or an eval chunk of the run (whole id), built in the arena; NULL: the error.
   Errors: UNAVAILABLE: the data is not known yet; INVALID: there is no such step, microbatch or chunk, or the
   version is not evaluated; UNSUPPORTED, naming the key: what the data or random transforms decide is not
   told. */
Weir__Batch *coordinator_run_batch(const struct coordinator *coordinator, const char *id,
                                   const Weir__BatchRequest *request, struct arena *arena, struct err *err);

#endif
