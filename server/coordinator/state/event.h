/* What happens to a coordinator (coordinator_step). */
#ifndef WEIR_SERVER_COORDINATOR_STATE_EVENT_H
#define WEIR_SERVER_COORDINATOR_STATE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "store.pb-c.h"
#include "training.pb-c.h"

struct viewer;

/* Where a run begins that does not begin with its model. */
struct run_origin {
  const char *parent; /* the run that it was forked from, whose id it is; "": none */
  uint64_t step;      /* the version at which it begins */
  uint64_t slots_step;
  uint64_t incarnation; /* of the parent that made it; INCARNATION_UNKNOWN */
  bool is_to_come;      /* the parent has yet to come to that version */
};
#define INCARNATION_UNKNOWN UINT64_MAX

/* What else a run takes over from the one that it was forked from. */
struct run_inheritance {
  const Weir__Plan *plan;              /* of its own spec */
  const Weir__RunReference *reference; /* of which the data is to be the same */
  const Weir__CheckpointInfo *base; /* its checkpoint at its first version; NULL: that is 0, the model, or to
                                       come */
};

/* What became of an ACTION_BASE. */
struct based_run {
  const char *run;
  const Weir__CheckpointInfo *base; /* which goes to the store with the run's next record; NULL: none */
  uint64_t slots_step, incarnation; /* as of run_origin */
  const char *error;                /* without a base: why not; NULL: to be tried again */
};

/* A run that was checked and may be queued. Everything is copied. */
struct run_submission {
  const char *id;            /* not in use */
  const char *tenant;        /* whose it is; NULL or "": the default one's */
  const Weir__RunSpec *spec; /* passed spec_check */
  uint64_t model_bytes;
  const char *model_sha256;
  uint64_t model_pieces;       /* that the file names */
  uint64_t outline_bytes;      /* of what members get */
  const char *outline_sha256;  /* "": they get the model */
  uint64_t parameters;         /* trained elements */
  const uint32_t *block_elems; /* [n_blocks] */
  uint32_t n_blocks;
  int64_t submitted_unix_ms;
  const char *weights_sha256; /* of a run that only evaluates: of the model's weights; else NULL */
  struct run_origin origin;   /* parent: NULL or "": none */
  const struct run_inheritance *inheritance; /* of a new fork; else NULL */
  const char *sweep;                         /* whose trial it is; NULL or "": of none */
  uint32_t trial;
};

/* What became of an ACTION_COMMIT. */
struct checkpoint_result {
  const char *run;
  uint64_t incarnation, step;       /* the manifest's */
  const Weir__CheckpointInfo *info; /* when it was committed; weights_sha256 with the last version alone */
  const char *error;                /* NULL, or why not */
};

/* Of the record that an ACTION_SAVE has stored. */
struct saved_state {
  const char *run;
  uint64_t incarnation;
  Weir__RunState state;
};

/* What the store knew of a run when the coordinator began: given before any member joins. */
struct restored_run {
  const Weir__RunRecord *record; /* its list of checkpoints is that of the manifests that are there */
  Weir__RunEvent *const *events; /* by number */
  size_t n_events;
  int64_t now_unix_ms; /* the wall clock now, for the times in answers and records; 0: not known */
};

enum coordinator_event_kind {
  EVENT_MEMBER_JOINED,
  EVENT_MEMBER_MESSAGE,
  EVENT_MEMBER_LEFT,
  EVENT_RUN_SUBMITTED,
  EVENT_RUN_CANCELLED,
  EVENT_RUN_PAUSED,
  EVENT_RUN_RESUMED,
  EVENT_RUN_SET,
  EVENT_RUN_HOLD,  /* the run's hold is raised */
  EVENT_RUN_BASED, /* a fork whose base was to come has it, or cannot have it */
  EVENT_RUN_STOP,  /* the run ends before its last step, and keeps its result */
  EVENT_RUN_RESTORED,
  EVENT_RUN_FORGOTTEN, /* a run that is over was deleted from the store */
  EVENT_RUN_SAVED,     /* an ACTION_SAVE that was waited for is durable */
  EVENT_CHECKPOINT,
  EVENT_CHECKPOINT_DROPPED, /* an ACTION_DROP was carried out, or will be by a later sweep */
  EVENT_STORE,              /* the store is in trouble, or well again */
  EVENT_STORE_EMPTIED, /* the store has lost what it had: no checkpoint is left, every run is to be saved */
  EVENT_MEMBERS_RESTORED, /* what the store knew of members, before any joins */
  EVENT_WORKER_READMITTED,
  EVENT_MEMBER_DRAINED,
  EVENT_MODEL_LOST, /* neither the store nor the coordinator has the model of a run that is not over */
  EVENT_SWEEP_KIND, /* a sweep has a kind, or is forgotten */
  EVENT_QUOTAS,     /* those of the coordinator's options are others now */
  EVENT_TICK,       /* every 100 ms or so: a long gap says that we did not run */
};

struct coordinator_event {
  enum coordinator_event_kind kind;
  uint64_t member; /* MEMBER_*: the shell's key of its stream, never used twice; unknown ones are ignored */
  union {
    const Weir__Hello *hello;           /* MEMBER_JOINED */
    const Weir__MemberMessage *message; /* MEMBER_MESSAGE; any content */
    const char *reason;                 /* MEMBER_LEFT */
    const struct run_submission *submission;
    const char *run; /* RUN_CANCELLED, RUN_PAUSED, RUN_STOP, RUN_FORGOTTEN: a whole id */
    struct {
      const char *run;
      uint64_t step; /* a committed checkpoint's, or 0 */
    } resumed;
    struct {
      const char *run;
      const Weir__RunSpec *spec; /* which has what spec_take_live takes */
    } set;
    struct {
      const char *run;
      uint64_t step; /* as coordinator_check_hold allows it; 0: no hold any more */
    } hold;
    struct based_run based;
    struct restored_run restored;
    struct saved_state saved;
    struct checkpoint_result checkpoint;
    struct {
      const char *run;
      uint64_t step;
    } dropped;
    struct {
      const char *run, *reason;
    } model_lost;
    struct {
      const char *sweep;
      const Weir__SweepKind *kind; /* NULL: it is forgotten */
    } sweep_kind;
    const Weir__Members *members; /* MEMBERS_RESTORED */
    struct {
      const char *name; /* as of coordinator_find_quarantine */
      const struct viewer *viewer;
    } readmitted;
    const char *drained;       /* MEMBER_DRAINED: an id; unknown ones are ignored */
    const char *store_message; /* STORE: empty when it is well */
  };
};

#endif
