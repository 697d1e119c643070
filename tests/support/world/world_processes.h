/* The processes of world.h: what servers and workers do, each on its own, and what they tell
   the coordinator. A function does one thing if it can be done now, else nothing; the simulation draws
   which one comes next. */
#ifndef WEIR_TESTS_SUPPORT_WORLD_WORLD_PROCESSES_H
#define WEIR_TESTS_SUPPORT_WORLD_WORLD_PROCESSES_H

#include "tests/support/world/world.h"

/* Queues a message for the core (content: as in its body, copied); without a link it is lost. */
void process_tells(struct process *process, Weir__MemberMessage__BodyCase body, void *content);

/* A new process in the slot, with nothing loaded and no link. */
void process_begin(struct world *w, int slot);

/* Opens a link, if there is none and a coordinator leads, and says Hello with what it has of each run. */
void process_join(struct world *w, struct process *process);

/* Both ends lose what was under way; the core hears of it later, or is told by who joins in its place. */
void process_unlink(struct world *w, struct process *process);

/* The process is gone, with its link and its runs. */
void process_kill(struct world *w, struct process *process);

/* The core hears of one broken link. */
void deliver_leaving(struct world *w);

/* The oldest message of the process reaches the core, unless the process is frozen. */
void deliver_up(struct world *w, struct process *process);

/* Answers an order to load: loaded, or refused because the checkpoint is damaged or by an accident. */
void process_load(struct world *w, struct process *process, int run);

/* A server completes a step when all have completed the one before and workers have computed all of it in
   this incarnation; it needs no coordinator. */
void server_advance(struct world *w, struct process *server, int run);

/* Writes the version that it was ordered to, once it has it, or says that it cannot. */
void server_write(struct world *w, struct process *server, int run);

/* A worker tells which servers it does not reach, and that it reaches them all if it had told else. */
void worker_look(struct world *w, struct process *worker, int run);

/* The process says that it is ready for a run, whoever it is and of whatever. */
void claim_ready(struct world *w, struct process *process);

/* The oldest order to the process reaches it, unless it is frozen, and is obeyed. An order that a process
   could not obey fails the test. */
void deliver_down(struct world *w, struct process *process);

/* The server of the first statistics block, which reports steps and evaluations. */
bool has_statistics(struct world *w, struct process *server, int run);
/* It tells the evaluation of a version, if that is evaluated. */
void server_eval_report(struct world *w, struct process *server, int run, uint64_t version);

#endif
