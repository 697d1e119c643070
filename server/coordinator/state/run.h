/* Runs: what the coordinator knows of each. */
#ifndef WEIR_SERVER_COORDINATOR_STATE_RUN_H
#define WEIR_SERVER_COORDINATOR_STATE_RUN_H

#include "common/agree/plan.h"
#include "common/certs/ticket.h"
#include "server/coordinator/state/checkpointing.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/groups_past.h"
#include "server/coordinator/state/member.h"
#include "server/coordinator/state/rate.h"
#include "server/coordinator/state/reissuing.h"
#include "server/coordinator/state/seat.h"
#include "server/coordinator/state/turn.h"
#include "training.pb-c.h"

struct coordinator;

/* A server's part in a run; it outlives the membership, for the server may come back. */
struct run_server {
  char *id, *address;
  char *host;            /* NULL: not known, of a former coordinator's time */
  char *holder;          /* the URI of its certificate; empty without TLS */
  char *share_host;      /* as a member's; NULL: not known, of a former coordinator's time */
  struct member *member; /* NULL: lost */
  uint64_t key;          /* of its membership, the last one if it is lost */
  uint32_t blocks;
  uint64_t bytes; /* of master weights */
  bool is_loaded, is_complete, is_written;
  uint64_t held_step;    /* the hold that all of its blocks were at, as it told last; 0: it has not */
  uint64_t told_hold;    /* what it was told last */
  bool is_told_reached;  /* likewise that all servers are there */
  bool is_gone;          /* lost, and known not to come back with its part */
  uint64_t lost_ms;      /* lost servers: since when, */
  uint64_t grace_ms;     /* how long the run waits for it, */
  uint64_t confirmed_ms; /* and when a worker last said that it reaches it; 0: none has */
};

/* Where it begins: version 0, the model, or the checkpoint of another run. */
struct origin {
  char *parent;         /* "": none */
  uint64_t step;        /* its own checkpoint there, its base, is kept as long as it is there; 0: none */
  uint64_t slots_step;  /* the version from which the optimizer counts its steps */
  uint64_t incarnation; /* of the parent, whose checkpoint it was; INCARNATION_UNKNOWN: of an older record */
  bool is_to_come;      /* its base: until then it waits, and has nothing of the cluster (pins.c) */
};

/* What the first worker found when it loaded the run, and the kind of the run's first server. All others must
   be the same. */
struct reference {
  char *worker;                     /* "worker-1 (HOST)"; NULL until there is one */
  char *dataset_sha256;             /* likewise */
  char *fingerprint, *probe_sha256; /* NULL also after a resume, which may be on another build */
  char *server;                     /* "server-1 (ADDRESS)"; NULL until servers were chosen */
  char *server_fingerprint;         /* likewise, and after a resume */
};

/* What it has, and is to have, of the workers that are of use: by the newest settling. A worker that several
   runs have is the first one's own. */
struct claim {
  bool is_made;
  bool is_cut;        /* workers with work were taken from it */
  bool is_asked;      /* while it is found out who can give up a worker */
  uint32_t share;     /* that it is to have */
  uint32_t whole;     /* of share: as its own */
  uint32_t least;     /* without which it does not begin, or go on */
  uint32_t left;      /* for it, by those that are served before */
  bool is_capped;     /* its tenant's quota of executors keeps it from having its min */
  uint32_t held;      /* that load or follow it, or compute for it */
  uint32_t owned;     /* of held: as its own */
  uint32_t executors; /* of the workers held: those that are for it */
  uint64_t all;       /* of the workers held: all executors */
  uint32_t reserved;  /* that it is about to be given */
  uint32_t granted;   /* of reserved: as its own */
  uint32_t mates;     /* runs with which it takes turns, once it has begun */
};

struct run {
  char *id;
  char *tenant;                        /* whose it is */
  bool is_confined;                    /* its tenant has a data root of its own (quota.h) */
  unsigned char key[TICKET_KEY_BYTES]; /* by which tickets of the run are made */
  Weir__RunSpec *spec;
  uint64_t model_bytes;
  char *model_sha256;
  uint64_t outline_bytes, model_pieces;
  char *outline_sha256; /* "": members get the model */
  uint64_t parameters;
  uint32_t *block_elems;
  uint32_t n_blocks;
  uint64_t server_bytes; /* that servers take for it together (room.h) */

  struct origin origin;
  int parent_at;      /* where its parent was found among the runs last (pins.c) */
  bool is_base_asked; /* the shell takes over its base, which was to come */
  uint64_t base_ms;   /* is asked not before */
  bool is_adopting;   /* its parent stands at its base until its servers have loaded that from memory */
  uint64_t pin;       /* the lowest of its own versions that forks wait for; UINT64_MAX: none */
  char *sweep;        /* whose trial it is; "": of none */
  uint32_t trial;
  struct sweep_kind *kind; /* that the members of its sweep are to be of; NULL: they may be of any */

  Weir__RunState state;
  bool is_stop_awaited;      /* it is over or paused, but not yet known so in the store: */
  Weir__RunState told_state; /* until then clients are told the state before */
  char *message;
  bool tells_fault; /* its message, as long as it is RUNNING */
  bool is_bad_input;
  bool has_diverged; /* it failed because its training diverges */
  uint64_t incarnation;
  uint64_t base_step;    /* the version that this incarnation begins at */
  bool is_save_awaited;  /* the incarnation is not yet known to be in the store: servers are not told of it */
  bool is_start_awaited; /* that it runs is not: workers get no view, for a successor would roll back */
  uint64_t awaited_ms;   /* since when */
  bool is_begun;         /* it ran: from then on one worker is enough to go on */
  bool is_pausing;
  bool is_stopping; /* it pauses, to be STOPPED then */
  bool is_moving;   /* a server of it drains: it goes on without that one from its next checkpoint */
  bool is_move_due; /* which is there */
  bool is_spilled;  /* HELD without servers: its blocks are in the store alone */
  uint64_t held_ms; /* HELD: since when; 0: since a former coordinator's time */
  uint64_t idle_ms; /* while pausing: since when no worker is ready */
  char *cause;      /* why it was rolled back; empty once it runs again */

  struct reference reference;
  struct plan plan; /* not known until the first worker has loaded */
  struct run_server *servers;
  int n_servers;
  uint32_t *owners;   /* [n_blocks] index in servers */
  bool is_load_due;   /* this incarnation has no servers yet; those above are of the one before */
  char *loss_cause;   /* which server was lost, and why: of the newest loss */
  char *distrust;     /* why it is to roll back although no server was lost; NULL: it is not */
  int reloads;        /* in a row that servers refused */
  uint64_t reload_ms; /* not before */
  uint64_t *refused;  /* keys of workers that are not asked again */
  int n_refused, refused_capacity;
  char *refusal; /* the newest one; NULL before */

  struct seat **seats; /* its workers' parts in it, in their joining order */
  int n_seats, seats_capacity;
  struct claim claim;
  uint64_t weighed; /* its state when it was last looked at whether claims have changed */
  struct turn turn;
  uint64_t uncut_step; /* before it has completed this version no worker with work is taken from it again */
  struct reissue *reissue; /* what is computed elsewhere, too; NULL: nothing */
  struct groups_past groups_past;
  char *suspicion; /* the newest sender that is named, and not in quarantine; NULL: none */

  uint64_t view;
  uint32_t groups_seen;      /* the highest number of a group */
  bool are_workers_new;      /* since the newest view */
  bool are_shares_due;       /* the next view has other shares */
  uint64_t shares_ms;        /* when they were last compared with the best */
  uint64_t gain_ms;          /* since when others would be better; 0: they would not */
  uint64_t regroup_ms;       /* when groups that failed are tried again; 0: none is to be */
  uint64_t regroup_pause_ms; /* how long the newest wait for that was */
  bool is_view_due, is_info_due, is_save_due;
  uint64_t step; /* the newest complete version */
  double loss;
  Weir__EvalEvent *evaluation; /* of the newest evaluated version until then; NULL: none */
  Weir__Patience patience;     /* of train.early_stopping; no roll-back takes it back */
  struct rate rate;
  uint64_t reported_ms; /* of the newest step report */
  double credit_s;      /* time that has passed without a reported step to account for it */
  struct checkpointing checkpointing;
  Weir__CheckpointInfo **checkpoints; /* committed, by step; each from message_copy */
  int n_checkpoints, checkpoints_capacity;
  char weights_sha256[65]; /* when DONE or STOPPED; of a run that only evaluates: from the first */

  int64_t submitted_unix_ms, finished_unix_ms; /* 0 before */
  double trained_seconds;                      /* until clock_ms */
  uint64_t clock_ms;
  double samples_per_second; /* when DONE or STOPPED in a former coordinator's time; else 0 */
  bool is_clock_running;     /* it trains, or recovers */
  struct event_log events;
};

/* A queued run without a plan; everything is copied. */
struct run *coordinator_run_new(const struct coordinator *coordinator,
                                const struct run_submission *submission);
void coordinator_run_free(struct run *run);
void coordinator_run_free_servers(struct run *run);

struct run *coordinator_run(const struct coordinator *coordinator, const char *id); /* NULL: none */
const char *coordinator_state_name(Weir__RunState state);                           /* "running" */
bool coordinator_is_over(const struct run *run);
/* Its servers have loaded its blocks, and report on them: RUNNING, FINISHING, or HELD and not spilled. */
bool coordinator_has_blocks(const struct run *run);
/* It ended with weights that are kept: DONE or STOPPED. */
bool coordinator_has_result(const struct run *run);
/* What clients are told. A run's end is told only once the store has it: a successor of this coordinator
   would find the run as it was before. */
Weir__RunState coordinator_told_state(const struct run *run);
void coordinator_run_set_message(struct run *run, const char *message);

struct run_server *coordinator_run_server(const struct run *run, const struct member *member);
bool coordinator_owns_block(const struct run *run, const struct member *member, uint32_t block);
void coordinator_place_blocks(struct run *run); /* says which server owns which block */
/* Of the present incarnation. */
int coordinator_lost_servers(const struct run *run);
/* The version that the run ends with, by what is known so far: the plan's last, or an earlier one. */
uint64_t coordinator_last_version(const struct run *run);
/* The last version that people want to be computed for now; UINT64_MAX: all are. */
uint64_t coordinator_run_hold(const struct run *run);
/* Its workers stand at a version for a while, as they are told to. */
bool coordinator_stands(const struct run *run);
/* The last version that may be computed for now; UINT64_MAX: all may. It is the hold, or the evaluated
   version with which train.early_stopping may end the run. */
uint64_t coordinator_run_bound(const struct run *run);
/* It has come to its hold: nothing is left to compute of it for now, its evaluation included. */
bool coordinator_is_at_hold(const struct run *run);
/* The newest checkpoint that can be read; 0: none, the start. */
uint64_t coordinator_newest_checkpoint(const struct run *run);
const Weir__CheckpointInfo *coordinator_newest_info(const struct run *run); /* of that; NULL: none */
/* It was forked from a checkpoint that was there, and has none that can be read: it cannot begin again. */
bool coordinator_has_lost_base(const struct run *run);
/* The run whose servers may have in memory what this fork begins with, its base; NULL: none, by what is known
   here. The servers know. */
const struct run *coordinator_fork_source(const struct coordinator *coordinator, const struct run *run);

/* For seat.c. */
void coordinator_run_add_seat(struct run *run, struct seat *seat);
void coordinator_run_remove_seat(struct seat *seat);
int coordinator_count_seats(const struct run *run, enum seat_state state);
/* Those of workers that compute for the run, or load or follow it to do so. */
uint32_t coordinator_count_held(const struct run *run);
/* The run's workers have changed: a view with other shares is due, and groups that failed may be tried again.
 */
void coordinator_workers_changed(struct run *run);

#endif
