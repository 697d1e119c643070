/* What a coordinator keeps in its store, misses there, verifies and deletes. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "server/coordinator/shell/reading/stored_runs.h"
#include "storage/checkpoint/checkpoint.h"
#include "storage/identity.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/storage/checkpoint_fixture.h"
#include "tests/support/storage/flaky_store.h"

static int resume(struct service_fixture *f, const char *run, bool has_step, uint64_t step, struct err *err) {
  Weir__ResumeRequest request = WEIR__RESUME_REQUEST__INIT;
  Weir__RunInfo *info = NULL;
  request.run = (char *)run;
  request.has_step = has_step;
  request.step = step;
  *err = ERR_NONE;
  rpc_unary(f->channel, &(struct rpc_question){RPC_RESUME, &request, patience_ms()}, false, (void **)&info,
            err);
  message_free(info);
  return err->code;
}

static int collect_garbage(struct service_fixture *f, const char *run, Weir__CollectGarbageReply **reply,
                           struct err *err) {
  Weir__CollectGarbageRequest request = WEIR__COLLECT_GARBAGE_REQUEST__INIT;
  char *runs[] = {(char *)run, (char *)run}; /* who names it twice means it once */
  request.runs = runs;
  request.n_runs = run ? 2 : 0;
  *err = ERR_NONE;
  *reply = NULL;
  return rpc_unary(f->channel, &(struct rpc_question){RPC_COLLECT_GARBAGE, &request, patience_ms()}, false,
                   (void **)reply, err);
}

static int collect_runs(struct service_fixture *f, char **runs, size_t n, struct err *err) {
  Weir__CollectGarbageRequest request = WEIR__COLLECT_GARBAGE_REQUEST__INIT;
  Weir__CollectGarbageReply *reply = NULL;
  request.runs = runs;
  request.n_runs = n;
  *err = ERR_NONE;
  rpc_unary(f->channel, &(struct rpc_question){RPC_COLLECT_GARBAGE, &request, patience_ms()}, false,
            (void **)&reply, err);
  message_free(reply);
  return err->code;
}

static int delete_one(void *user, const char *key, uint64_t size) {
  struct store *store = ((struct service_fixture *)user)->store;
  struct err err = ERR_NONE;
  (void)size;
  return store->def->delete_blocks(store, &key, 1, &err);
}

static const char term_name[] = "coordinator/epoch";

static void an_emptied_store_gets_everything_that_is_in_memory_again(void **state) {
  struct service_fixture *f = *state;
  struct store_names names = {0};
  struct err err = ERR_NONE;
  char *id = submit_run(f), sha256[65];
  bool has = false;
  const char *key = sha256;
  char identity[STORE_IDENTITY_SIZE], again[STORE_IDENTITY_SIZE];
  Weir__RunRecord *record;
  assert_int_equal(checkpoint_find_run(f->store, id, &record, &err), 0);
  strcpy(sha256, record->model_sha256);
  message_free(record);
  assert_int_equal(store_identity_read(f->store, identity, &err), 0);
  AWAIT(is_record_written(f, id, "incarnation"));
  assert_int_equal(store_list_records(f->store, "", &names, &err), 0);
  AWAIT(store_list_blocks(f->store, delete_one, f, &err) == 0);
  for (int i = 0; i < names.count; i++)
    if (strcmp(names.items[i], term_name) != 0)
      assert_int_equal(store_delete_record(f->store, names.items[i], NULL, &err), 0);
  store_names_fini(&names);
  assert_int_equal(store_delete_record(f->store, term_name, NULL, &err), 0); /* last: it is looked for */
  AWAIT(is_record_written(f, id, "run") && is_record_written(f, id, "incarnation"));
  AWAIT(store_has_blocks(f->store, &key, 1, &has, &err) == 0 && has);
  assert_int_equal(store_identity_read(f->store, again, &err), 0);
  assert_string_equal(again, identity);
  seat_restart(f, true);
  assert_int_equal(store_identity_read(f->store, again, &err), 0);
  assert_string_equal(again, identity);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__QUEUED);
  assert_false(f->seat.is_deposed);
  free(id);
}

static void a_run_whose_model_is_nowhere_any_more_fails(void **state) {
  struct service_fixture *f = *state;
  struct err err = ERR_NONE;
  char *id = submit_run(f);
  Weir__RunInfo *info = NULL;
  seat_stop(&f->seat);
  assert_int_equal(store_list_blocks(f->store, delete_one, f, &err), 0);
  seat_start(f, &f->seat, "first:1");
  f->channel = f->seat.channel;
  AWAIT(run_state(f, id) == WEIR__RUN_STATE__FAILED);
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), 0);
  assert_non_null(strstr(info->message, "the store has lost the model"));
  message_free(info);
  free(id);
}

static void damaged_records_are_passed_over(void **state) {
  struct service_fixture *f = *state;
  struct err err = ERR_NONE;
  char *id = submit_run(f), *name = checkpoint_run_name(id, "run");
  void *data;
  size_t size;
  assert_int_equal(store_get_record(f->store, name, &data, &size, &err), 0);
  assert_int_equal(
      store_put_record(f->store, &(struct store_record){"runs/cut-1/run", data, size / 2, NULL}, &err), 0);
  assert_int_equal(
      store_put_record(f->store, &(struct store_record){"runs/others-1/run", data, size, NULL}, &err), 0);
  assert_int_equal(store_put_record(f->store, &(struct store_record){"runs/empty-1/run", "", 0, NULL}, &err),
                   0);
  assert_int_equal(store_put_record(f->store, &(struct store_record){"runs/.x", "", 0, NULL}, &err),
                   ERR_INVALID);
  err = ERR_NONE;
  free(name);
  name = mem_printf("runs/%s/checkpoints/%020d", id, 2);
  assert_int_equal(store_put_record(f->store, &(struct store_record){name, data, size, NULL}, &err), 0);
  free(name);
  name = mem_printf("runs/%s/events/%020d", id, 1);
  assert_int_equal(store_put_record(f->store, &(struct store_record){name, data, size / 2, NULL}, &err), 0);
  seat_restart(f, false);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__QUEUED);
  assert_int_equal(run_state(f, "cut-1"), WEIR__RUN_STATE__RUN_STATE_UNKNOWN);
  assert_int_equal(run_state(f, "others-1"), WEIR__RUN_STATE__RUN_STATE_UNKNOWN);
  expect_checkpoints(f, id, 0, 0);
  free(data);
  free(name);
  free(id);
}

static void old_checkpoints_are_deleted_and_any_that_is_kept_gives_its_weights(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 6, 2);
  Weir__WeightsRequest request = WEIR__WEIGHTS_REQUEST__INIT;
  float got[TINY_PARAMS + 1];
  struct err err;
  AWAIT(!has_checkpoint(f, id, 2));
  expect_checkpoints(f, id, 4, 2);
  assert_int_equal(download_run(f, RPC_GET_WEIGHTS, id, (struct iovec){got, sizeof got}, &err),
                   TINY_PARAMS * sizeof(float));
  assert_true(got[1] == tiny_weight(6, 1));
  request.run = id;
  request.has_step = true;
  request.step = 4;
  assert_int_equal(download_chunks(f, RPC_GET_WEIGHTS, &request, (struct iovec){got, sizeof got}, &err),
                   TINY_PARAMS * sizeof(float));
  assert_true(got[1] == tiny_weight(4, 1));
  request.step = 2;
  assert_int_equal(download_chunks(f, RPC_GET_WEIGHTS, &request, (struct iovec){got, sizeof got}, &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "no checkpoint at step 2 (it has: 4, 6)"));
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void verify_tells_of_every_checkpoint(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER), *reader;
  char *id = train_with_checkpoints(f, server, worker, 4, 3), *name = checkpoint_name(id, 4);
  Weir__VerifyRequest request = WEIR__VERIFY_REQUEST__INIT;
  Weir__VerifyReply *reply;
  Weir__Manifest *manifest;
  struct err err = ERR_NONE;
  const char *key;
  assert_int_equal(checkpoint_read(f->store, name, &manifest, &err), 0);
  key = manifest->blocks[0]->sha256;
  assert_int_equal(store_delete_blocks(f->store, &key, 1, &err), 0);
  request.run = id;
  reader = rpc_reader_open(f->channel, RPC_VERIFY, patience_ms());
  assert_int_equal(rpc_reader_send(reader, &request, &err), 0);
  assert_int_equal(rpc_reader_next(reader, (void **)&reply, &err), 0);
  assert_int_equal(reply->step, 2);
  assert_int_equal(reply->n_damaged, 0);
  assert_int_equal(strlen(reply->weights_sha256), 64);
  message_free(reply);
  assert_int_equal(rpc_reader_next(reader, (void **)&reply, &err), 0);
  assert_int_equal(reply->step, 4);
  assert_int_equal(reply->n_damaged, 1);
  assert_int_equal(reply->n_damage, 1);
  assert_non_null(strstr(reply->damage[0], "block 0"));
  message_free(reply);
  assert_int_equal(rpc_reader_next(reader, (void **)&reply, &err), 0);
  assert_null(reply);
  rpc_reader_close(reader);
  message_free(manifest);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(name);
  free(id);
}

static void garbage_goes_and_with_it_the_runs_that_are_named(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3), key[65], *other;
  Weir__CollectGarbageReply *reply;
  Weir__RunInfo *info;
  uint64_t all_bytes;
  struct err err = ERR_NONE;
  assert_int_equal(store_put(f->store, "garbage", 7, key, &err), 0);
  assert_int_equal(collect_garbage(f, id, &reply, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "is running"));
  assert_int_equal(collect_garbage(f, NULL, &reply, &err), 0);
  assert_int_equal(reply->blocks, 1);
  assert_int_equal(reply->bytes, 7);
  assert_int_equal(reply->kept_blocks, 4); /* the model, two of parameters, one of statistics */
  all_bytes = reply->kept_bytes;
  message_free(reply);
  members_leave(f, server, worker);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  other = submit_run(f);
  assert_int_equal(collect_garbage(f, id, &reply, &err), 0);
  assert_int_equal(reply->runs, 1);
  assert_int_equal(reply->blocks, 3); /* two of parameters, one of statistics; the other run has the model */
  assert_int_equal(reply->bytes, all_bytes - reply->kept_bytes);
  assert_int_equal(reply->kept_blocks, 1);
  message_free(reply);
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), ERR_NOT_FOUND);
  assert_int_equal(collect_garbage(f, id, &reply, &err), ERR_NOT_FOUND);
  seat_restart(f, false);
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), ERR_NOT_FOUND);
  assert_int_equal(run_state(f, other), WEIR__RUN_STATE__QUEUED);
  free(other);
  free(id);
}

static char *submit_and_cancel(struct service_fixture *f) {
  char *id = submit_run(f);
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  AWAIT(is_record_written(f, id, "run"));
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  return id;
}

static void no_run_goes_where_one_that_is_named_is_refused(void **state) {
  struct service_fixture *f = *state;
  char *first = submit_and_cancel(f), *second = submit_and_cancel(f);
  struct err err;
  assert_int_equal(collect_runs(f, (char *[]){first, second, "nosuch"}, 3, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "no run 'nosuch' in the store"));
  assert_int_equal(run_state(f, first), WEIR__RUN_STATE__CANCELLED);
  assert_int_equal(run_state(f, second), WEIR__RUN_STATE__CANCELLED);
  assert_true(is_record_written(f, first, "run") && is_record_written(f, second, "run"));
  assert_int_equal(
      store_put_record(f->store, &(struct store_record){"runs/cut-123456/run", "\xff", 1, NULL}, &err), 0);
  assert_int_equal(collect_runs(f, (char *[]){first, "cut-1"}, 2, &err), ERR_CORRUPT);
  assert_non_null(strstr(err.text, "runs/cut-123456/run"));
  assert_non_null(strstr(err.text, "deleted by its whole id"));
  assert_true(is_record_written(f, first, "run"));
  assert_int_equal(collect_runs(f, (char *[]){first, second, "cut-123456"}, 3, &err), 0);
  assert_int_equal(run_state(f, first), WEIR__RUN_STATE__RUN_STATE_UNKNOWN);
  assert_false(is_record_written(f, first, "run") || is_record_written(f, "cut-123456", "run"));
  free(first);
  free(second);
}

static void a_run_that_the_store_alone_knows_goes_once_under_all_its_names(void **state) {
  struct service_fixture *f = *state;
  char *id = submit_and_cancel(f);
  Weir__RunRecord *record;
  struct err err = ERR_NONE;
  assert_int_equal(checkpoint_find_run(f->store, id, &record, &err), 0);
  free(record->run);
  record->run = mem_strdup("older-123456");
  assert_int_equal(checkpoint_write_record(f->store, "runs/older-123456/run", record, NULL, &err), 0);
  assert_int_equal(collect_runs(f, (char *[]){"older", "older-123456", "older-1"}, 3, &err), 0);
  assert_false(is_record_written(f, "older-123456", "run"));
  message_free(record);
  free(id);
}

static void a_deletion_that_fails_midway_says_which_runs_have_gone(void **state) {
  struct service_fixture *f = *state;
  char *first = submit_and_cancel(f), *second = submit_and_cancel(f),
       *kept = checkpoint_run_name(second, "run");
  char *told = mem_printf("deleted %s; then: ", first);
  struct err err;
  flaky_refuse_record(f->seat.store, kept);
  assert_int_equal(collect_runs(f, (char *[]){first, second}, 2, &err), ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, told));
  assert_int_equal(run_state(f, first), WEIR__RUN_STATE__RUN_STATE_UNKNOWN);
  assert_int_equal(run_state(f, second), WEIR__RUN_STATE__CANCELLED);
  flaky_refuse_record(f->seat.store, NULL);
  assert_int_equal(collect_runs(f, (char *[]){second}, 1, &err), 0);
  assert_false(is_record_written(f, second, "run"));
  free(told);
  free(kept);
  free(first);
  free(second);
}

static void pause_and_resume_are_refused_where_they_make_no_sense(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3);
  Weir__RunInfo *info;
  struct err err;
  assert_int_equal(resume(f, id, false, 0, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "is running"));
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  assert_int_equal(ask_run(f, RPC_PAUSE, id, &info, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "was cancelled"));
  assert_int_equal(resume(f, id, true, 3, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "(it has: 2, 4)"));
  rpc_reader_close(server);
  rpc_reader_close(worker);
  seat_restart(f, false); /* its model is in the store alone now */
  assert_int_equal(resume(f, id, true, 2, &err), 0);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__QUEUED);
  assert_int_equal(ask_run(f, RPC_PAUSE, id, &info, &err), 0);
  assert_int_equal(info->state, WEIR__RUN_STATE__PAUSED);
  message_free(info);
  assert_int_equal(resume(f, id, true, 0, &err), 0);
  expect_checkpoints(f, id, 0, 0); /* those after the start are no more */
  AWAIT(!has_checkpoint(f, id, 2) && !has_checkpoint(f, id, 4));
  free(id);
}

/* As many copies of the record, in this state; in the order of their names, and of submission. */
static void put_records(struct service_fixture *f, Weir__RunRecord *record, int n) {
  char id[64], *own = record->run;
  struct err err = ERR_NONE;
  record->run = id;
  for (int i = 0; i < n; i++) {
    char *name;
    snprintf(id, sizeof id, "copy-%d-%s-%05d", (int)record->state, *record->sweep ? record->sweep : "of", i);
    name = checkpoint_run_name(id, "run");
    record->submitted_unix_ms++;
    assert_int_equal(checkpoint_write_record(f->store, name, record, NULL, &err), 0);
    free(name);
  }
  record->run = own;
}

static int count_state(const struct stored_runs *runs, Weir__RunState run_state, const char *sweep) {
  int n = 0;
  for (int i = 0; i < runs->count; i++)
    n += runs->items[i].record->state == run_state && strcmp(runs->items[i].record->sweep, sweep) == 0;
  return n;
}

static void neither_held_runs_nor_trials_push_out_what_people_ran(void **state) {
  struct service_fixture *f = *state;
  char *id = submit_run(f), *name = checkpoint_run_name(id, "run"), *none, trials[] = "search-aaaaaa";
  Weir__RunRecord *record;
  struct stored_runs runs;
  struct err err = ERR_NONE;
  assert_int_equal(
      checkpoint_read_record(f->store, name, &weir__run_record__descriptor, (void **)&record, &err), 0);
  none = record->sweep;
  record->state = WEIR__RUN_STATE__DONE;
  put_records(f, record, RUNS_KEPT + 1);
  record->state = WEIR__RUN_STATE__HELD;
  put_records(f, record, RUNS_KEPT + 500);
  record->sweep = trials;
  put_records(f, record, 500);
  record->state = WEIR__RUN_STATE__DONE;
  put_records(f, record, 600);
  record->state = WEIR__RUN_STATE__CANCELLED;
  put_records(f, record, TRIALS_KEPT);
  assert_int_equal(stored_runs_read(f->store, NULL, &runs, &err), 0);
  assert_int_equal(count_state(&runs, WEIR__RUN_STATE__QUEUED, ""), 1);
  assert_int_equal(count_state(&runs, WEIR__RUN_STATE__DONE, ""), RUNS_KEPT);
  assert_int_equal(count_state(&runs, WEIR__RUN_STATE__HELD, ""), RUNS_KEPT + 500);
  assert_int_equal(count_state(&runs, WEIR__RUN_STATE__HELD, trials), 500);
  assert_int_equal(count_state(&runs, WEIR__RUN_STATE__DONE, trials), 600);
  assert_int_equal(count_state(&runs, WEIR__RUN_STATE__CANCELLED, trials), TRIALS_KEPT - 600);
  assert_int_equal(runs.left_out, 1 + 600);
  for (int i = 0; i < runs.count; i++) /* the oldest went */
    assert_string_not_equal(runs.items[i].record->run, "copy-5-of-00000");
  stored_runs_fini(&runs);
  record->sweep = none;
  message_free(record);
  free(name);
  free(id);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)
  const struct CMUnitTest tests[] = {
      TEST(an_emptied_store_gets_everything_that_is_in_memory_again),
      TEST(a_run_whose_model_is_nowhere_any_more_fails),
      TEST(damaged_records_are_passed_over),
      TEST(old_checkpoints_are_deleted_and_any_that_is_kept_gives_its_weights),
      TEST(verify_tells_of_every_checkpoint),
      TEST(garbage_goes_and_with_it_the_runs_that_are_named),
      TEST(no_run_goes_where_one_that_is_named_is_refused),
      TEST(a_run_that_the_store_alone_knows_goes_once_under_all_its_names),
      TEST(a_deletion_that_fails_midway_says_which_runs_have_gone),
      TEST(neither_held_runs_nor_trials_push_out_what_people_ran),
      TEST(pause_and_resume_are_refused_where_they_make_no_sense),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
