/* Checkpoints of a run: those in the making (checkpoints.c), and those that are kept (retention.c). */
#ifndef WEIR_SERVER_COORDINATOR_RUNS_CHECKPOINTS_H
#define WEIR_SERVER_COORDINATOR_RUNS_CHECKPOINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/run.h"

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
