/* Health and reflection, which every server has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "tests/support/common/patience.h"
#include "tests/support/common/rpc_fixture.h"
#include "training.pb-c.h"

enum {
  SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING,
  NOT_SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING,
};

/* Nobody calls what the server has: it is there to be named. */
static void turn_away(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  (void)message;
  rpc_bytes_free(bytes);
  rpc_call_fail(call, ERR_UNAVAILABLE, "this server is asked for its names alone");
}

static const struct rpc_method methods[] = {
    {.id = RPC_WATCH, .on_message = turn_away}, /* of weir.Training */
    {.id = RPC_JOIN, .on_message = turn_away},  /* of weir.Cluster */
};

static int setup(void **state) {
  struct rpc_fixture *f = calloc(1, sizeof *f);
  rpc_fixture_init(f, methods, 2);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  rpc_fixture_fini(*state);
  free(*state);
  return 0;
}

static int check_health(struct rpc_fixture *f, const char *service, struct err *err) {
  Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
  Grpc__Health__V1__HealthCheckResponse *reply;
  int status;
  request.service = (char *)service;
  if (rpc_unary(f->channel, &(struct rpc_question){RPC_HEALTH_CHECK, &request, patience_ms()}, false,
                (void **)&reply, err))
    return -1;
  status = (int)reply->status;
  protobuf_c_message_free_unpacked(&reply->base, NULL);
  return status;
}

static void health_names_every_service_and_no_other(void **state) {
  struct rpc_fixture *f = *state;
  const char *const served[] = {"", "weir.Training", "weir.Cluster", "grpc.health.v1.Health"};
  struct err err = ERR_NONE;
  for (int i = 0; i < 4; i++)
    assert_int_equal(check_health(f, served[i], &err), SERVING);
  rpc_server_set_serving(f->server, false);
  assert_int_equal(check_health(f, "weir.Training", &err), NOT_SERVING);
  assert_int_equal(check_health(f, "weir.Parameters", &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void health_is_probed_as_a_whole(void **state) {
  struct rpc_fixture *f = *state;
  struct err err = ERR_NONE;
  bool is_serving = false;
  assert_int_equal(rpc_health_probe(f->channel, patience_ms(), &is_serving, &err), ERR_OK);
  assert_true(is_serving);
  rpc_server_set_serving(f->server, false);
  assert_int_equal(rpc_health_probe(f->channel, patience_ms(), &is_serving, &err), ERR_OK);
  assert_false(is_serving);
}

static void health_is_watched_as_it_changes(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_HEALTH_WATCH, patience_ms());
  Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
  const int expected[] = {SERVING, NOT_SERVING, SERVING};
  struct err err = ERR_NONE;
  assert_int_equal(rpc_reader_send(reader, &request, &err), ERR_OK);
  for (int i = 0; i < 3; i++) {
    Grpc__Health__V1__HealthCheckResponse *reply;
    assert_int_equal(rpc_reader_next(reader, (void **)&reply, &err), ERR_OK);
    assert_int_equal(reply->status, expected[i]);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    rpc_server_set_serving(f->server, i == 1);
  }
  rpc_reader_close(reader);
}

static Grpc__Reflection__V1__ServerReflectionResponse *
ask(struct rpc_reader *reader, Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase what,
    const char *value) {
  Grpc__Reflection__V1__ServerReflectionRequest request =
      GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
  Grpc__Reflection__V1__ServerReflectionResponse *reply;
  struct err err = ERR_NONE;
  request.message_request_case = what;
  request.list_services = (char *)value; /* all the strings share their place */
  if (rpc_reader_send(reader, &request, &err) || rpc_reader_next(reader, (void **)&reply, &err))
    fail_msg("%s", err.text);
  assert_non_null(reply);
  return reply;
}

#define REQUEST(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what

#define RESPONSE(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

static void reflection_lists_what_is_served(void **state) {
  struct rpc_fixture *f = *state;
  const enum rpc_method_id versions[] = {RPC_REFLECTION_V1, RPC_REFLECTION_V1ALPHA};
  for (int v = 0; v < 2; v++) {
    struct rpc_reader *reader = rpc_reader_open(f->channel, versions[v], patience_ms());
    Grpc__Reflection__V1__ServerReflectionResponse *reply = ask(reader, REQUEST(LIST_SERVICES), "");
    char all[512] = "";
    assert_int_equal(reply->message_response_case, RESPONSE(LIST_SERVICES_RESPONSE));
    for (size_t i = 0; i < reply->list_services_response->n_service; i++) {
      strcat(all, reply->list_services_response->service[i]->name);
      strcat(all, " ");
    }
    assert_string_equal(all, "weir.Training weir.Cluster grpc.health.v1.Health "
                             "grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection ");
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    rpc_reader_close(reader);
  }
}

static void reflection_finds_files_by_name_and_by_symbol(void **state) {
  struct rpc_fixture *f = *state;
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_REFLECTION_V1, patience_ms());
  const char *const symbols[] = {
      "weir.Training",      "weir.Training.Watch",   "weir.RunInfo",
      "weir.RunInfo.state", "weir.RunState",         "weir.RunSpec",
      "weir.Manifest",      "grpc.health.v1.Health", "grpc.health.v1.HealthCheckResponse.ServingStatus"};
  const char *const absent[] = {"weir.Nothing", "Training", "", "training.proto"};
  Grpc__Reflection__V1__ServerReflectionResponse *reply;
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    reply = ask(reader, REQUEST(FILE_CONTAINING_SYMBOL), symbols[i]);
    assert_int_equal(reply->message_response_case, RESPONSE(FILE_DESCRIPTOR_RESPONSE));
    assert_string_equal(reply->original_request->file_containing_symbol, symbols[i]);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
  }
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
    reply = ask(reader, REQUEST(FILE_CONTAINING_SYMBOL), absent[i]);
    assert_int_equal(reply->message_response_case, RESPONSE(ERROR_RESPONSE));
    assert_int_equal(reply->error_response->error_code, 5);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
  }
  reply = ask(reader, REQUEST(FILE_BY_FILENAME), "training.proto");
  assert_int_equal(reply->message_response_case, RESPONSE(FILE_DESCRIPTOR_RESPONSE));
  assert_int_equal(reply->file_descriptor_response->n_file_descriptor_proto, 1);
  protobuf_c_message_free_unpacked(&reply->base, NULL);
  reply = ask(reader, REQUEST(ALL_EXTENSION_NUMBERS_OF_TYPE), "weir.RunInfo");
  assert_int_equal(reply->message_response_case, RESPONSE(ERROR_RESPONSE));
  protobuf_c_message_free_unpacked(&reply->base, NULL);
  rpc_reader_close(reader);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(health_names_every_service_and_no_other),
      TEST(health_is_probed_as_a_whole),
      TEST(health_is_watched_as_it_changes),
      TEST(reflection_lists_what_is_served),
      TEST(reflection_finds_files_by_name_and_by_symbol),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
