/* The checkpoint of a run that is in the making. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_CHECKPOINTING_H
#define WEIR_SERVER_COORDINATOR_STATE_CHECKPOINTING_H

#include <stdbool.h>
#include <stdint.h>

struct written_block {
  char sha256[65]; /* empty until written */
  uint64_t bytes;
};

/* The checkpoint in the making; of each run at most one. */
struct checkpointing {
  uint64_t step;      /* that servers were told to write; 0: none */
  bool is_committing; /* all wrote it; the store's answer is due */
  bool is_for_pause;
  bool is_for_move; /* the run goes on from it on other servers: workers compute nothing beyond it */
  bool is_missed;   /* one failed: the next is due as soon as possible */
  struct written_block *written; /* [n_blocks] */
  uint64_t written_bytes;
  uint64_t passed;             /* the newest version that a block had left when it was ordered */
  uint64_t lead;               /* how far ahead of the newest step an order must be to be in time */
  uint64_t newest;             /* version that a server was seen at, which may be ahead of its reports */
  uint64_t since_ms;           /* the newest commit or the start: what every_seconds counts from */
  uint64_t retry_ms, pause_ms; /* not before, and how long the newest pause was; 0 after a success */
  char *message;               /* why the newest one failed; empty after a success */
};

#endif
