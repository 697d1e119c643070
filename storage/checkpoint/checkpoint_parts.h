/* What the files of storage/checkpoint/checkpoint.h share among themselves. */
#ifndef WEIR_STORAGE_CHECKPOINT_CHECKPOINT_PARTS_H
#define WEIR_STORAGE_CHECKPOINT_CHECKPOINT_PARTS_H

#include "storage/checkpoint/checkpoint.h"

bool checkpoint_is_key(const char *text);    /* 64 lower-case hex digits */
bool checkpoint_is_run_id(const char *text); /* [a-z0-9-]{1,64} */

/* The record at RUN/run or RUN/checkpoints/STEP below "runs/" that a name stands for. False: neither. */
struct record_place {
  char run[65];
  bool is_manifest; /* else the run's own record */
  uint64_t step;
};
bool checkpoint_parse_name(const char *name, struct record_place *place);

#endif
