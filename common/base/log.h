/* The log: one line an event on stderr, `time level subsystem event key=value ...`. */
#ifndef WEIR_COMMON_BASE_LOG_H
#define WEIR_COMMON_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* The least level that is written; from WEIR_LOG (debug, info, warn, error) at start, else info. */
void log_set_level(enum log_level level);

/* subsystem: "rpc", "coordinator". event: "worker_joined". The rest: "id=%s executors=%u". Any thread.
   Values that may hold blanks are quoted by the caller. A line is written whole, however long; '?' stands for
   its control characters. */
void log_event(enum log_level level, const char *subsystem, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
