/* Where the events of a run go. */
#ifndef WEIR_CLIENT_FILES_EVENT_SINK_H
#define WEIR_CLIENT_FILES_EVENT_SINK_H

#include "common/base/err.h"
#include "training.pb-c.h"

/* The first member of what takes events. */
struct event_sink {
  /* On the thread that reads the events, in their order; some may come again. Errors end the reading. */
  int (*take)(struct event_sink *sink, const Weir__RunEvent *event, struct err *err);
};

#endif
