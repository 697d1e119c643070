/* Options of a table's rows. Rows of one table (optimizers, schedules, transforms) share one spec message, or
   have one each. A row lists the fields that it has, their defaults and their ranges. Settling a message
   against that list refuses fields that the row does not have, and fills in fields that were not given. So
   the row's code reads fields without asking whether they are there. */
#ifndef WEIR_COMMON_AGREE_OPTIONS_H
#define WEIR_COMMON_AGREE_OPTIONS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

/* Of each number, as f32; all must also be finite, and whole ones at most a billion. */
enum option_range {
  OPTION_FINITE,
  OPTION_AT_LEAST_0,
  OPTION_ABOVE_0,
  OPTION_AT_LEAST_1,
  OPTION_FROM_0_BELOW_1,
  OPTION_FROM_0_TO_1,
  OPTION_ABOVE_0_TO_1,
  OPTION_ABOVE_0_BELOW_1,
};

/* What becomes of a field that is not given. */
enum option_absence {
  OPTION_DEFAULT, /* it gets the rule's default */
  OPTION_REQUIRED,
  OPTION_OPEN, /* it stays absent: the row asks whether it is there */
};

struct option_rule {
  const char *name; /* of the message's field; NULL ends the list */
  enum option_range range;
  enum option_absence absence;
  double number;      /* the default of a number; of a bool: 0 or 1 */
  const char *words;  /* of a text: those that are known, separated by blanks, the default first; NULL: any */
  double list[2];     /* the default of a list of doubles */
  size_t list_length; /* a list must have as many entries; 0: any number, but one */
};

struct option_table {
  const char *path;                /* of the message in the spec: "train.optimizer" */
  const char *row;                 /* whose rules they are, as the user names it */
  const struct option_rule *rules; /* NULL: none */
  const char *const *shared;       /* fields that every row has and others check, ended by NULL; NULL: none */
};

/* message: a spec message on the heap, as spec_read or unpacking leave it: texts and lists that are filled in
   are freed with it. Settling again changes nothing. Errors: INVALID, naming the field by its path, for one
   that the row has not (with those that it has), one that is missing, or one out of its range. */
int options_settle(void *message, const struct option_table *table, struct err *err);

/* A copy of `base` in which the fields that `over`, of the same type, gives have taken the place of base's.
   Freed with message_free. */
void *options_merge(const void *base, const void *over);

#endif
