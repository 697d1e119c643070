/* The space of a sweep: its dimensions, the points in it, and the texts of their values. Pure; a space never
   changes once it is made, so any number of threads may read it. */
#ifndef WEIR_COMMON_SWEEP_SPACE_H
#define WEIR_COMMON_SWEEP_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "sweep.pb-c.h"

enum { SPACE_DIMENSIONS_MAX = 64, SPACE_CHOICES_MAX = 1024, SPACE_VALUES_MAX = 1000000000 };
enum { SPACE_NUMBER_SIZE = 40 }; /* room for the text of any number */

enum dimension_kind { DIMENSION_CHOICE, DIMENSION_UNIFORM, DIMENSION_LOG };

/* That a choice has one of its values. */
struct condition {
  int dimension;
  int choice;
};

/* One key that the sweep varies. */
struct dimension {
  const char *path; /* "train.optimizer.lr" */
  enum dimension_kind kind;
  bool is_files;              /* a choice of files: that of model.onnx */
  uint32_t n_values;          /* of a choice, and of a number with a step; 0: any number between the bounds */
  const char *const *choices; /* char *[n_values]; NULL of a number */
  double low, high;  /* a number's least and greatest value; with a step, high is low plus a multiple */
  double step;       /* 0: none */
  double begin, end; /* of positions, in the logarithm where that is uniform */
  int digits;        /* significant ones of a value without a step */
  const struct condition *conditions; /* active only where all of them hold */
  int n_conditions;
};

/* A point is double[n], in the order of the spec: for a number its position in [0, 1), for a choice its
   index, and NAN where the dimension is not active. */
struct space {
  int n;
  const struct dimension *dimensions;
  int order[SPACE_DIMENSIONS_MAX]; /* all dimensions, those of conditions before those that have them; else as
                                      in the spec */
  struct arena arena;
};

/* Makes the space of a spec, of which nothing is kept; freed with space_free. Errors: INVALID, naming the
   dimension by its path and the key: "space.train.optimizer.lr: log: ...". What only the run spec can tell
   (whether there is such a key, and whether it can have these values) is not checked. */
int space_make(const Weir__SweepSpec *spec, struct space **out, struct err *err);
void space_free(struct space *space); /* NULL is ignored */

int space_find(const struct space *space, const char *path); /* the dimension's index; -1: there is none */
int space_files(const struct space *space);                  /* likewise, of files */

/* The text of the value at a position (or of the choice with that index): what goes into a trial's spec and
   into the sweep's log. Numbers have the dimension's step, or six significant digits (more only where the
   bounds lie so near to each other that six would not tell values apart), and never leave the bounds. Returns
   the choice's own text, or `out`. */
const char *space_text(const struct dimension *dimension, double position, char out[SPACE_NUMBER_SIZE]);

/* The position of the value that a text says. Of a text that space_text wrote, space_text of the position is
   that text again: points of the past are made of texts, so that nothing is computed twice from floating
   point. Errors: INVALID, "space.PATH: ...", for what is no choice or no number, out of bounds or off the
   step. */
int space_position(const struct dimension *dimension, const char *text, double *position, struct err *err);

/* The position of the value that is the nearest to this one, of a number. */
double space_nearest(const struct dimension *dimension, double value);

/* The position of value `index` < n_values; of a choice the index itself. */
double space_value_position(const struct dimension *dimension, uint32_t index);
/* Which of its n_values a position stands for; of a choice the position itself. */
uint32_t space_value_index(const struct dimension *dimension, double position);

/* Sets to NAN what is not active in a point that has a value for every dimension. */
void space_activate(const struct space *space, double *point);

/* Whether every dimension has a value where it is active, and only there. */
bool space_holds(const struct space *space, const double *point);

#endif
