/* A server on loopback that answers what a test tells it to. */
#ifndef WEIR_TESTS_REDIS_FAKE_H
#define WEIR_TESTS_REDIS_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

enum fake_manner {
  FAKE_ANSWERS,
  FAKE_CLOSES, /* after its answer */
  FAKE_DRIPS,  /* the answer over and over, a byte at a time */
  FAKE_STREAMS /* the answer over and over, as fast as it can */
};

struct fake {
  const char *ping, *exists, *auth, *cluster; /* answers, not about blocks; NULL: as a Redis does */
  const char *answer;                         /* to every other */
  size_t answer_size;                         /* 0: that of the text */
  enum fake_manner manner;
  atomic_int closes_first; /* so many other commands are answered by closing */
  int listener, port;
  pthread_t thread;
  atomic_bool is_over;
};

/* Listens on a free port. */
void fake_listen(struct fake *fake);

void fake_start(struct fake *fake);

void fake_stop(struct fake *fake);

#endif
