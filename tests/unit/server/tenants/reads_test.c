/* Downloads and verifications: how many a tenant may have under way, and that they keep nobody else waiting.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/limits.h"
#include "common/base/message.h"
#include "server/coordinator/shell/reading/reads.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/storage/flaky_store.h"

static void each_tenant_has_so_many_of_each_kind(void **state) {
  static const int most[READ_KINDS] = {LIMIT_TENANT_DOWNLOADS, LIMIT_TENANT_VERIFICATIONS,
                                       LIMIT_MEMBER_DOWNLOADS};
  struct reads reads;
  struct read *held[READ_KINDS][LIMIT_MEMBER_DOWNLOADS], *other;
  struct err err = ERR_NONE;
  (void)state;
  reads_init(&reads);
  for (int kind = 0; kind < READ_KINDS; kind++) {
    for (int i = 0; i < most[kind]; i++)
      assert_non_null(held[kind][i] = read_begin(&reads, NULL, "vision", (enum read_kind)kind, &err));
    assert_null(read_begin(&reads, NULL, "vision", (enum read_kind)kind, &err));
    assert_int_equal(err.code, ERR_BUSY);
    assert_non_null(strstr(err.text, "the tenant 'vision' has "));
    err = ERR_NONE;
    assert_non_null(other = read_begin(&reads, NULL, "nlp", (enum read_kind)kind, &err));
    read_end(other);
    read_end(held[kind][0]);
    assert_non_null(held[kind][0] = read_begin(&reads, NULL, "vision", (enum read_kind)kind, &err));
  }
  for (int kind = 0; kind < READ_KINDS; kind++)
    for (int i = 0; i < most[kind]; i++)
      read_end(held[kind][i]);
  read_end(NULL);
  reads_fini(&reads);
}

static void a_quota_takes_the_place_of_the_bound_but_for_members(void **state) {
  struct quotas quotas = {0};
  struct reads reads;
  struct read *first, *of_member;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(quotas_add(&quotas, "vision:downloads=1,verifications=0", &err), 0);
  reads_init(&reads);
  assert_non_null(first = read_begin(&reads, &quotas, "vision", READ_DOWNLOAD, &err));
  assert_null(read_begin(&reads, &quotas, "vision", READ_DOWNLOAD, &err));
  assert_int_equal(err.code, ERR_QUOTA);
  assert_string_equal(err.text, "the quota of the tenant 'vision' is downloads=1: 1 used, and this takes 1: "
                                "ask again when one of them has come, or its client has gone");
  assert_null(read_begin(&reads, &quotas, "vision", READ_VERIFICATION, &err));
  assert_non_null(strstr(err.text, "verifications=0"));
  err = ERR_NONE;
  assert_non_null(of_member = read_begin(&reads, &quotas, "vision", READ_OF_MEMBER, &err));
  read_end(of_member);
  read_end(first);
  reads_fini(&reads);
  quotas_fini(&quotas);
}

/* A verification, on a thread of its own. */
struct verifier {
  struct service_fixture *f;
  const char *run;
  int *n_refused; /* atomic */
  pthread_t thread;
  struct err err;
};

static void *verify(void *argument) {
  struct verifier *verifier = argument;
  struct rpc_reader *reader = rpc_reader_open(verifier->f->channel, RPC_VERIFY, patience_ms());
  Weir__VerifyRequest request = WEIR__VERIFY_REQUEST__INIT;
  void *reply = NULL;
  request.run = (char *)verifier->run;
  if (rpc_reader_send(reader, &request, &verifier->err) == 0) {
    rpc_reader_half_close(reader);
    while (rpc_reader_next(reader, &reply, &verifier->err) == 0 && reply)
      message_free(reply);
  }
  if (verifier->err.code)
    __atomic_add_fetch(verifier->n_refused, 1, __ATOMIC_RELAXED);
  rpc_reader_close(reader);
  return NULL;
}

/* Those that wait for the store, as long as it takes. */
static void verifications_keep_neither_submissions_nor_downloads_waiting(void **state) {
  enum { VERIFIERS = LIMIT_TENANT_VERIFICATIONS + 1 };
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  struct verifier verifiers[VERIFIERS];
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  Weir__Layout *layout = NULL;
  struct err err = ERR_NONE;
  int n_refused = 0;
  char *id = train_with_checkpoints(f, server, worker, 4, 9), *later;
  flaky_hold_reads(f->seat.store, true);
  for (int i = 0; i < VERIFIERS; i++) {
    verifiers[i] = (struct verifier){.f = f, .run = id, .n_refused = &n_refused};
    assert_int_equal(pthread_create(&verifiers[i].thread, NULL, verify, &verifiers[i]), 0);
  }
  AWAIT(__atomic_load_n(&n_refused, __ATOMIC_RELAXED) == 1);
  later = submit_run(f);
  request.run = later;
  assert_int_equal(rpc_unary(f->channel, &(struct rpc_question){RPC_GET_LAYOUT, &request, patience_ms()},
                             false, (void **)&layout, &err),
                   0);
  message_free(layout);
  flaky_hold_reads(f->seat.store, false);
  for (int i = 0; i < VERIFIERS; i++) {
    pthread_join(verifiers[i].thread, NULL);
    if (verifiers[i].err.code && verifiers[i].err.code != ERR_BUSY)
      fail_msg("%s", verifiers[i].err.text);
  }
  assert_int_equal(n_refused, 1);
  free(later);
  free(id);
  rpc_reader_close(server);
  rpc_reader_close(worker);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_tenant_has_so_many_of_each_kind),
      cmocka_unit_test(a_quota_takes_the_place_of_the_bound_but_for_members),
      cmocka_unit_test_setup_teardown(verifications_keep_neither_submissions_nor_downloads_waiting,
                                      service_setup, service_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
