/* The team of workers that a view has this worker in, of each of which some stages of the model are: which
   one it is, and who the neighbours are. Pure. */
#ifndef WEIR_WORKER_TRAIN_RUN_MATES_H
#define WEIR_WORKER_TRAIN_RUN_MATES_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"

enum { MATE_ADDRESS_MAX = 255 };

/* Adjoining stages of a model of n_stages. */
struct stage_part {
  int first, last, n_stages;
};

bool stage_part_is_whole(const struct stage_part *part);

/* number 0: none, all else is zero. */
struct mates {
  uint64_t term, incarnation, view; /* view: the newest that had the team */
  uint32_t number;
  char below[MATE_ADDRESS_MAX + 1],
      above[MATE_ADDRESS_MAX + 1]; /* where these workers listen; empty: there is none */
};

/* The team that the view has the worker in, which computes that part. False if it describes one that cannot
   be (then there is none): without a neighbour for a stage that has to have one, or of other microbatches. */
bool mates_read(const Weir__View *view, const char *worker, const struct stage_part *part,
                struct mates *mates);

/* True if both are the same team, unchanged, and if both are none. */
bool mates_are_same(const struct mates *a, const struct mates *b);

#endif
