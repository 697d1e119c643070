/* The timeline of a run over several processes, in Chrome's trace format ("Trace Event Format", JSON object
   form): what members have captured, on the coordinator's clock, with each push joined to the update that
   took it. */
#ifndef WEIR_CLIENT_FILES_TIMELINE_H
#define WEIR_CLIENT_FILES_TIMELINE_H

#include "common/base/err.h"
#include "training.pb-c.h"

struct timeline;

/* What has come so far, for people. */
struct timeline_counts {
  int members, spans, joined; /* joined: pushes, known once it is written */
  uint64_t first, end;        /* versions, as of struct TraceChunk */
};

struct timeline *timeline_new(void);
void timeline_free(struct timeline *timeline); /* NULL is ignored */

/* Spans of steps that were not wholly captured are left out. Errors: CORRUPT, naming the member. */
int timeline_add(struct timeline *timeline, const Weir__TraceChunk *chunk, struct err *err);

/* What the executors of a worker did, together, each between the first and the last of its tasks that were
   captured. In what is left of that time it had no task. */
struct timeline_work {
  const char *member; /* the timeline's */
  int executors;
  double seconds, computed, weights, data; /* weights, data: waited for them within tasks */
};
/* The n-th member's that has come, from 0 on. */
struct timeline_work timeline_work(const struct timeline *timeline, int n);

/* Errors: those of output_file_open. */
int timeline_write(struct timeline *timeline, const char *path, struct err *err);
struct timeline_counts timeline_counts(const struct timeline *timeline);

#endif
