/* What one client may ask of a port. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/limits.h"
#include "common/base/memory.h"
#include "common/door/clients.h"
#include "common/rpc/core.h"
#include "grpc/health/v1/health.pb-c.h"
#include "tests/support/common/patience.h"
#include "tests/support/common/rpc_fixture.h"
#include "training.pb-c.h"

#define SECOND UINT64_C(1000000000)

static void a_client_has_so_many_calls_open(void **state) {
  struct clients *clients = clients_new();
  struct client *calls[LIMIT_CLIENT_CALLS], *other;
  struct err err = ERR_NONE;
  (void)state;
  for (int i = 0; i < LIMIT_CLIENT_CALLS; i++)
    assert_int_equal(clients_enter(clients, "ann", SECOND, &calls[i], &err), 0);
  assert_int_equal(clients_enter(clients, "ann", SECOND, &other, &err), ERR_BUSY);
  assert_null(other);
  assert_non_null(strstr(err.text, "ann has 512 calls open here, the most"));
  err = ERR_NONE;
  assert_int_equal(clients_enter(clients, "eve", SECOND, &other, &err), 0);
  clients_leave(clients, other);
  clients_leave(clients, calls[7]);
  assert_int_equal(clients_enter(clients, "ann", SECOND, &calls[7], &err), 0);
  for (int i = 0; i < LIMIT_CLIENT_CALLS; i++)
    clients_leave(clients, calls[i]);
  clients_free(clients);
}

/* Calls that end at once; how many of them are taken. */
static int burst(struct clients *clients, const char *name, uint64_t now_ns, int calls) {
  int taken = 0;
  for (int i = 0; i < calls; i++) {
    struct client *client;
    struct err err = ERR_NONE;
    if (clients_enter(clients, name, now_ns, &client, &err) == 0)
      taken++;
    else if (err.code != ERR_BUSY || !strstr(err.text, "more than 200 calls a second"))
      fail_msg("%s", err.text);
    clients_leave(clients, client);
  }
  return taken;
}

static void a_client_makes_so_many_calls_a_second(void **state) {
  struct clients *clients = clients_new();
  char name[32];
  (void)state;
  assert_int_equal(burst(clients, "ann", SECOND, 3000), LIMIT_CLIENT_BURST);
  assert_int_equal(burst(clients, "ann", SECOND, 10), 0);
  assert_int_equal(burst(clients, "eve", SECOND, 10), 10);
  assert_int_equal(burst(clients, "ann", 2 * SECOND, 3000), LIMIT_CLIENT_RATE);
  for (int i = 0; i < 100; i++) { /* whoever else comes */
    snprintf(name, sizeof name, "client %d", i);
    burst(clients, name, 2 * SECOND, 1);
  }
  assert_int_equal(burst(clients, "ann", 2 * SECOND, 10), 0);
  assert_int_equal(burst(clients, "ann", 1000 * SECOND, 3000), LIMIT_CLIENT_BURST);
  clients_free(clients);
}

static void callers_are_known_by_certificate_or_address(void **state) {
  static const struct cert_holder ann = {CERT_CLIENT, "ann", "vision", CERT_SUBMITTER};
  static const char *const peers[][2] = {
      {"ipv4:10.0.0.7:44490", "10.0.0.7"}, {"ipv6:[::1]:7", "[::1]"}, {"unix:", "unix:"}, {"odd", "odd"}};
  char *name;
  (void)state;
  for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
    name = rpc_callers_client(NULL, peers[i][0]);
    assert_string_equal(name, peers[i][1]);
    free(name);
  }
  name = rpc_callers_client(&ann, "ipv4:10.0.0.7:44490");
  assert_string_equal(name, "spiffe://weir/client/vision/submitter/ann");
  free(name);
  for (int id = 0; id < RPC_METHODS; id++) {
    const char *path = rpc_method_defs[id].path;
    bool is_members =
        strstr(path, "/weir.Parameters/") || strstr(path, "/weir.Peers/") || strstr(path, "/weir.Cluster/");
    assert_int_equal(rpc_callers_are_members(rpc_method_defs[id].callers), is_members);
  }
}

static int begin_watch(struct rpc_channel *channel, struct rpc_reader **reader, struct err *err) {
  Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
  void *reply = NULL;
  *reader = rpc_reader_open(channel, RPC_HEALTH_WATCH, patience_ms());
  if (rpc_reader_send(*reader, &request, err) == 0)
    rpc_reader_half_close(*reader);
  if (rpc_reader_next(*reader, &reply, err) == 0)
    protobuf_c_message_free_unpacked(reply, NULL);
  return err->code;
}

static void calls_beyond_those_that_a_client_may_have_open_are_refused(void **state) {
  struct rpc_fixture f;
  struct rpc_reader *readers[LIMIT_CLIENT_CALLS], *more;
  struct err err = ERR_NONE;
  int code = ERR_BUSY;
  (void)state;
  rpc_fixture_init(&f, NULL, 0);
  for (int i = 0; i < LIMIT_CLIENT_CALLS; i++)
    if (begin_watch(f.channel, &readers[i], &err))
      fail_msg("call %d: %s", i, err.text);
  assert_int_equal(begin_watch(f.channel, &more, &err), ERR_BUSY);
  assert_non_null(strstr(err.text, "127.0.0.1 has 512 calls open here"));
  rpc_reader_close(more);
  rpc_reader_close(readers[0]);
  for (int attempt = 0; attempt < patience_ms() && code; attempt++) { /* until the port knows */
    err = ERR_NONE;
    code = begin_watch(f.channel, &readers[0], &err);
    if (code) {
      assert_int_equal(code, ERR_BUSY);
      rpc_reader_close(readers[0]);
      usleep(1000);
    }
  }
  assert_int_equal(code, 0);
  for (int i = 0; i < LIMIT_CLIENT_CALLS; i++)
    rpc_reader_close(readers[i]);
  rpc_fixture_fini(&f);
}

static void never(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  (void)call, (void)message, (void)bytes;
  fail();
}

static void a_call_whose_message_does_not_come_is_ended(void **state) {
  static const struct rpc_method slow[] = {{.id = RPC_GET_RUN, .on_message = never, .idle_ms = 50}};
  struct rpc_fixture f;
  struct rpc_reader *reader;
  struct err err = ERR_NONE;
  void *reply;
  (void)state;
  rpc_fixture_init(&f, slow, 1);
  reader = rpc_reader_open(f.channel, RPC_GET_RUN, patience_ms());
  assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_CANCELLED);
  assert_non_null(strstr(err.text, "the client sent nothing for 0.05 s"));
  rpc_reader_close(reader);
  rpc_fixture_fini(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_client_has_so_many_calls_open),
      cmocka_unit_test(a_client_makes_so_many_calls_a_second),
      cmocka_unit_test(callers_are_known_by_certificate_or_address),
      cmocka_unit_test(calls_beyond_those_that_a_client_may_have_open_are_refused),
      cmocka_unit_test(a_call_whose_message_does_not_come_is_ended),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
