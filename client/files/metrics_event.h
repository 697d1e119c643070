/* A line of a metrics file as the event that it was. */
#ifndef WEIR_CLIENT_FILES_METRICS_EVENT_H
#define WEIR_CLIENT_FILES_METRICS_EVENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/files/event_sink.h"
#include "model/metrics/metric.h"

struct metrics_event {
  Weir__RunEvent event; /* a step, an evaluation or the end; its texts belong to json */
  Weir__StepEvent step;
  Weir__EvalEvent eval;
  Weir__DoneEvent done;
  Weir__MetricValue values[METRICS_NAMED_MAX], *list[METRICS_NAMED_MAX];
  json_t *json;
};

/* False when it is no line of metrics. A number that is null is NaN; keys that are not known are passed over.
   fini is due all the same. */
bool metrics_event_read(struct metrics_event *event, const char *line, size_t length);
void metrics_event_fini(struct metrics_event *event);

/* Gives the sink the events of the file's whole lines. Errors: NOT_FOUND and IO; INVALID naming the line that
   is none; those of the sink. */
int metrics_events_read(const char *path, struct event_sink *sink, struct err *err);

#endif
