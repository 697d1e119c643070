/* The file of a timeline: a JSON array of Chrome's trace events, one a line. One thread at a time. */
#ifndef WEIR_COMMON_TRACE_TRACE_FILE_H
#define WEIR_COMMON_TRACE_TRACE_FILE_H

#include <stddef.h>

#include "common/trace/trace.h"

enum { TRACE_NAME_SIZE = 64 };

struct trace_record {
  enum trace_row row;
  const char *category;
  char name[TRACE_NAME_SIZE];
  uint64_t begin_ns, end_ns, step;
  int64_t index; /* -1: none */
  int run;       /* 0: none */
};

struct trace_file;

/* A new file. What has the path becomes PATH.1, or the first number that is free, of 99. Errors (NULL): IO.
 */
struct trace_file *trace_file_open(const char *path, struct err *err);

/* One in memory, of at most so many bytes: what comes then is dropped. */
struct trace_file *trace_file_open_memory(size_t bytes_max);
/* Completes and frees one in memory: its events without the array around them, one a line with a comma behind
   it. Freed by the caller. */
char *trace_file_take(struct trace_file *file, size_t *size);

/* A thread's row, before the first span on it. */
void trace_file_row(struct trace_file *file, int row, const char *name);

/* row: the thread's. Spans on a shared row may overlap: each gets a lane that is free meanwhile, and is
   dropped (which is counted) when too many are busy. What cannot be written is logged once, and ends the
   file. */
void trace_file_span(struct trace_file *file, int row, const struct trace_record *span);

void trace_file_flush(struct trace_file *file);
void trace_file_close(struct trace_file *file); /* completes and frees it */

#endif
