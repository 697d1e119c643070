/* The log: one line an event on stderr, `time level subsystem event key=value ...`, or a JSON object. */
#ifndef WEIR_COMMON_BASE_LOG_H
#define WEIR_COMMON_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* The least level that is written; from WEIR_LOG (debug, info, warn, error) at start, else info. */
void log_set_level(enum log_level level);

/* How lines are written; from WEIR_LOG_FORMAT (text, json) at start, else as text. A line of JSON has the
   strings time, level, subsystem and event, and then the fields (log_json_write). */
enum log_format { LOG_TEXT, LOG_JSON };
void log_set_format(enum log_format format);
bool log_format_find(const char *name, enum log_format *format); /* false: there is none of that name */

/* subsystem: "rpc", "coordinator". event: "worker_joined". The rest: "id=%s executors=%u". Any thread.
   Values that may hold blanks are quoted by the caller. A line is written whole, however long; in text '?'
   stands for its control characters. Keys are lower case, and none is one of the four names above, or `text`.
 */
void log_event(enum log_level level, const char *subsystem, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* For log.c: an event as one JSON object (RFC 8259), without the line end. Fields are told apart by the
   format, never by the values: "key=%d" and "key=%.1f" are numbers (null where one is not finite), all else
   is a string, without the quotes that stand around it in the format. Words of the format that have no key
   are the field `text`. Nothing is cut; a byte that is not UTF-8 is '?'. args is used up. */
struct log_head {
  const char *time, *level, *subsystem, *event;
};
void log_json_write(FILE *out, const struct log_head *head, const char *format, va_list args);

#endif
