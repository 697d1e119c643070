/* The log: one line an event on stderr. */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

void log_event(enum log_level level, const char *subsystem, const char *event, const char *format, ...) {
  char line[2048];
  struct timespec now;
  struct tm utc;
  va_list args;
  size_t length;
  int least = __atomic_load_n(&level_least, __ATOMIC_RELAXED);
  if (least < 0)
    log_set_level(least = level_from_environment());
  if ((int)level < least)
    return;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  length = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
  length += (size_t)snprintf(line + length, sizeof line - length, ".%03ldZ %s %s %s ", now.tv_nsec / 1000000,
                             level_names[level], subsystem, event);
  va_start(args, format);
  vsnprintf(line + length, sizeof line - length - 1, format, args);
  va_end(args);
  strcat(line, "\n");
  fputs(line, stderr);
}
