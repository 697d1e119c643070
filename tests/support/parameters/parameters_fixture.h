/* A parameter server in this process, with one run, and fake workers that push to it and pull from it over
   real RPC: parameters_fixture_init(&f, 1); push_version(&f, 0); pull_first_element(&f, 0, 1, &x); ...
   parameters_fixture_fini(&f). The run is "unit-1" in incarnation 1, of which this server is "server-1".
   What fails here fails the test. */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_PARAMETERS_FIXTURE_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_PARAMETERS_FIXTURE_H

#include <pthread.h>
#include <semaphore.h>

#include "common/rpc/client.h"
#include "parameters.pb-c.h"
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
enum { TOLD_MAX = 64, TOLD_BODIES = 16, SERVERS_MAX = 3, VALUES_MAX = 65536 };

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

/* One call of a fake worker: start_push() or start_pull() begin it, attempt_finish() waits for its end. The
   test keeps it until then, and frees `data`. What follows is_done is set when it is true. */
struct attempt {
  struct rpc_request request;
  struct parameters_fixture *fixture;
  bool is_done;
  struct err err;
  uint64_t version;
  float *data;
  size_t size_bytes;
};

/* Waits for the next change of what f->lock guards, which the caller holds; fails the test if none comes. */
void wait_locked(struct parameters_fixture *f);

/* Waits until the run has told n reports in all. */
void wait_told(struct parameters_fixture *f, int n);

/* The ONNX file of the model; the caller frees the bytes. */
void make_model(void **bytes, size_t *size_bytes);

/* The order to load the run, on as many servers, at version 0. It lives until the next call. */
const Weir__LoadRun *make_order(uint64_t incarnation, size_t servers);

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

/* A push of the part of the node (first, level) of the reduction tree. */
Weir__PushRequest push_request(uint32_t block, uint64_t step, uint32_t first, uint32_t level);

/* Begins a push of these bytes, which are copied. */
void start_push(struct parameters_fixture *f, struct attempt *attempt, const Weir__PushRequest *push,
                const float *values, size_t size_bytes);
void start_pull(struct parameters_fixture *f, struct attempt *attempt, uint32_t block, uint64_t version);

/* Waits for the end of the call. */
void attempt_finish(struct attempt *attempt);

/* Asks a block's shard how many calls are parked on it. */
struct parked_probe {
  struct job job;
  const struct hosted_block *block;
  int n_parked;
  sem_t done;
};

/* The probe's job: counts on the shard's thread, then posts `done`. */
void parked_probe_run(struct job *job);

/* Waits until exactly n_parked calls are parked on a block. */
void wait_parked(struct parameters_fixture *f, uint32_t block, int n_parked);

bool attempt_is_done(struct attempt *attempt);

/* Wait for the end of the call, which must be a success with this version, or an error with this code and
   a text that holds `text`. Free its data. */
void finish_with_version(struct attempt *attempt, uint64_t version);
void finish_with_error(struct attempt *attempt, enum err_code code, const char *text);

/* Fills f->values with a part of the block whose elements all are `value`. Returns its size in bytes. */
size_t part_of(struct parameters_fixture *f, uint32_t block, float value);

/* Begins a push of the part of microbatch `first`, whose elements all are first + 1 + step (of the
   statistics block: its metrics, too). A waiting part is answered with the block's next version. */
void start_part(struct parameters_fixture *f, struct attempt *attempt, uint32_t block, uint64_t step,
                uint32_t first);
void start_waiting_part(struct parameters_fixture *f, struct attempt *attempt, uint32_t block, uint64_t step,
                        uint32_t first);

/* Pushes the same and waits for the reply, which must name this version: the block's after the push. */
void push_part(struct parameters_fixture *f, uint32_t block, uint64_t step, uint32_t first, uint64_t version);

/* Pulls that version of the block, waiting until it exists. Asserts its size and gives element 0. */
void pull_first_element(struct parameters_fixture *f, uint32_t block, uint64_t version, float *first_element);

/* Pushes the parts of all microbatches of a step of a block but the last, which the caller pushes. */
void push_all_but_last(struct parameters_fixture *f, uint32_t block, uint64_t step);

/* Pushes all of them: the block is at version step + 1 then. */
void push_step(struct parameters_fixture *f, uint32_t block, uint64_t step);

/* Pushes the row of a chunk of the evaluation of version `step`. The reply must name this version of the
   block. */
void push_eval(struct parameters_fixture *f, uint64_t step, uint32_t chunk, uint64_t version);

/* Pushes a step of the statistics block, after the evaluation of the present version where there is one. */
void push_rows(struct parameters_fixture *f, uint64_t step);

/* Pushes one step of all blocks. */
void push_version(struct parameters_fixture *f, uint64_t step);

#endif
