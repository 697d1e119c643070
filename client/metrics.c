/* The metrics file. */
#include "client/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/memory.h"

struct metrics {
  int fd;
  char *path;
  struct err failed; /* not OK: the first failure */
};

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
  char shortest[32] = "null";
  for (int digits = 6; digits <= 17 && isfinite(value); digits++) {
    snprintf(shortest, sizeof shortest, "%.*g", digits, value);
    if (strtod(shortest, NULL) == value)
      break;
  }
  return strcpy(text, shortest);
}

/* Only after a roll-back: a run that was never disturbed has no such key. */
static const char *incarnation_text(uint64_t incarnation, char text[48]) {
  text[0] = '\0';
  if (incarnation > 0)
    snprintf(text, 48, ",\"incarnation\":%" PRIu64, incarnation);
  return text;
}

static size_t step_line(const Weir__StepEvent *step, char *line) {
  char loss[32], lr[32], seconds[32], incarnation[48];
  return (size_t)snprintf(line, METRICS_LINE_MAX,
                          "{\"event\":\"step\",\"step\":%" PRIu64 ",\"epoch\":%" PRIu64
                          ",\"loss\":%s,\"lr\":%s,\"samples\":%" PRIu64 ",\"workers\":%u,\"seconds\":%s%s}\n",
                          step->step, step->epoch, metrics_number(step->loss, loss),
                          metrics_number(step->lr, lr), step->samples, step->workers,
                          metrics_number(round(step->seconds * 1e6) / 1e6, seconds),
                          incarnation_text(step->incarnation, incarnation));
}

static size_t eval_line(const Weir__EvalEvent *eval, char *line) {
  char loss[32], accuracy[32], incarnation[48];
  return (size_t)snprintf(
      line, METRICS_LINE_MAX, "{\"event\":\"eval\",\"step\":%" PRIu64 ",\"loss\":%s,\"accuracy\":%s%s}\n",
      eval->step, metrics_number(eval->loss, loss), metrics_number(eval->accuracy, accuracy),
      incarnation_text(eval->incarnation, incarnation));
}

static size_t done_line(const Weir__DoneEvent *done, char *line) {
  char accuracy[32], rate[32];
  return (size_t)snprintf(line, METRICS_LINE_MAX,
                          "{\"event\":\"done\",\"steps\":%" PRIu64
                          ",\"accuracy\":%s,\"weights_sha256\":\"%.64s\",\"samples_per_second\":%s}\n",
                          done->steps, metrics_number(done->accuracy, accuracy), done->weights_sha256,
                          metrics_number(round(done->samples_per_second * 10) / 10, rate));
}

int metrics_open(const char *path, struct metrics **out, struct err *err) {
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0)
    return err_errno(err, errno, "cannot write the metrics file '%s'", path);
  *out = mem_new(sizeof **out);
  **out = (struct metrics){.fd = fd, .path = mem_strdup(path)};
  return ERR_OK;
}

int metrics_write(struct metrics *metrics, const Weir__RunEvent *event, struct err *err) {
  char line[METRICS_LINE_MAX];
  size_t length = metrics_line(event, line);
  ssize_t written;
  if (metrics->failed.code == ERR_OK && length > 0) {
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
