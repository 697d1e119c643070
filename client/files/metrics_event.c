/* A line of a metrics file as the event that it was. */
#include "client/files/metrics_event.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t count_of(const json_t *object, const char *key) {
  return (uint64_t)json_integer_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key) {
  const json_t *number = json_object_get(object, key);
  return json_is_number(number) ? json_number_value(number) : NAN;
}

static void step_read(struct metrics_event *event) {
  const json_t *json = event->json;
  Weir__StepEvent *step = &event->step;
  step->step = count_of(json, "step");
  step->epoch = count_of(json, "epoch");
  step->loss = number_of(json, "loss");
  step->lr = number_of(json, "lr");
  step->samples = count_of(json, "samples");
  step->workers = (uint32_t)count_of(json, "workers");
  step->seconds = number_of(json, "seconds");
  step->steps = count_of(json, "steps");
  step->loss_min = number_of(json, "loss_min");
  step->loss_max = number_of(json, "loss_max");
  step->incarnation = count_of(json, "incarnation");
  event->event.event_case = WEIR__RUN_EVENT__EVENT_STEP;
  event->event.step = step;
}

/* Those of eval.metrics; returns how many. */
static size_t named_read(struct metrics_event *event) {
  const char *key;
  json_t *value;
  size_t n = 0;
  json_object_foreach(event->json, key, value) {
    if (n == METRICS_NAMED_MAX || strcmp(key, "accuracy") == 0 || !metric_find(key))
      continue;
    weir__metric_value__init(&event->values[n]);
    event->values[n].name = (char *)key;
    event->values[n].value = number_of(event->json, key);
    event->list[n] = &event->values[n];
    n++;
  }
  return n;
}

static void eval_read(struct metrics_event *event) {
  Weir__EvalEvent *eval = &event->eval;
  eval->step = count_of(event->json, "step");
  eval->loss = number_of(event->json, "loss");
  eval->accuracy = number_of(event->json, "accuracy");
  eval->incarnation = count_of(event->json, "incarnation");
  eval->metrics = event->list;
  eval->n_metrics = named_read(event);
  event->event.event_case = WEIR__RUN_EVENT__EVENT_EVAL;
  event->event.eval = eval;
}

static void done_read(struct metrics_event *event) {
  Weir__DoneEvent *done = &event->done;
  const char *hash = json_string_value(json_object_get(event->json, "weights_sha256"));
  const char *reason = json_string_value(json_object_get(event->json, "reason"));
  done->steps = count_of(event->json, "steps");
  done->accuracy = number_of(event->json, "accuracy");
  done->samples_per_second = number_of(event->json, "samples_per_second");
  if (hash)
    done->weights_sha256 = (char *)hash;
  if (reason)
    done->reason = (char *)reason;
  done->metrics = event->list;
  done->n_metrics = named_read(event);
  event->event.event_case = WEIR__RUN_EVENT__EVENT_DONE;
  event->event.done = done;
}

bool metrics_event_read(struct metrics_event *event, const char *line, size_t length) {
  const char *kind;
  weir__run_event__init(&event->event);
  weir__step_event__init(&event->step);
  weir__eval_event__init(&event->eval);
  weir__done_event__init(&event->done);
  event->json = json_loadb(line, length, 0, NULL);
  kind = json_string_value(json_object_get(event->json, "event"));
  if (kind && strcmp(kind, "step") == 0)
    step_read(event);
  else if (kind && strcmp(kind, "eval") == 0)
    eval_read(event);
  else if (kind && strcmp(kind, "done") == 0)
    done_read(event);
  return event->event.event_case != WEIR__RUN_EVENT__EVENT__NOT_SET;
}

void metrics_event_fini(struct metrics_event *event) {
  json_decref(event->json);
  event->json = NULL;
}

int metrics_events_read(const char *path, struct event_sink *sink, struct err *err) {
  FILE *file = fopen(path, "re");
  char *line = NULL;
  size_t size = 0;
  ssize_t length;
  int number = 0;
  if (!file)
    return err_open(err, errno, "cannot read '%s'", path);
  while (!err->code && (length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
    struct metrics_event event;
    number++;
    if (metrics_event_read(&event, line, (size_t)length))
      sink->take(sink, &event.event, err);
    else
      err_set(err, ERR_INVALID, "%s:%d: not a line of metrics", path, number);
    metrics_event_fini(&event);
  }
  if (!err->code && ferror(file))
    err_errno(err, errno, "cannot read '%s'", path);
  free(line);
  fclose(file);
  return err->code;
}
