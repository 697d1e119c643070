/* Members of the coordinator of service_fixture.h, as streams in the test's hands, and the runs that they
 * train. */
#ifndef WEIR_TESTS_SUPPORT_COORDINATOR_SERVICE_MEMBERS_H
#define WEIR_TESTS_SUPPORT_COORDINATOR_SERVICE_MEMBERS_H

#include "cluster.pb-c.h"
#include "tests/support/coordinator/service_fixture.h"

/* Joins as a member: says Hello and takes the Welcome, which must come. Returns the member's stream,
   closed with rpc_reader_close(). id: of a member that was here before, with the run (or "") at that
   version. member_join(): a new one. */
struct rpc_reader *member_join_again(struct service_fixture *f, Weir__Role role, const char *id,
                                     const char *run, uint64_t version);
struct rpc_reader *member_join(struct service_fixture *f, Weir__Role role);

/* Closes both, and waits until the coordinator knows that it has no worker: else it may give them a run that
   comes next. */
void members_leave(struct service_fixture *f, struct rpc_reader *server, struct rpc_reader *worker);

/* content: the message of that body, which stays the caller's. */
void member_tell(struct rpc_reader *member, Weir__MemberMessage__BodyCase body, void *content);

/* Waits for the next order, which must be of this kind. Freed with message_free(). */
Weir__Order *expect_order(struct rpc_reader *member, Weir__Order__BodyCase body);

/* Waits for the next order, which must be a WriteBlocks. Returns its step. */
uint64_t expect_write(struct rpc_reader *server);

/* The server reports that step of the run (StepReport), in f->incarnation. */
void tell_step(struct service_fixture *f, struct rpc_reader *server, const char *run, uint64_t step);

/* The members' part of a run until its first view: they take LoadRun, which sets f->incarnation, and say
   that it is loaded. */
void begin_run(struct service_fixture *f, const char *id, struct rpc_reader *server,
               struct rpc_reader *worker);

/* begin_run(), then STEPS steps and RunComplete. Takes the order to write the last version; write_blocks()
   answers it. */
void train_run(struct service_fixture *f, const char *id, struct rpc_reader *server,
               struct rpc_reader *worker);

/* Writes a version's blocks (tiny_manifest) to the store and tells the coordinator so. */
void write_blocks(struct service_fixture *f, struct rpc_reader *server, const char *run, uint64_t step);

/* Submits a run of TINY_STEPS that keeps the newest `keep` checkpoints, and trains it until those at steps
   2, 4, ... `last` are committed. It goes on. Returns its id, freed by the caller. */
char *train_with_checkpoints(struct service_fixture *f, struct rpc_reader *server, struct rpc_reader *worker,
                             uint64_t last, uint32_t keep);

#endif
