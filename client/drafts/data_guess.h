/* Which data a model's spec names: what lies in a folder, else what would fit. */
#ifndef WEIR_CLIENT_DRAFTS_DATA_GUESS_H
#define WEIR_CLIENT_DRAFTS_DATA_GUESS_H

#include <stdio.h>

#include "client/drafts/task.h"

struct data_guess {
  bool is_found;       /* what train names is there */
  char *train;         /* "{format: csv, file: train.csv, ...}" */
  char *eval;          /* likewise; NULL: a part of train is evaluated */
  char *transforms;    /* lines of the list, each with its line end and indented by four; "" for none */
  const char *meaning; /* of what train names: "a folder of JPEG and PNG files for each class" */
  char *doubt;         /* what does not fit the model; NULL: nothing */
  char *notes;         /* what else is to be known, each with its line end; NULL: nothing */
};

/* root: the folder. Released with data_guess_fini. */
void data_guess_find(const struct task *task, const char *root, struct data_guess *out);
void data_guess_fini(struct data_guess *guess); /* safe on a zeroed one */

/* The column that input i is fed from, as YAML: its name, but for "labels", which is the labels' own. Freed
   by the caller. */
char *data_guess_column(const struct task *task, int i);

/* The notes, each behind `before`. */
void data_guess_write_notes(const struct data_guess *guess, FILE *out, const char *before);

#endif
