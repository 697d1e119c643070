/* The coordinator's state. This header and its neighbours member.h, run.h, checkpointing.h and orders.h are
   for the files of the core alone.

   core.c                     takes events
   join.c                     takes members, and lets them go
   runs.c                     moves runs from state to state
   pause.c                    stops and resumes runs
   restore.c                  takes up the runs of a former coordinator
   settle.c                   gives runs members
   load.c                     compares what members have loaded
   views.c                    tells workers who computes what, and with whom
   shares.c, assign.c         decide which worker computes which microbatches; assign.c cuts the ranges
   speed.c                    measures how fast workers compute
   follow.c                   gives workers no work before they hold the newest weights
   groups.c                   puts workers of a host into groups
   recompute.c                gives late work to others, too
   doubts.c, verdict.c        find out whose part was wrong
   quarantine.c               keeps such devices away from work
   kind.c                     keeps to servers of one fingerprint
   recover.c                  rolls runs back when servers are lost
   reach.c                    weighs which workers reach which servers
   confirm.c                  keeps servers that workers reach and the coordinator does not
   progress.c                 follows runs to the end
   checkpoints.c, retention.c order, commit and drop checkpoints
   orders.c                   writes what members are told
   record.c                   writes what the store is told
   explain.c                  says what a run waits for
   info.c                     answers questions */
#ifndef WEIR_SERVER_COORDINATOR_STATE_STATE_H
#define WEIR_SERVER_COORDINATOR_STATE_STATE_H

#include "server/coordinator/state/core.h"
#include "server/coordinator/state/quarantine.h"

struct member;
struct run;

struct coordinator {
  struct coordinator_options options;
  struct member **members; /* in joining order */
  int n_members, members_capacity;
  struct run **runs; /* in the order of submission */
  int n_runs, runs_capacity;
  uint32_t servers_seen, workers_seen;
  struct quarantines quarantines;
  uint64_t recomputes_seen; /* the highest number of a struct recompute */

  char *store_message;    /* empty: it is well */
  int64_t unix_offset_ms; /* of the wall clock to now_ms, as far as events have told */
  bool is_members_due, is_deposed;

  uint64_t now_ms;    /* of the step in progress */
  uint64_t ticked_ms; /* of the last tick */
  struct coordinator_actions *actions;
};

/* core.c */
struct coordinator_action *coordinator_act(struct coordinator *coordinator,
                                           enum coordinator_action_kind kind);

/* Ends the stream of a member, for a reason that is copied. */
void coordinator_close_link(struct coordinator *coordinator, uint64_t key, enum err_code code,
                            const char *reason);

#endif
