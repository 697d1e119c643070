/* Pieces that an upload needs and that no run's record refers to yet: a sweep leaves them alone. All
   functions but piece_hold_release are the jobs' own. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_PIECE_HOLD_H
#define WEIR_SERVER_COORDINATOR_SHELL_PIECE_HOLD_H

#include "server/coordinator/shell/reading/run_model.h"
#include "server/coordinator/shell/threads/tasks.h"

struct coordinator_service;
struct piece_hold;

/* Counts the pieces that the model's file names among what is referred to. shell->refs are there. */
struct piece_hold *piece_hold_new(struct coordinator_service *shell, struct run_model *model);
/* From any thread: the jobs let go of it behind what they were given before, and delete the pieces that
   nothing refers to by then. NULL is ignored. */
void piece_hold_release(struct piece_hold *hold);
/* References were counted anew. */
void piece_holds_recount(struct coordinator_service *shell);
void piece_holds_fini(struct coordinator_service *shell); /* what the jobs did not come to */

#endif
