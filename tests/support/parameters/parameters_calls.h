/* Fake workers of the server of parameters_fixture.h: what they push and pull, and the calls that wait. What
   fails here fails the test. */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_PARAMETERS_CALLS_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_PARAMETERS_CALLS_H

#include <semaphore.h>

#include "parameters.pb-c.h"
#include "tests/support/parameters/parameters_fixture.h"

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

/* A push of the part of the node (first, level) of the reduction tree. */
Weir__PushRequest push_request(uint32_t block, uint64_t step, uint32_t first, uint32_t level);

/* Begins a push of these bytes, which are copied, to the run that f->called names. */
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
