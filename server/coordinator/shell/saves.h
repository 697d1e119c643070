/* The event loop's knowledge of a run's records in the store, for saves.c and saved_events.c alone. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_SAVES_H
#define WEIR_SERVER_COORDINATOR_SHELL_SAVES_H

#include "server/coordinator/shell/shell.h"

/* Events go to the store in chunks. The newest chunk is open: it is written again as it grows. Where there
   are many, the chunks of older events are replaced by fewer ones, as the core has joined these events. */
struct saved_events {
  bool are_new;    /* since they were last given to the jobs */
  uint64_t open;   /* number of the first event of the open chunk; of the next event at least */
  uint64_t next;   /* of the first that no job was given */
  uint64_t due_ms; /* not before */
  int jobs;        /* under way */
  uint64_t *chunks;
  int n_chunks, chunks_capacity; /* that are there, ascending */
  int unread;                    /* of these, the oldest, whose events the core does not have */
  int thinned;                   /* chunks that replaced older ones the last time */
};

struct saved_run {
  char *run;
  Weir__RunRecord *record; /* the newest that no job has; NULL: none */
  uint64_t newest, stored; /* records are numbered: the newest that there was, and that is in the store */
  bool is_awaited;         /* it, or one before it that was not saved */
  bool is_saving;
  bool is_deleting;
  bool has_incarnation;
  uint64_t incarnation;       /* in the store */
  uint64_t retry_ms;          /* not before */
  struct rpc_call *submitter; /* NULL: none waits */
  struct run_model *model;    /* to go with the first record; else NULL */
  struct fork_base *base;     /* likewise, of a fork */
  Weir__ForkReply *forked;    /* what the submitter of a fork is told */
  struct saved_events events;
  struct saved_run *next;
};

struct saved_run *shell_find_saved(struct coordinator_service *shell, const char *run); /* NULL: none */

/* saved_events.c */
void shell_events_restored(struct saved_events *events, const struct stored_run *stored);
void shell_events_write(struct coordinator_service *shell, struct saved_run *run);
void shell_events_emptied(struct saved_events *events);

#endif
