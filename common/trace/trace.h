/* A timeline of a process, in Chrome's trace format (chrome://tracing, ui.perfetto.dev): it shows what
   overlaps what. It is off unless it goes to a file (trace_open) or is captured for a while (capture.h). When
   it is on, a call costs one copy into the calling thread's own buffer. */
#ifndef WEIR_COMMON_TRACE_TRACE_H
#define WEIR_COMMON_TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

/* Rows of the timeline: the calling thread's own, or a row that all threads share. */
enum trace_row {
  TRACE_THREAD,
  TRACE_SENDS,   /* pushes: from their start to the last byte sent */
  TRACE_WAITS,   /* parked calls: from sent to answered */
  TRACE_COMPUTE, /* GPU: kernels */
  TRACE_UP,      /* GPU: copies to the device */
  TRACE_DOWN,    /* GPU: copies from the device */
};

/* Starts tracing into a new file (an old one is kept as PATH.1, PATH.2, ...). Once in a process, before any
   other thread is started. Errors: IO. */
int trace_open(const char *path, struct err *err);
/* Writes what is left and completes the file, which a viewer also reads while it is cut off. */
void trace_close(void);

bool trace_is_on(void);
/* clock_now_ns; 0 while tracing is off, so that nobody reads a clock for nothing. */
uint64_t trace_now_ns(void);

/* The calling thread's name in the system's lists, cut to 15 bytes, and on the timeline; copied. run: what
   trace_run_begin returned for the run that it is of; 0: of none. From the second run on the timeline has the
   number behind the name. */
void trace_thread(const char *name, int run);

/* A number for a run whose threads begin: the lowest from 1 on that no other run has now. id: copied, and cut
   to its last 63 bytes. */
int trace_run_begin(const char *id);
void trace_run_become(int run, const char *id); /* its threads go on with another run */
void trace_run_end(int run);                    /* its threads have ended */

/* What happened between two moments. */
struct trace_span {
  enum trace_row row;
  const char *category; /* a string constant: "forward", "push" */
  const char *name;
  uint64_t begin_ns,
      end_ns;    /* as trace_now_ns gives them; begin_ns 0: tracing was off, and nothing is shown */
  uint64_t step; /* shown beside it, as is the index */
  int64_t index; /* -1: none */
  int run;       /* of trace_run_begin; 0: that of the calling thread */
};

/* Puts it on the timeline. The name is copied and cut to 63 bytes. Any thread. */
void trace_span(const struct trace_span *span);

/* The above as a table: a plugin, which has its own copy of this file, hands on to the program's. */
struct trace_sink {
  bool (*is_on)(void);
  void (*thread)(const char *name, int run);
  void (*span)(const struct trace_span *span);
};

const struct trace_sink *trace_sink(void);          /* of this copy */
void trace_redirect(const struct trace_sink *sink); /* what this copy is told goes there */

#endif
