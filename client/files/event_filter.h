/* The filter of events that a watcher has seen. After a coordinator's restart events may come again under
   other numbers. A step or an evaluation is recognised by its incarnation and its step; within an incarnation
   both grow. An event of several steps is that of the last of them. */
#ifndef WEIR_CLIENT_FILES_EVENT_FILTER_H
#define WEIR_CLIENT_FILES_EVENT_FILTER_H

#include <stdbool.h>

#include "training.pb-c.h"

/* The newest of a kind. */
struct event_mark {
  bool is_set;
  uint64_t incarnation, step;
};

/* Zeroed before first use. */
struct event_filter {
  struct event_mark step, eval;
  bool is_done;
};

/* True once for each step of an incarnation, each evaluation likewise, and `done`; always for other events.
 */
bool event_filter_take(struct event_filter *filter, const Weir__RunEvent *event);

#endif
