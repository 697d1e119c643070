/* A parameter server in this process, with one run, and fake workers that push to it over real RPC. */
#ifndef WEIR_TESTS_PARAMETERS_FIXTURE_H
#define WEIR_TESTS_PARAMETERS_FIXTURE_H

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "common/base/clock.h"
#include "common/rpc/client.h"
#include "parameters.pb-c.h"
#include "server/parameters/service.h"
#include "tests/support/model_bytes.h"
#include "tests/support/patience.h"

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
enum { TOLD_MAX = 64, SERVERS_MAX = 3, VALUES_MAX = 65536 };

extern const uint32_t block_elems[BLOCKS];

struct fixture {
  struct run_table runs;
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
  int n_told;

  float values[VALUES_MAX]; /* of part_of, for the test's thread */
};

/* One call of a fake worker. */
struct attempt {
  struct rpc_request request;
  struct fixture *fixture;
  bool is_done;
  struct err err;
  uint64_t version;
  float *data;
  size_t size_bytes;
};

void wait_locked(struct fixture *f);

void wait_told(struct fixture *f, int n);

void make_model(void **bytes, size_t *size_bytes);

/* The order to load the run, on as many servers; it lives until the next call. */
const Weir__LoadRun *make_order(uint64_t incarnation, size_t servers);

/* As the server of that id. */
int make_run(struct fixture *f, const Weir__LoadRun *order, const char *own_id, struct hosted_run **run,
             struct err *err);

int load_order_as(struct fixture *f, const Weir__LoadRun *order, const char *own_id, struct err *err);

int load_order(struct fixture *f, const Weir__LoadRun *order, struct err *err);

/* A server without a run, which is reached at f->target. */
void parameters_fixture_open(struct fixture *f);

void parameters_fixture_init_order(struct fixture *f, const Weir__LoadRun *order);

void parameters_fixture_init(struct fixture *f, size_t servers);

void parameters_fixture_fini(struct fixture *f);

Weir__PushRequest push_request(uint32_t block, uint64_t step, uint32_t first, uint32_t level);

void start_push(struct fixture *f, struct attempt *attempt, const Weir__PushRequest *push,
                const float *values, size_t size_bytes);

void start_pull(struct fixture *f, struct attempt *attempt, uint32_t block, uint64_t version);

/* Waits for the end of the call. */
void attempt_finish(struct attempt *attempt);

/* Asks a block's shard how many calls are parked on it. */
struct parked_probe {
  struct job job;
  const struct hosted_block *block;
  int n_parked;
  sem_t done;
};

void parked_probe_run(struct job *job);

/* Waits until so many calls are parked on a block. */
void wait_parked(struct fixture *f, uint32_t block, int n_parked);

bool attempt_is_done(struct attempt *attempt);

void finish_with_version(struct attempt *attempt, uint64_t version);

void finish_with_error(struct attempt *attempt, enum err_code code, const char *text);

/* Every element of the part of microbatch m is m + 1 + step; of its rows' metrics too. */
size_t part_of(struct fixture *f, uint32_t block, float value);

void start_part(struct fixture *f, struct attempt *attempt, uint32_t block, uint64_t step, uint32_t first,
                bool wait);

void push_part(struct fixture *f, uint32_t block, uint64_t step, uint32_t first, uint64_t version);

void pull_first_element(struct fixture *f, uint32_t block, uint64_t version, float *first_element);

/* All microbatches of a step of a block but the last, which the caller pushes. */
void push_all_but_last(struct fixture *f, uint32_t block, uint64_t step);

void push_step(struct fixture *f, uint32_t block, uint64_t step);

/* version: the block's once the chunk is there. */
void push_eval(struct fixture *f, uint64_t step, uint32_t chunk, uint64_t version);

/* A step of the statistics, after the evaluation of the present version where it has one. */
void push_rows(struct fixture *f, uint64_t step);

/* One step of all blocks. */
void push_version(struct fixture *f, uint64_t step);

#endif
