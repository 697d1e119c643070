/* Sweeps on the event loop, for sweeps.c, sweep_trials.c, sweep_log.c, sweep_kind.c, sweep_calls.c, wishes.c,
   submit.c, fork.c and lead.c alone. What a sweep decides, common/sweep/sweep.h says. */
#ifndef WEIR_SERVER_COORDINATOR_SHELL_SWEEPS_H
#define WEIR_SERVER_COORDINATOR_SHELL_SWEEPS_H

#include "common/sweep/sweep.h"
#include "server/coordinator/shell/fork.h"
#include "server/coordinator/shell/shell.h"

/* What is known of a trial's run. */
struct trial_run {
  bool is_let_go;  /* the trial was stopped, and the run is over */
  bool is_forking; /* it is being made */
  bool is_refused; /* it could not be made: the trial's values cannot be used */
  bool is_resumed; /* since the sweep was extended, by this coordinator */
  /* The store may have it though the core has not: the core knows no more than 1,000 trials that are over. */
  bool may_be_stored;
  bool is_sought; /* there, by the jobs */
};

/* A sweep and its log. Records are applied as they are decided; runs are made, held and ended by them only
   once the store has them, so that a successor finds nothing that the log does not say. */
struct shell_sweep {
  char *id;
  Weir__SweepHead *head;
  struct sweep *sweep;
  Weir__SweepRecord **log;
  int n_log, log_capacity;
  int n_written;          /* of the log, in the store */
  struct trial_run *runs; /* [trials, repeats] */
  int n_runs, runs_capacity;
  bool is_head_written, is_saving;
  Weir__SweepKind *kind;               /* of what computes it; NULL: order: arrival, where anything may */
  uint32_t kind_changes, kind_written; /* how often it has, and which of them the store has */
  uint32_t emptied;                    /* how often the store has lost what it had */
  uint64_t retry_ms;                   /* not before */
  bool is_due;                         /* something has happened to its trials */
  bool is_deciding;             /* the thread `searching` reads `sweep`, which nobody changes meanwhile */
  bool is_waiting;              /* nothing was told since it had nothing to decide */
  bool is_settled;              /* it has ended, and so have its trials' runs */
  bool is_refused;              /* its client was told so: it is deleted */
  const char *end_asked;        /* a reason to end it; NULL: there is none */
  Weir__SweepRecord *extension; /* to be applied once `searching` is done; NULL: none */
  int n_extended;               /* records of the log up to the last extension */
  bool is_deleting;
  char quota[256];            /* which quota of its tenant keeps trials from beginning; empty: none */
  struct rpc_call *submitter; /* NULL: none waits */
  struct shell_sweep *next;
};

/* sweeps.c */
struct shell_sweep *shell_find_sweep(struct coordinator_service *shell, const char *id); /* NULL: none */
/* The one that the viewer names by an id or a unique prefix of one. NULL: it sees none, and err says so,
   NOT_FOUND or INVALID. */
struct shell_sweep *shell_match_sweep(struct coordinator_service *shell, const struct viewer *viewer,
                                      const char *prefix, struct err *err);
/* Of one of a trial's runs; freed by the caller. */
char *sweep_run_id(const struct shell_sweep *sweep, uint32_t trial, uint32_t repeat);
struct trial_run *sweep_run(const struct shell_sweep *sweep, const struct sweep_trial *trial,
                            uint32_t repeat);
/* A new sweep, whose call is answered when the store has it. head is copied; its specs were checked.
   models: [1 + head->n_files], the run spec's first, then those of the space's files. */
void shell_sweep_begin(struct coordinator_service *shell, struct rpc_call *call, const Weir__SweepHead *head,
                       struct run_model **models);
/* A model of it that is in memory; NULL: it is not. */
struct live_model *sweep_find_model(struct coordinator_service *shell, const struct shell_sweep *sweep,
                                    uint32_t model);
/* Whether the store has that it has ended. */
bool sweep_has_ended(const struct shell_sweep *sweep);
/* Ends it, if it has not ended: at once, or when what is being decided is. reason: a literal. */
void shell_sweep_end(struct coordinator_service *shell, struct shell_sweep *sweep, const char *reason);
/* Gives it the request's larger budget: at once, or once `searching` is done. Errors: INVALID, naming the
   key. BUSY: another waits. */
int shell_sweep_extend(struct coordinator_service *shell, struct shell_sweep *sweep,
                       const Weir__ExtendSweepRequest *request, struct err *err);
/* It is no longer in the store. */
void shell_sweep_deleted(struct coordinator_service *shell, const char *id);
/* The jobs have written what they were given, or could not. */
void shell_sweep_saved(struct coordinator_service *shell, struct shell_sweep *sweep, const struct err *err);

/* Tells what became of a run of a trial that runs. */
void shell_sweep_tell(struct shell_sweep *sweep, const struct sweep_trial *trial,
                      const struct sweep_outcome *outcome);

/* lead.c */
/* The core knows the run from now on, as the store has it. */
void shell_run_restore(struct coordinator_service *shell, const struct stored_run *run);

/* sweep_trials.c */
/* Begins, resumes, raises and ends runs as the states of their trials say. Whether all stopped trials' runs
   are over. */
bool shell_sweep_act(struct coordinator_service *shell, struct shell_sweep *sweep);
/* What has become of the fork of one of a trial's runs, for fork.c. */
void shell_trial_forked(struct coordinator_service *shell, const struct trial_fork *fork,
                        const struct err *err);

/* sweep_calls.c */
/* Answers with what was asked for. Its log is told as far as the store has it. */
void shell_reply_sweep(struct coordinator_service *shell, struct rpc_call *call,
                       const struct shell_sweep *sweep, const Weir__GetSweepRequest *request);

/* wishes.c */
/* Extends it, and answers the call once the store has that. */
void shell_wish_extension(struct coordinator_service *shell, struct rpc_call *call, struct shell_sweep *sweep,
                          const Weir__ExtendSweepRequest *request);
/* Ends it, and answers the call once the store has that. */
void shell_wish_end(struct coordinator_service *shell, struct rpc_call *call, struct shell_sweep *sweep,
                    const char *reason);

/* sweep_kind.c */
/* The sweep's kind is what the store has of it; NULL: what it is computed by from now on. Takes it. */
void sweep_kind_open(struct shell_sweep *sweep, Weir__SweepKind *stored);
/* The core goes by it, from the first trial on or from those that were restored. */
void shell_sweep_kind_begin(struct coordinator_service *shell, struct shell_sweep *sweep);
/* A sweep that had ended goes on: it may do so with another kind, as a run may that is resumed. */
void shell_sweep_kind_reopen(struct coordinator_service *shell, struct shell_sweep *sweep);
void shell_sweep_kind_forget(struct coordinator_service *shell, const char *id);
/* Takes what the core has fixed of it, to be kept. */
void shell_sweep_kind_note(struct coordinator_service *shell, struct shell_sweep *sweep);
/* Whether this coordinator may suggest trials of the sweep; why not, for people, or NULL. */
bool sweep_kind_fits(const struct shell_sweep *sweep);
char *sweep_kind_trouble(const struct shell_sweep *sweep, struct arena *arena);
/* Its record. A sweep that has none: NULL. Errors: the store's. */
int sweep_kind_write(struct store *store, const char *sweep, const Weir__SweepKind *kind,
                     const struct store_record *guard, struct err *err);
int sweep_kind_read(struct store *store, const char *sweep, Weir__SweepKind **kind, struct err *err);

/* sweep_log.c */
/* Gives the jobs what the store does not have yet, unless they are at it. */
void shell_sweep_save(struct coordinator_service *shell, struct shell_sweep *sweep);
/* What the head says of one of its models. */
Weir__SweepModel sweep_head_model(const Weir__SweepHead *head, uint32_t model);
/* A sweep without records. Errors: INVALID; head is the caller's then. */
int sweep_open(Weir__SweepHead *head, struct shell_sweep **out, struct err *err);
/* In the store, with its kind. Errors: the store's. */
int sweep_delete_head(struct store *store, const char *sweep, const struct store_record *guard,
                      struct err *err);
void sweep_add(struct shell_sweep *sweep, Weir__SweepRecord *record); /* one that was applied; takes it */
void sweeps_free(struct shell_sweep *sweeps);                         /* and those behind it */
/* All sweeps of the store; damaged ones are logged and left out, and records without a head are deleted.
   Blocks. Errors: the store's. */
int sweeps_read(struct coordinator_service *shell, struct shell_sweep **sweeps, struct err *err);

#endif
