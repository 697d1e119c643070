/* The numbered events of one run, kept for watchers that come late: the newest steps have
   an event each, and older ones are joined, so that their number is bounded. Evaluations have an event
   each. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_EVENT_LOG_H
#define WEIR_SERVER_COORDINATOR_STATE_EVENT_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "server/coordinator/curves/run_curves.h"
#include "training.pb-c.h"

enum {
  EVENT_LOG_EXACT = 20480,   /* steps, the newest, that have an event each */
  EVENT_LOG_THINNED = 8192,  /* events of older steps, at most */
  EVENT_LOG_SLACK = 4096,    /* further steps with an event each, before older ones are joined */
  EVENT_LOG_INFOS = 512,     /* the newest: each says all that those before it said; at times twice as many */
  EVENT_LOG_EVALS = 1000000, /* above it the older half is dropped */
};

/* What event_log_compact leaves of each kind: some 200 KB in all, in place of 4 MB and more. */
enum { EVENT_LOG_OLD_STEPS = 512, EVENT_LOG_OLD_EVALS = 256, EVENT_LOG_OLD_INFOS = 16 };

/* Room for one event of a run. */
struct run_event_view {
  Weir__RunEvent event;
  Weir__StepEvent step;
};

struct logged_event {
  uint64_t number; /* growing, with gaps between coordinators, and where steps have one event */
  Weir__RunEvent__EventCase kind;
  union {
    Weir__StepEvent step;  /* by far the most */
    Weir__EvalEvent *eval; /* this and what follows: owned */
    Weir__DoneEvent *done;
    Weir__RunInfo *info;
  };
};

/* In the order of their numbers. */
struct event_list {
  struct logged_event *items;
  int count, capacity;
};

/* Zeroed before first use, but for `next`: the number of the first event. */
struct event_log {
  uint64_t next;
  struct event_list steps, others;
  int thinned, infos;       /* how many of steps, from the front, are joined; how many of others are infos */
  bool is_compact;          /* nothing was added since event_log_compact */
  uint64_t stride;          /* steps that one of the thinned events may stand for, a power of two; 0 is 1 */
  struct run_curves curves; /* of all that there was; after a roll-back, of what is there of it */
};

/* The steps of an event that no newer event is of. */
struct step_span {
  const Weir__StepEvent *event;
  uint64_t first, last;
};

void event_log_fini(struct event_log *log);
/* Takes what the event points to; gives the next number. */
void event_log_add(struct event_log *log, const struct logged_event *event);
/* Adds an event of a former coordinator: before all new ones, in the order of numbers, which are below
   `next`. What is no event, or out of order, is ignored. An event of several steps takes the place of those
   that it stands for. */
void event_log_restore(struct event_log *log, const Weir__RunEvent *event);
/* Joins all steps, also the newest, and drops all but the newest of what else there is; the last event stays.
 */
void event_log_compact(struct event_log *log);
/* About how much memory it takes, but for its curves, which are bounded. */
size_t event_log_bytes(const struct event_log *log);
/* The first event with that number or a higher one. An event of several steps has the number of the last one.
   False if there is none yet. */
bool event_log_view(const struct event_log *log, uint64_t number, struct run_event_view *view);
const struct logged_event *event_log_last(const struct event_log *log); /* NULL: there is none */
/* The newest event of a step or an evaluation whose step is at most max_step; NULL if there is none. */
const struct logged_event *event_log_newest(const struct event_log *log, Weir__RunEvent__EventCase kind,
                                            uint64_t max_step);
/* The spans of steps from `since` on, in order; at most `max`, -1: there are more. What was rolled back is
   left out. */
int event_log_spans(const struct event_log *log, uint64_t since, struct step_span *spans, int max);

#endif
