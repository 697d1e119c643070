/* The tickets that open a run on this server. */
#ifndef WEIR_SERVER_PARAMETERS_RUN_TICKETS_H
#define WEIR_SERVER_PARAMETERS_RUN_TICKETS_H

#include <protobuf-c/protobuf-c.h>
#include <pthread.h>

#include "common/certs/ticket.h"

enum { TICKETS_KNOWN = 64 };

struct run_tickets {
  bool has_key; /* else every call is for the run: its coordinator gives no tickets */
  unsigned char key[TICKET_KEY_BYTES];
  pthread_mutex_t lock; /* what follows */
  struct known_ticket {
    char *holder; /* NULL: the place is empty */
    uint32_t worker;
    unsigned char mac[TICKET_MAC_BYTES];
  } known[TICKETS_KNOWN]; /* of the run's incarnation, so that it is not computed for each call */
  unsigned turn;
};

void run_tickets_init(struct run_tickets *tickets);
void run_tickets_fini(struct run_tickets *tickets);
/* Once, before anybody asks. key: of the order. Errors: INVALID for one of another size; none is no error. */
int run_tickets_set_key(struct run_tickets *tickets, const ProtobufCBinaryData *key, struct err *err);

/* What is said of one that is not genuine. */
int run_tickets_refuse(const struct ticket *ticket, const char *holder, struct err *err);
/* Whether the holder of a certificate may call by this ticket of the run in `incarnation`. Any thread.
   Errors: DENIED; STALE for a genuine ticket of another incarnation. */
int run_tickets_check(struct run_tickets *tickets, uint64_t incarnation, const struct ticket *ticket,
                      const char *holder, struct err *err);

#endif
