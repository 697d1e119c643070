/* What a member says of itself is its own word, who holds its certificate is not: nobody takes the place of
   another certificate's holder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "server/coordinator/messages/info.h"
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

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_member_is_not_replaced_by_the_holder_of_another_certificate),
      TEST(an_address_is_not_taken_by_the_holder_of_another_certificate),
      TEST(an_id_is_not_taken_by_the_holder_of_another_certificate),
      TEST(a_worker_that_left_leaves_its_id_to_its_own_holder_alone),
      TEST(a_device_is_not_quarantined_for_what_another_holder_does_in_its_name),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
