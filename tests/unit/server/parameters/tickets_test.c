/* A run that has a key is open to those that have a ticket of it, and nobody else's call is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "parameters.pb-c.h"
#include "tests/support/common/patience.h"
#include "tests/support/parameters/parameters_fixture.h"

enum { WORKER = 5 };

static const unsigned char key[TICKET_KEY_BYTES] = "the key of unit-1, of 32 bytes..",
                           other_key[TICKET_KEY_BYTES] = "the key of other-1, of 32 bytes.";

static void load(struct parameters_fixture *f, const char *run, const unsigned char *its_key) {
  Weir__LoadRun order = *make_order(1, 1);
  struct err err;
  order.run = (char *)run;
  if (its_key)
    order.key = (ProtobufCBinaryData){TICKET_KEY_BYTES, (uint8_t *)its_key};
  assert_int_equal(load_order(f, &order, &err), 0);
}

/* The error of a call for a version of block 0; message: whether one is sent. */
static struct err call(struct parameters_fixture *f, enum rpc_method_id method, const char *ticket,
                       const void *message) {
  struct rpc_reader *reader = rpc_reader_open_with(f->channel, method, patience_ms(), ticket);
  struct err err = ERR_NONE;
  void *reply = NULL;
  if (message) {
    rpc_reader_send(reader, message, &err);
    rpc_reader_half_close(reader);
  }
  err = ERR_NONE;
  if (rpc_reader_next(reader, &reply, &err) == 0)
    message_free(reply);
  rpc_reader_close(reader);
  return err;
}

static struct err pull(struct parameters_fixture *f, const char *ticket, const char *run) {
  Weir__PullRequest request = WEIR__PULL_REQUEST__INIT;
  request.run = (char *)run;
  request.incarnation = 1;
  return call(f, RPC_PULL, ticket, &request);
}

static char *ticket_of(const unsigned char *its_key, const char *run, uint64_t incarnation,
                       const char *holder) {
  static char text[TICKET_TEXT_SIZE];
  ticket_make(its_key, &(struct ticket_owner){run, incarnation, holder, WORKER}, text);
  return text;
}

static void a_ticket_of_the_run_opens_it(void **state) {
  struct parameters_fixture f;
  (void)state;
  parameters_fixture_open(&f);
  load(&f, "unit-1", key);
  for (int i = 0; i < 3; i++)
    assert_int_equal(pull(&f, ticket_of(key, "unit-1", 1, ""), "unit-1").code, 0);
  parameters_fixture_fini(&f);
}

/* No call sends a message: the answer does not wait for it. */
static void calls_without_a_genuine_ticket_are_refused_before_their_message_comes(void **state) {
  static const enum rpc_method_id methods[] = {RPC_PUSH, RPC_PULL, RPC_VERSIONS, RPC_SHARE, RPC_SUMS};
  struct parameters_fixture f;
  char forged[TICKET_TEXT_SIZE];
  (void)state;
  parameters_fixture_open(&f);
  load(&f, "unit-1", key);
  load(&f, "other-1", other_key);
  strcpy(forged, ticket_of(key, "unit-1", 1, ""));
  forged[strlen(forged) - 1] ^= 1;
  for (int m = 0; m < 5; m++) {
    const char *const tickets[] = {NULL, "nonsense", forged,
                                   ticket_of(other_key, "unit-1", 1, m == 4 ? TICKET_SERVERS : "")};
    for (int i = 0; i < 4; i++) {
      struct err err = call(&f, methods[m], tickets[i], NULL);
      assert_int_equal(err.code, ERR_DENIED);
      assert_non_null(strstr(err.text, "ticket"));
    }
    assert_int_equal(call(&f, methods[m], ticket_of(key, "unit-1", 1, "spiffe://weir/worker/ann"), NULL).code,
                     ERR_DENIED);
    assert_int_equal(call(&f, methods[m], ticket_of(key, "unit-1", 0, "somebody"), NULL).code, ERR_DENIED);
  }
  parameters_fixture_fini(&f);
}

static void a_ticket_of_one_run_does_not_open_another(void **state) {
  struct parameters_fixture f;
  struct err err;
  (void)state;
  parameters_fixture_open(&f);
  load(&f, "unit-1", key);
  load(&f, "other-1", other_key);
  err = pull(&f, ticket_of(key, "unit-1", 1, ""), "other-1");
  assert_int_equal(err.code, ERR_DENIED);
  assert_non_null(strstr(err.text, "the call is for run 'other-1' in incarnation 1, its ticket is not"));
  assert_int_equal(pull(&f, ticket_of(other_key, "other-1", 1, ""), "other-1").code, 0);
  assert_int_equal(pull(&f, ticket_of(key, "gone-1", 1, ""), "gone-1").code, ERR_NOT_FOUND);
  parameters_fixture_fini(&f);
}

/* Its holder waits for a view of the other incarnation. */
static void a_genuine_ticket_of_another_incarnation_is_told_so(void **state) {
  struct parameters_fixture f;
  (void)state;
  parameters_fixture_open(&f);
  load(&f, "unit-1", key);
  for (uint64_t incarnation = 0; incarnation < 3; incarnation += 2) {
    struct err err = call(&f, RPC_PULL, ticket_of(key, "unit-1", incarnation, ""), NULL);
    assert_int_equal(err.code, ERR_STALE);
    assert_non_null(strstr(err.text, "run 'unit-1' is in incarnation 1 here, the call's ticket is for"));
  }
  parameters_fixture_fini(&f);
}

/* Who is to be blamed for a push is not its sender's to say. */
static void a_push_is_of_the_worker_that_its_ticket_is_of(void **state) {
  static const uint32_t said[] = {0, WORKER - 1, UINT32_MAX, WORKER};
  struct parameters_fixture f;
  Weir__PushRequest push = WEIR__PUSH_REQUEST__INIT;
  (void)state;
  parameters_fixture_open(&f);
  load(&f, "unit-1", key);
  load(&f, "older-1", NULL);
  push.incarnation = 1;
  for (int i = 0; i < 4; i++) {
    struct err err;
    push.worker = said[i];
    push.run = (char *)"unit-1";
    err = call(&f, RPC_PUSH, ticket_of(key, "unit-1", 1, ""), &push);
    assert_int_equal(err.code, said[i] == WORKER ? ERR_INVALID : ERR_DENIED); /* it has no data */
    assert_non_null(strstr(err.text, said[i] == WORKER ? "bytes of data" : "its ticket is that of worker-5"));
    push.run = (char *)"older-1";
    assert_int_equal(call(&f, RPC_PUSH, NULL, &push).code, ERR_INVALID);
  }
  parameters_fixture_fini(&f);
}

static void a_worker_does_not_call_as_a_server(void **state) {
  struct parameters_fixture f;
  Weir__SumsRequest request = WEIR__SUMS_REQUEST__INIT;
  struct err err;
  (void)state;
  parameters_fixture_open(&f);
  load(&f, "unit-1", key);
  request.run = (char *)"unit-1";
  request.incarnation = 1;
  assert_int_equal(call(&f, RPC_SUMS, ticket_of(key, "unit-1", 1, ""), &request).code, ERR_DENIED);
  err = call(&f, RPC_SUMS, ticket_of(key, "unit-1", 1, TICKET_SERVERS), &request);
  assert_int_not_equal(err.code, ERR_DENIED);
  assert_int_equal(pull(&f, ticket_of(key, "unit-1", 1, TICKET_SERVERS), "unit-1").code, ERR_DENIED);
  parameters_fixture_fini(&f);
}

static void a_run_without_a_key_opens_no_other_one(void **state) {
  struct parameters_fixture f;
  (void)state;
  parameters_fixture_open(&f);
  assert_int_equal(pull(&f, NULL, "unit-1").code, ERR_NOT_FOUND);
  load(&f, "older-1", NULL);
  load(&f, "unit-1", key);
  assert_int_equal(pull(&f, NULL, "older-1").code, 0);
  assert_int_equal(pull(&f, ticket_of(other_key, "older-1", 1, ""), "older-1").code, 0);
  assert_int_equal(pull(&f, NULL, "unit-1").code, ERR_DENIED);
  assert_int_equal(pull(&f, ticket_of(other_key, "older-1", 1, ""), "unit-1").code, ERR_DENIED);
  parameters_fixture_fini(&f);
}

static void a_key_of_another_size_is_refused(void **state) {
  struct parameters_fixture f;
  Weir__LoadRun order = *make_order(1, 1);
  struct err err;
  (void)state;
  parameters_fixture_open(&f);
  order.key = (ProtobufCBinaryData){TICKET_KEY_BYTES - 1, (uint8_t *)key};
  assert_int_equal(load_order(&f, &order, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "the run's key has 31 bytes, not 32"));
  parameters_fixture_fini(&f);
}

/* More than are remembered: each is computed again when its turn comes. */
static void any_number_of_holders_may_call(void **state) {
  static struct run_tickets tickets;
  ProtobufCBinaryData bytes = {TICKET_KEY_BYTES, (uint8_t *)key};
  struct err err = ERR_NONE;
  (void)state;
  run_tickets_init(&tickets);
  assert_int_equal(run_tickets_set_key(&tickets, &bytes, &err), 0);
  for (int i = 0; i < 5 * TICKETS_KNOWN; i++) {
    char *holder = mem_printf("spiffe://weir/worker/w-%d", i % (2 * TICKETS_KNOWN));
    struct ticket ticket;
    assert_int_equal(ticket_read(ticket_of(key, "unit-1", 1, holder), &ticket, &err), 0);
    assert_int_equal(run_tickets_check(&tickets, 1, &ticket, holder, &err), 0);
    assert_int_equal(run_tickets_check(&tickets, 1, &ticket, "spiffe://weir/worker/eve", &err), ERR_DENIED);
    ticket.worker++;
    assert_int_equal(run_tickets_check(&tickets, 1, &ticket, holder, &err), ERR_DENIED);
    free(holder);
  }
  run_tickets_fini(&tickets);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_ticket_of_the_run_opens_it),
      cmocka_unit_test(calls_without_a_genuine_ticket_are_refused_before_their_message_comes),
      cmocka_unit_test(a_ticket_of_one_run_does_not_open_another),
      cmocka_unit_test(a_genuine_ticket_of_another_incarnation_is_told_so),
      cmocka_unit_test(a_push_is_of_the_worker_that_its_ticket_is_of),
      cmocka_unit_test(a_worker_does_not_call_as_a_server),
      cmocka_unit_test(a_run_without_a_key_opens_no_other_one),
      cmocka_unit_test(a_key_of_another_size_is_refused),
      cmocka_unit_test(any_number_of_holders_may_call),
  };
  float_setting_apply();
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
