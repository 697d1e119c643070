/* The weights that a worker computes with: complete versions, of which the newest is the current one, and the
   next version, which fills block by block while the first layers already read it. There is memory for as
   many versions as the run's mode says, no more: each next one takes the place of the oldest.

   Executions read a version in host memory. In a group whose members exchange on devices they read its
   parameters on the device: blocks that come from the servers land in host memory, and count as filled once
   the group has them on every device. Statistics are always in host memory.

   There is no lock of its own: the caller holds one lock over every call. Bytes are written outside the lock,
   between weights_claim and weights_fill, into a place that no execution reads before weights_fill. */
#ifndef WEIR_WORKER_TRAIN_BLOCK_WEIGHTS_H
#define WEIR_WORKER_TRAIN_BLOCK_WEIGHTS_H

#include "model/model.h"
#include "worker/backend/backend.h"
#include "worker/backend/device_memory.h"
#include "worker/train/block/block_map.h"

/* One version: the flat parameter vector and the statistics state. */
struct weights_set {
  bool is_open; /* it holds or receives `version` */
  uint64_t version;
  uint64_t opening;  /* the number of times that a set was opened: after a roll-back a version comes again */
  bool is_on_device; /* its parameters are read there */
  float *params;     /* f32[param_elems] */
  float *device_params;       /* f32[param_elems]; NULL: there is none */
  float *state;               /* f32[row_elems] */
  float *kept;                /* f32[kept_elems]; NULL: nothing is kept */
  const float **train_values; /* by value of the train graph: where a parameter is read, else NULL */
  const float **eval_values;  /* by value of the eval graph: also running statistics */
  uint8_t *blocks;            /* [n_blocks]: empty, claimed, landed, filled */
  uint32_t n_filled;
  int readers; /* executions that read it: it is not opened anew before they end */
};

/* Bytes of a version's parameters. */
struct weights_range {
  size_t begin, size_bytes;
};

struct weights {
  const struct model *model;
  struct weights_set *sets; /* [n_sets]: versions in turn */
  uint32_t n_sets;
  uint32_t n_turning;          /* of them, the first */
  struct weights_set *current; /* open: every block is filled */
  struct weights_set *next;
  const uint8_t *roles; /* enum block_role[n_blocks]; NULL: all blocks are held */
  uint32_t n_held;      /* blocks */
  uint64_t openings;
  const struct backend_def *pinned_by; /* NULL: no memory is pinned */
  struct weights_range *pinned;        /* [n_pinned] what is of parameters, in either version */
  int n_pinned;
  const struct device_memory *device_memory; /* NULL: no version was ever on a device */
  int device;
};

/* Of n_sets versions, two at least. Errors: NO_MEMORY with the bytes needed. model outlives it. */
int weights_new(const struct model *model, uint32_t n_sets, struct weights **out, struct err *err);
void weights_free(struct weights *weights); /* NULL is ignored */
/* Versions have only blocks that are not BLOCK_ABSENT in roles[n_blocks], which outlives the weights: memory
   of others is not touched. Before the first version is opened. */
void weights_hold(struct weights *weights, const uint8_t *roles);
/* Pins all versions, where the backend can: once. Of parameters what is held, since pinning touches it:
   after weights_hold. */
void weights_pin(struct weights *weights, const struct backend_def *backend);

/* Makes memory for all versions' parameters on the device. A second call for the same device does nothing.
   Errors: those of memory->new; no memory is kept then. */
int weights_use_device(struct weights *weights, const struct device_memory *memory, int device,
                       struct err *err);

/* The next set, before any version: where an execution may read weights that are no version. */
struct weights_set *weights_lend(struct weights *weights);

/* Takes the last set out of turn, of three at least: its blocks count as filled from now on, and whoever
   asked writes to it. Before any version. */
struct weights_set *weights_set_apart(struct weights *weights);

/* The next set begins to receive a version. It has no readers. is_on_device: after weights_use_device. */
void weights_open_next(struct weights *weights, uint64_t version, bool is_on_device);

/* Where in host memory the block's f32[elems] are to be written. Then the caller calls weights_land; or
   weights_fill, when they were written to weights_place. NULL: they are not wanted, because the version is
   another or they have come before. */
float *weights_claim(struct weights *weights, uint64_t version, uint32_t block);
/* The claimed block has not come after all: it may be claimed again. */
void weights_unclaim(struct weights *weights, uint32_t block);
/* The claimed block is in host memory. It counts as filled, unless executions read it on a device. */
void weights_land(struct weights *weights, uint32_t block);
/* The block is where executions read it. */
void weights_fill(struct weights *weights, uint32_t block);

/* The set that holds or receives the version; NULL if none does. */
struct weights_set *weights_find(struct weights *weights, uint64_t version);
/* Where the block lands, and where it is read: in a set in host memory the same. */
float *weights_landing(const struct weights *weights, const struct weights_set *set, uint32_t block);
float *weights_place(const struct weights *weights, const struct weights_set *set, uint32_t block);
/* Whether the block has come from the servers to its landing. */
bool weights_has_landed(const struct weights_set *set, uint32_t block);

bool weights_next_is_complete(const struct weights *weights);

/* Whether the next set is complete, and nobody reads the oldest one, which is to be filled after it. */
bool weights_may_advance(const struct weights *weights);
/* The complete next set becomes the current one. The oldest one, which must have no readers, becomes the
   next, closed. */
void weights_advance(struct weights *weights);

bool weights_are_read(const struct weights *weights); /* any version */
/* Forgets all versions. None has readers or claimed blocks. */
void weights_clear(struct weights *weights);

/* True if the blocks of a tensor are all there. */
bool weights_is_ready(const struct weights_set *set, struct block_range range);

#endif
