/* A worker of this process that shares memory with a server, over real RPC: its end of the stream. */
#ifndef WEIR_TESTS_SUPPORT_PARAMETERS_SHARE_WORKER_H
#define WEIR_TESTS_SUPPORT_PARAMETERS_SHARE_WORKER_H

#include "common/share/share.h"
#include "common/share/shared_pool.h"
#include "tests/support/parameters/parameters_calls.h"

struct share_worker {
  struct parameters_fixture server;
  struct rpc_stream *stream;
  struct share *share;
  struct shared_pool *pool;
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  uint64_t id;
  int n_heard;
  bool is_over;
  struct err end;
};

/* The stream of a run, by a ticket (NULL: none). */
void share_worker_open(struct share_worker *worker, const char *run, const char *ticket);
void share_worker_close(struct share_worker *worker);

/* Until so many messages have come; the stream must go on. */
void share_worker_wait_heard(struct share_worker *worker, int n);
int share_worker_heard(struct share_worker *worker);
/* Until the stream has ended, by `end`. */
void share_worker_wait_over(struct share_worker *worker);

/* *state: a worker with a server of the run "unit-1", which has named its share. */
int share_worker_setup(void **state);
int share_worker_teardown(void **state);

/* A part as part_of makes it, in a segment that the server has; `name` is where. */
struct buffer *share_worker_part(struct share_worker *worker, uint32_t block, float value,
                                 Weir__SharedBytes *name);
enum err_code share_worker_ask(struct share_worker *worker, enum rpc_method_id method, const void *message,
                               void **reply, struct err *err);
/* Of a part that is named there. */
Weir__PushRequest share_worker_push(const struct share_worker *worker, uint32_t block, uint64_t step,
                                    uint32_t first, Weir__SharedBytes *name);
/* Makes the part and pushes it, which succeeds. */
void share_worker_push_part(struct share_worker *worker, uint32_t block, uint64_t step, uint32_t first,
                            float value);
/* A refusal, after which the block is where it was. */
void share_worker_assert_refused(struct share_worker *worker, const Weir__PushRequest *push,
                                 enum err_code code, const char *text);

#endif
