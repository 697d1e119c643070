/* Fake parameter servers for the tiny run of worker_fixture.h: they answer FetchModel, Versions, Pull and
   Push as a test tells them to, and note what was pushed. Weights stay the initial ones in every version;
   a push that waits makes the next. They are part of a fixture, which worker_fixture.h makes. */
#ifndef WEIR_TESTS_SUPPORT_WORKER_WORKER_SERVERS_H
#define WEIR_TESTS_SUPPORT_WORKER_WORKER_SERVERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct rpc_call;
struct rpc_server;
struct worker_fixture;

enum { SAMPLES = 8, PIXELS = 16, BATCH = 4, MICROBATCHES = 2, STEPS = 3, HIDDEN = 5000, BLOCKS_MAX = 8 };
enum { SERVERS = 2, PUSHES_MAX = 1024, PARKED_MAX = 64 };

/* What goes wrong, each for the first `times` calls that it concerns. */
struct faults {
  int models_cut, pushes_unavailable, pushes_busy, pushes_without_memory, pushes_put_off, pulls_busy,
      pulls_unavailable, versions_unavailable, versions_unknown, pushes_dropped, pushes_denied,
      outrun; /* outrun: the version that a server names is dropped before it is pulled */
  int blocks_short, blocks_old;
  bool model_is_another;
};

/* A push that a server took. */
struct fake_push {
  int server;
  uint64_t incarnation, step;
  uint32_t block, first, level;
  bool is_evaluation, wait;
  uint32_t worker;
  uint64_t view;
  uint64_t digest; /* of its bytes */
};

/* A call that a server does not answer yet. */
struct parked {
  struct fake_server *server;
  struct rpc_call *call;
  bool is_push;
  uint32_t block;
  uint64_t version; /* UINT64_MAX: it is never answered */
};

/* A server. A test changes what it does under the fixture's lock. */
struct fake_server {
  struct worker_fixture *f;
  int index;
  struct rpc_server *server;
  char target[32];

  /* Under the fixture's lock. */
  uint64_t incarnation, version[BLOCKS_MAX];
  uint64_t taken[BLOCKS_MAX]; /* the version after the newest part that was not waited with */
  uint64_t held_step;         /* its pushes wait until release; UINT64_MAX: none */
  uint32_t held_block;        /* of this block alone; UINT32_MAX: all */
  bool is_frozen;             /* nothing is answered */
  bool parks_pulls;           /* of versions that it is not at; else it has any */
  uint64_t leap;              /* the version that it is at once it has answered a question; 0: it stays */
  bool has_no_run, has_outrun;
  struct parked parked[PARKED_MAX];
  int n_parked;
  int n_gone;      /* calls that were parked until the worker gave them up */
  int n_questions; /* Versions calls */
  char ticket[64]; /* of the newest call of the run; "": it had none */
};

/* Listens on a free port, or again on server->target after fake_server_stop(). Fails the test if it
   cannot. */
void fake_server_listen(struct fake_server *server);

/* Ends its connections and listens no more; the versions that it has stay. */
void fake_server_stop(struct fake_server *server);

/* Answers the FetchModel that is_fetch_held kept waiting, and holds none any more. */
void fixture_release_model(struct worker_fixture *f);

/* All blocks are at the version from here on: answers what waited for it. */
void fake_server_reach(struct fake_server *server, uint64_t version);

/* Answers what held_step kept waiting: with the next version, or with this error unless it is ERR_OK. It
   holds nothing any more. What was parked by a frozen server stays unanswered. */
void fake_server_release(struct fake_server *server, enum err_code code);

#endif
