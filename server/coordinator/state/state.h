/* The coordinator's state, for its own rooms alone. From the lowest room to the highest:

   state/      what is known of runs (run.h) and members (member.h); what happens (event.h), what is to be
   done about it (action.h) messages/   what members (orders.c), the store (record.c) and people (info.c) are
   told runs/       runs from submission to the end; pauses; checkpoints ordered, committed and dropped
   shares/     who computes what: views, shares by measured speed, groups, workers that follow
   quarantine/ whose part was wrong, and what becomes of its device
   reissue/    late and doubted microbatches are given to other workers, too
   recovery/   servers that are lost or not reached; the runs of a former coordinator
   core/       takes events (core.c); after each one, settles which members serve which run (settle.c)
   shell/      threads, calls and the store around all of it */
#ifndef WEIR_SERVER_COORDINATOR_STATE_STATE_H
#define WEIR_SERVER_COORDINATOR_STATE_STATE_H

#include "server/coordinator/state/action.h"
#include "server/coordinator/state/options.h"
#include "server/coordinator/state/quarantines.h"

struct member;
struct run;

/* What claims were weighed by (server/coordinator/core/weighed.c), and the runs that have shares since. */
struct weighed {
  uint64_t *words;
  int n, capacity;
  struct run **served; /* in the order of submission */
  int n_served, served_capacity;
};

struct coordinator {
  struct coordinator_options options;
  struct member **members; /* in joining order */
  int n_members, members_capacity;
  struct run **runs; /* in the order of submission */
  int n_runs, runs_capacity;
  uint64_t members_seen; /* so far */
  int n_bounded;         /* servers that say what runs may take of their memory */
  int n_tied;            /* workers that are one tenant's */
  int n_foreign;         /* workers that are other programs */
  int n_unconfining;     /* workers that are not for runs of tenants with a data root */
  int n_uncompressing;   /* members that are not for every run with train.compression */
  bool has_tenants;      /* there were runs of several */
  uint32_t servers_seen, workers_seen;
  struct quarantines quarantines;
  uint64_t reissues_seen; /* the highest number of a struct reissue */

  struct sweep_kind *sweep_kinds; /* a list */

  char *store_message;    /* empty: it is well */
  int64_t unix_offset_ms; /* of the wall clock to now_ms, as far as events have told */
  bool is_members_due, is_deposed;
  bool has_pins; /* there may be forks for which their parents make a version, or stand at one */

  struct weighed weighed;
  bool is_weigh_due; /* claims are weighed whether or not what they are weighed by has changed */
  bool has_beats;    /* there were heartbeats since the last tick */
  int n_said;        /* runs that were given another message, though they run, in this step */
  int unexplained;   /* so many runs that wait are yet to be told what they wait for, */
  int explained;     /* this one first: its place in `runs` */

  uint64_t now_ms;     /* of the step in progress */
  uint64_t weighed_ms; /* when claims were weighed last */
  uint64_t ticked_ms;  /* of the last tick */
  struct coordinator_actions *actions;
};

#endif
