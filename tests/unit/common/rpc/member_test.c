/* A member stays a member as long as there is a coordinator. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/rpc/client.h"
#include "common/rpc/member.h"
#include "tests/support/common/fake_coordinator.h"
#include "tests/support/common/patience.h"

enum { TRIES = 20 };

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
  const char *hosted;  /* said to be hosted */
  const char *beating; /* the run that heartbeats speak of; NULL: of none */
  int silent_after_ms; /* of the member that is started */
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

static void on_hello(void *user, Weir__Hello *hello, struct arena *arena) {
  struct fixture *f = user;
  pthread_mutex_lock(&f->lock);
  assert_false(f->is_member);
  if (f->hosted) {
    hello->runs = arena_new(arena, sizeof *hello->runs);
    hello->runs[hello->n_runs] = arena_new(arena, sizeof **hello->runs);
    weir__hosted_run__init(hello->runs[hello->n_runs]);
    hello->runs[hello->n_runs]->incarnation = 7;
    hello->runs[hello->n_runs++]->run = arena_strdup(arena, f->hosted);
  }
  pthread_mutex_unlock(&f->lock);
}

static void on_beat(void *user, Weir__Heartbeat *heartbeat, struct arena *arena) {
  struct fixture *f = user;
  pthread_mutex_lock(&f->lock);
  if (f->beating) {
    Weir__RunCounters *counters = arena_new(arena, sizeof *counters);
    weir__run_counters__init(counters);
    counters->run = arena_strdup(arena, f->beating);
    counters->computed = 17;
    heartbeat->runs = arena_new(arena, sizeof *heartbeat->runs);
    heartbeat->runs[heartbeat->n_runs++] = counters;
    assert_non_null(member_channel(f->member)); /* it holds no lock of its own, as owners have theirs */
  }
  pthread_mutex_unlock(&f->lock);
}

static void wait_for(struct fixture *f, const int *counter, int least) {
  struct timespec until;
  int rc = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience_seconds();
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
                                   .silent_after_ms = f->silent_after_ms,
                                   .on_hello = on_hello,
                                   .on_beat = on_beat,
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
  fake_coordinator_init(&f->coordinator);
  f->client = rpc_client_new(1, NULL);
}

static void fixture_fini(struct fixture *f) {
  member_stop(f->member);
  rpc_client_free(f->client);
  fake_coordinator_fini(&f->coordinator);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
}

static void send_unload_locked(struct fixture *f, uint64_t term, const char *run) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__UnloadRun unload = WEIR__UNLOAD_RUN__INIT;
  unload.run = (char *)run;
  order.term = term;
  order.body_case = WEIR__ORDER__BODY_UNLOAD;
  order.unload = &unload;
  fake_coordinator_order_locked(&f->coordinator, &order);
}

/* Heartbeats are many: one that was filled comes at last. */
static void a_heartbeat_says_what_its_owner_fills_in(void **state) {
  struct fixture f;
  const Weir__Heartbeat *heartbeat;
  int n = 1;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  wait_for(&f, &f.n_connected, 1);
  heartbeat =
      fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, n)->heartbeat;
  assert_int_equal(heartbeat->n_runs, 0);
  pthread_mutex_lock(&f.lock);
  f.beating = "t-1";
  pthread_mutex_unlock(&f.lock);
  do
    heartbeat =
        fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, ++n)->heartbeat;
  while (heartbeat->n_runs == 0);
  assert_string_equal(heartbeat->runs[0]->run, "t-1");
  assert_int_equal(heartbeat->runs[0]->computed, 17);
  fixture_fini(&f);
}

static void a_member_says_hello_and_is_welcomed(void **state) {
  struct fixture f;
  const Weir__MemberMessage *hello;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  wait_for(&f, &f.n_connected, 1);
  assert_string_equal(f.id, "server-1");
  hello = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO, 1);
  assert_string_equal(hello->hello->host, "unit");
  assert_int_equal(hello->hello->pid, 17);
  fixture_fini(&f);
}

static void a_member_beats(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, 2);
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
  pthread_mutex_lock(&f.coordinator.lock);
  send_unload_locked(&f, 1, "first");
  pthread_mutex_unlock(&f.coordinator.lock);
  wait_for(&f, &f.n_orders, 1);
  assert_string_equal(f.run, "first");
  complete.run = (char *)"first";
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_COMPLETE;
  message.complete = &complete;
  assert_int_equal(member_send(f.member, &message), 0);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, 1);
  fixture_fini(&f);
}

static void an_order_of_an_older_term_is_refused_and_ends_the_membership(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  wait_for(&f, &f.n_connected, 1);
  pthread_mutex_lock(&f.coordinator.lock); /* the member may leave as soon as it has the old one */
  f.coordinator.term = 3;
  send_unload_locked(&f, 3, "new");
  send_unload_locked(&f, 2, "old");
  send_unload_locked(&f, 3, "too late");
  pthread_mutex_unlock(&f.coordinator.lock);
  wait_for(&f, &f.n_lost, 1);
  assert_int_equal(f.lost.code, ERR_STALE);
  assert_string_equal(f.run, "new");
  assert_int_equal(f.n_orders, 1);
  wait_for(&f, &f.n_connected, 2);
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
    fake_coordinator_wait(&f.coordinator, &f.coordinator.n_joined, n);
    fake_coordinator_kick(&f.coordinator);
    wait_for(&f, &f.n_lost, n);
    assert_non_null(strstr(f.lost.text, "the coordinator is going away"));
  }
  wait_for(&f, &f.n_connected, 4);
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LEAVING;
  message.leaving = &leaving;
  assert_int_equal(member_send(f.member, &message), 0);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LEAVING, 1);
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
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO, 2);
  pthread_mutex_lock(&f.coordinator.lock);
  f.coordinator.refuses = false;
  pthread_mutex_unlock(&f.coordinator.lock);
  wait_for(&f, &f.n_connected, 1);
  assert_int_equal(f.n_lost, 0);
  fixture_fini(&f);
}

static void list(char *out, size_t size, const struct fake_coordinator *a, const struct fake_coordinator *b) {
  snprintf(out, size, "%s,%s", a->target, b->target);
}

static void stand_by(struct fake_coordinator *c, bool stands_by) {
  pthread_mutex_lock(&c->lock);
  c->stands_by = stands_by;
  pthread_mutex_unlock(&c->lock);
}

static void a_member_finds_the_coordinator_that_leads(void **state) {
  struct fixture f;
  struct fake_coordinator leader;
  char both[80];
  (void)state;
  fixture_init(&f);
  fake_coordinator_init(&leader);
  f.coordinator.stands_by = true;
  list(both, sizeof both, &f.coordinator, &leader);
  fixture_start(&f, both);
  wait_for(&f, &f.n_connected, 1);
  fake_coordinator_wait(&leader, &leader.n_joined, 1);
  assert_string_equal(rpc_channel_target(member_channel(f.member)), leader.target);
  fixture_fini(&f);
  fake_coordinator_fini(&leader);
}

static void a_member_goes_over_to_the_successor_with_its_id_term_and_runs(void **state) {
  struct fixture f;
  struct fake_coordinator successor;
  const Weir__Hello *hello;
  char both[80];
  (void)state;
  fixture_init(&f);
  fake_coordinator_init(&successor);
  f.coordinator.term = 5;
  f.coordinator.id = "server-4";
  successor.term = 6;
  successor.stands_by = true;
  list(both, sizeof both, &f.coordinator, &successor);
  fixture_start(&f, both);
  wait_for(&f, &f.n_connected, 1);
  hello = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO, 1)->hello;
  assert_string_equal(hello->id, "");
  assert_int_equal(hello->term, 0);
  assert_int_equal(hello->n_runs, 0);
  assert_int_equal(hello->pid, 17);
  pthread_mutex_lock(&f.lock);
  f.hosted = "mnist-1";
  pthread_mutex_unlock(&f.lock);
  fake_coordinator_stop_listening(&f.coordinator);
  wait_for(&f, &f.n_lost, 1);
  fake_coordinator_wait_message(&successor, WEIR__MEMBER_MESSAGE__BODY_HELLO,
                                2); /* it asks again and again */
  stand_by(&successor, false);
  wait_for(&f, &f.n_connected, 2);
  assert_string_equal(f.id, "server-4");
  hello = successor.messages[WEIR__MEMBER_MESSAGE__BODY_HELLO]->hello;
  assert_string_equal(hello->id, "server-4");
  assert_int_equal(hello->term, 5);
  assert_int_equal(hello->pid, 17);
  assert_int_equal(hello->n_runs, 1);
  assert_string_equal(hello->runs[0]->run, "mnist-1");
  assert_int_equal(hello->runs[0]->incarnation, 7);
  assert_string_equal(rpc_channel_target(member_channel(f.member)), successor.target);
  fixture_fini(&f);
  fake_coordinator_fini(&successor);
}

static void a_coordinator_of_an_older_term_is_no_coordinator(void **state) {
  struct fixture f;
  struct fake_coordinator leader;
  char both[80];
  (void)state;
  fixture_init(&f);
  fake_coordinator_init(&leader);
  leader.term = 9;
  f.coordinator.stands_by = true; /* nor is it joined first, by a member that finds the leader slow */
  list(both, sizeof both, &leader, &f.coordinator);
  fixture_start(&f, both);
  wait_for(&f, &f.n_connected, 1);
  stand_by(&f.coordinator, false);
  stand_by(&leader, true); /* so that the other, which does not know yet, is asked */
  fake_coordinator_kick(&leader);
  wait_for(&f, &f.n_lost, 1);
  fake_coordinator_wait(&f.coordinator, &f.coordinator.n_joined, 1);
  assert_int_equal(f.coordinator.messages[WEIR__MEMBER_MESSAGE__BODY_HELLO]->hello->term, 9);
  stand_by(&leader, false);
  wait_for(&f, &f.n_connected, 2);
  fake_coordinator_wait(&leader, &leader.n_joined, 2);
  fixture_fini(&f);
  fake_coordinator_fini(&leader);
}

static void a_member_leaves_a_coordinator_that_fell_silent(void **state) {
  struct fixture f;
  struct fake_coordinator successor;
  char both[80];
  (void)state;
  fixture_init(&f);
  fake_coordinator_init(&successor);
  successor.term = 2;
  successor.stands_by = true; /* whoever finds the first one slow comes back to it */
  list(both, sizeof both, &f.coordinator, &successor);
  f.silent_after_ms = 6000; /* beats may be late, by seconds on a busy machine */
  fixture_start(&f, both);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, 4);
  assert_int_equal(f.n_lost, 0); /* beats alone are enough, and no order to be obeyed */
  assert_int_equal(f.n_orders, 0);
  stand_by(&successor, false);
  pthread_mutex_lock(&f.coordinator.lock);
  f.coordinator.is_mute = f.coordinator.stands_by = true;
  pthread_mutex_unlock(&f.coordinator.lock);
  wait_for(&f, &f.n_connected, 2);
  fake_coordinator_wait(&successor, &successor.n_joined, 1);
  assert_int_equal(f.lost.code, ERR_TIMEOUT);
  assert_non_null(strstr(f.lost.text, "it has said nothing for"));
  assert_string_equal(rpc_channel_target(member_channel(f.member)), successor.target);
  fixture_fini(&f);
  fake_coordinator_fini(&successor);
}

/* In the place of a coordinator that is away: takes connections and closes them. Fails the test if fewer come
   in all its patience. */
static void turn_away(const char *target, int connections) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  uint64_t begun_ns = clock_now_ns();
  int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  address.sin_port = htons((uint16_t)atoi(strchr(target, ':') + 1));
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(listener, 1), 0);
  for (int n = 0; n < connections; n++) {
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    int64_t left_ms = patience_ms() - (int64_t)((clock_now_ns() - begun_ns) / 1000000);
    if (left_ms <= 0 || poll(&waiting, 1, (int)left_ms) != 1)
      fail_msg("the coordinator is looked for %d times, and then no more", n);
    close(accept(listener, NULL, NULL));
  }
  close(listener);
}

/* The pauses do not grow beyond a bound: with gRPC's own, TRIES of them take several patiences. */
static void a_coordinator_that_is_away_is_looked_for_again_and_again(void **state) {
  struct fixture f;
  (void)state;
  fixture_init(&f);
  fixture_start(&f, f.coordinator.target);
  wait_for(&f, &f.n_connected, 1);
  fake_coordinator_stop_listening(&f.coordinator);
  wait_for(&f, &f.n_lost, 1);
  turn_away(f.coordinator.target, TRIES);
  fake_coordinator_listen(&f.coordinator);
  wait_for(&f, &f.n_connected, 2);
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
      cmocka_unit_test(a_heartbeat_says_what_its_owner_fills_in),
      cmocka_unit_test(a_member_beats),
      cmocka_unit_test(orders_and_messages_travel),
      cmocka_unit_test(an_order_of_an_older_term_is_refused_and_ends_the_membership),
      cmocka_unit_test(a_member_joins_again_when_the_link_breaks),
      cmocka_unit_test(a_member_that_cannot_say_more_joins_anew),
      cmocka_unit_test(a_member_that_is_refused_tries_again),
      cmocka_unit_test(a_member_finds_the_coordinator_that_leads),
      cmocka_unit_test(a_member_goes_over_to_the_successor_with_its_id_term_and_runs),
      cmocka_unit_test(a_coordinator_of_an_older_term_is_no_coordinator),
      cmocka_unit_test(a_member_leaves_a_coordinator_that_fell_silent),
      cmocka_unit_test(a_coordinator_that_is_away_is_looked_for_again_and_again),
      cmocka_unit_test(a_member_without_a_coordinator_can_be_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
