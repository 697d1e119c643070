/* Downloads and verifications: how many a tenant may have under way, that they keep nobody else waiting, and
   that what they read is not deleted meanwhile. */
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
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/storage/checkpoint_fixture.h"
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

static void a_read_holds_checkpoints_of_its_run_until_it_ends_or_holds_others(void **state) {
  static const uint64_t some[] = {4, 6, 8};
  struct reads reads;
  struct read *first, *second;
  struct err err = ERR_NONE;
  (void)state;
  reads_init(&reads);
  assert_non_null(first = read_begin(&reads, NULL, "vision", READ_VERIFICATION, &err));
  assert_non_null(second = read_begin(&reads, NULL, "vision", READ_DOWNLOAD, &err));
  assert_false(reads_hold(&reads, "a", 0) || reads_hold_any(&reads, "a"));
  read_hold(first, "a", some, 3);
  read_hold(second, "b", some + 1, 1);
  assert_true(reads_hold(&reads, "a", 4) && reads_hold(&reads, "a", 8) && reads_hold(&reads, "b", 6));
  assert_false(reads_hold(&reads, "a", 3) || reads_hold(&reads, "a", 5) || reads_hold(&reads, "b", 4));
  read_hold(first, "a", some + 1, 2);
  assert_false(reads_hold(&reads, "a", 4));
  read_end(first);
  assert_false(reads_hold(&reads, "a", 6) || reads_hold_any(&reads, "a"));
  assert_true(reads_hold(&reads, "b", 6) && reads_hold_any(&reads, "b"));
  read_end(second);
  reads_fini(&reads);
}

/* A verification, on a thread of its own. */
struct verifier {
  struct service_fixture *f;
  const char *run;
  int *n_refused; /* atomic */
  pthread_t thread;
  int n_whole, n_damaged; /* checkpoints */
  struct err err;
};

static void *verify(void *argument) {
  struct verifier *verifier = argument;
  struct rpc_reader *reader = rpc_reader_open(verifier->f->channel, RPC_VERIFY, patience_ms());
  Weir__VerifyRequest request = WEIR__VERIFY_REQUEST__INIT;
  Weir__VerifyReply *reply = NULL;
  request.run = (char *)verifier->run;
  if (rpc_reader_send(reader, &request, &verifier->err) == 0) {
    rpc_reader_half_close(reader);
    while (rpc_reader_next(reader, (void **)&reply, &verifier->err) == 0 && reply) {
      verifier->n_whole += reply->n_damaged == 0;
      verifier->n_damaged += reply->n_damaged > 0;
      message_free(reply);
    }
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

/* A download of the newest weights, on a thread of its own. */
struct downloader {
  struct service_fixture *f;
  const char *run;
  pthread_t thread;
  float weights[TINY_PARAMS + 1];
  long size_bytes;
  struct err err;
};

static void *download(void *argument) {
  struct downloader *downloader = argument;
  downloader->size_bytes =
      download_run(downloader->f, RPC_GET_WEIGHTS, downloader->run,
                   (struct iovec){downloader->weights, sizeof downloader->weights}, &downloader->err);
  return NULL;
}

/* It comes to a block, which it does not get before reads are held no more. */
static void begin_to_read(struct service_fixture *f, pthread_t *thread, void *(*run)(void *), void *reader) {
  int n_held = flaky_count_held(f->seat.store);
  flaky_hold_reads(f->seat.store, true);
  assert_int_equal(pthread_create(thread, NULL, run, reader), 0);
  AWAIT(flaky_count_held(f->seat.store) > n_held);
}

static void let_read(struct service_fixture *f, pthread_t thread) {
  flaky_hold_reads(f->seat.store, false);
  pthread_join(thread, NULL);
}

static void expect_weights(const struct downloader *downloader, uint64_t step) {
  if (downloader->size_bytes != TINY_PARAMS * sizeof(float))
    fail_msg("%ld bytes: %s", downloader->size_bytes, downloader->err.text);
  assert_true(downloader->weights[1] == tiny_weight(step, 1));
}

static void expect_whole(const struct verifier *verifier, int n) {
  if (verifier->err.code || verifier->n_whole != n || verifier->n_damaged != 0)
    fail_msg("%d whole, %d damaged: %s", verifier->n_whole, verifier->n_damaged, verifier->err.text);
}

/* The run goes on to its next checkpoint. What was to be deleted before has been, if it may be. */
static void train_on(struct service_fixture *f, struct rpc_reader *server, const char *run, uint64_t to) {
  assert_int_equal(expect_write(server), to);
  tell_step(f, server, run, to - 2);
  tell_step(f, server, run, to - 1);
  write_blocks(f, server, run, to);
  AWAIT(has_checkpoint(f, run, to));
}

static void weights_are_there_until_they_have_been_read(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 2, 1);
  struct downloader downloader = {.f = f, .run = id};
  bool was_there;
  begin_to_read(f, &downloader.thread, download, &downloader);
  train_on(f, server, id, 4);
  train_on(f, server, id, 6);
  AWAIT(!has_checkpoint(f, id, 4));
  was_there = has_checkpoint(f, id, 2);
  let_read(f, downloader.thread);
  assert_true(was_there);
  expect_weights(&downloader, 2);
  expect_checkpoints(f, id, 6, 1);
  AWAIT(!has_checkpoint(f, id, 2));
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void checkpoints_are_there_until_they_are_verified(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 2);
  int n_refused = 0;
  struct verifier verifier = {.f = f, .run = id, .n_refused = &n_refused};
  bool were_there;
  begin_to_read(f, &verifier.thread, verify, &verifier);
  train_on(f, server, id, 6);
  train_on(f, server, id, 8);
  train_on(f, server, id, 10);
  were_there = has_checkpoint(f, id, 2) && has_checkpoint(f, id, 4);
  let_read(f, verifier.thread);
  assert_true(were_there);
  expect_whole(&verifier, 2);
  expect_checkpoints(f, id, 8, 2);
  AWAIT(!has_checkpoint(f, id, 2) && !has_checkpoint(f, id, 4));
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void cancel(struct service_fixture *f, const char *run) {
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  assert_int_equal(ask_run(f, RPC_CANCEL, run, &info, &err), 0);
  message_free(info);
}

static int collect(struct service_fixture *f, char *run, struct err *err) {
  Weir__CollectGarbageRequest request = WEIR__COLLECT_GARBAGE_REQUEST__INIT;
  Weir__CollectGarbageReply *reply = NULL;
  *err = ERR_NONE;
  request.runs = &run;
  request.n_runs = 1;
  rpc_unary(f->channel, &(struct rpc_question){RPC_COLLECT_GARBAGE, &request, patience_ms()}, false,
            (void **)&reply, err);
  message_free(reply);
  return err->code;
}

static void a_run_is_not_deleted_while_it_is_read(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 2);
  int n_refused = 0;
  struct verifier verifier = {.f = f, .run = id, .n_refused = &n_refused};
  struct err refusal, err;
  cancel(f, id);
  begin_to_read(f, &verifier.thread, verify, &verifier);
  collect(f, id, &refusal);
  let_read(f, verifier.thread);
  assert_int_equal(refusal.code, ERR_BUSY);
  assert_non_null(strstr(refusal.text, "is being downloaded or verified: try again when that is over"));
  expect_whole(&verifier, 2);
  AWAIT(collect(f, id, &err) == 0); /* the call is over for its client a little before it is for us */
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

/* A run with two checkpoints, 2 and 4, is resumed from 2 while `verifier` reads both: 4 is to be deleted, and
   its version comes again. */
struct rerun {
  struct rpc_reader *server, *worker;
  char *id;
  struct verifier verifier;
  int n_refused;
};

static void rerun_begin(struct service_fixture *f, struct rerun *rerun) {
  Weir__ResumeRequest request = WEIR__RESUME_REQUEST__INIT;
  Weir__RunInfo *info = NULL;
  struct err err = ERR_NONE;
  *rerun = (struct rerun){.server = member_join(f, WEIR__ROLE__SERVER),
                          .worker = member_join(f, WEIR__ROLE__WORKER)};
  rerun->id = train_with_checkpoints(f, rerun->server, rerun->worker, 4, 2);
  rerun->verifier = (struct verifier){.f = f, .run = rerun->id, .n_refused = &rerun->n_refused};
  members_leave(f, rerun->server, rerun->worker);
  cancel(f, rerun->id);
  begin_to_read(f, &rerun->verifier.thread, verify, &rerun->verifier);
  request.run = rerun->id;
  request.has_step = true;
  request.step = 2;
  assert_int_equal(rpc_unary(f->channel, &(struct rpc_question){RPC_RESUME, &request, patience_ms()}, false,
                             (void **)&info, &err),
                   0);
  message_free(info);
  expect_checkpoints(f, rerun->id, 2, 1);
  rerun->server = member_join(f, WEIR__ROLE__SERVER);
  rerun->worker = member_join(f, WEIR__ROLE__WORKER);
  begin_run(f, rerun->id, rerun->server, rerun->worker);
}

static void rerun_end(struct rerun *rerun) {
  rpc_reader_close(rerun->server);
  rpc_reader_close(rerun->worker);
  free(rerun->id);
}

static void a_checkpoint_that_is_made_again_is_not_deleted_for_the_former_one(void **state) {
  struct service_fixture *f = *state;
  struct rerun rerun;
  struct downloader newest = {.f = f};
  rerun_begin(f, &rerun);
  newest.run = rerun.id;
  train_on(f, rerun.server, rerun.id, 4);
  train_on(f, rerun.server, rerun.id, 6);
  let_read(f, rerun.verifier.thread);
  expect_whole(&rerun.verifier, 2);
  AWAIT(!has_checkpoint(f, rerun.id, 2));
  expect_checkpoints(f, rerun.id, 4, 2);
  assert_true(has_checkpoint(f, rerun.id, 4));
  download(&newest);
  expect_weights(&newest, 6);
  rerun_end(&rerun);
}

/* Else it would stay for ever: nobody lists it. */
static void the_former_one_is_deleted_where_the_new_one_is_not_committed(void **state) {
  struct service_fixture *f = *state;
  struct rerun rerun;
  char *name;
  rerun_begin(f, &rerun);
  name = checkpoint_name(rerun.id, 4);
  flaky_refuse_record(f->seat.store, name);
  assert_int_equal(expect_write(rerun.server), 4);
  tell_step(f, rerun.server, rerun.id, 2);
  tell_step(f, rerun.server, rerun.id, 3);
  write_blocks(f, rerun.server, rerun.id, 4);
  AWAIT(flaky_count_refused(f->seat.store) > 0);
  flaky_refuse_record(f->seat.store, NULL);
  let_read(f, rerun.verifier.thread);
  expect_whole(&rerun.verifier, 2);
  AWAIT(!has_checkpoint(f, rerun.id, 4));
  expect_checkpoints(f, rerun.id, 2, 1);
  free(name);
  rerun_end(&rerun);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_tenant_has_so_many_of_each_kind),
      cmocka_unit_test(a_quota_takes_the_place_of_the_bound_but_for_members),
      cmocka_unit_test(a_read_holds_checkpoints_of_its_run_until_it_ends_or_holds_others),
      TEST(verifications_keep_neither_submissions_nor_downloads_waiting),
      TEST(weights_are_there_until_they_have_been_read),
      TEST(checkpoints_are_there_until_they_are_verified),
      TEST(a_run_is_not_deleted_while_it_is_read),
      TEST(a_checkpoint_that_is_made_again_is_not_deleted_for_the_former_one),
      TEST(the_former_one_is_deleted_where_the_new_one_is_not_committed),
  };
#undef TEST
  return cmocka_run_group_tests(tests, NULL, NULL);
}
