/* The coordinator's services over real RPC, with fake members. */
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/message.h"
#include "model/model.h"
#include "server/coordinator/shell/service.h"
#include "storage/checkpoint/checkpoint.h"
#include "tests/support/coordinator/service_members.h"
#include "tests/support/storage/checkpoint_fixture.h"

static void a_submitted_run_is_queued_and_its_model_kept(void **state) {
  struct service_fixture *f = *state;
  Weir__RunInfo *info;
  struct err err;
  char *id = submit_run(f);
  uint8_t *copy = mem_new(f->onnx_bytes);
  assert_int_equal(ask_run(f, RPC_GET_RUN, "tiny-", &info, &err), 0);
  assert_string_equal(info->run, id);
  assert_int_equal(info->state, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(info->message, "waiting for a server");
  assert_int_equal(info->parameters, TINY_PARAMS);
  assert_int_equal(info->spec->train->batch, 8);
  message_free(info);
  assert_int_equal(download_run(f, RPC_FETCH_MODEL, id, (struct iovec){copy, f->onnx_bytes}, &err),
                   f->onnx_bytes);
  assert_memory_equal(copy, f->onnx, f->onnx_bytes);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  assert_int_equal(info->state, WEIR__RUN_STATE__CANCELLED);
  message_free(info);
  memset(copy, 0, f->onnx_bytes); /* now from the store */
  assert_int_equal(download_run(f, RPC_GET_MODEL, id, (struct iovec){copy, f->onnx_bytes}, &err),
                   f->onnx_bytes);
  assert_memory_equal(copy, f->onnx, f->onnx_bytes);
  free(copy);
  free(id);
}

static void what_cannot_be_trained_is_refused_with_its_reason(void **state) {
  struct service_fixture *f = *state;
  struct err err;
  struct rpc_reader *reader;
  assert_null(upload_end(upload_begin(f, NULL, 10), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_null(upload_end(upload_begin(f, f->spec, 0), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_null(upload_end(upload_begin(f, f->spec, UINT64_MAX), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_null(upload_end(rpc_reader_open(f->channel, RPC_SUBMIT, patience_ms()), &err));
  assert_int_equal(err.code, ERR_INVALID);

  reader = upload_begin(f, f->spec, f->onnx_bytes);
  upload_add(reader, f->onnx, f->onnx_bytes - 1);
  assert_null(upload_end(reader, &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, "announced"));

  reader = upload_begin(f, f->spec, f->onnx_bytes - 1);
  upload_add(reader, f->onnx, f->onnx_bytes);
  assert_null(upload_end(reader, &err));
  assert_int_equal(err.code, ERR_INVALID);

  reader = upload_begin(f, f->spec, 9);
  upload_add(reader, "not onnx.", 9);
  assert_null(upload_end(reader, &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, "mlp.onnx"));

  f->spec->train->batch = 0;
  assert_null(upload_end(upload_begin(f, f->spec, f->onnx_bytes), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, "train.batch"));
  f->spec->train->batch = 8;
  f->spec->train->early_stopping = mem_new(sizeof *f->spec->train->early_stopping);
  weir__early_stopping_spec__init(f->spec->train->early_stopping);
  f->spec->train->early_stopping->has_patience = true; /* 0 */
  f->spec->train->early_stopping->patience = 0;
  assert_null(upload_end(upload_begin(f, f->spec, f->onnx_bytes), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, "train.early_stopping"));
  message_free(f->spec->train->early_stopping);
  f->spec->train->early_stopping = NULL;
  f->spec->train->optimizer->name[0] = 'x';
  assert_null(upload_end(upload_begin(f, f->spec, f->onnx_bytes), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, "optimizer"));
  f->spec->train->optimizer->name[0] = 's';
  free(submit_run(f)); /* and nothing of it did any harm */
}

/* Uploads that fall silent take all places, until they have been silent for too long. */
static void uploads_that_say_nothing_are_ended(void **state) {
  enum { UPLOADS_MAX = 16 };
  struct service_fixture *f = *state;
  struct rpc_reader *silent[UPLOADS_MAX];
  struct err err;
  char *id;
  void *reply;
  f->upload_idle_ms = 3000;
  seat_restart(f, false);
  for (int i = 0; i < UPLOADS_MAX; i++) {
    silent[i] = upload_begin(f, f->spec, f->onnx_bytes);
    upload_add(silent[i], f->onnx, 1);
  }
  AWAIT((id = try_to_submit(f, &err)) != NULL);
  free(id);
  for (int i = 0; i < UPLOADS_MAX; i++) {
    err = ERR_NONE;
    assert_int_equal(rpc_reader_next(silent[i], &reply, &err), ERR_CANCELLED);
    assert_non_null(strstr(err.text, "the client sent nothing for 3 s"));
    rpc_reader_close(silent[i]);
  }
}

static void submissions_beyond_those_that_may_be_under_way_are_refused(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *readers[LIMIT_UPLOADS];
  struct err err = ERR_NONE;
  char *id;
  for (int i = 0; i < LIMIT_UPLOADS; i++)
    readers[i] = upload_begin(f, f->spec, f->onnx_bytes);
  for (bool is_refused = false; !is_refused; free(id)) { /* until all of them are there */
    err = ERR_NONE;
    is_refused = (id = try_to_submit(f, &err)) == NULL;
  }
  assert_int_equal(err.code, ERR_BUSY);
  assert_non_null(strstr(err.text, "16 others are being submitted: try again"));
  for (int i = 0; i < LIMIT_UPLOADS; i++)
    rpc_reader_close(readers[i]);
  AWAIT((id = try_to_submit(f, &err)) != NULL);
  free(id);
}

static void runs_beyond_those_that_may_wait_are_refused(void **state) {
  struct service_fixture *f = *state;
  struct err err = ERR_NONE;
  char *id;
  for (int i = 0; i < LIMIT_RUNS; i++) {
    if (!(id = try_to_submit(f, &err)))
      fail_msg("run %d: %s", i, err.text);
    free(id);
  }
  assert_null(try_to_submit(f, &err));
  assert_int_equal(err.code, ERR_BUSY);
  assert_non_null(
      strstr(err.text, "500 runs wait or run, the most that may: try again when some have ended"));
}

static void an_upload_that_drips_is_ended(void **state) {
  struct service_fixture *f = *state;
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct rpc_reader *reader;
  struct err err = ERR_NONE;
  void *reply;
  f->upload_slow_ms = 500;
  seat_restart(f, false);
  reader = upload_begin(f, f->spec, 1 << 20);
  request.chunk = (ProtobufCBinaryData){1, f->onnx};
  while (rpc_reader_send(reader, &request, &err) == 0) /* until the call ends; its deadline bounds that */
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  assert_int_equal(rpc_reader_next(reader, &reply, &err), ERR_CANCELLED);
  assert_non_null(strstr(err.text, "at least 16384 a second are wanted"));
  rpc_reader_close(reader);
}

static void a_run_that_is_not_there_is_not_found(void **state) {
  struct service_fixture *f = *state;
  Weir__RunInfo *info;
  struct err err;
  uint8_t none[1];
  assert_int_equal(ask_run(f, RPC_GET_RUN, "nobody", &info, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "no run 'nobody'"));
  assert_int_equal(ask_run(f, RPC_CANCEL, "nobody", &info, &err), ERR_NOT_FOUND);
  assert_int_equal(download_run(f, RPC_GET_MODEL, "nobody", (struct iovec){none, 0}, &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
  assert_int_equal(ask_run(f, RPC_GET_RUN, "", &info, &err), ERR_INVALID);
}

static void a_trained_run_gives_its_weights_back(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = submit_run(f), sha256[65], *name;
  float got[TINY_PARAMS + 1];
  Weir__Manifest *manifest;
  Weir__RunEvent *last;
  struct err err;
  uint64_t events;
  train_run(f, id, server, worker);
  assert_int_equal(download_run(f, RPC_GET_WEIGHTS, id, (struct iovec){got, sizeof got}, &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "no checkpoint yet"));
  write_blocks(f, server, id, STEPS);
  message_free(expect_order(worker, WEIR__ORDER__BODY_UNLOAD));
  events = watch_all(f, id, 0, &last);
  assert_int_equal(last->event_case, WEIR__RUN_EVENT__EVENT_DONE);
  assert_true(events > STEPS);
  name = checkpoint_name(id, STEPS);
  err = ERR_NONE;
  assert_int_equal(checkpoint_read(f->store, name, &manifest, &err), 0);
  assert_int_equal(checkpoint_weights_sha256(f->store, manifest, sha256, &err), 0);
  assert_string_equal(manifest->weights_sha256, sha256);
  assert_string_equal(last->done->weights_sha256, sha256);
  events = last->number;
  message_free(last);
  assert_int_equal(watch_all(f, id, events, &last), 1);
  message_free(last);
  assert_int_equal(download_run(f, RPC_GET_WEIGHTS, id, (struct iovec){got, sizeof got}, &err),
                   TINY_PARAMS * sizeof(float));
  for (size_t i = 0; i < TINY_PARAMS; i++)
    assert_true(got[i] == tiny_weight(STEPS, i));
  message_free(manifest);
  free(name);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void a_last_checkpoint_that_fails_is_made_again(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  Weir__WrittenBlock blocks[2] = {WEIR__WRITTEN_BLOCK__INIT, WEIR__WRITTEN_BLOCK__INIT};
  Weir__WrittenBlock *list[2] = {&blocks[0], &blocks[1]};
  static char nowhere[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  char *id = submit_run(f);
  Weir__RunInfo *info;
  Weir__RunEvent *last;
  struct err err;
  train_run(f, id, server, worker);
  blocks[1].block = 1;
  blocks[0].sha256 = blocks[1].sha256 = nowhere;
  written.run = id;
  written.incarnation = f->incarnation;
  written.step = STEPS;
  written.blocks = list;
  written.n_blocks = 2;
  written.is_last = true;
  member_tell(server, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
  assert_int_equal(expect_write(server), STEPS);
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), 0);
  assert_int_equal(info->state, WEIR__RUN_STATE__FINISHING);
  assert_non_null(strstr(info->store_message, "no such block"));
  message_free(info);
  write_blocks(f, server, id, STEPS);
  watch_all(f, id, 0, &last);
  assert_int_equal(last->event_case, WEIR__RUN_EVENT__EVENT_DONE);
  message_free(last);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void a_watcher_sees_a_run_end_without_asking_again(void **state) {
  struct service_fixture *f = *state;
  char *id = submit_run(f);
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_WATCH, patience_ms());
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  Weir__RunEvent *event = NULL;
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  request.run = id;
  assert_int_equal(rpc_reader_send(reader, &request, &err), 0);
  assert_int_equal(rpc_reader_next(reader, (void **)&event, &err), 0);
  assert_int_equal(event->info->state, WEIR__RUN_STATE__QUEUED);
  message_free(event);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  assert_int_equal(rpc_reader_next(reader, (void **)&event, &err), 0);
  assert_int_equal(event->info->state, WEIR__RUN_STATE__CANCELLED);
  message_free(event);
  assert_int_equal(rpc_reader_next(reader, (void **)&event, &err), 0);
  assert_null(event);
  rpc_reader_close(reader);
  free(id);
}

static void expect_shown_out(struct rpc_reader *member, const char *why) {
  Weir__Order *order = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(rpc_reader_next(member, (void **)&order, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, why));
  rpc_reader_close(member);
}

static void a_member_without_manners_is_shown_out(void **state) {
  struct service_fixture *f = *state;
  struct rpc_reader *member = member_join(f, WEIR__ROLE__WORKER);
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  expect_shown_out(member, "hello");
  member = rpc_reader_open(f->channel, RPC_JOIN, patience_ms());
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, &heartbeat);
  expect_shown_out(member, "hello");
  hello.role = WEIR__ROLE__ROLE_UNKNOWN;
  member = rpc_reader_open(f->channel, RPC_JOIN, patience_ms());
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  expect_shown_out(member, "no role");
  hello.role = WEIR__ROLE__SERVER;
  member = rpc_reader_open(f->channel, RPC_JOIN, patience_ms());
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  expect_shown_out(member, "no address");
}

static void stopping_ends_watchers_and_members(void **state) {
  struct service_fixture *f = *state;
  char *id = submit_run(f);
  struct rpc_reader *worker = member_join(f, WEIR__ROLE__WORKER);
  struct rpc_reader *watcher = rpc_reader_open(f->channel, RPC_WATCH, patience_ms());
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  Weir__RunEvent *event = NULL;
  Weir__Order *order = NULL;
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  request.run = id;
  assert_int_equal(rpc_reader_send(watcher, &request, &err), 0);
  assert_int_equal(rpc_reader_next(watcher, (void **)&event, &err), 0);
  message_free(event);
  coordinator_service_stop(f->seat.service);
  while (rpc_reader_next(watcher, (void **)&event, &err) == 0 && event)
    message_free(event);
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  err = ERR_NONE;
  while (rpc_reader_next(worker, (void **)&order, &err) == 0 && order)
    message_free(order);
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), ERR_UNAVAILABLE);
  rpc_reader_close(watcher);
  rpc_reader_close(worker);
  free(id);
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_submitted_run_is_queued_and_its_model_kept),
      TEST(what_cannot_be_trained_is_refused_with_its_reason),
      TEST(uploads_that_say_nothing_are_ended),
      TEST(submissions_beyond_those_that_may_be_under_way_are_refused),
      TEST(runs_beyond_those_that_may_wait_are_refused),
      TEST(an_upload_that_drips_is_ended),
      TEST(a_run_that_is_not_there_is_not_found),
      TEST(a_trained_run_gives_its_weights_back),
      TEST(a_last_checkpoint_that_fails_is_made_again),
      TEST(a_watcher_sees_a_run_end_without_asking_again),
      TEST(a_member_without_manners_is_shown_out),
      TEST(stopping_ends_watchers_and_members),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
