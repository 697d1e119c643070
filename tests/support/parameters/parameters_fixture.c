#include "tests/support/parameters/parameters_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/models/model_kind.h"
#include "common/base/message.h"
#include "tests/support/common/patience.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/parameters/run_order.h"
#include "tests/support/parameters/given_model.h"

extern const struct model_kind_def model_kind_mlp;

const uint32_t block_elems[BLOCKS] = {VALUES_MAX, WIDTH *WIDTH - VALUES_MAX, 3 * WIDTH + 3 * WIDTH + 3,
                                      METRICS + 2 * WIDTH};

void wait_locked(struct parameters_fixture *f) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience_seconds();
  if (pthread_cond_timedwait(&f->changed, &f->lock, &until) == ETIMEDOUT)
    fail_msg("nothing happened for %d seconds", patience_seconds());
}

static int parameters_on_told(void *user, uint64_t membership, const Weir__MemberMessage *message) {
  struct parameters_fixture *f = user;
  (void)membership;
  pthread_mutex_lock(&f->lock);
  assert_true(f->n_told < TOLD_MAX);
  f->told[f->n_told++] = message->body_case;
  message_free(f->last_told[message->body_case]);
  f->last_told[message->body_case] = message_copy(message);
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_STEP)
    f->step = *message->step;
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_EVAL)
    f->eval = *message->eval;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
  return 0;
}

void wait_told(struct parameters_fixture *f, int n) {
  pthread_mutex_lock(&f->lock);
  while (f->n_told < n)
    wait_locked(f);
  pthread_mutex_unlock(&f->lock);
}

void make_model(void **bytes, size_t *size_bytes) {
  char width[16];
  struct err err = ERR_NONE;
  snprintf(width, sizeof width, "%d", WIDTH);
  const char *options[] = {"--input", width, "--classes", "3", "--hidden", width, "--batch-norm", NULL};
  struct model_recipe recipe = {.kind = &model_kind_mlp, .options = options, .seed = 1};
  if (model_bytes(&recipe, bytes, size_bytes, &err))
    fail_msg("%s", err.text);
}

const Weir__LoadRun *make_order(uint64_t incarnation, size_t servers) {
  static struct run_order order;
  run_order_init(&order, "unit", (struct run_size){STEPS, 2 * MICROBATCHES, MICROBATCHES}, 0.5);
  order.data.eval = &order.source;
  order.optimizer.has_momentum = true;
  order.optimizer.momentum = 0.5;
  order.eval.has_every_steps = true;
  order.eval.every_steps = EVAL_EVERY;
  order.plan.eval_samples = 200;
  order.load.run = (char *)"unit-1";
  order.load.incarnation = incarnation;
  order.load.n_servers = servers;
  return &order.load;
}

void order_lag(const Weir__LoadRun *order, uint32_t staleness) {
  Weir__TrainSpec *train = order->spec->train;
  train->mode = (char *)"ssp";
  train->has_staleness = true;
  train->staleness = staleness;
}

int make_run(struct parameters_fixture *f, const Weir__LoadRun *order, const char *own_id,
             struct hosted_run **run, struct err *err) {
  struct run_setup setup = {.order = order,
                            .own_id = own_id,
                            .shards = f->shards,
                            .n_shards = 2,
                            .sums_client = f->sums_client,
                            .tell = parameters_on_told,
                            .user = f};
  return given_model_load(&setup, f->model, f->model_bytes, run, err);
}

int load_order_as(struct parameters_fixture *f, const Weir__LoadRun *order, const char *own_id,
                  struct err *err) {
  struct hosted_run *run;
  int code = make_run(f, order, own_id, &run, err);
  if (code)
    return code;
  code = run_table_add(&f->runs, run, err);
  if (code)
    hosted_run_put(run);
  else {
    report_log_open(&run->log, 1, 0);
    report_log_resume(&run->log);
  }
  return code;
}

int load_order(struct parameters_fixture *f, const Weir__LoadRun *order, struct err *err) {
  return load_order_as(f, order, "server-1", err);
}

void parameters_fixture_open(struct parameters_fixture *f) {
  struct rpc_server_options options = {
      .listen = "127.0.0.1:0", .services = &f->service, .n_services = 1, .threads = 1};
  struct err err = ERR_NONE;
  *f = (struct parameters_fixture){0};
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  run_table_init(&f->runs);
  f->budgets.parts.bytes_max = f->budgets.calls.bytes_max = SIZE_MAX;
  f->shards[0] = shard_new(&f->budgets);
  f->shards[1] = shard_new(&f->budgets);
  f->service = service_over(&f->runs);
  make_model(&f->model, &f->model_bytes);
  if (rpc_server_start(&options, &f->server, &err))
    fail_msg("%s", err.text);
  snprintf(f->target, sizeof f->target, "127.0.0.1:%d", rpc_server_port(f->server));
  f->client = rpc_client_new(1, NULL);
  f->sums_client = sums_client_new(f->client);
  f->channel = rpc_channel_open(f->client, f->target, PEER_ANY);
}

void parameters_fixture_init_order(struct parameters_fixture *f, const Weir__LoadRun *order) {
  struct err err = ERR_NONE;
  parameters_fixture_open(f);
  if (load_order(f, order, &err))
    fail_msg("%s", err.text);
}

void parameters_fixture_init(struct parameters_fixture *f, size_t servers) {
  parameters_fixture_init_order(f, make_order(1, servers));
}

void parameters_fixture_fini(struct parameters_fixture *f) {
  rpc_channel_close(f->channel);
  run_table_remove(&f->runs, NULL, "the test is over");
  sums_client_stop(f->sums_client);
  rpc_server_stop(f->server);
  shard_settle(f->shards[0]);
  shard_settle(f->shards[1]);
  shard_free(f->shards[0]);
  shard_free(f->shards[1]);
  run_table_fini(&f->runs);
  sums_client_free(f->sums_client);
  rpc_client_free(f->client);
  for (int b = 0; b < TOLD_BODIES; b++)
    message_free(f->last_told[b]);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
  free(f->model);
}
