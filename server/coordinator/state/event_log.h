/* The numbered events of one run, kept for watchers that come late. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_EVENT_LOG_H
#define WEIR_SERVER_COORDINATOR_STATE_EVENT_LOG_H

#include <stdbool.h>

#include "training.pb-c.h"

enum { EVENT_LOG_MAX = 1000000 }; /* above it the older half is dropped */

/* Room for one event of a run. */
struct run_event_view {
  Weir__RunEvent event;
  Weir__StepEvent step;
};

struct logged_event {
  uint64_t number; /* growing, with gaps between coordinators */
  Weir__RunEvent__EventCase kind;
  union {
    Weir__StepEvent step;  /* by far the most */
    Weir__EvalEvent *eval; /* this and what follows: owned */
    Weir__DoneEvent *done;
    Weir__RunInfo *info;
  };
};

/* Zeroed before first use, but for `next`: the number of the first event. */
struct event_log {
  uint64_t next;
  struct logged_event *items;
  int count, capacity;
};

void event_log_fini(struct event_log *log);
/* Takes what the event points to; gives the next number. */
void event_log_add(struct event_log *log, const struct logged_event *event);
/* Adds an event of a former coordinator: before all new ones, in the order of numbers, which are below
   `next`. What is no event, or out of order, is ignored. */
void event_log_restore(struct event_log *log, const Weir__RunEvent *event);
/* The first event with that number or a higher one. False if there is none yet. */
bool event_log_view(const struct event_log *log, uint64_t number, struct run_event_view *view);
/* The newest event of a step or an evaluation whose step is at most max_step; NULL if there is none. */
const struct logged_event *event_log_newest(const struct event_log *log, Weir__RunEvent__EventCase kind,
                                            uint64_t max_step);

#endif
