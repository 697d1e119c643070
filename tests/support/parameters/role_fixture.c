#include "tests/support/parameters/role_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/rpc/server.h"
#include "tests/support/common/patience.h"
#include "tests/support/model/model_bytes.h"

static void keep_history(void *user, const Weir__MemberMessage *message) {
  struct role_fixture *f = user;
  bool is_step = message->body_case == WEIR__MEMBER_MESSAGE__BODY_STEP;
  bool is_eval = message->body_case == WEIR__MEMBER_MESSAGE__BODY_EVAL;
  if (!is_step && !is_eval && message->body_case != WEIR__MEMBER_MESSAGE__BODY_COMPLETE)
    return;
  assert_true(f->n_history < HISTORY_MAX);
  f->history[f->n_history].body = message->body_case;
  f->history[f->n_history].step = is_step ? message->step->step : is_eval ? message->eval->step : 0;
  f->n_history++;
}

static const struct pace_options week = {.least_ms = WEEK_MS, .first_ms = WEEK_MS};

static void init(struct role_fixture *f, const struct pace_options *pace, int keeper_patience_ms) {
  struct parameters_options options = {.shards = 2, .keeper_patience_ms = keeper_patience_ms, .pace = pace};
  struct rpc_server_options server = {.listen = "127.0.0.1:0", .n_services = 1};
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct err err;
  char text[80];
  *f = (struct role_fixture){0};
  double_init(&f->store);
  fake_coordinator_init(&f->coordinator);
  f->coordinator.on_each = keep_history;
  f->coordinator.user = f;
  make_model(&f->workers.model, &f->workers.model_bytes);
  f->coordinator.model = f->workers.model;
  f->coordinator.model_bytes = f->workers.model_bytes;
  sha256_hex(f->workers.model, f->workers.model_bytes, f->model_sha256);
  pthread_mutex_init(&f->workers.lock, NULL);
  pthread_cond_init(&f->workers.changed, NULL);
  options.store = &f->store.base;
  f->parameters = parameters_new(&options);
  server.services = parameters_service(f->parameters);
  if (rpc_server_start(&server, &f->server, &err))
    fail_msg("%s", err.text);
  f->workers.client = rpc_client_new(1, NULL);
  snprintf(text, sizeof text, "127.0.0.1:%d", rpc_server_port(f->server));
  f->workers.channel = rpc_channel_open(f->workers.client, text, PEER_ANY);
  hello.role = WEIR__ROLE__SERVER;
  hello.address = text;
  parameters_join(f->parameters, f->workers.client, f->coordinator.target, &hello);
  fake_coordinator_wait(&f->coordinator, &f->coordinator.n_joined, 1);
}

void role_init(struct role_fixture *f) {
  init(f, &week, WEEK_MS);
}

void role_init_paced(struct role_fixture *f, const struct pace_options *pace) {
  init(f, pace, WEEK_MS);
}

void role_init_impatient(struct role_fixture *f) {
  init(f, &week, 300);
}

void role_fini(struct role_fixture *f) {
  rpc_channel_close(f->workers.channel);
  parameters_leave(f->parameters);
  rpc_server_stop(f->server);
  parameters_free(f->parameters);
  rpc_client_free(f->workers.client);
  fake_coordinator_fini(&f->coordinator);
  double_fini(&f->store);
  pthread_cond_destroy(&f->workers.changed);
  pthread_mutex_destroy(&f->workers.lock);
  free(f->workers.model);
}

void send_load(struct role_fixture *f, Weir__LoadRun *load) {
  Weir__Order order = WEIR__ORDER__INIT;
  load->model_bytes = f->workers.model_bytes;
  load->model_sha256 = f->model_sha256;
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_LOAD;
  order.load = load;
  fake_coordinator_order(&f->coordinator, &order);
}

void order_load_of(struct role_fixture *f, const char *store, uint64_t incarnation, uint64_t step,
                   const char *manifest) {
  Weir__LoadRun load = *make_order(incarnation, 1);
  load.step = step;
  load.manifest = (char *)manifest;
  load.store_identity = (char *)store;
  send_load(f, &load);
}

void order_load_from(struct role_fixture *f, uint64_t incarnation, uint64_t step, const char *manifest) {
  order_load_of(f, "", incarnation, step, manifest);
}

void order_load(struct role_fixture *f) {
  order_load_from(f, 1, 0, "");
}

void order_unload(struct role_fixture *f) {
  order_unload_of(f, "unit-1");
}

void order_unload_of(struct role_fixture *f, const char *run) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__UnloadRun unload = WEIR__UNLOAD_RUN__INIT;
  unload.run = (char *)run;
  unload.reason = (char *)"it was cancelled";
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_UNLOAD;
  order.unload = &unload;
  fake_coordinator_order(&f->coordinator, &order);
}

void order_write(struct role_fixture *f, uint64_t step) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__WriteBlocks write = WEIR__WRITE_BLOCKS__INIT;
  write.run = (char *)"unit-1";
  write.incarnation = 1;
  write.step = step;
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_WRITE;
  order.write = &write;
  fake_coordinator_order(&f->coordinator, &order);
}

void order_keep(struct role_fixture *f, uint64_t incarnation, uint64_t step) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__KeepRun keep = WEIR__KEEP_RUN__INIT;
  keep.run = (char *)"unit-1";
  keep.incarnation = incarnation;
  keep.step = step;
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_KEEP;
  order.keep = &keep;
  fake_coordinator_order(&f->coordinator, &order);
}

void lose_coordinator(struct role_fixture *f, void (*meanwhile)(struct role_fixture *f)) {
  int n_joined = f->coordinator.n_joined;
  pthread_mutex_lock(&f->coordinator.lock);
  f->coordinator.refuses = true;
  pthread_mutex_unlock(&f->coordinator.lock);
  fake_coordinator_kick(&f->coordinator);
  fake_coordinator_wait_message(&f->coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO,
                                f->coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_HELLO] + 1);
  if (meanwhile)
    meanwhile(f);
  pthread_mutex_lock(&f->coordinator.lock);
  f->coordinator.refuses = false;
  pthread_mutex_unlock(&f->coordinator.lock);
  fake_coordinator_wait(&f->coordinator, &f->coordinator.n_joined, n_joined + 1);
}
