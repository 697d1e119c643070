/* Checkpoints of a run: the one in the making, and those that are kept. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_CHECKPOINTING_H
#define WEIR_SERVER_COORDINATOR_STATE_CHECKPOINTING_H

#include "server/coordinator/state/core.h"

struct coordinator;
struct member;
struct run;

struct written_block {
  char sha256[65]; /* empty until written */
  uint64_t bytes;
};

/* The checkpoint in the making; of each run at most one. */
struct checkpointing {
  uint64_t step;      /* that servers were told to write; 0: none */
  bool is_committing; /* all wrote it; the store's answer is due */
  bool is_for_pause;
  bool is_missed;                /* one failed: the next is due as soon as possible */
  struct written_block *written; /* [n_blocks] */
  uint64_t written_bytes;
  uint64_t lead;               /* how far ahead of the newest step an order must be to be in time */
  uint64_t newest;             /* version that a server was seen at, which may be ahead of its reports */
  uint64_t since_ms;           /* the newest commit or the start: what every_seconds counts from */
  uint64_t retry_ms, pause_ms; /* not before, and how long the newest pause was; 0 after a success */
  char *message;               /* why the newest one failed; empty after a success */
};

/* checkpoints.c */
/* Orders what is due. */
void coordinator_checkpoint_when_due(struct coordinator *coordinator, struct run *run);
void coordinator_checkpoint_abandon(struct run *run);
void coordinator_written(struct coordinator *coordinator, struct member *member,
                         const Weir__BlocksWritten *written);
void coordinator_commit_finished(struct coordinator *coordinator, const struct checkpoint_result *result);
void coordinator_store_told(struct coordinator *coordinator, const char *message);
void coordinator_store_emptied(struct coordinator *coordinator);

/* retention.c */
uint64_t coordinator_newest_checkpoint(const struct run *run); /* that can be read; 0: none, the start */
/* Marks a checkpoint that a server could not load; false: servers have loaded it after all. Roll-backs pass
   over a marked one until its version is written anew. It is not deleted, because the fault may be the
   server's. */
void coordinator_checkpoint_pass_over(struct run *run, uint64_t step, bool is_unreadable);
bool coordinator_has_checkpoint(const struct run *run, uint64_t step);
void coordinator_checkpoint_add(struct run *run, const Weir__CheckpointInfo *info);
/* Takes it from the list and has it deleted. */
void coordinator_checkpoint_drop(struct coordinator *coordinator, struct run *run, uint64_t step);
/* Drops the readable checkpoints above the step: training will come to their versions again. */
void coordinator_checkpoints_drop_above(struct coordinator *coordinator, struct run *run, uint64_t step);
/* Empties the list: the checkpoints are gone. */
void coordinator_checkpoints_forget(struct run *run);
/* Notes the evaluation with the checkpoint of its version, if there is one. */
void coordinator_checkpoint_evaluated(struct run *run, const Weir__EvalEvent *evaluation);
/* Drops what is not to be kept any more. */
void coordinator_checkpoints_retain(struct coordinator *coordinator, struct run *run);

#endif
