/* What the members of a run do while they make its next steps, collected from them: a state machine of the
   event loop's, without a clock or calls of its own. */
#ifndef WEIR_SERVER_COORDINATOR_TRACING_TRACING_H
#define WEIR_SERVER_COORDINATOR_TRACING_TRACING_H

#include <stdbool.h>
#include <stdint.h>

#include "cluster.pb-c.h"
#include "training.pb-c.h"

struct tracing;

/* Copied. */
struct tracing_member {
  uint64_t key;
  const char *id, *host;
};

struct tracing_options {
  uint64_t number;  /* of the capture; no two of a coordinator have the same */
  const char *run;  /* copied */
  const char *boot; /* our own, as of struct Traced; copied */
  uint64_t steps;
  const struct tracing_member *members;
  int n_members;
  /* To a member; what was captured, to the one who asked. */
  void (*order)(void *user, uint64_t key, const Weir__Order *order);
  void (*send)(void *user, const Weir__TraceChunk *chunk);
  void *user;
};

/* Where the run is. */
struct tracing_now {
  uint64_t now_ns;
  uint64_t step;   /* its newest complete version */
  bool is_running; /* further ones are made */
};

/* Has the members begin. */
struct tracing *tracing_new(const struct tracing_options *options, const struct tracing_now *now);
void tracing_free(struct tracing *tracing); /* members stop; NULL is ignored */

/* A member's answer; one of another capture is ignored. */
void tracing_take(struct tracing *tracing, uint64_t key, const Weir__Traced *traced,
                  const struct tracing_now *now);
void tracing_left(struct tracing *tracing, uint64_t key); /* the member is no more */

/* Time passes. True: all is sent that will be. It takes until the steps are made, the run does not make them,
   or a minute has passed. Members are waited for three times, ten seconds each at most: until they have
   begun, until they have answered once more, and at the end until they have sent what they have. */
bool tracing_turn(struct tracing *tracing, const struct tracing_now *now);

#endif
