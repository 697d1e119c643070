/* What a member says of itself is its own word, who holds its certificate is not: nobody takes the place of
   another certificate's holder. And tickets, which the coordinator gives to holders: of a run's key, which
   outlives it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "server/coordinator/messages/orders.h"
#include "tests/support/coordinator/core_reissue.h"
#include "tests/support/coordinator/core_run.h"
#include "tests/support/coordinator/core_succession.h"

enum { AGAIN = 20 };
#define ANN "spiffe://weir/all/ann"
#define EVE "spiffe://weir/all/eve"

static const char *refusal_of(struct core_fixture *f, uint64_t key) {
  for (int i = 0; i < f->actions.count; i++) {
    const struct coordinator_action *action = &f->actions.items[i];
    if (action->kind == ACTION_CLOSE && action->member == key && action->code == ERR_DENIED)
      return action->reason;
  }
  return "";
}

static void a_member_is_not_replaced_by_the_holder_of_another_certificate(void **state) {
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__SERVER;
  hello.host = "host";
  hello.address = "host:1";
  hello.pid = 1;
  hello.fingerprint = "build-1";
  hello.holder = ANN;
  says_hello(f, S1, &hello);
  hello.id = f->told[S1].id;
  hello.address = "host:9";
  hello.holder = EVE;
  says_hello(f, AGAIN, &hello);
  assert_false(f->told[S1].is_closed);
  assert_string_equal(refusal_of(f, AGAIN),
                      "server-1 (host) is there already, by the certificate of " ANN ", not of " EVE);
  hello.holder = ANN;
  says_hello(f, AGAIN + 1, &hello);
  assert_true(f->told[S1].is_closed);
  assert_string_equal(f->told[AGAIN + 1].id, "server-1");
}

/* What is meant for the one would be sent to the other. */
static void an_address_is_not_taken_by_the_holder_of_another_certificate(void **state) {
  static const Weir__Role roles[] = {WEIR__ROLE__SERVER, WEIR__ROLE__WORKER};
  struct core_fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  for (uint64_t i = 0; i < 2; i++) {
    hello.role = roles[i];
    hello.host = "host of ann";
    hello.address = i ? "10.0.0.1:2" : "10.0.0.1:1";
    hello.holder = ANN;
    says_hello(f, S1 + i, &hello);
    hello.host = "host of eve";
    hello.holder = EVE;
    says_hello(f, AGAIN + i, &hello);
    assert_non_null(strstr(refusal_of(f, AGAIN + i), ANN ", not of " EVE));
    hello.address = "10.0.0.2:1";
    says_hello(f, AGAIN + i, &hello);
    assert_string_equal(refusal_of(f, AGAIN + i), "");
  }
}

/* The run waits for the server, and takes no other one for it. */
static void an_id_is_not_taken_by_the_holder_of_another_certificate(void **state) {
  struct core_fixture *f = *state;
  for (int is_succeeded = 0; is_succeeded < 2; is_succeeded++) {
    if (!is_succeeded) {
      f->holder = ANN;
      core_run_start(f, 3);
      reports_steps(f, S1, RUN, 0, 3);
      member_leaves(f, S1);
    } else
      coordinator_is_succeeded(f, RUN, record_of(f));
    f->holder = EVE;
    server_joins_again(f, S1, AGAIN, RUN, 3);
    assert_string_not_equal(f->told[AGAIN].id, "server-1");
    assert_string_not_equal(f->told[AGAIN].keep, RUN);
    member_leaves(f, AGAIN);
    f->holder = ANN;
    server_joins_again(f, S1, AGAIN + 1, RUN, 3);
    assert_string_equal(f->told[AGAIN + 1].id, "server-1");
    assert_string_equal(f->told[AGAIN + 1].keep, RUN);
    f->told[AGAIN + 1].keep[0] = 0;
  }
}

static void a_worker_that_left_leaves_its_id_to_its_own_holder_alone(void **state) {
  struct core_fixture *f = *state;
  core_run_start(f, 1);
  f->holder = ANN;
  worker_joins(f, AGAIN, 1);
  member_leaves(f, AGAIN);
  f->holder = EVE;
  worker_joins_again(f, AGAIN, AGAIN + 1, RUN);
  assert_string_not_equal(f->told[AGAIN + 1].id, f->told[AGAIN].id);
  f->holder = ANN;
  worker_joins_again(f, AGAIN, AGAIN + 2, RUN);
  assert_string_equal(f->told[AGAIN + 2].id, f->told[AGAIN].id);
}

/* Eve says that hers is ann's device, and computes wrongly. */
static void a_device_is_not_quarantined_for_what_another_holder_does_in_its_name(void **state) {
  enum { W_ANN = W1, W_EVE, LATER };
  struct core_fixture *f = *state;
  server_joins(f, S1);
  server_joins(f, S2);
  f->holder = ANN;
  worker_joins_on(f, W_ANN, "a", "cpu");
  f->holder = EVE;
  worker_joins_on(f, W_EVE, "a", "cpu");
  user_submits(f, RUN, 2, 2);
  for (uint64_t key = W_ANN; key <= W_EVE; key++)
    worker_loads(f, key, RUN);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  server_judges(f, &(struct finding){
                       .block = 1, .changed = {{W_EVE, 0, 1}}, .n_changed = 1, .by = UINT64_C(1) << W_ANN});
  assert_string_equal(worker_row(f, W_EVE).state, "quarantined");
  assert_string_equal(worker_row(f, W_ANN).state, "ready");
  worker_joins_on(f, LATER, "a", "cpu");
  assert_string_equal(worker_row(f, LATER).state, "quarantined");
  f->holder = ANN;
  worker_joins_on(f, LATER + 1, "a", "cpu");
  assert_string_not_equal(worker_row(f, LATER + 1).state, "quarantined");
}

static const unsigned char none[TICKET_KEY_BYTES];

static void start_of_ann(struct core_fixture *f) {
  f->holder = ANN;
  core_run_start(f, 3);
}

/* By the key that servers have; worker: N of its id. */
static void assert_genuine(struct core_fixture *f, const char *text, uint64_t incarnation, uint32_t worker) {
  struct ticket ticket;
  struct err err = ERR_NONE;
  assert_int_equal(ticket_read(text, &ticket, &err), 0);
  assert_string_equal(ticket.run, RUN);
  assert_int_equal(ticket.incarnation, incarnation);
  assert_int_equal(ticket.worker, worker);
  assert_true(ticket_is_genuine(&ticket, f->told[S1].key, ANN));
}

static int check(struct core_fixture *f, const char *ticket, const char *holder) {
  struct err err = ERR_NONE;
  return coordinator_check_ticket(f->coordinator, RUN, ticket, holder, &err);
}

static void servers_are_told_the_key_and_workers_their_tickets(void **state) {
  struct core_fixture *f = *state;
  start_of_ann(f);
  assert_memory_not_equal(f->told[S1].key, none, TICKET_KEY_BYTES);
  assert_memory_equal(f->told[S1].key, f->told[S2].key, TICKET_KEY_BYTES);
  for (uint64_t key = W1; key <= W2; key++) {
    assert_memory_equal(f->told[key].key, none, TICKET_KEY_BYTES);
    assert_genuine(f, f->told[key].load_ticket, 0, (uint32_t)(key - W1) + 1);
    assert_genuine(f, f->told[key].view_ticket, 0, (uint32_t)(key - W1) + 1);
  }
  assert_genuine(f, f->told[S1].load_ticket, 0, 0);
}

static void a_roll_back_brings_tickets_of_the_new_incarnation(void **state) {
  struct core_fixture *f = *state;
  char old[TICKET_TEXT_SIZE];
  start_of_ann(f);
  strcpy(old, f->told[W1].load_ticket);
  reports_steps(f, S1, RUN, 0, 7);
  core_run_checkpoint(f);
  member_leaves(f, S2);
  time_passes(f, 1), member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS);
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_genuine(f, f->told[W1].view_ticket, 1, 1);
  assert_int_equal(check(f, old, ANN), 0); /* it may still be at loading */
}

static void a_successor_keeps_the_key(void **state) {
  struct core_fixture *f = *state;
  unsigned char key[TICKET_KEY_BYTES];
  char ticket[TICKET_TEXT_SIZE];
  start_of_ann(f);
  reports_steps(f, S1, RUN, 0, 3);
  memcpy(key, f->told[S1].key, sizeof key);
  strcpy(ticket, f->told[W1].load_ticket);
  coordinator_is_succeeded(f, RUN, record_of(f));
  assert_int_equal(check(f, ticket, ANN), 0);
  server_joins_again(f, S1, AGAIN, RUN, 3);
  server_joins_again(f, S2, AGAIN + 1, RUN, 3);
  worker_joins_again(f, W1, AGAIN + 2, RUN);
  worker_loads(f, AGAIN + 2, RUN);
  assert_string_equal(f->told[AGAIN + 2].view_ticket, ticket);
}

static void a_run_of_an_older_record_gets_a_key(void **state) {
  struct core_fixture *f = *state;
  Weir__RunRecord *record, *saved;
  char ticket[TICKET_TEXT_SIZE];
  start_of_ann(f);
  reports_steps(f, S1, RUN, 0, 3);
  strcpy(ticket, f->told[W1].load_ticket);
  record = record_of(f);
  assert_int_equal(record->key.len, TICKET_KEY_BYTES);
  memset(record->key.data, 7, TICKET_KEY_BYTES);
  record->key.len--; /* one of another size is none */
  coordinator_is_succeeded(f, RUN, record);
  saved = record_of(f);
  assert_int_equal(saved->key.len, TICKET_KEY_BYTES);
  assert_memory_not_equal(saved->key.data, none, TICKET_KEY_BYTES);
  assert_int_not_equal(saved->key.data[0], 7);
  message_free(saved);
}

static void a_model_is_for_those_that_were_told_to_load_it(void **state) {
  struct core_fixture *f = *state;
  char ticket[TICKET_TEXT_SIZE];
  struct err err;
  start_of_ann(f);
  strcpy(ticket, f->told[W1].load_ticket);
  assert_int_equal(check(f, ticket, ANN), 0);
  assert_int_equal(check(f, ticket, EVE), ERR_DENIED);
  assert_int_equal(check(f, ticket, ""), ERR_DENIED);
  assert_int_equal(check(f, NULL, ANN), ERR_DENIED);
  assert_int_equal(check(f, "nonsense", ANN), ERR_DENIED);
  ticket_make(none, &(struct ticket_owner){RUN, 0, ANN, 1}, ticket);
  assert_int_equal(check(f, ticket, ANN), ERR_DENIED);
  ticket_make(f->told[S1].key, &(struct ticket_owner){RUN, 1, ANN, 1}, ticket);
  assert_int_equal(check(f, ticket, ANN), ERR_DENIED); /* there is no such incarnation yet */
  ticket_make(f->told[S1].key, &(struct ticket_owner){"mlp-bbbbbb", 0, ANN, 1}, ticket);
  assert_int_equal(check(f, ticket, ANN), ERR_DENIED);
  assert_int_equal(coordinator_check_ticket(f->coordinator, "nobody", ticket, ANN, &err), ERR_NOT_FOUND);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_member_is_not_replaced_by_the_holder_of_another_certificate),
      TEST(an_address_is_not_taken_by_the_holder_of_another_certificate),
      TEST(an_id_is_not_taken_by_the_holder_of_another_certificate),
      TEST(a_worker_that_left_leaves_its_id_to_its_own_holder_alone),
      TEST(a_device_is_not_quarantined_for_what_another_holder_does_in_its_name),
      TEST(servers_are_told_the_key_and_workers_their_tickets),
      TEST(a_roll_back_brings_tickets_of_the_new_incarnation),
      TEST(a_successor_keeps_the_key),
      TEST(a_run_of_an_older_record_gets_a_key),
      TEST(a_model_is_for_those_that_were_told_to_load_it),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
