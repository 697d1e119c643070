/* A parameter server in this process, with one run, which fake workers (parameters_calls.h) reach over real
   RPC: parameters_fixture_init(&f, 1); push_version(&f, 0); pull_first_element(&f, 0, 1, &x); ...
   parameters_fixture_fini(&f). The run is "unit-1" in incarnation 1, of which this server is "server-1".
   What fails here fails the test. */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_PARAMETERS_FIXTURE_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_PARAMETERS_FIXTURE_H

#include <pthread.h>

#include "common/rpc/client.h"
#include "cluster.pb-c.h"
#include "server/parameters/service.h"

/* The model: fc1 300 x 300 (blocks 0 and 1), the rest (block 2), metrics and batch norm's statistics
   (block 3). 6 microbatches of 2 samples, 3 steps, evaluated after 2 and at the end in 2 chunks. */
enum {
  WIDTH = 300,
  BLOCKS = 4,
  STATISTICS_BLOCK = 3,
  MICROBATCHES = 6,
  STEPS = 3,
  CHUNKS = 2,
  EVAL_EVERY = 2
};
enum { TOLD_MAX = 64, TOLD_BODIES = 32, SERVERS_MAX = 3, VALUES_MAX = 65536 };

extern const uint32_t block_elems[BLOCKS]; /* f32 elements of each block */

struct parameters_fixture {
  struct run_table runs;
  struct shard_budgets budgets; /* without a bound, unless a test sets one */
  struct shard *shards[2];
  struct rpc_service service;
  struct rpc_server *server;
  struct rpc_client *client;
  struct rpc_channel *channel;
  struct sums_client *sums_client;
  char target[32];
  const char *called; /* the run that calls name; NULL: "unit-1" */
  void *model;
  size_t model_bytes;

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  Weir__MemberMessage__BodyCase told[TOLD_MAX];
  Weir__StepReport step; /* the last ones told */
  Weir__EvalReport eval;
  Weir__MemberMessage *last_told[TOLD_BODIES]; /* by body case, the last of each; NULL: none */
  int n_told;

  float values[VALUES_MAX]; /* of part_of, for the test's thread */
};

/* Waits for the next change of what f->lock guards, which the caller holds; fails the test if none comes. */
void wait_locked(struct parameters_fixture *f);

/* Waits until the run has told n reports in all. */
void wait_told(struct parameters_fixture *f, int n);

/* The ONNX file of the model; the caller frees the bytes. */
void make_model(void **bytes, size_t *size_bytes);

/* The order to load the run, on as many servers, at version 0. It lives until the next call. */
const Weir__LoadRun *make_order(uint64_t incarnation, size_t servers);

/* The order's run is of mode ssp, with that staleness. */
void order_lag(const Weir__LoadRun *order, uint32_t staleness);

/* Makes the run of the order as the server `own_id` sees it, outside of the server's table; the reference
   is the caller's (hosted_run_put). Returns the error of hosted_run_new(). */
int make_run(struct parameters_fixture *f, const Weir__LoadRun *order, const char *own_id,
             struct hosted_run **run, struct err *err);

/* The same, put into the table, so that calls find it; load_order() as "server-1". Returns the error. */
int load_order_as(struct parameters_fixture *f, const Weir__LoadRun *order, const char *own_id,
                  struct err *err);
int load_order(struct parameters_fixture *f, const Weir__LoadRun *order, struct err *err);

/* A server without a run, which is reached at f->target. */
void parameters_fixture_open(struct parameters_fixture *f);

/* A server with the run of this order, or of make_order(1, servers). */
void parameters_fixture_init_order(struct parameters_fixture *f, const Weir__LoadRun *order);
void parameters_fixture_init(struct parameters_fixture *f, size_t servers);

/* Unloads every run and stops the server. */
void parameters_fixture_fini(struct parameters_fixture *f);

#endif
