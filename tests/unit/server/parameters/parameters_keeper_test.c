/* A server that asks the keeper of sums, which is made up here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/parameters/parameters_calls.h"

enum { PARAM_BLOCKS = 3, ELEMS = 300 * 300 + 1803, CALLS_MAX = 8 };

static const Weir__LoadRun *clipped_order(uint64_t incarnation, size_t servers) {
  const Weir__LoadRun *order = make_order(incarnation, servers);
  order->spec->train->has_clip_norm = true;
  order->spec->train->clip_norm = 1;
  return order;
}

/* A keeper that does as it is told, once a call. */
struct fake_keeper {
  struct rpc_service service;
  struct rpc_server *server;
  char target[32];
  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  int n_calls, n_failures; /* that are still to come */
  enum err_code failure;
  bool is_silent; /* keeps calls without an answer */
  size_t n_totals_less;
  struct rpc_call *kept[CALLS_MAX];
  int n_kept;
};

static void fake_on_sums(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fake_keeper *fake = rpc_call_context(call);
  const Weir__SumsRequest *request = message;
  Weir__SumsReply reply = WEIR__SUMS_REPLY__INIT;
  double totals[CALLS_MAX] = {0};
  bool is_kept = false, fails;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&fake->lock);
  fake->n_calls++;
  fails = fake->n_failures > 0;
  fake->n_failures -= fails;
  if (!fails && fake->is_silent) {
    fake->kept[fake->n_kept++] = call;
    is_kept = true;
  }
  pthread_cond_broadcast(&fake->changed);
  pthread_mutex_unlock(&fake->lock);
  for (size_t i = 0; i < request->n_values; i++)
    totals[i] = 21.0 * 21 * ELEMS;
  reply.totals = totals;
  reply.n_totals = request->n_values - fake->n_totals_less;
  if (fails)
    rpc_call_fail(call, fake->failure, "the fake keeper does not want to");
  else if (!is_kept)
    rpc_call_reply(call, &reply, NULL);
}

static const struct rpc_method fake_methods[] = {{.id = RPC_SUMS, .on_message = fake_on_sums}};

/* The server under test is the second of two: blocks 1 and 2 are its own. */
static void member_init(struct parameters_fixture *f, struct fake_keeper *fake) {
  struct rpc_server_options options = {
      .listen = "127.0.0.1:0", .services = &fake->service, .n_services = 1, .threads = 1};
  const Weir__LoadRun *order = clipped_order(1, 2);
  struct err err = ERR_NONE;
  fake->service = (struct rpc_service){.methods = fake_methods, .n_methods = 1, .context = fake};
  pthread_mutex_init(&fake->lock, NULL);
  pthread_cond_init(&fake->changed, NULL);
  assert_int_equal(rpc_server_start(&options, &fake->server, &err), 0);
  snprintf(fake->target, sizeof fake->target, "127.0.0.1:%d", rpc_server_port(fake->server));
  order->servers[0]->address = fake->target;
  parameters_fixture_open(f);
  assert_int_equal(load_order_as(f, order, "server-2", &err), 0);
}

static void member_fini(struct parameters_fixture *f, struct fake_keeper *fake) {
  parameters_fixture_fini(f);
  for (int i = 0; i < fake->n_kept; i++)
    rpc_call_fail(fake->kept[i], ERR_CANCELLED, "the test is over");
  rpc_server_stop(fake->server);
  pthread_cond_destroy(&fake->changed);
  pthread_mutex_destroy(&fake->lock);
}

static void wait_calls(struct fake_keeper *fake, int n) {
  pthread_mutex_lock(&fake->lock);
  while (fake->n_calls < n)
    pthread_cond_wait(&fake->changed, &fake->lock);
  pthread_mutex_unlock(&fake->lock);
}

static void push_members_step(struct parameters_fixture *f) {
  for (uint32_t block = 1; block <= 2; block++) {
    push_all_but_last(f, block, 0);
    push_part(f, block, 0, MICROBATCHES - 1, 0);
  }
}

static void a_keeper_that_is_away_is_asked_again(void **state) {
  struct fake_keeper fake = {.n_failures = 2, .failure = ERR_UNAVAILABLE};
  struct parameters_fixture f;
  float before, after;
  double clipped = 21 / (sqrt(21.0 * 21 * ELEMS) + 1e-6);
  (void)state;
  member_init(&f, &fake);
  pull_first_element(&f, 1, 0, &before);
  push_members_step(&f);
  pull_first_element(&f, 1, 1, &after);
  assert_true(fabs(after - before + 0.5 * clipped) < 1e-8);
  pull_first_element(&f, 2, 1, &after);
  wait_calls(&fake, 3);
  assert_int_equal(fake.n_calls, 3); /* both blocks in one batch, three times */
  member_fini(&f, &fake);
}

static void a_keeper_that_refuses_ends_the_step_with_its_words(void **state) {
  struct fake_keeper fake = {.n_failures = 1, .failure = ERR_INVALID};
  struct parameters_fixture f;
  struct attempt waiting, late;
  (void)state;
  member_init(&f, &fake);
  start_pull(&f, &waiting, 1, 1);
  wait_parked(&f, 1, 1);
  push_members_step(&f);
  finish_with_error(&waiting, ERR_INVALID, "the fake keeper does not want to");
  start_waiting_part(&f, &late, 1, 0, 3);
  finish_with_error(&late, ERR_INVALID, "the fake keeper does not want to");
  member_fini(&f, &fake);
}

static void an_answer_of_another_length_is_refused(void **state) {
  struct fake_keeper fake = {.n_totals_less = 1};
  struct parameters_fixture f;
  struct attempt waiting;
  (void)state;
  member_init(&f, &fake);
  start_pull(&f, &waiting, 2, 1);
  wait_parked(&f, 2, 1);
  push_members_step(&f);
  finish_with_error(&waiting, ERR_CORRUPT, "answered 2 sums with 1 totals");
  member_fini(&f, &fake);
}

static void unloading_a_run_that_waits_for_its_keeper_leaks_nothing(void **state) {
  struct fake_keeper fake = {.is_silent = true};
  struct parameters_fixture f;
  struct attempt waiting;
  (void)state;
  member_init(&f, &fake);
  start_pull(&f, &waiting, 1, 1);
  wait_parked(&f, 1, 1);
  push_members_step(&f);
  wait_calls(&fake, 1);
  run_table_remove(&f.runs, "unit-1", "a server was lost");
  finish_with_error(&waiting, ERR_CANCELLED, "a server was lost");
  member_fini(&f, &fake);
}

static void unloading_a_run_whose_keeper_is_to_be_asked_again_leaks_nothing(void **state) {
  struct fake_keeper fake = {.n_failures = 1000, .failure = ERR_NOT_FOUND};
  struct parameters_fixture f;
  (void)state;
  member_init(&f, &fake);
  push_members_step(&f);
  wait_calls(&fake, 2);
  member_fini(&f, &fake);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_keeper_that_is_away_is_asked_again),
      cmocka_unit_test(a_keeper_that_refuses_ends_the_step_with_its_words),
      cmocka_unit_test(an_answer_of_another_length_is_refused),
      cmocka_unit_test(unloading_a_run_that_waits_for_its_keeper_leaks_nothing),
      cmocka_unit_test(unloading_a_run_whose_keeper_is_to_be_asked_again_leaks_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
