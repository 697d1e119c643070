/* Answers about runs and members. Strings in answers belong to the coordinator (or the arena) until the next
   step. */
#ifndef WEIR_SERVER_COORDINATOR_MESSAGES_INFO_H
#define WEIR_SERVER_COORDINATOR_MESSAGES_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/memory.h"
#include "server/coordinator/state/event_log.h"
#include "server/coordinator/state/tenant.h"
#include "training.pb-c.h"

struct coordinator;
struct run;

/* The whole id of the run that the viewer names by an id, by its name, of which it is the newest run, or by a
   unique prefix of an id. Runs that it does not see are not there. Errors: NOT_FOUND; INVALID when several
   match (they are named). */
int coordinator_find_run(const struct coordinator *coordinator, const struct viewer *viewer,
                         const char *prefix, const char **id, struct err *err);

/* False if there is no such run (whole id). */
bool coordinator_run_info(const struct coordinator *coordinator, const char *id, uint64_t now_ms,
                          Weir__RunInfo *info);
void coordinator_info_fill(const struct coordinator *coordinator, const struct run *run, uint64_t now_ms,
                           Weir__RunInfo *info);
/* Adds those workers of the run to its info that have stages, built in the arena. */
void coordinator_list_staged(const struct coordinator *coordinator, const struct viewer *viewer,
                             uint64_t now_ms, struct arena *arena, Weir__RunInfo *info);
/* Over, or forgotten; coordinator_run_has_told_end: and clients are told so. */
bool coordinator_run_is_over(const struct coordinator *coordinator, const char *id);
bool coordinator_run_has_told_end(const struct coordinator *coordinator, const char *id);
/* Whether the run's newest evaluation is of the version at which it stands: servers that came back may tell
   of the version first. */
bool coordinator_run_is_evaluated(const struct coordinator *coordinator, const char *id);
/* It is over or paused, and clients are not told so before the store has that. */
bool coordinator_run_awaits_store(const struct coordinator *coordinator, const char *id);
/* Whether a checkpoint of that version is being made: servers are told to write it, or it is being committed.
 */
bool coordinator_makes_checkpoint(const struct coordinator *coordinator, const char *id, uint64_t step);
/* The key of the run's model in the store, and its spec; NULL if there is no such run. */
const char *coordinator_run_model(const struct coordinator *coordinator, const char *id);
const char *coordinator_run_outline(const struct coordinator *coordinator,
                                    const char *id); /* of what members get */
Weir__RunSpec *coordinator_run_spec(const struct coordinator *coordinator, const char *id);

/* The first event of the run with that number or a higher one. False if there is none yet. */
bool coordinator_run_event(const struct coordinator *coordinator, const char *id, uint64_t number,
                           struct run_event_view *view);

/* A device, as its workers' Hello names it. */
struct device_name {
  const char *host, *device;
};

/* The device in quarantine that is named by HOST/DEVICE or by a worker's id. Errors: NOT_FOUND; DENIED: the
   viewer may not readmit it. */
int coordinator_find_quarantine(const struct coordinator *coordinator, const struct viewer *viewer,
                                const char *name, struct device_name *device, struct err *err);

/* What is wrong with the store, for people: where there are several tenants, without the names of their runs.
   "": nothing. */
const char *coordinator_store_trouble(const struct coordinator *coordinator);

/* Whether the servers that are here could have a run of these blocks if there were no other. Errors: INVALID,
   with the number. spec: settled. */
int coordinator_check_room(const struct coordinator *coordinator, const Weir__RunSpec *spec,
                           const uint32_t *block_elems, uint32_t n_blocks, struct err *err);

int coordinator_live_runs(const struct coordinator *coordinator); /* neither over nor HELD */

/* Whether the hold of the run may be raised to `step`; 0: whether it may have none any more. Errors:
   NOT_FOUND; INVALID, naming train.hold: the run is over or has no hold, `step` is no higher than it, or
   not a version at which the run may be held. */
int coordinator_check_hold(const struct coordinator *coordinator, const char *id, uint64_t step,
                           struct err *err);

/* The committed checkpoints of a run, by step, built in the arena. False if there is no such run. */
bool coordinator_list_checkpoints(const struct coordinator *coordinator, const char *id, struct arena *arena,
                                  Weir__ListCheckpointsReply *reply);

/* Workers and servers that have a part in the run, and are here. */
struct run_member {
  uint64_t key;
  const char *id, *host;
};
int coordinator_list_run_members(const struct coordinator *coordinator, const char *id, struct arena *arena,
                                 struct run_member **members);

/* Lists of what the viewer sees, in the order of submission or joining, built in the arena. */
void coordinator_list_runs(const struct coordinator *coordinator, const struct viewer *viewer,
                           uint64_t now_ms, struct arena *arena, Weir__ListRunsReply *reply);
/* Workers, then the devices in quarantine that have none. */
void coordinator_list_workers(const struct coordinator *coordinator, const struct viewer *viewer,
                              uint64_t now_ms, struct arena *arena, Weir__ListWorkersReply *reply);
/* The workers on one device, as of the last step; where there is none, a row of the device. */
void coordinator_list_device(const struct coordinator *coordinator, const struct viewer *viewer,
                             const struct device_name *device, struct arena *arena,
                             Weir__ListWorkersReply *reply);
void coordinator_list_servers(const struct coordinator *coordinator, const struct viewer *viewer,
                              uint64_t now_ms, struct arena *arena, Weir__ListServersReply *reply);

#endif
