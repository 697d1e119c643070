/* The log: one line an event on stderr. */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/memory.h"

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static int level_least = -1;

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

/* An event is a line: what came from outside begins no other. */
static void line_write(char *line) {
  for (char *at = line; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 0x7f)
      *at = '?';
  fprintf(stderr, "%s\n", line);
}

void log_event(enum log_level level, const char *subsystem, const char *event, const char *format, ...) {
  char usual[2048], *line = usual;
  struct timespec now;
  struct tm utc;
  va_list args, again;
  size_t length, rest;
  int least = __atomic_load_n(&level_least, __ATOMIC_RELAXED);
  if (least < 0)
    log_set_level(least = level_from_environment());
  if ((int)level < least)
    return;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  length = strftime(usual, sizeof usual, "%Y-%m-%dT%H:%M:%S", &utc);
  length += (size_t)snprintf(usual + length, sizeof usual - length, ".%03ldZ %s %s %s ",
                             now.tv_nsec / 1000000, level_names[level], subsystem, event);
  va_start(args, format);
  va_copy(again, args);
  rest = (size_t)vsnprintf(usual + length, sizeof usual - length, format, args);
  if (rest >= sizeof usual - length) {
    line = mem_new(length + rest + 1);
    memcpy(line, usual, length);
    vsnprintf(line + length, rest + 1, format, again);
  }
  va_end(again);
  va_end(args);
  line_write(line);
  if (line != usual)
    free(line);
}
