/* Coordinators that come and go on one store, and stores that do: what is kept, who leads, what is refused.
 */
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "server/coordinator/shell/stored_runs.h"
#include "storage/identity.h"
#include "tests/support/coordinator_service_fixture.h"

static bool is_written(struct fixture *f, const char *run, const char *which) {
  struct err err = ERR_NONE;
  char *name = checkpoint_run_name(run, which);
  void *data;
  size_t size;
  bool is_there = store_get_record(f->store, name, &data, &size, &err) == 0;
  free(data);
  free(name);
  return is_there;
}

/* The store has this state of the run. */
static bool is_kept(struct fixture *f, const char *run, Weir__RunState run_state) {
  struct err err = ERR_NONE;
  char *name = checkpoint_run_name(run, "run");
  Weir__RunRecord *record = NULL;
  bool is_so =
      checkpoint_read_record(f->store, name, &weir__run_record__descriptor, (void **)&record, &err) == 0 &&
      record->state == run_state;
  message_free(record);
  free(name);
  return is_so;
}

/* The store has as many events of the run. */
static bool are_events_kept(struct fixture *f, const char *run, uint64_t events) {
  struct stored_runs runs;
  struct err err = ERR_NONE;
  bool is_so = false;
  assert_int_equal(stored_runs_read(f->store, NULL, &runs, &err), 0);
  for (int i = 0; i < runs.count; i++)
    is_so |= strcmp(runs.items[i].record->run, run) == 0 && runs.items[i].n_events == events;
  stored_runs_fini(&runs);
  return is_so;
}

/* How often the coordinator that leads has renewed its lease. */
static uint64_t count_renewals(struct fixture *f) {
  struct err err = ERR_NONE;
  Weir__Lease *lease;
  uint64_t beat;
  assert_int_equal(
      checkpoint_read_record(f->store, "coordinator/lease", &weir__lease__descriptor, (void **)&lease, &err),
      0);
  beat = lease->beat;
  message_free(lease);
  return beat;
}

static bool has_checkpoint(struct fixture *f, const char *run, uint64_t step) {
  char *which = mem_printf("checkpoints/%020llu", (unsigned long long)step);
  bool is_there = is_written(f, run, which);
  free(which);
  return is_there;
}

/* A run that has committed the checkpoints at steps 2, 4, ... `last`, and goes on. */
static char *train_with_checkpoints(struct fixture *f, struct rpc_reader *server, struct rpc_reader *worker,
                                    uint64_t last, uint32_t keep) {
  Weir__CheckpointSpec *checkpoint = f->spec->checkpoint;
  uint64_t step = 0;
  char *id;
  f->spec->train->steps = TINY_STEPS;
  checkpoint->has_every_steps = true;
  checkpoint->has_every_seconds = false;
  checkpoint->every_steps = 2;
  checkpoint->has_keep = true;
  checkpoint->keep = keep;
  id = submit_run(f);
  begin_run(f, id, server, worker);
  for (uint64_t wanted = 2; wanted <= last; wanted += 2) {
    assert_int_equal(expect_write(server), wanted);
    for (; step < wanted; step++)
      tell_step(f, server, id, step);
    write_blocks(f, server, id, wanted);
    AWAIT(has_checkpoint(f, id, wanted));
  }
  return id;
}

static int resume(struct fixture *f, const char *run, bool has_step, uint64_t step, struct err *err) {
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

static Weir__ListCheckpointsReply *list_checkpoints(struct fixture *f, const char *run) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  Weir__ListCheckpointsReply *reply = NULL;
  struct err err = ERR_NONE;
  request.run = (char *)run;
  if (rpc_unary(f->channel, &(struct rpc_question){RPC_LIST_CHECKPOINTS, &request, patience_ms()}, false,
                (void **)&reply, &err))
    fail_msg("%s", err.text);
  return reply;
}

static void expect_checkpoints(struct fixture *f, const char *run, uint64_t first, size_t n) {
  Weir__ListCheckpointsReply *reply = list_checkpoints(f, run);
  assert_int_equal(reply->n_checkpoints, n);
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(reply->checkpoints[i]->step, first + 2 * i);
    assert_int_equal(reply->checkpoints[i]->blocks, TINY_BLOCKS);
  }
  message_free(reply);
}

static int collect_garbage(struct fixture *f, const char *run, Weir__CollectGarbageReply **reply,
                           struct err *err) {
  Weir__CollectGarbageRequest request = WEIR__COLLECT_GARBAGE_REQUEST__INIT;
  char *runs[] = {(char *)run};
  request.runs = runs;
  request.n_runs = run ? 1 : 0;
  *err = ERR_NONE;
  *reply = NULL;
  return rpc_unary(f->channel, &(struct rpc_question){RPC_COLLECT_GARBAGE, &request, patience_ms()}, false,
                   (void **)reply, err);
}

static void runs_are_as_they_were(struct fixture *f, bool is_killed) {
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *done = submit_run(f), *queued, *cancelled, got[TINY_PARAMS * sizeof(float)];
  Weir__RunInfo *info;
  Weir__RunEvent *last;
  struct err err;
  uint64_t events, number;
  train_run(f, done, server, worker);
  write_blocks(f, server, done, STEPS);
  events = watch_all(f, done, 0, &last);
  number = last->number;
  message_free(last);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  queued = submit_run(f);
  cancelled = submit_run(f);
  assert_int_equal(ask_run(f, RPC_CANCEL, cancelled, &info, &err), 0);
  message_free(info);
  if (is_killed) { /* what is written beside the work comes, and is there then */
    AWAIT(are_events_kept(f, done, events));
    AWAIT(is_kept(f, queued, WEIR__RUN_STATE__QUEUED) && is_kept(f, cancelled, WEIR__RUN_STATE__CANCELLED));
  }
  seat_restart(f, is_killed);
  assert_int_equal(run_state(f, done), WEIR__RUN_STATE__DONE);
  assert_int_equal(run_state(f, queued), WEIR__RUN_STATE__QUEUED);
  assert_int_equal(run_state(f, cancelled), WEIR__RUN_STATE__CANCELLED);
  assert_int_equal(watch_all(f, done, 0, &last), events);
  assert_int_equal(last->event_case, WEIR__RUN_EVENT__EVENT_DONE);
  assert_int_equal(last->number, number);
  message_free(last);
  assert_int_equal(download_run(f, RPC_GET_WEIGHTS, done, got, sizeof got, &err), sizeof got);
  server = member_join(f, WEIR__ROLE__SERVER);
  worker = member_join(f, WEIR__ROLE__WORKER);
  train_run(f, queued, server, worker); /* and it goes on */
  write_blocks(f, server, queued, STEPS);
  AWAIT(run_state(f, queued) == WEIR__RUN_STATE__DONE);
  watch_all(f, queued, 0, &last);
  assert_int_equal(last->number >> 32, 2);
  message_free(last);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(done);
  free(queued);
  free(cancelled);
}

static void a_stopped_coordinators_successor_finds_its_runs_as_they_were(void **state) {
  runs_are_as_they_were(*state, false);
}

static void a_killed_coordinators_successor_finds_its_runs_as_they_were(void **state) {
  runs_are_as_they_were(*state, true);
}

static void a_server_that_comes_back_keeps_its_part_of_a_run(void **state) {
  struct fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3);
  Weir__Order *order;
  Weir__RunInfo *info;
  struct err err;
  rpc_reader_close(server);
  rpc_reader_close(worker);
  seat_restart(f, true);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__RUNNING);
  expect_checkpoints(f, id, 2, 2);
  server = member_join_again(f, WEIR__ROLE__SERVER, "server-1", id, 5);
  order = expect_order(server, WEIR__ORDER__BODY_KEEP);
  assert_int_equal(order->term, 2);
  assert_int_equal(order->keep->incarnation, 0);
  message_free(order);
  tell_step(f, server, id, 4);
  tell_step(f, server, id, 5);
  AWAIT(ask_run(f, RPC_GET_RUN, id, &info, &err) == 0 && (info->step == 6 || (message_free(info), false)));
  message_free(info);
  rpc_reader_close(server);
  free(id);
}

static void a_run_whose_servers_are_gone_goes_on_from_its_checkpoint(void **state) {
  struct fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3), *name = checkpoint_name(id, 4), *record;
  Weir__Order *order;
  struct err err = ERR_NONE;
  size_t size;
  rpc_reader_close(server);
  rpc_reader_close(worker);
  seat_restart(f, true);
  server = member_join(f, WEIR__ROLE__SERVER);
  order = expect_order(server, WEIR__ORDER__BODY_LOAD);
  assert_int_equal(order->load->step, 4);
  assert_int_equal(order->load->incarnation, 1);
  assert_string_equal(order->load->manifest, name);
  message_free(order);
  free(name);
  name = checkpoint_run_name(id, "incarnation"); /* was written before the server was told */
  assert_int_equal(store_get_record(f->store, name, (void **)&record, &size, &err), 0);
  assert_int_equal(size, 1);
  assert_int_equal(record[0], '1');
  free(record);
  free(name);
  rpc_reader_close(server);
  free(id);
}

static void only_one_coordinator_of_a_store_leads(void **state) {
  struct fixture *f = *state;
  char *id = submit_run(f);
  struct seat second;
  Weir__RunInfo *info;
  struct err err;
  bool is_serving = true;
  seat_start(f, &second, "second:1");
  f->channel = second.channel;
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "this coordinator is a standby of first:1"));
  assert_null(try_to_submit(f, &err));
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  err = ERR_NONE;
  assert_int_equal(rpc_health_probe(second.channel, patience_ms(), &is_serving, &err), 0);
  assert_false(is_serving);
  assert_int_equal(rpc_health_probe(f->seat.channel, patience_ms(), &is_serving, &err), 0);
  assert_true(is_serving);

  flaky_set_away(f->seat.store, true); /* the first is cut off from the store, and goes on */
  AWAIT(ask_run(f, RPC_GET_RUN, id, &info, &err) == 0);
  message_free(info);
  assert_int_equal(rpc_health_probe(second.channel, patience_ms(), &is_serving, &err), 0);
  assert_true(is_serving);
  f->channel = f->seat.channel;
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  flaky_set_away(f->seat.store, false);
  AWAIT(__atomic_load_n(&f->seat.is_deposed, __ATOMIC_ACQUIRE));
  assert_int_equal(ask_run(f, RPC_GET_RUN, id, &info, &err), ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "another coordinator leads"));
  seat_restart(f, false); /* and what it decided meanwhile is not in the store */
  f->channel = second.channel;
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__QUEUED);
  seat_stop(&second);
  f->channel = f->seat.channel;
  AWAIT(run_state(f, id) == WEIR__RUN_STATE__QUEUED);
  free(id);
}

static void a_member_that_obeys_a_higher_term_deposes_the_coordinator(void **state) {
  struct fixture *f = *state;
  struct rpc_reader *member = rpc_reader_open(f->channel, RPC_JOIN, patience_ms());
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.term = 9;
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  AWAIT(__atomic_load_n(&f->seat.is_deposed, __ATOMIC_ACQUIRE));
  rpc_reader_close(member);
}

/* Anybody can say so: the store knows better. */
static void a_member_that_claims_a_higher_term_disturbs_no_run(void **state) {
  struct fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct rpc_reader *member;
  char *id = submit_run(f);
  Weir__Order *order = NULL;
  struct err err = ERR_NONE;
  uint64_t renewals;
  hello.role = WEIR__ROLE__WORKER;
  hello.term = 9;
  member = rpc_reader_open(f->channel, RPC_JOIN, patience_ms());
  member_tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  assert_int_equal(rpc_reader_next(member, (void **)&order, &err), ERR_STALE);
  rpc_reader_close(member);
  renewals = count_renewals(f);
  AWAIT(count_renewals(f) >= renewals + 2); /* it asks the store when it renews its lease */
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__QUEUED);
  assert_false(__atomic_load_n(&f->seat.is_deposed, __ATOMIC_ACQUIRE));
  free(id);
}

static void a_coordinator_whose_term_is_over_writes_nothing(void **state) {
  struct fixture *f = *state;
  struct store_names names = {0};
  struct err err = ERR_NONE;
  assert_int_equal(
      store_put_record(f->store, &(struct store_record){"coordinator/epoch", "9", 1, NULL}, &err), 0);
  assert_null(try_to_submit(f, &err)); /* before or after it has noticed */
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  err = ERR_NONE;
  assert_int_equal(store_list_records(f->store, "runs/", &names, &err), 0);
  assert_int_equal(names.count, 0);
  store_names_fini(&names);
  AWAIT(__atomic_load_n(&f->seat.is_deposed, __ATOMIC_ACQUIRE));
}

static void a_submission_that_the_store_cannot_keep_is_refused_and_forgotten(void **state) {
  struct fixture *f = *state;
  Weir__ListRunsRequest request = WEIR__LIST_RUNS_REQUEST__INIT;
  Weir__ListRunsReply *reply = NULL;
  struct err err;
  flaky_set_away(f->seat.store, true);
  assert_null(try_to_submit(f, &err));
  assert_int_equal(err.code, ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "nobody answers"));
  flaky_set_away(f->seat.store, false);
  err = ERR_NONE;
  assert_int_equal(rpc_unary(f->channel, &(struct rpc_question){RPC_LIST_RUNS, &request, patience_ms()},
                             false, (void **)&reply, &err),
                   0);
  assert_int_equal(reply->n_runs, 0);
  message_free(reply);
  free(submit_run(f));
}

static void a_state_that_the_store_missed_is_written_when_it_is_back(void **state) {
  struct fixture *f = *state;
  char *id = submit_run(f);
  Weir__RunInfo *info;
  struct err err;
  flaky_set_away(f->seat.store, true);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  AWAIT(ask_run(f, RPC_GET_RUN, id, &info, &err) == 0);
  message_free(info);
  AWAIT(flaky_count_refused(f->seat.store) > 0); /* it was tried in vain */
  flaky_set_away(f->seat.store, false);
  AWAIT(is_kept(f, id, WEIR__RUN_STATE__CANCELLED));
  seat_restart(f, true);
  assert_int_equal(run_state(f, id), WEIR__RUN_STATE__CANCELLED);
  free(id);
}

static int delete_one(void *user, const char *key, uint64_t size) {
  struct store *store = ((struct fixture *)user)->store;
  struct err err = ERR_NONE;
  (void)size;
  return store->def->delete_blocks(store, &key, 1, &err);
}

static void an_emptied_store_gets_everything_that_is_in_memory_again(void **state) {
  struct fixture *f = *state;
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
  AWAIT(is_written(f, id, "incarnation"));
  assert_int_equal(store_list_records(f->store, "", &names, &err), 0);
  for (int i = 0; i < names.count; i++)
    assert_int_equal(store_delete_record(f->store, names.items[i], NULL, &err), 0);
  store_names_fini(&names);
  AWAIT(store_list_blocks(f->store, delete_one, f, &err) == 0);
  AWAIT(is_written(f, id, "run") && is_written(f, id, "incarnation"));
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
  struct fixture *f = *state;
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
  struct fixture *f = *state;
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
  struct fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 6, 2);
  Weir__WeightsRequest request = WEIR__WEIGHTS_REQUEST__INIT;
  float got[TINY_PARAMS + 1];
  struct err err;
  AWAIT(!has_checkpoint(f, id, 2));
  expect_checkpoints(f, id, 4, 2);
  assert_int_equal(download_run(f, RPC_GET_WEIGHTS, id, got, sizeof got, &err), TINY_PARAMS * sizeof(float));
  assert_true(got[1] == tiny_weight(6, 1));
  request.run = id;
  request.has_step = true;
  request.step = 4;
  assert_int_equal(download_chunks(f, RPC_GET_WEIGHTS, &request, (uint8_t *)got, sizeof got, &err),
                   TINY_PARAMS * sizeof(float));
  assert_true(got[1] == tiny_weight(4, 1));
  request.step = 2;
  assert_int_equal(download_chunks(f, RPC_GET_WEIGHTS, &request, (uint8_t *)got, sizeof got, &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "no checkpoint at step 2 (it has: 4, 6)"));
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void verify_tells_of_every_checkpoint(void **state) {
  struct fixture *f = *state;
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
  struct fixture *f = *state;
  struct rpc_reader *server = member_join(f, WEIR__ROLE__SERVER),
                    *worker = member_join(f, WEIR__ROLE__WORKER);
  char *id = train_with_checkpoints(f, server, worker, 4, 3), key[65], *other;
  Weir__CollectGarbageReply *reply;
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  assert_int_equal(store_put(f->store, "garbage", 7, key, &err), 0);
  assert_int_equal(collect_garbage(f, id, &reply, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "is running"));
  assert_int_equal(collect_garbage(f, NULL, &reply, &err), 0);
  assert_int_equal(reply->blocks, 1);
  assert_int_equal(reply->bytes, 7);
  assert_int_equal(reply->kept_blocks, 4); /* the model, two of parameters, one of statistics */
  message_free(reply);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  message_free(info);
  other = submit_run(f);
  assert_int_equal(collect_garbage(f, id, &reply, &err), 0);
  assert_int_equal(reply->runs, 1);
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

static void pause_and_resume_are_refused_where_they_make_no_sense(void **state) {
  struct fixture *f = *state;
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

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_stopped_coordinators_successor_finds_its_runs_as_they_were),
      TEST(a_killed_coordinators_successor_finds_its_runs_as_they_were),
      TEST(a_server_that_comes_back_keeps_its_part_of_a_run),
      TEST(a_run_whose_servers_are_gone_goes_on_from_its_checkpoint),
      TEST(only_one_coordinator_of_a_store_leads),
      TEST(a_member_that_obeys_a_higher_term_deposes_the_coordinator),
      TEST(a_member_that_claims_a_higher_term_disturbs_no_run),
      TEST(a_coordinator_whose_term_is_over_writes_nothing),
      TEST(a_submission_that_the_store_cannot_keep_is_refused_and_forgotten),
      TEST(a_state_that_the_store_missed_is_written_when_it_is_back),
      TEST(an_emptied_store_gets_everything_that_is_in_memory_again),
      TEST(a_run_whose_model_is_nowhere_any_more_fails),
      TEST(damaged_records_are_passed_over),
      TEST(old_checkpoints_are_deleted_and_any_that_is_kept_gives_its_weights),
      TEST(verify_tells_of_every_checkpoint),
      TEST(garbage_goes_and_with_it_the_runs_that_are_named),
      TEST(pause_and_resume_are_refused_where_they_make_no_sense),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
