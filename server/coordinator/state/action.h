/* What a coordinator wants done: the shell carries it out (coordinator_step). */
#ifndef WEIR_SERVER_COORDINATOR_STATE_ACTION_H
#define WEIR_SERVER_COORDINATOR_STATE_ACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "common/base/err.h"
#include "common/base/memory.h"
#include "store.pb-c.h"

struct coordinator;

enum coordinator_action_kind {
  ACTION_ORDER,   /* send `order` to `member` */
  ACTION_CLOSE,   /* end the stream of `member` for `reason`; it has left, no MEMBER_LEFT is needed */
  ACTION_PUBLISH, /* `run` has new events (coordinator_run_event) */
  ACTION_COMMIT,  /* check that `manifest` is whole, compute weights_sha256 if `is_last`, store it with guards
                     of term and incarnation; then EVENT_CHECKPOINT, in any case */
  ACTION_DROP,    /* delete the checkpoint at `step` of `run` and its blocks; then EVENT_CHECKPOINT_DROPPED */
  ACTION_BASE,    /* `run` is a fork, and its parent has the checkpoint with which it begins: take that over;
                     then EVENT_RUN_BASED, in any case */
  ACTION_SAVE,    /* store `record` and its incarnation; the newest of a run is enough. If `is_awaited`, then
                     EVENT_RUN_SAVED with what was stored, however long the store is away */
  ACTION_RELEASE, /* `run` is over: its model need not be kept in memory */
  ACTION_MEMBERS, /* the members have changed: store `members` */
  ACTION_DOUBT,   /* a member obeys a higher term: ask the store whether we still lead */
  ACTION_DEPOSED, /* a member obeys a higher term, which the store has lost: step down. Nothing follows */
};

struct coordinator_action {
  enum coordinator_action_kind kind;
  uint64_t member;
  const char *run;
  enum err_code code; /* with `reason` */
  const char *reason;
  const Weir__Order *order;
  const Weir__Manifest *manifest;
  const Weir__RunRecord *record;
  const Weir__Members *members;
  uint64_t step;
  uint64_t term; /* of DEPOSED: the higher one */
  bool is_last, is_awaited;
};

/* Filled by a step. What the items point to belongs to the arena or the coordinator and holds until the next
   step. Zeroed before first use. */
struct coordinator_actions {
  struct coordinator_action *items;
  int count, capacity;
  struct arena arena;
};

void coordinator_actions_fini(struct coordinator_actions *actions);

/* For the rooms of the state machine alone: one more action of the step that is under way. */
struct coordinator_action *coordinator_act(struct coordinator *coordinator,
                                           enum coordinator_action_kind kind);

/* Ends the stream of a member, for a reason that is copied. */
void coordinator_close_link(struct coordinator *coordinator, uint64_t key, enum err_code code,
                            const char *reason);

#endif
