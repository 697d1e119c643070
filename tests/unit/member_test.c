/* A member stays a member as long as there is a coordinator. */
#include "common/member.h"
#include "tests/unit/fake_coordinator.h"

struct fixture {
  struct fake_coordinator coordinator;
  struct rpc_client *client;
  struct member *member;

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  int n_connected, n_orders, n_lost;
  bool is_member;
  struct err lost;
  char id[32], run[32];
};

static void note(struct fixture *f, int *counter) {
  (*counter)++;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

static void on_connected(void *user, const char *id) {
  struct fixture *f = user;
  pthread_mutex_lock(&f->lock);
  assert_false(f->is_member);
  f->is_member = true;
  snprintf(f->id, sizeof f->id, "%s", id);
  note(f, &f->n_connected);
}

static void on_order(void *user, const Weir__Order *order) {
  struct fixture *f = user;
  pthread_mutex_lock(&f->lock);
  assert_true(f->is_member);
  assert_int_equal(order->body_case, WEIR__ORDER__BODY_UNLOAD);
  snprintf(f->run, sizeof f->run, "%s", order->unload->run);
  note(f, &f->n_orders);
}

static void on_lost(void *user, const struct err *err) {
  struct fixture *f = user;
  pthread_mutex_lock(&f->lock);
  assert_true(f->is_member);
  f->is_member = false;
  f->lost = *err;
  note(f, &f->n_lost);
}

static void wait_for(struct fixture *f, const int *counter, int least) {
  struct timespec until;
  int rc = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += COORDINATOR_WAIT_SECONDS_MAX;
  pthread_mutex_lock(&f->lock);
  while (*counter < least && rc != ETIMEDOUT)
    rc = pthread_cond_timedwait(&f->changed, &f->lock, &until);
  rc = *counter < least;
  pthread_mutex_unlock(&f->lock);
  assert_int_equal(rc, 0);
}

static void fixture_start(struct fixture *f, const char *target) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct member_options options = {.client = f->client,
                                   .coordinator = target,
                                   .hello = &hello,
                                   .on_connected = on_connected,
                                   .on_order = on_order,
                                   .on_lost = on_lost,
                                   .user = f};
  hello.host = (char *)"unit";
  hello.pid = 17;
  f->member = member_start(&options);
}

static void fixture_init(struct fixture *f) {
  *f = (struct fixture){0};
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  coordinator_init(&f->coordinator);
  f->client = rpc_client_new(1);
}

static void fixture_fini(struct fixture *f) {
  member_stop(f->member);
  rpc_client_free(f->client);
  coordinator_fini(&f->coordinator);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
}

static void send_unload(struct fixture *f, uint64_t epoch, const char *run) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__UnloadRun unload = WEIR__UNLOAD_RUN__INIT;
  unload.run = (char *)run;
  order.epoch = epoch;
  order.body_case = WEIR__ORDER__BODY_UNLOAD;
  order.unload = &unload;
  coordinator_order(&f->coordinator, &order);
}

static void a_member_says_hello_and_is_welcomed(void **state) {
  struct fixture f;
  const Weir__MemberMessage *hello;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  wait_for(&f, &f.n_connected, 1);
  assert_string_equal(f.id, "server-1");
  hello = coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO, 1);
  assert_string_equal(hello->hello->host, "unit");
  assert_int_equal(hello->hello->pid, 17);
  fixture_fini(&f);
}

static void a_member_beats(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, 2);
  fixture_fini(&f);
}

static void orders_and_messages_travel(void **state) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__RunComplete complete = WEIR__RUN_COMPLETE__INIT;
  struct fixture f;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  wait_for(&f, &f.n_connected, 1);
  send_unload(&f, 1, "first");
  wait_for(&f, &f.n_orders, 1);
  assert_string_equal(f.run, "first");
  complete.run = (char *)"first";
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_COMPLETE;
  message.complete = &complete;
  assert_int_equal(member_send(f.member, &message), 0);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, 1);
  fixture_fini(&f);
}

static void an_order_of_an_older_epoch_is_refused(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  wait_for(&f, &f.n_connected, 1);
  send_unload(&f, 3, "new");
  send_unload(&f, 2, "old");
  send_unload(&f, 3, "newest");
  wait_for(&f, &f.n_orders, 2);
  assert_string_equal(f.run, "newest");
  assert_int_equal(f.n_orders, 2);
  fixture_fini(&f);
}

static void a_member_joins_again_when_the_link_breaks(void **state) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Leaving leaving = WEIR__LEAVING__INIT;
  struct fixture f;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  for (int n = 1; n <= 3; n++) {
    wait_for(&f, &f.n_connected, n);
    coordinator_wait(&f.coordinator, &f.coordinator.n_joined, n);
    coordinator_kick(&f.coordinator);
    wait_for(&f, &f.n_lost, n);
    assert_non_null(strstr(f.lost.text, "the coordinator is going away"));
  }
  wait_for(&f, &f.n_connected, 4);
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LEAVING;
  message.leaving = &leaving;
  assert_int_equal(member_send(f.member, &message), 0);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LEAVING, 1);
  fixture_fini(&f);
  assert_int_equal(f.n_lost, 4); /* stopping ends the last membership */
}

static void a_member_that_cannot_say_more_joins_anew(void **state) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  struct fixture f;
  int code = 0;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  wait_for(&f, &f.n_connected, 1);
  report.run = (char *)"fast";
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_STEP;
  message.step = &report;
  for (int i = 0; i < 1000000 && !code; i++)
    code = member_send(f.member, &message);
  assert_int_equal(code, ERR_BUSY);
  wait_for(&f, &f.n_lost, 1);
  assert_non_null(strstr(f.lost.text, "takes no more messages"));
  wait_for(&f, &f.n_connected, 2);
  fixture_fini(&f);
}

static void a_member_that_is_refused_tries_again(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  f.coordinator.refuses = true;
  fixture_start(&f, f.coordinator.target);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO, 2);
  pthread_mutex_lock(&f.coordinator.lock);
  f.coordinator.refuses = false;
  pthread_mutex_unlock(&f.coordinator.lock);
  wait_for(&f, &f.n_connected, 1);
  assert_int_equal(f.n_lost, 0);
  fixture_fini(&f);
}

static void a_member_without_a_coordinator_can_be_stopped(void **state) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  struct fixture f;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, "127.0.0.1:1");
  assert_int_equal(member_send(f.member, &message), ERR_CANCELLED);
  fixture_fini(&f);
  assert_int_equal(f.n_connected + f.n_lost, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_member_says_hello_and_is_welcomed),
      cmocka_unit_test(a_member_beats),
      cmocka_unit_test(orders_and_messages_travel),
      cmocka_unit_test(an_order_of_an_older_epoch_is_refused),
      cmocka_unit_test(a_member_joins_again_when_the_link_breaks),
      cmocka_unit_test(a_member_that_cannot_say_more_joins_anew),
      cmocka_unit_test(a_member_that_is_refused_tries_again),
      cmocka_unit_test(a_member_without_a_coordinator_can_be_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
