/* The lease: which coordinator leads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/shell/threads/lease.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/common/patience.h"
#include "tests/support/storage/flaky_store.h"

/* LONG_LEASE_MS: beside the time for which a busy machine may stop one holder's thread and not another's. */
enum { LEASE_MS = 1000, LONG_LEASE_MS = 3000 };

static const char term_name[] = "coordinator/epoch", lease_name[] = "coordinator/lease";

/* A coordinator as far as the lease goes: what it was told. */
struct holder {
  struct lease *lease;
  struct store *store;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t term; /* 0: it does not lead */
  int n_emptied, n_waiting;
  char waiting[256], trouble[256], deposed[256];
};

static struct store *store;
static int lease_ms; /* of holders that start */

static int setup(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  lease_ms = LEASE_MS;
  return store_open("memory://", &store, &err);
}

static int teardown(void **state) {
  (void)state;
  store_close(store);
  return 0;
}

static void on_waiting(void *user, const char *why) {
  struct holder *holder = user;
  pthread_mutex_lock(&holder->lock);
  snprintf(holder->waiting, sizeof holder->waiting, "%s", why);
  holder->n_waiting++;
  pthread_cond_broadcast(&holder->changed);
  pthread_mutex_unlock(&holder->lock);
}

static void on_leading(void *user, uint64_t term) {
  struct holder *holder = user;
  pthread_mutex_lock(&holder->lock);
  holder->term = term;
  pthread_cond_broadcast(&holder->changed);
  pthread_mutex_unlock(&holder->lock);
}

static void on_store(void *user, const char *message) {
  struct holder *holder = user;
  pthread_mutex_lock(&holder->lock);
  snprintf(holder->trouble, sizeof holder->trouble, "%s", message);
  pthread_cond_broadcast(&holder->changed);
  pthread_mutex_unlock(&holder->lock);
}

static void on_emptied(void *user) {
  struct holder *holder = user;
  pthread_mutex_lock(&holder->lock);
  holder->n_emptied++;
  pthread_cond_broadcast(&holder->changed);
  pthread_mutex_unlock(&holder->lock);
}

static void on_deposed(void *user, const char *reason) {
  struct holder *holder = user;
  pthread_mutex_lock(&holder->lock);
  snprintf(holder->deposed, sizeof holder->deposed, "%s", reason);
  pthread_cond_broadcast(&holder->changed);
  pthread_mutex_unlock(&holder->lock);
}

static void start_holding(struct holder *holder, const char *name, const char *held_record) {
  *holder = (struct holder){.store = flaky_store_new(store)};
  flaky_hold_record(holder->store, held_record);
  pthread_mutex_init(&holder->lock, NULL);
  pthread_cond_init(&holder->changed, NULL);
  holder->lease = lease_start(&(struct lease_options){.store = holder->store,
                                                      .holder = name,
                                                      .address = name,
                                                      .lease_ms = lease_ms,
                                                      .on_waiting = on_waiting,
                                                      .on_leading = on_leading,
                                                      .on_store = on_store,
                                                      .on_emptied = on_emptied,
                                                      .on_deposed = on_deposed,
                                                      .user = holder});
}

static void start(struct holder *holder, const char *name) {
  start_holding(holder, name, NULL);
}

static void stop(struct holder *holder) {
  lease_stop(holder->lease);
  store_close(holder->store);
  pthread_cond_destroy(&holder->changed);
  pthread_mutex_destroy(&holder->lock);
}

/* Waits until the condition, which may use `holder`, is true. */
#define AWAIT(h, condition)                                                                                  \
  do {                                                                                                       \
    struct holder *holder = (h);                                                                             \
    struct timespec until;                                                                                   \
    clock_gettime(CLOCK_REALTIME, &until);                                                                   \
    until.tv_sec += patience_seconds();                                                                      \
    pthread_mutex_lock(&holder->lock);                                                                       \
    while (!(condition))                                                                                     \
      if (pthread_cond_timedwait(&holder->changed, &holder->lock, &until))                                   \
        fail_msg("%s", "never: " #condition);                                                                \
    pthread_mutex_unlock(&holder->lock);                                                                     \
  } while (0)

static void put(const char *name, const char *text) {
  struct err err = ERR_NONE;
  assert_int_equal(store_put_record(store, &(struct store_record){name, text, strlen(text), NULL}, &err), 0);
}

static void expect_term(const char *text) {
  struct err err = ERR_NONE;
  void *data;
  size_t size;
  assert_int_equal(store_get_record(store, term_name, &data, &size, &err), 0);
  assert_int_equal(size, strlen(text));
  assert_memory_equal(data, text, size);
  free(data);
}

/* What a coordinator that was killed leaves. */
static void put_lease(const char *name, uint64_t term, uint64_t beat) {
  Weir__Lease record = WEIR__LEASE__INIT;
  struct err err = ERR_NONE;
  record.term = term;
  record.beat = beat;
  record.holder = record.address = (char *)name;
  assert_int_equal(checkpoint_write_record(store, lease_name, &record, NULL, &err), 0);
}

/* How often the lease that is in the store was renewed. */
static uint64_t read_beat(void) {
  struct err err = ERR_NONE;
  Weir__Lease *record;
  uint64_t beat;
  assert_int_equal(
      checkpoint_read_record(store, lease_name, &weir__lease__descriptor, (void **)&record, &err), 0);
  beat = record->beat;
  message_free(record);
  return beat;
}

/* Waits for something that nobody tells. */
#define LOOK_UNTIL(condition)                                                                                \
  do {                                                                                                       \
    uint64_t until_ns = clock_now_ns() + (uint64_t)patience_seconds() * 1000000000;                          \
    while (!(condition)) {                                                                                   \
      if (clock_now_ns() > until_ns)                                                                         \
        fail_msg("%s", "never: " #condition);                                                                \
      usleep(5000);                                                                                          \
    }                                                                                                        \
  } while (0)

static void each_leader_has_a_higher_term_than_the_one_before(void **state) {
  struct holder first, second;
  (void)state;
  lease_ms = LONG_LEASE_MS;
  start(&first, "a:1");
  AWAIT(&first, holder->term == 1);
  expect_term("1");
  start(&second, "b:1");
  AWAIT(&second, strstr(holder->waiting, "standby of a:1"));
  assert_int_equal(second.term, 0);
  stop(&first); /* sets the lease free */
  AWAIT(&second, holder->term == 2);
  expect_term("2");
  stop(&second);
}

static void a_lease_that_is_renewed_is_not_taken(void **state) {
  struct holder first, second;
  uint64_t beat;
  (void)state;
  lease_ms = LONG_LEASE_MS;
  start(&first, "a:1");
  AWAIT(&first, holder->term == 1);
  start(&second, "b:1");
  AWAIT(&second, holder->n_waiting > 0);
  beat = read_beat();
  LOOK_UNTIL(read_beat() >= beat + 6); /* two leases */
  AWAIT(&second, holder->term == 0);
  AWAIT(&first, !*holder->deposed);
  expect_term("1");
  stop(&second);
  stop(&first);
}

/* Else the one that looks while there is no lease would take it from the one that has got it meanwhile. */
static void of_two_that_start_together_one_leads_and_none_is_deposed(void **state) {
  struct holder first, second;
  (void)state;
  lease_ms = LONG_LEASE_MS;
  start_holding(&first, "a:1", term_name);
  LOOK_UNTIL(flaky_count_held(first.store) > 0);
  start(&second, "b:1");
  AWAIT(&second, holder->term == 1);
  flaky_hold_record(first.store, NULL);
  AWAIT(&first, holder->term || strstr(holder->waiting, "standby of b:1"));
  assert_int_equal(first.term, 0);
  AWAIT(&second, !*holder->deposed);
  stop(&first);
  stop(&second);
  expect_term("1");
}

static void the_lease_of_a_dead_coordinator_is_taken_when_it_runs_out(void **state) {
  struct holder one;
  uint64_t begun_ns = clock_now_ns();
  (void)state;
  put(term_name, "7");
  put_lease("dead:1", 7, 42);
  start(&one, "b:1");
  AWAIT(&one, holder->term == 8);
  assert_true(clock_now_ns() - begun_ns >= (uint64_t)LEASE_MS * 1000000);
  stop(&one);
}

static void a_coordinator_does_not_wait_for_its_own_former_self(void **state) {
  struct holder one;
  (void)state;
  put(term_name, "7");
  put_lease("a:1", 7, 42);
  start(&one, "a:1");
  AWAIT(&one, holder->term == 8);
  assert_int_equal(one.n_waiting, 0);
  stop(&one);
}

static void a_term_is_never_given_twice_even_if_its_record_is_lost(void **state) {
  struct holder one;
  (void)state;
  put_lease("a:1", 7, 42);
  start(&one, "a:1");
  AWAIT(&one, holder->term == 8);
  stop(&one);
}

static void a_term_that_only_members_remember_is_outdone(void **state) {
  struct holder one;
  (void)state;
  start(&one, "a:1");
  AWAIT(&one, holder->term == 1);
  lease_outlived(one.lease, 7);
  stop(&one);
  expect_term("7");
  start(&one, "b:1"); /* at once: the lease was set free */
  AWAIT(&one, holder->term == 8);
  lease_outlived(one.lease, 7);
  lease_outlived(one.lease, UINT64_MAX); /* none could follow */
  stop(&one);
  expect_term("8");
  start(&one, "a:1");
  AWAIT(&one, holder->term == 9);
  lease_outlived(one.lease, 20);
  put(term_name, "11"); /* another has it */
  stop(&one);
  expect_term("11");
}

static void a_holder_in_doubt_asks_the_store_and_believes_the_doubt_where_it_is_away(void **state) {
  struct holder one;
  uint64_t beat;
  (void)state;
  start(&one, "a:1");
  AWAIT(&one, holder->term == 1);
  lease_doubt(one.lease);
  beat = read_beat();
  LOOK_UNTIL(read_beat() >= beat + 2); /* a renewal that began with the doubt */
  AWAIT(&one, !*holder->deposed);
  flaky_set_away(one.store, true);
  LOOK_UNTIL(flaky_count_refused(one.store) >= 2);
  assert_int_equal(strlen(one.deposed), 0); /* away alone is no reason */
  lease_doubt(one.lease);
  AWAIT(&one, strstr(holder->deposed, "higher term"));
  flaky_set_away(one.store, false);
  stop(&one);
}

static void a_holder_that_finds_a_higher_term_is_deposed(void **state) {
  struct holder one;
  (void)state;
  start(&one, "a:1");
  AWAIT(&one, holder->term == 1);
  put(term_name, "2");
  AWAIT(&one, strstr(holder->deposed, "term 2"));
  assert_int_equal(one.n_emptied, 0);
  stop(&one);
  expect_term("2");
}

static void a_holder_cut_off_from_the_store_is_deposed_when_it_is_back(void **state) {
  struct holder first, second;
  (void)state;
  start(&first, "a:1");
  AWAIT(&first, holder->term == 1);
  start(&second, "b:1");
  flaky_set_away(first.store, true);
  AWAIT(&second, holder->term == 2);
  AWAIT(&first, strstr(holder->trouble, "nobody answers"));
  assert_string_equal(first.deposed, "");
  flaky_set_away(first.store, false);
  AWAIT(&first, *holder->deposed);
  stop(&first);
  AWAIT(&second, !*holder->deposed);
  stop(&second);
}

static void a_store_that_is_back_is_told_as_well(void **state) {
  struct holder one;
  (void)state;
  start(&one, "a:1");
  AWAIT(&one, holder->term == 1);
  flaky_set_away(one.store, true);
  AWAIT(&one, *holder->trouble);
  flaky_set_away(one.store, false);
  AWAIT(&one, !*holder->trouble);
  assert_int_equal(one.n_emptied, 0);
  stop(&one);
}

static void a_standby_without_a_store_says_so_and_leads_when_it_is_there(void **state) {
  struct holder one;
  (void)state;
  start(&one, "a:1");
  flaky_set_away(one.store, true);
  AWAIT(&one, holder->term || strstr(holder->waiting, "nobody answers"));
  flaky_set_away(one.store, false);
  AWAIT(&one, holder->term == 1);
  stop(&one);
}

static void a_store_that_lost_everything_gets_the_term_again(void **state) {
  struct holder one;
  struct err err = ERR_NONE;
  (void)state;
  put(term_name, "7");
  start(&one, "a:1");
  AWAIT(&one, holder->term == 8);
  assert_int_equal(store_delete_record(store, term_name, NULL, &err), 0);
  AWAIT(&one, holder->n_emptied == 1);
  expect_term("8");
  put(term_name, "5"); /* a replica that had not got the newest */
  AWAIT(&one, holder->n_emptied == 2);
  expect_term("8");
  assert_string_equal(one.deposed, "");
  stop(&one);
}

static void a_record_that_is_no_term_is_not_overwritten(void **state) {
  struct holder one;
  (void)state;
  put(term_name, "-1");
  start(&one, "a:1");
  AWAIT(&one, strstr(holder->waiting, "holds no term"));
  stop(&one);
  expect_term("-1");
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(each_leader_has_a_higher_term_than_the_one_before),
      TEST(a_lease_that_is_renewed_is_not_taken),
      TEST(of_two_that_start_together_one_leads_and_none_is_deposed),
      TEST(the_lease_of_a_dead_coordinator_is_taken_when_it_runs_out),
      TEST(a_coordinator_does_not_wait_for_its_own_former_self),
      TEST(a_term_is_never_given_twice_even_if_its_record_is_lost),
      TEST(a_term_that_only_members_remember_is_outdone),
      TEST(a_holder_in_doubt_asks_the_store_and_believes_the_doubt_where_it_is_away),
      TEST(a_holder_that_finds_a_higher_term_is_deposed),
      TEST(a_holder_cut_off_from_the_store_is_deposed_when_it_is_back),
      TEST(a_store_that_is_back_is_told_as_well),
      TEST(a_standby_without_a_store_says_so_and_leads_when_it_is_there),
      TEST(a_store_that_lost_everything_gets_the_term_again),
      TEST(a_record_that_is_no_term_is_not_overwritten),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
