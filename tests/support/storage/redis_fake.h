/* A server on loopback, with a thread of its own, that gives Redis clients the answers that a test
   chooses, one connection after the other:
   struct fake fake = {.answer = "-ERR no\r\n"}; fake_start(&fake); ... fake.port ...; fake_stop(&fake); */
#ifndef WEIR_TESTS_SUPPORT_STORAGE_REDIS_FAKE_H
#define WEIR_TESTS_SUPPORT_STORAGE_REDIS_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

enum fake_manner {
  FAKE_ANSWERS,
  FAKE_CLOSES, /* the connection, after its answer */
  FAKE_DRIPS,  /* the answer over and over, a byte at a time */
  FAKE_STREAMS /* the answer over and over, as fast as it can */
};

struct fake {
  /* Answers to PING, INFO, EXISTS, AUTH and CLUSTER, unless they name a block; NULL: as a Redis does. */
  const char *ping, *info, *exists, *auth, *cluster;
  const char *answer; /* to every other command, byte for byte */
  size_t answer_size; /* 0: answer ends with its NUL */
  enum fake_manner manner;
  atomic_int closes_first; /* so many of those commands come first; each closes the connection */
  int listener, port;      /* set by fake_listen, but for a port that is given */
  pthread_t thread;
  atomic_bool is_over;
};

/* Listens on a free port, which is then fake->port, for answers that name it. Clients wait until
   fake_start(). */
void fake_listen(struct fake *fake);

/* Serves; listens first if fake_listen was not called. */
void fake_start(struct fake *fake);

/* Joins the thread and closes the port. */
void fake_stop(struct fake *fake);

#endif
