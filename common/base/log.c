/* The log: one line an event on stderr. */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static const char *const format_names[] = {"text", "json"};
static int level_least = -1, line_format = -1; /* -1: as the environment says */

static int level_from_environment(void) {
  const char *name = getenv("WEIR_LOG");
  for (int level = 0; name && level < 4; level++)
    if (strcmp(name, level_names[level]) == 0)
      return level;
  return LOG_INFO;
}

void log_set_level(enum log_level level) {
  __atomic_store_n(&level_least, (int)level, __ATOMIC_RELAXED);
}

bool log_format_find(const char *name, enum log_format *format) {
  for (int i = 0; i < (int)(sizeof format_names / sizeof *format_names); i++)
    if (strcmp(format_names[i], name) == 0) {
      *format = (enum log_format)i;
      return true;
    }
  return false;
}

void log_set_format(enum log_format format) {
  __atomic_store_n(&line_format, (int)format, __ATOMIC_RELAXED);
}

static enum log_format format_now(void) {
  const char *name = getenv("WEIR_LOG_FORMAT");
  int known = __atomic_load_n(&line_format, __ATOMIC_RELAXED);
  enum log_format format = LOG_TEXT;
  if (known >= 0)
    return (enum log_format)known;
  if (name)
    log_format_find(name, &format);
  log_set_format(format);
  return format;
}

/* What came from outside begins no other line. */
static void write_text(FILE *out, const struct log_head *head, const char *format, va_list args) {
  char *fields;
  if (vasprintf(&fields, format, args) < 0)
    return;
  for (char *at = fields; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 0x7f)
      *at = '?';
  fprintf(out, "%s %s %s %s %s", head->time, head->level, head->subsystem, head->event, fields);
  free(fields);
}

void log_event(enum log_level level, const char *subsystem, const char *event, const char *format, ...) {
  struct log_head head = {.level = level_names[level], .subsystem = subsystem, .event = event};
  char time[64], *line = NULL;
  size_t length;
  struct timespec now;
  struct tm utc;
  va_list args;
  FILE *out;
  int least = __atomic_load_n(&level_least, __ATOMIC_RELAXED);
  if (least < 0)
    log_set_level(least = level_from_environment());
  if ((int)level < least || !(out = open_memstream(&line, &length)))
    return;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(time + strlen(time), sizeof time - strlen(time), ".%03ldZ", now.tv_nsec / 1000000);
  head.time = time;
  va_start(args, format);
  (format_now() == LOG_JSON ? log_json_write : write_text)(out, &head, format, args);
  va_end(args);
  fclose(out);
  fprintf(stderr, "%s\n", line);
  free(line);
}
