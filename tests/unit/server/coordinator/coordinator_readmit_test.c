/* Devices in quarantine over real RPC: what the store keeps of them, and the call that ends it. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/shell/reading/stored_runs.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/coordinator/service_members.h"

/* The coordinator is followed by one that finds a device in quarantine. */
static void begin_with_quarantine(struct service_fixture *f) {
  Weir__Members members = WEIR__MEMBERS__INIT;
  Weir__Quarantine quarantine = WEIR__QUARANTINE__INIT, *list = &quarantine;
  struct err err = ERR_NONE;
  quarantine.host = "node7";
  quarantine.device = "cuda:0";
  quarantine.worker = "worker-7";
  quarantine.reason = "run mlp-aaaaaa, step 5: it was wrong";
  members.quarantines = &list;
  members.n_quarantines = 1;
  members.workers_seen = 7;
  assert_int_equal(checkpoint_write_record(f->store, MEMBERS_RECORD, &members, NULL, &err), 0);
  seat_restart(f, true);
}

/* Rows; freed with message_free. */
static Weir__ListWorkersReply *list_workers(struct service_fixture *f) {
  Weir__ListWorkersRequest request = WEIR__LIST_WORKERS_REQUEST__INIT;
  Weir__ListWorkersReply *reply = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(rpc_unary(f->channel, &(struct rpc_question){RPC_LIST_WORKERS, &request, patience_ms()},
                             false, (void **)&reply, &err),
                   0);
  return reply;
}

static size_t count_workers(struct service_fixture *f) {
  Weir__ListWorkersReply *reply = list_workers(f);
  size_t n = reply->n_workers;
  message_free(reply);
  return n;
}

static Weir__ListWorkersReply *readmit(struct service_fixture *f, const char *worker, struct err *err) {
  Weir__ReadmitRequest request = WEIR__READMIT_REQUEST__INIT;
  Weir__ListWorkersReply *reply = NULL;
  request.worker = (char *)worker;
  *err = ERR_NONE;
  rpc_unary(f->channel, &(struct rpc_question){RPC_READMIT_WORKER, &request, patience_ms()}, false,
            (void **)&reply, err);
  return reply;
}

static size_t count_stored(struct service_fixture *f) {
  Weir__Members *members = NULL;
  struct err err = ERR_NONE;
  size_t n;
  assert_int_equal(stored_members_read(f->store, &members, &err), 0);
  n = members ? members->n_quarantines : 0;
  message_free(members);
  return n;
}

static void a_quarantine_outlives_coordinators_until_it_is_ended(void **state) {
  struct service_fixture *f = *state;
  Weir__ListWorkersReply *reply;
  struct rpc_reader *worker;
  struct err err;
  begin_with_quarantine(f);
  worker = member_join(f, WEIR__ROLE__WORKER); /* its coming is stored, with the rest */
  rpc_reader_close(worker);
  AWAIT(count_workers(f) == 1);
  seat_restart(f, false);
  reply = list_workers(f);
  assert_int_equal(reply->n_workers, 1);
  assert_string_equal(reply->workers[0]->id, "worker-7");
  assert_string_equal(reply->workers[0]->state, "quarantined");
  assert_non_null(strstr(reply->workers[0]->message, "not connected; in quarantine: run mlp-aaaaaa, step 5"));
  message_free(reply);
  reply = readmit(f, "node7/cuda:0", &err);
  assert_int_equal(err.code, 0);
  assert_int_equal(reply->n_workers, 1);
  assert_string_equal(reply->workers[0]->host, "node7");
  assert_string_equal(reply->workers[0]->message, "not connected");
  message_free(reply);
  assert_int_equal(count_workers(f), 0);
  AWAIT(count_stored(f) == 0);
  seat_restart(f, true);
  assert_int_equal(count_workers(f), 0);
}

static void what_is_not_in_quarantine_cannot_be_readmitted(void **state) {
  static char long_name[100000];
  const char *const names[] = {"", "/", "node7", "node7/", "worker-8", "node7/cuda:0/", "\n\t", long_name};
  struct service_fixture *f = *state;
  struct err err;
  memset(long_name, 'x', sizeof long_name - 1);
  begin_with_quarantine(f);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    assert_null(readmit(f, names[i], &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "is in quarantine: name a worker, or HOST/DEVICE"));
  }
  assert_int_equal(count_workers(f), 1);
}

static void a_damaged_record_of_members_keeps_no_coordinator_from_leading(void **state) {
  struct service_fixture *f = *state;
  struct err err = ERR_NONE;
  struct store_record damaged = {MEMBERS_RECORD, "\xff\xff\xff", 3, NULL};
  assert_int_equal(store_put_record(f->store, &damaged, &err), 0);
  seat_restart(f, true);
  assert_int_equal(count_workers(f), 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_quarantine_outlives_coordinators_until_it_is_ended),
      TEST(what_is_not_in_quarantine_cannot_be_readmitted),
      TEST(a_damaged_record_of_members_keeps_no_coordinator_from_leading),
  };
#undef TEST
  float_setting_apply();
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
