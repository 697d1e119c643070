/* What members are told. */
#ifndef WEIR_SERVER_COORDINATOR_MESSAGES_ORDERS_H
#define WEIR_SERVER_COORDINATOR_MESSAGES_ORDERS_H

#include "server/coordinator/state/member.h"
#include "server/coordinator/state/run.h"
#include "server/coordinator/state/seat.h"

void coordinator_order_welcome(struct coordinator *coordinator, const struct member *member);
/* Says that we are there: a member that hears nothing for long looks for another coordinator. */
void coordinator_order_beat(struct coordinator *coordinator, const struct member *member);
/* The member is given no more work, or blocks, and is to say so to whoever it joins. */
void coordinator_order_drain(struct coordinator *coordinator, const struct member *member);
/* To a server that asked to leave: there is nobody to take its blocks. */
void coordinator_order_no_other(struct coordinator *coordinator, const struct member *server);
/* The worker is to compute the run of the seat, too. */
void coordinator_order_load(struct coordinator *coordinator, const struct seat *seat);
void coordinator_order_load_blocks(struct coordinator *coordinator, const struct run *run,
                                   const struct member *server);
void coordinator_order_views(struct coordinator *coordinator, const struct run *run,
                             struct seat *const *seats, int n_seats);
/* What its struct reissue gives to the worker. */
void coordinator_order_reissue(struct coordinator *coordinator, const struct run *run,
                               const struct member *worker);
/* To a worker of the run that computes nothing, from which it learns that: it follows, or is cut off. */
void coordinator_order_idle_view(struct coordinator *coordinator, struct seat *seat);
void coordinator_order_write(struct coordinator *coordinator, const struct run *run,
                             const struct member *member);
void coordinator_order_keep(struct coordinator *coordinator, const struct run *run,
                            const struct member *member);
/* The hold was raised. */
/* Also whether all of its servers are there: the run is HELD. */
void coordinator_order_hold(struct coordinator *coordinator, const struct run *run,
                            const struct member *server);
void coordinator_order_unload(struct coordinator *coordinator, const char *run, const struct member *member,
                              const char *reason);
/* As coordinator_order_unload, to a worker that may be given the run again. */
void coordinator_order_rest(struct coordinator *coordinator, const char *run, const struct member *worker,
                            const char *reason);

/* Whether the ticket (NULL: there is none) is one that an order to load the run, in its present incarnation
   or in one before, gave to a member of this holder. Errors: DENIED. */
int coordinator_check_ticket(const struct coordinator *coordinator, const char *run, const char *ticket,
                             const char *holder, struct err *err);

#endif
