/* The numbered events of one run, kept for watchers that come late. */
#ifndef WEIR_SERVER_COORDINATOR_EVENT_LOG_H
#define WEIR_SERVER_COORDINATOR_EVENT_LOG_H

#include <stdbool.h>

#include "server/coordinator/core.h"

enum { EVENT_LOG_MAX = 1000000 }; /* above it the older half is dropped */

struct logged_event {
  Weir__RunEvent__EventCase kind;
  union {
    Weir__StepEvent step;
    Weir__EvalEvent eval;
    Weir__DoneEvent done; /* its text belongs to the run */
    Weir__RunInfo *info;  /* owned */
  };
};

/* Zeroed before first use. */
struct event_log {
  uint64_t first; /* the number of items[0] */
  struct logged_event *items;
  int count, capacity;
};

void event_log_fini(struct event_log *log);
void event_log_add(struct event_log *log, const struct logged_event *event); /* takes info */
/* As coordinator_run_event. */
bool event_log_view(const struct event_log *log, uint64_t number, struct run_event_view *view);

#endif
