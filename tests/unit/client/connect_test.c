/* The client's connection: what people are told when a call comes to nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/cluster/connect.h"
#include "common/agree/float_setting.h"
#include "common/base/message.h"
#include "tests/support/common/own_port.h"
#include "tests/support/common/patience.h"
#include "tests/support/common/rpc_fixture.h"
#include "training.pb-c.h"

#define TRY_AGAIN "the checkpoint of step 3 is still being made: try again"
#define STANDS_BY "a standby of 10.0.0.5:7070"

static void fails(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  (void)message;
  rpc_bytes_free(bytes);
  rpc_call_fail(call, ERR_UNAVAILABLE, "%s", TRY_AGAIN);
}

static void stands_by(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  (void)message;
  rpc_bytes_free(bytes);
  rpc_call_fail(call, ERR_UNAVAILABLE, "%s", STANDS_BY);
}

static void answers(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  Weir__ListServersReply reply = WEIR__LIST_SERVERS_REPLY__INIT;
  (void)message;
  rpc_bytes_free(bytes);
  rpc_call_reply(call, &reply, NULL);
}

static const struct rpc_method failing[] = {{.id = RPC_LIST_SERVERS, .on_message = fails}};
static const struct rpc_method standing_by[] = {{.id = RPC_LIST_SERVERS, .on_message = stands_by}};
static const struct rpc_method leading[] = {{.id = RPC_LIST_SERVERS, .on_message = answers}};

/* Asks the coordinator at these addresses for its servers. */
static int ask(const char *addresses, struct err *err) {
  static const struct rpc_security local = {0};
  Weir__ListServersRequest request = WEIR__LIST_SERVERS_REQUEST__INIT;
  struct rpc_question question = {RPC_LIST_SERVERS, &request, patience_ms()};
  struct connection connection;
  void *reply = NULL;
  *err = ERR_NONE;
  assert_int_equal(connection_open(&connection, addresses, &local, err), 0);
  connection_ask(&connection, &question, &reply, err);
  message_free(reply);
  connection_close(&connection);
  return err->code;
}

static void what_a_coordinator_answers_is_told_as_it_is(void **state) {
  struct rpc_fixture f;
  struct err err;
  char expected[256];
  (void)state;
  rpc_fixture_init(&f, failing, 1);
  assert_int_equal(ask(f.target, &err), ERR_UNAVAILABLE);
  snprintf(expected, sizeof expected, "%s: " TRY_AGAIN, f.target);
  assert_string_equal(err.text, expected);
  rpc_fixture_fini(&f);
}

static void one_that_cannot_be_reached_is_named_with_what_to_do(void **state) {
  struct err err;
  char target[64], expected[256];
  (void)state;
  snprintf(target, sizeof target, "127.0.0.1:%d", own_port());
  snprintf(
      expected, sizeof expected,
      "cannot reach the coordinator at %s: connection refused; start one with `weir-server --role=all` or "
      "pass --coordinator HOST:PORT",
      target);
  assert_int_equal(ask(target, &err), ERR_UNAVAILABLE);
  assert_string_equal(err.text, expected);
}

static void a_standby_is_named_with_its_leader(void **state) {
  struct rpc_fixture f;
  struct err err;
  char expected[256];
  (void)state;
  rpc_fixture_init(&f, standing_by, 1);
  assert_int_equal(ask(f.target, &err), ERR_UNAVAILABLE);
  snprintf(expected, sizeof expected,
           "cannot reach the coordinator at %s: " STANDS_BY "; pass --coordinator 10.0.0.5:7070", f.target);
  assert_string_equal(err.text, expected);
  rpc_fixture_fini(&f);
}

static void of_several_the_one_that_leads_is_asked(void **state) {
  struct rpc_fixture standby, leader;
  struct err err;
  char addresses[256];
  (void)state;
  rpc_fixture_init(&standby, standing_by, 1);
  rpc_fixture_init(&leader, leading, 1);
  snprintf(addresses, sizeof addresses, "127.0.0.1:%d,%s,%s", own_port(), standby.target, leader.target);
  assert_int_equal(ask(addresses, &err), ERR_OK);
  rpc_fixture_fini(&leader);
  rpc_fixture_fini(&standby);
}

static void of_several_that_cannot_do_it_the_one_that_says_why_is_told(void **state) {
  struct rpc_fixture standby, leader;
  struct err err;
  char addresses[256], expected[256];
  (void)state;
  rpc_fixture_init(&standby, standing_by, 1);
  rpc_fixture_init(&leader, failing, 1);
  snprintf(addresses, sizeof addresses, "127.0.0.1:%d,%s,%s", own_port(), standby.target, leader.target);
  snprintf(expected, sizeof expected, "%s: " TRY_AGAIN, leader.target);
  assert_int_equal(ask(addresses, &err), ERR_UNAVAILABLE);
  assert_string_equal(err.text, expected);
  rpc_fixture_fini(&leader);
  rpc_fixture_fini(&standby);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_a_coordinator_answers_is_told_as_it_is),
      cmocka_unit_test(one_that_cannot_be_reached_is_named_with_what_to_do),
      cmocka_unit_test(a_standby_is_named_with_its_leader),
      cmocka_unit_test(of_several_the_one_that_leads_is_asked),
      cmocka_unit_test(of_several_that_cannot_do_it_the_one_that_says_why_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
