/* What opens a run to a member: RUN/INCARNATION/WORKER/MAC, where MAC is HMAC-SHA256, in hexadecimal digits,
   over the run, the incarnation, the number of the worker and the holder of its certificate, by the run's
   key. The coordinator makes a ticket of a member for each run in which the member has a part; servers of the
   run have its key. Workers of a team call each other by tickets of another key, which they have. */
#ifndef WEIR_COMMON_CERTS_TICKET_H
#define WEIR_COMMON_CERTS_TICKET_H

#include <stdint.h>

#include "common/base/err.h"

enum { TICKET_KEY_BYTES = 32, TICKET_MAC_BYTES = 32, TICKET_RUN_MAX = 255, TICKET_TEXT_SIZE = 368 };

/* The name in the tickets by which servers of a run call each other. */
#define TICKET_SERVERS "servers"

/* To whom a ticket is given. holder: the URI of its certificate, "" without TLS. */
struct ticket_owner {
  const char *run; /* at most TICKET_RUN_MAX characters count */
  uint64_t incarnation;
  const char *holder;
  uint32_t worker; /* N of its id worker-N; 0: it is no worker */
};

/* A ticket as it came: nothing of it is believed before ticket_is_genuine. */
struct ticket {
  char run[TICKET_RUN_MAX + 1];
  uint64_t incarnation;
  uint32_t worker;
  unsigned char mac[TICKET_MAC_BYTES];
};

void ticket_draw_secret(unsigned char secret[TICKET_KEY_BYTES]); /* random bytes */
/* The key of a run: whoever has the secret has it, and nobody else who has not seen it. */
void ticket_derive_key(const unsigned char secret[TICKET_KEY_BYTES], const char *run,
                       unsigned char key[TICKET_KEY_BYTES]);

/* The key of what workers of the run's teams send each other. */
void ticket_derive_peer_key(const unsigned char run_key[TICKET_KEY_BYTES],
                            unsigned char key[TICKET_KEY_BYTES]);

void ticket_mac(const unsigned char key[TICKET_KEY_BYTES], const struct ticket_owner *owner,
                unsigned char mac[TICKET_MAC_BYTES]);
void ticket_make(const unsigned char key[TICKET_KEY_BYTES], const struct ticket_owner *owner,
                 char text[TICKET_TEXT_SIZE]);

/* text: of any bytes. Errors: DENIED for what ticket_make does not write. */
int ticket_read(const char *text, struct ticket *ticket, struct err *err);

/* Whether the MAC is what it must be; how long it takes does not tell how much of it is right. */
bool ticket_has_mac(const struct ticket *ticket, const unsigned char mac[TICKET_MAC_BYTES]);
/* Whether the ticket was made for the holder by somebody who had the key. */
bool ticket_is_genuine(const struct ticket *ticket, const unsigned char key[TICKET_KEY_BYTES],
                       const char *holder);

#endif
