/* The weights that a worker computes with: the version of the step under way, complete, and the next one,
   which fills block by block while the first layers already read it. Memory for two versions, no more.

   No lock of its own: whoever has it holds one lock over every call. Bytes are written outside it, between
   weights_claim and weights_fill, into a place that nobody reads before weights_fill. */
#ifndef WEIR_WORKER_TRAIN_WEIGHTS_H
#define WEIR_WORKER_TRAIN_WEIGHTS_H

#include "common/graph/model.h"
#include "worker/backend/backend.h"
#include "worker/train/block_map.h"

/* One version: the flat parameter vector and the statistics state. */
struct weights_set {
  bool is_open; /* it holds or receives `version` */
  uint64_t version;
  uint64_t opening; /* the number of times that a set was opened: after a roll-back a version comes again */
  float *params;    /* f32[param_elems] */
  float *state;     /* f32[row_elems] */
  const float **train_values; /* by value of the train graph: where a parameter's bytes are, else NULL */
  const float **eval_values;  /* by value of the eval graph: also running statistics */
  uint8_t *blocks;            /* [n_blocks]: empty, claimed, filled */
  uint32_t n_filled;
  int readers; /* executions that read it: it is not opened anew before they end */
};

struct weights {
  const struct model *model;
  struct weights_set sets[2];
  struct weights_set *current; /* open: every block is filled */
  struct weights_set *next;
  uint64_t openings;
  const struct backend_def *pinned_by; /* NULL: no memory is pinned */
};

/* Errors: NO_MEMORY with the bytes needed. model outlives it. */
int weights_new(const struct model *model, struct weights **out, struct err *err);
void weights_free(struct weights *weights); /* NULL is ignored */
/* Pins both versions, where the backend can: once. */
void weights_pin(struct weights *weights, const struct backend_def *backend);

/* The next set begins to receive a version. It has no readers. */
void weights_open_next(struct weights *weights, uint64_t version);

/* Where the block's f32[elems] are to be written, then weights_fill. NULL when they are not wanted: another
   version, or they have come before. */
float *weights_claim(struct weights *weights, uint64_t version, uint32_t block);
void weights_fill(struct weights *weights, uint32_t block);

/* The set that holds or receives the version; NULL if neither does. */
struct weights_set *weights_find(struct weights *weights, uint64_t version);
/* Where the block lies in it. */
float *weights_place(const struct weights *weights, struct weights_set *set, uint32_t block);

bool weights_next_is_complete(const struct weights *weights);

/* The complete next set becomes the current one, whose memory (without readers) becomes the closed next. */
void weights_advance(struct weights *weights);

/* Forgets both versions. Neither has readers or claimed blocks. */
void weights_clear(struct weights *weights);

/* True if the blocks of a tensor are all there. */
bool weights_is_ready(const struct weights_set *set, struct block_range range);

#endif
