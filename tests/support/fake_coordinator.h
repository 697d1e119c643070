/* A coordinator's end of the members' link, for tests of members. */
#ifndef WEIR_TESTS_FAKE_COORDINATOR_H
#define WEIR_TESTS_FAKE_COORDINATOR_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "cluster.pb-c.h"
#include "common/base/message.h"
#include "common/rpc/client.h"
#include "common/rpc/server.h"
#include "tests/support/patience.h"

enum { BODIES = 16 };

struct fake_coordinator {
  struct rpc_server *server;
  char target[32];
  const void *model; /* what FetchModel gives */
  size_t model_bytes;
  uint64_t term;  /* of Welcome */
  const char *id; /* that it gives to a member that had none; others keep theirs */

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct rpc_call *member; /* the one that joined last */
  int n_joined, n_gone;
  int n_messages[BODIES];                /* by body case */
  Weir__MemberMessage *messages[BODIES]; /* the last of each */
  bool refuses;                          /* members, when they say Hello */
  bool stands_by;                        /* likewise: another leads */
  bool renames;                          /* members are all called `id` */
  bool is_mute;                          /* it beats no more, as if it were frozen */
  int n_fetched;                         /* FetchModel was called */
  bool has_no_model;                     /* FetchModel is parked until the client goes */
  /* Told of each message, under the lock; may be NULL. */
  void (*on_each)(void *user, const Weir__MemberMessage *message);
  void *user;
};

/* Listens where it did before, if it did. */
void fake_coordinator_listen(struct fake_coordinator *c);

/* Breaks every link. */
void fake_coordinator_stop_listening(struct fake_coordinator *c);

void fake_coordinator_init(struct fake_coordinator *c);

void fake_coordinator_fini(struct fake_coordinator *c);

void fake_coordinator_wait(struct fake_coordinator *c, const int *counter, int least);

/* Waits for the n-th message of a kind; it stays until the next one of its kind. */
const Weir__MemberMessage *fake_coordinator_wait_message(struct fake_coordinator *c,
                                                         Weir__MemberMessage__BodyCase body, int n);

void fake_coordinator_order_locked(struct fake_coordinator *c, const Weir__Order *order);

void fake_coordinator_order(struct fake_coordinator *c, const Weir__Order *order);

/* Ends the present membership. */
void fake_coordinator_kick(struct fake_coordinator *c);

#endif
