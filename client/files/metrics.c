/* The metrics file. */
#include "client/files/metrics.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/files/event_filter.h"
#include "client/files/metrics_event.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "model/metrics/metric.h"

enum { NAMED_MAX = METRICS_NAMED_MAX * 64 /* text of all */, REASON_MAX = 320 };

struct metrics {
  int fd;
  char *path;
  struct event_filter filter; /* of what the file has */
  struct err failed;          /* not OK: the first failure */
};

static int metrics_read(struct metrics *metrics, struct err *err);
static bool line_take(struct event_filter *filter, const char *line, size_t length);
static size_t step_line(const Weir__StepEvent *step, char *line);
static size_t eval_line(const Weir__EvalEvent *eval, char *line);
static size_t done_line(const Weir__DoneEvent *done, char *line);

size_t metrics_line(const Weir__RunEvent *event, char line[METRICS_LINE_MAX]) {
  switch (event->event_case) {
  case WEIR__RUN_EVENT__EVENT_STEP:
    return step_line(event->step, line);
  case WEIR__RUN_EVENT__EVENT_EVAL:
    return eval_line(event->eval, line);
  case WEIR__RUN_EVENT__EVENT_DONE:
    return done_line(event->done, line);
  default:
    line[0] = '\0';
    return 0;
  }
}

const char *metrics_number(double value, char text[32]) {
  return isfinite(value) ? text_number(value, text) : strcpy(text, "null");
}

/* Only after a roll-back: a run that was never disturbed has no such key. */
static const char *incarnation_text(uint64_t incarnation, char text[48]) {
  text[0] = '\0';
  if (incarnation > 0)
    snprintf(text, 48, ",\"incarnation\":%" PRIu64, incarnation);
  return text;
}

/* Only of older steps that have one line together. */
static const char *several_text(const Weir__StepEvent *step, char text[128]) {
  char least[32], most[32];
  text[0] = '\0';
  if (step->steps > 1)
    snprintf(text, 128, ",\"steps\":%" PRIu64 ",\"loss_min\":%s,\"loss_max\":%s", step->steps,
             metrics_number(step->loss_min, least), metrics_number(step->loss_max, most));
  return text;
}

static size_t step_line(const Weir__StepEvent *step, char *line) {
  char loss[32], lr[32], seconds[32], incarnation[48], several[128];
  return (size_t)snprintf(
      line, METRICS_LINE_MAX,
      "{\"event\":\"step\",\"step\":%" PRIu64 ",\"epoch\":%" PRIu64
      ",\"loss\":%s,\"lr\":%s,\"samples\":%" PRIu64 ",\"workers\":%u,\"seconds\":%s%s%s}\n",
      step->step, step->epoch, metrics_number(step->loss, loss), metrics_number(step->lr, lr), step->samples,
      step->workers, metrics_number(round(step->seconds * 1e6) / 1e6, seconds), several_text(step, several),
      incarnation_text(step->incarnation, incarnation));
}

/* A key each, of those that this build knows too: what comes from elsewhere cannot break the line. */
static const char *named_text(Weir__MetricValue *const *metrics, size_t n, char text[NAMED_MAX]) {
  char number[32];
  size_t length = 0;
  text[0] = '\0';
  for (size_t m = 0; m < n && m < METRICS_NAMED_MAX; m++)
    if (metric_find(metrics[m]->name))
      length += (size_t)snprintf(text + length, NAMED_MAX - length, ",\"%s\":%s", metrics[m]->name,
                                 metrics_number(metrics[m]->value, number));
  return text;
}

static size_t eval_line(const Weir__EvalEvent *eval, char *line) {
  char loss[32], number[32], accuracy[48] = "", named[NAMED_MAX], incarnation[48];
  if (!isnan(eval->accuracy))
    snprintf(accuracy, sizeof accuracy, ",\"accuracy\":%s", metrics_number(eval->accuracy, number));
  return (size_t)snprintf(
      line, METRICS_LINE_MAX, "{\"event\":\"eval\",\"step\":%" PRIu64 ",\"loss\":%s%s%s%s}\n", eval->step,
      metrics_number(eval->loss, loss), accuracy, named_text(eval->metrics, eval->n_metrics, named),
      incarnation_text(eval->incarnation, incarnation));
}

/* Only of a run that ended before its last step. Nothing in it needs to be escaped: what would is left out.
 */
static const char *reason_text(const char *reason, char text[REASON_MAX]) {
  size_t length = (size_t)snprintf(text, REASON_MAX, *reason ? ",\"reason\":\"" : "");
  for (; *reason && length < REASON_MAX - 3; reason++)
    if (isprint((unsigned char)*reason) && *reason != '"' && *reason != '\\')
      text[length++] = *reason;
  snprintf(text + length, REASON_MAX - length, length ? "\"" : "");
  return text;
}

static size_t done_line(const Weir__DoneEvent *done, char *line) {
  char accuracy[32], rate[32], named[NAMED_MAX], reason[REASON_MAX];
  return (size_t)snprintf(line, METRICS_LINE_MAX,
                          "{\"event\":\"done\",\"steps\":%" PRIu64
                          ",\"accuracy\":%s,\"weights_sha256\":\"%.64s\",\"samples_per_second\":%s%s%s}\n",
                          done->steps, metrics_number(done->accuracy, accuracy), done->weights_sha256,
                          metrics_number(round(done->samples_per_second * 10) / 10, rate),
                          named_text(done->metrics, done->n_metrics, named),
                          reason_text(done->reason, reason));
}

int metrics_open(const char *path, bool is_resumed, struct metrics **out, struct err *err) {
  int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  struct metrics *metrics;
  if (fd < 0)
    return err_errno(err, errno, "cannot write the metrics file '%s'", path);
  metrics = mem_new(sizeof *metrics);
  *metrics = (struct metrics){.fd = fd, .path = mem_strdup(path)};
  if (is_resumed && metrics_read(metrics, err)) {
    metrics_close(metrics);
    return err->code;
  }
  *out = metrics;
  return ERR_OK;
}

/* What the file has already. */
static int metrics_read(struct metrics *metrics, struct err *err) {
  FILE *file = fopen(metrics->path, "re");
  char *line = NULL;
  size_t size = 0;
  off_t whole = 0;
  ssize_t length;
  int number = 0;
  if (!file)
    return err_errno(err, errno, "cannot read the metrics file '%s'", metrics->path);
  while (err->code == ERR_OK && (length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
    number++;
    whole += length;
    if (!line_take(&metrics->filter, line, (size_t)length))
      err_set(err, ERR_INVALID, "%s:%d: not a line of metrics", metrics->path, number);
  }
  if (err->code == ERR_OK && (ferror(file) || ftruncate(metrics->fd, whole)))
    err_errno(err, errno, "cannot use the metrics file '%s'", metrics->path);
  free(line);
  fclose(file);
  return err->code;
}

/* False when it is no line of metrics. A file may hold several runs, one after the other: what goes back, or
   follows a `done`, begins another. */
static bool line_take(struct event_filter *filter, const char *line, size_t length) {
  struct metrics_event event;
  bool is_known = metrics_event_read(&event, line, length);
  if (is_known && (filter->is_done || !event_filter_take(filter, &event.event))) {
    *filter = (struct event_filter){0};
    event_filter_take(filter, &event.event);
  }
  metrics_event_fini(&event);
  return is_known;
}

int metrics_write(struct metrics *metrics, const Weir__RunEvent *event, struct err *err) {
  char line[METRICS_LINE_MAX];
  size_t length = metrics_line(event, line);
  ssize_t written;
  if (metrics->failed.code == ERR_OK && length > 0 && event_filter_take(&metrics->filter, event)) {
    do
      written = write(metrics->fd, line, length);
    while (written < 0 && errno == EINTR);
    if (written != (ssize_t)length)
      err_errno(&metrics->failed, written < 0 ? errno : ENOSPC, "cannot write the metrics file '%s'",
                metrics->path);
  }
  if (metrics->failed.code)
    *err = metrics->failed;
  return metrics->failed.code;
}

void metrics_close(struct metrics *metrics) {
  if (!metrics)
    return;
  close(metrics->fd);
  free(metrics->path);
  free(metrics);
}
