/* What a run does about lost servers and cut links.

   recover.c  waits for lost servers, then rolls back to the newest checkpoint
   confirm.c  keeps servers that workers reach and the coordinator does not
   reach.c    weighs which workers reach which servers
   move.c     takes runs off servers that drain
   restore.c  takes up the runs of a former coordinator */
#ifndef WEIR_SERVER_COORDINATOR_RECOVERY_RECOVERY_H
#define WEIR_SERVER_COORDINATOR_RECOVERY_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "server/coordinator/state/event.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/tenant.h"

/* recover.c */
void coordinator_server_lost(struct coordinator *coordinator, struct run *run, struct run_server *server,
                             const char *reason);
/* The server has come back with its part of the run. */
void coordinator_server_kept(struct coordinator *coordinator, struct run *run, struct run_server *server,
                             struct member *member, uint64_t version);
/* Rolls the run back once it no longer waits for a lost server, or where what it has is distrusted. */
void coordinator_recover(struct coordinator *coordinator, struct run *run);
/* The run begins again at its newest checkpoint, in LOADING. */
void coordinator_roll_back(struct coordinator *coordinator, struct run *run, const char *cause);
/* Runs go on without the server; one that has no other asks it again after a while. */
void coordinator_leave_out(const struct coordinator *coordinator, const struct run *run,
                           struct member *server, const char *message);
/* A server could not load. */
void coordinator_server_refused(struct coordinator *coordinator, struct run *run, struct run_server *server,
                                const Weir__RunRefused *refused);

/* confirm.c */
/* A worker's heartbeat names the servers of the run that it reaches. */
void coordinator_confirm(struct coordinator *coordinator, struct member *worker,
                         const Weir__RunCounters *counters);
/* Whether the server is lost and workers of the run reach it: it is kept, for a while. */
bool coordinator_is_confirmed(const struct coordinator *coordinator, const struct run_server *server);

/* reach.c */
void coordinator_unreached(struct coordinator *coordinator, struct member *worker,
                           const Weir__Unreached *unreached);
/* It has said for a while that it misses servers of its run. */
bool coordinator_is_out_of_reach(const struct coordinator *coordinator, const struct seat *seat);
/* Decides which workers of the run, or which of its servers, are cut off. */
void coordinator_weigh_reach(struct coordinator *coordinator, struct run *run);

/* mates.c */
/* A worker's heartbeat names the workers of its team in the run that it does not reach. */
void coordinator_mates_told(struct member *worker, const Weir__RunCounters *counters);

/* move.c */
/* Whether there is a worker or a server of that id that the viewer may drain and, for the blocks of a server,
   another one. Errors: NOT_FOUND, with what may have been meant; DENIED; INVALID. */
int coordinator_check_drain(const struct coordinator *coordinator, const struct viewer *viewer,
                            Weir__Role role, const char *id, struct err *err);
/* Whether there is another server than that one to take blocks. */
bool coordinator_has_other_server(const struct coordinator *coordinator, const char *id);
/* No run is given the server any more, and those that have it move. */
void coordinator_server_drain(struct member *server);
/* Decides whether the run moves off servers that drain, and rolls it back once a checkpoint has all of it. */
void coordinator_move_when_due(struct coordinator *coordinator, struct run *run);

/* restore.c */
void coordinator_run_restored(struct coordinator *coordinator, const struct restored_run *restored);

#endif
