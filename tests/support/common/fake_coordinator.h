/* A coordinator that members can join, for tests of members: it welcomes, beats, gives a model, keeps what
   members say, and orders what a test orders. fake_coordinator_init(&c); ... c.target ...;
   fake_coordinator_wait(&c, &c.n_joined, 1); fake_coordinator_order(&c, &order);
   fake_coordinator_fini(&c). Orders go to the member that joined last. The fields are set before the
   member joins, or under the lock. */
#ifndef WEIR_TESTS_SUPPORT_COMMON_FAKE_COORDINATOR_H
#define WEIR_TESTS_SUPPORT_COMMON_FAKE_COORDINATOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster.pb-c.h"

enum { BODIES = 32 };

struct fake_coordinator {
  struct rpc_server *server;
  char target[32];
  const void *model; /* what FetchModel gives */
  size_t model_bytes;
  uint64_t term;  /* of Welcome */
  const char *id; /* that it gives to a member that had none; others keep theirs */

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct rpc_call *member;               /* the one that joined last */
  int n_joined, n_gone;                  /* streams that were welcomed, and that ended */
  int n_messages[BODIES];                /* by body case */
  Weir__MemberMessage *messages[BODIES]; /* the last of each */
  Weir__MemberMessage **kept;            /* all */
  int n_kept, kept_capacity;
  bool refuses;      /* members, when they say Hello */
  bool stands_by;    /* likewise: another leads */
  bool renames;      /* members are all called `id` */
  bool is_mute;      /* it beats no more, as if it were frozen */
  int n_fetched;     /* FetchModel was called */
  bool has_no_model; /* FetchModel is parked until the client goes */
  /* Told of each message, under the lock; may be NULL. */
  void (*on_each)(void *user, const Weir__MemberMessage *message);
  void *user;
};

/* Listens on a port of its own, or again on c->target after fake_coordinator_stop_listening(), which breaks
   every link. */
void fake_coordinator_listen(struct fake_coordinator *c);
void fake_coordinator_stop_listening(struct fake_coordinator *c);

/* Makes the coordinator, of term 1, and listens. */
void fake_coordinator_init(struct fake_coordinator *c);

void fake_coordinator_fini(struct fake_coordinator *c);

/* Waits until the counter, one of c's, is at least that; fails the test if it never is. */
void fake_coordinator_wait(struct fake_coordinator *c, const int *counter, int least);

/* Waits until n messages of a kind have come in all. Returns the newest, which stays. */
const Weir__MemberMessage *fake_coordinator_wait_message(struct fake_coordinator *c,
                                                         Weir__MemberMessage__BodyCase body, int n);

/* Sends the order to the member, which must be there. The order stays the caller's. _locked: within the
   lock, so that nothing comes between. */
void fake_coordinator_order_locked(struct fake_coordinator *c, const Weir__Order *order);
void fake_coordinator_order(struct fake_coordinator *c, const Weir__Order *order);

/* Ends the member's stream with UNAVAILABLE; it may join again. */
void fake_coordinator_kick(struct fake_coordinator *c);

#endif
