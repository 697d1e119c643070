/* What commands print: aligned tables for people, JSON for programs, and how numbers look. */
#ifndef WEIR_CLIENT_TERMINAL_OUTPUT_H
#define WEIR_CLIENT_TERMINAL_OUTPUT_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model/graph/graph.h"
#include "training.pb-c.h"

enum { TABLE_COLUMNS_MAX = 80, OUTPUT_TEXT_MAX = 40 };

/* A table whose columns are as wide as their widest cell. A heading that begins with '>' aligns to the right.
   usage: table_init(&t, headings); table_row(&t, cells); table_print(&t, stdout); table_fini(&t); */
struct table {
  char **cells; /* rows of n_columns; the first are the headings */
  int n_columns, n_cells, capacity;
};
void table_init(struct table *table, const char *const *headings); /* ends with NULL */
void table_row(struct table *table, const char *const *cells);     /* n_columns of them, copied */
void table_print(const struct table *table, FILE *file);
void table_fini(struct table *table);

/* A message, or the messages of a list, as JSON (client/terminal/message_json.h), and a line end. */
void output_json(FILE *file, const ProtobufCMessage *message);
void output_json_list(FILE *file, ProtobufCMessage *const *messages, size_t n);

/* A line on the parameters of the PyTorch module that are not in its file; nothing where all are. */
void output_lost(FILE *file, const char *prefix, const struct graph *graph);

/* "RUN: STATE at step N: MESSAGE", and a line end. */
void output_run_line(FILE *file, Weir__RunInfo *info);

/* Into text, which they return. */
const char *output_count(double value, char text[OUTPUT_TEXT_MAX]);         /* "60,000" */
const char *output_bytes(uint64_t bytes, char text[OUTPUT_TEXT_MAX]);       /* "1.7 MiB" */
const char *output_duration(double seconds, char text[OUTPUT_TEXT_MAX]);    /* "0:41", "1:02:03", "-" */
const char *output_age(int64_t ms, char text[OUTPUT_TEXT_MAX]);             /* "12 s", "3:05", "2 days" */
const char *output_loss(double loss, char text[OUTPUT_TEXT_MAX]);           /* "0.2871", "-" when NaN */
const char *output_percent(double fraction, char text[OUTPUT_TEXT_MAX]);    /* "90.12 %", "-" when NaN */
const char *output_state(Weir__RunState state, char text[OUTPUT_TEXT_MAX]); /* "running" */
/* Where a run stands that is held: "held at step 300 of 3000". */
const char *output_held(uint64_t step, uint64_t steps, char text[OUTPUT_TEXT_MAX]);
/* A named metric's value: a percentage or as a loss. False for a name that is not known, not to be shown. */
bool output_metric(const Weir__MetricValue *metric, char text[OUTPUT_TEXT_MAX]);

/* Replaces control characters, in place: what came from a file or another process cannot steer the terminal,
   and stays on one line. */
void output_clean(char *text);

/* Columns that a text takes: its UTF-8 characters without colour escapes. */
int output_columns(const char *text);

#endif
