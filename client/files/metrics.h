/* The metrics file: one JSON object a line, flushed as it is written. Its keys are a contract with the
   programs that read them: add, never change. */
#ifndef WEIR_CLIENT_FILES_METRICS_H
#define WEIR_CLIENT_FILES_METRICS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "training.pb-c.h"

enum { METRICS_LINE_MAX = 1280 };

/* The line of an event, with its line end; empty for events that have none (changes of state). NaN becomes
   null. Returns its length. */
size_t metrics_line(const Weir__RunEvent *event, char line[METRICS_LINE_MAX]);

/* Fewest digits that read back as the same double; "null" when it is not finite. Returns text. */
const char *metrics_number(double value, char text[32]);

struct metrics;

/* Appends to the file at path. With is_resumed what the file has of the run already is not written again: its
   whole lines are read, a last one that was cut short is removed. Errors: IO; INVALID naming the line of a
   resumed file that no metrics have. */
int metrics_open(const char *path, bool is_resumed, struct metrics **out, struct err *err);
/* Writes an event's line, once however often the event comes. Errors: IO (the first one stays: nothing more
   is written). One thread at a time. */
int metrics_write(struct metrics *metrics, const Weir__RunEvent *event, struct err *err);
void metrics_close(struct metrics *metrics); /* NULL is ignored */

#endif
