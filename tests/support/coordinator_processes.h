/* The processes of coordinator_world.h: what servers and workers do, each on its own, and what they tell the
 * coordinator. */
#ifndef WEIR_TESTS_COORDINATOR_PROCESSES_H
#define WEIR_TESTS_COORDINATOR_PROCESSES_H

#include "tests/support/coordinator_world.h"

void process_tells(struct process *process, Weir__MemberMessage__BodyCase body, void *content);

void process_begin(struct world *w, int slot);

void process_join(struct world *w, struct process *process);

/* Both ends lose what was under way; the core hears of it later, or is told by who joins in its place. */
void process_unlink(struct world *w, struct process *process);

void process_kill(struct world *w, struct process *process);

void deliver_leaving(struct world *w);

void deliver_up(struct world *w, struct process *process);

void process_load(struct world *w, struct process *process, int run);

/* A server completes a step when all have completed the one before and workers compute all of it for this
   incarnation; it needs no coordinator. */
void server_advance(struct world *w, struct process *server, int run);

void server_write(struct world *w, struct process *server, int run);

/* A worker tells which servers it does not reach, and that it reaches them all if it had told else. */
void worker_look(struct world *w, struct process *worker, int run);

void deliver_down(struct world *w, struct process *process);

#endif
