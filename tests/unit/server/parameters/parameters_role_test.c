/* The parameters role as the coordinator sees it: runs are loaded, trained, written and unloaded by order. */
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "server/parameters/parameters.h"
#include "tests/support/fake_coordinator.h"
#include "tests/support/restore_fixture.h"

enum { HISTORY_MAX = 64 };

/* Of fixture: client, channel and model; the runs are the role's. */
struct role_fixture {
  struct fixture workers;
  struct fake_coordinator coordinator;
  struct parameters *parameters;
  struct rpc_server *server;
  struct store_double store;
  char model_sha256[SHA256_HEX_SIZE];
  struct {
    Weir__MemberMessage__BodyCase body;
    uint64_t step;
  } history[HISTORY_MAX]; /* of reports and RunComplete; under the coordinator's lock */
  int n_history;
};

static void keep_history(void *user, const Weir__MemberMessage *message) {
  struct role_fixture *f = user;
  bool is_step = message->body_case == WEIR__MEMBER_MESSAGE__BODY_STEP;
  bool is_eval = message->body_case == WEIR__MEMBER_MESSAGE__BODY_EVAL;
  if (!is_step && !is_eval && message->body_case != WEIR__MEMBER_MESSAGE__BODY_COMPLETE)
    return;
  assert_true(f->n_history < HISTORY_MAX);
  f->history[f->n_history].body = message->body_case;
  f->history[f->n_history].step = is_step ? message->step->step : is_eval ? message->eval->step : 0;
  f->n_history++;
}

static void role_init(struct role_fixture *f) {
  struct parameters_options options = {.shards = 2, .keeper_patience_ms = 300};
  struct rpc_server_options server = {.listen = "127.0.0.1:0", .n_services = 1};
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct err err;
  char text[80];
  *f = (struct role_fixture){0};
  double_init(&f->store);
  fake_coordinator_init(&f->coordinator);
  f->coordinator.on_each = keep_history;
  f->coordinator.user = f;
  make_model(&f->workers.model, &f->workers.model_bytes);
  f->coordinator.model = f->workers.model;
  f->coordinator.model_bytes = f->workers.model_bytes;
  sha256_hex(f->workers.model, f->workers.model_bytes, f->model_sha256);
  pthread_mutex_init(&f->workers.lock, NULL);
  pthread_cond_init(&f->workers.changed, NULL);
  options.store = &f->store.base;
  f->parameters = parameters_new(&options);
  server.services = parameters_service(f->parameters);
  if (rpc_server_start(&server, &f->server, &err))
    fail_msg("%s", err.text);
  f->workers.client = rpc_client_new(1);
  snprintf(text, sizeof text, "127.0.0.1:%d", rpc_server_port(f->server));
  f->workers.channel = rpc_channel_open(f->workers.client, text);
  hello.role = WEIR__ROLE__SERVER;
  hello.address = text;
  parameters_join(f->parameters, f->workers.client, f->coordinator.target, &hello);
  fake_coordinator_wait(&f->coordinator, &f->coordinator.n_joined, 1);
}

static void role_fini(struct role_fixture *f) {
  rpc_channel_close(f->workers.channel);
  parameters_leave(f->parameters);
  rpc_server_stop(f->server);
  parameters_free(f->parameters);
  rpc_client_free(f->workers.client);
  fake_coordinator_fini(&f->coordinator);
  double_fini(&f->store);
  pthread_cond_destroy(&f->workers.changed);
  pthread_mutex_destroy(&f->workers.lock);
  free(f->workers.model);
}

static void send_load(struct role_fixture *f, Weir__LoadRun *load) {
  Weir__Order order = WEIR__ORDER__INIT;
  load->model_bytes = f->workers.model_bytes;
  load->model_sha256 = f->model_sha256;
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_LOAD;
  order.load = load;
  fake_coordinator_order(&f->coordinator, &order);
}

static void order_load_of(struct role_fixture *f, const char *store, uint64_t incarnation, uint64_t step,
                          const char *manifest) {
  Weir__LoadRun load = *make_order(incarnation, 1);
  load.step = step;
  load.manifest = (char *)manifest;
  load.store_identity = (char *)store;
  send_load(f, &load);
}

/* As the second of two servers, of which the first keeps the sums. */
static void order_load_beside(struct role_fixture *f, uint64_t incarnation, bool is_clipped, char *keeper) {
  Weir__LoadRun load = *make_order(incarnation, 2);
  Weir__Endpoint *own = load.servers[0], *swapped[2] = {load.servers[1], own};
  load.servers = swapped;
  swapped[0]->address = keeper;
  load.spec->train->has_clip_norm = is_clipped;
  load.spec->train->clip_norm = 1;
  send_load(f, &load);
}

static void order_load_from(struct role_fixture *f, uint64_t incarnation, uint64_t step,
                            const char *manifest) {
  order_load_of(f, "", incarnation, step, manifest);
}

static void order_load(struct role_fixture *f) {
  order_load_from(f, 1, 0, "");
}

static void order_keep(struct role_fixture *f, uint64_t incarnation, uint64_t step) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__KeepRun keep = WEIR__KEEP_RUN__INIT;
  keep.run = (char *)"unit-1";
  keep.incarnation = incarnation;
  keep.step = step;
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_KEEP;
  order.keep = &keep;
  fake_coordinator_order(&f->coordinator, &order);
}

static void order_unload(struct role_fixture *f) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__UnloadRun unload = WEIR__UNLOAD_RUN__INIT;
  unload.run = (char *)"unit-1";
  unload.reason = (char *)"it was cancelled";
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_UNLOAD;
  order.unload = &unload;
  fake_coordinator_order(&f->coordinator, &order);
}

static void order_write(struct role_fixture *f, uint64_t step) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__WriteBlocks write = WEIR__WRITE_BLOCKS__INIT;
  write.run = (char *)"unit-1";
  write.incarnation = 1;
  write.step = step;
  order.term = 1;
  order.body_case = WEIR__ORDER__BODY_WRITE;
  order.write = &write;
  fake_coordinator_order(&f->coordinator, &order);
}

static void a_run_is_loaded_by_order(void **state) {
  struct role_fixture f;
  struct attempt pull;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  order_load(&f);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  assert_string_equal(message->loaded->run, "unit-1");
  assert_int_equal(message->loaded->incarnation, 1);
  start_pull(&f.workers, &pull, 0, 0);
  finish_with_version(&pull, 0);
  role_fini(&f);
}

static void a_model_that_came_wrong_is_refused(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  f.model_sha256[0] ^= 1;
  order_load(&f);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_false(message->refused->bad_input);
  f.model_sha256[0] ^= 1;
  f.workers.model_bytes--; /* what the order says; FetchModel gives more */
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 2);
  f.workers.model_bytes++;
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  role_fini(&f);
}

static void a_model_that_is_none_is_the_users_mistake(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  memset(f.workers.model, 0xff, 64);
  sha256_hex(f.workers.model, f.workers.model_bytes, f.model_sha256);
  order_load(&f);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_true(message->refused->bad_input);
  role_fini(&f);
}

static void blocks_are_written_with_their_slots(void **state) {
  struct role_fixture f;
  struct attempt pull;
  const Weir__MemberMessage *message;
  struct err err;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_write(&f, 0);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 1);
  assert_string_equal(message->written->error, "");
  assert_int_equal(message->written->n_blocks, BLOCKS);
  for (uint32_t b = 0; b < BLOCKS; b++) {
    const Weir__WrittenBlock *written = message->written->blocks[b];
    void *content;
    size_t size;
    start_pull(&f.workers, &pull, b, 0);
    attempt_finish(&pull);
    assert_int_equal(written->block, b);
    assert_int_equal(store_get(&f.store.base, written->sha256, &content, &size, &err), 0);
    assert_int_equal(size, written->bytes);
    assert_int_equal(size, pull.size_bytes * (b == STATISTICS_BLOCK ? 1 : 2)); /* one momentum slot */
    assert_memory_equal(content, pull.data, pull.size_bytes);
    free(content);
    finish_with_version(&pull, 0);
  }
  order_write(&f, STEPS + 1);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 2);
  assert_string_equal(message->written->error,
                      "run 'unit-1': there will be no version 4, the run's last is 3");
  assert_true(message->written->is_last && !message->written->is_too_late);
  role_fini(&f);
}

static void an_order_is_carried_out_while_the_store_hangs(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  double_hang(&f.store, true);
  order_write(&f, 0);
  double_wait_hanging(&f.store);
  order_unload(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  double_hang(&f.store, false);
  role_fini(&f);
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_WRITTEN], 0);
}

static void an_unloaded_run_is_gone(void **state) {
  struct role_fixture f;
  struct attempt parked;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  start_pull(&f.workers, &parked, 0, 0);
  finish_with_version(&parked, 0);
  start_pull(&f.workers, &parked, 0, 1);
  order_unload(&f);
  attempt_finish(&parked); /* CANCELLED where it was parked, NOT_FOUND where it came later */
  assert_true(parked.err.code == ERR_CANCELLED || parked.err.code == ERR_NOT_FOUND);
  free(parked.data);
  role_fini(&f);
}

/* The coordinator is away while `meanwhile` happens. */
static void lose_coordinator(struct role_fixture *f, void (*meanwhile)(struct role_fixture *f)) {
  int n_joined = f->coordinator.n_joined;
  pthread_mutex_lock(&f->coordinator.lock);
  f->coordinator.refuses = true;
  pthread_mutex_unlock(&f->coordinator.lock);
  fake_coordinator_kick(&f->coordinator);
  fake_coordinator_wait_message(&f->coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO,
                                f->coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_HELLO] + 1);
  meanwhile(f);
  pthread_mutex_lock(&f->coordinator.lock);
  f->coordinator.refuses = false;
  pthread_mutex_unlock(&f->coordinator.lock);
  fake_coordinator_wait(&f->coordinator, &f->coordinator.n_joined, n_joined + 1);
}

static void nothing_happens(struct role_fixture *f) {
  (void)f;
}

static void steps_1_and_2_happen(struct role_fixture *f) {
  push_version(&f->workers, 1);
  push_version(&f->workers, 2);
}

static void assert_history(const struct role_fixture *f, int i, Weir__MemberMessage__BodyCase body,
                           uint64_t step) {
  assert_int_equal(f->history[i].body, body);
  assert_int_equal(f->history[i].step, step);
}

static void a_run_goes_on_without_a_coordinator_and_the_next_is_told_what_it_missed(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  push_version(&f.workers, 0);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 1);
  lose_coordinator(&f, steps_1_and_2_happen);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HELLO, 3);
  assert_int_equal(message->hello->n_runs, 1);
  assert_string_equal(message->hello->runs[0]->run, "unit-1");
  assert_int_equal(message->hello->runs[0]->incarnation, 1);
  assert_int_equal(message->hello->runs[0]->version, 3);
  assert_int_equal(f.n_history, 1); /* nothing is told before it is asked for */
  order_keep(&f, 1, 1);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 4);
  assert_history(&f, 1, WEIR__MEMBER_MESSAGE__BODY_STEP, 1);
  assert_history(&f, 2, WEIR__MEMBER_MESSAGE__BODY_EVAL, 2);
  assert_history(&f, 3, WEIR__MEMBER_MESSAGE__BODY_STEP, 2);
  push_eval(&f.workers, 3, 0, 3);
  push_eval(&f.workers, 3, 1, 3);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 6);
  assert_history(&f, 4, WEIR__MEMBER_MESSAGE__BODY_EVAL, 3);
  assert_history(&f, 5, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, 0);
  lose_coordinator(&f, nothing_happens);
  order_keep(&f, 1, 3);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 8);
  assert_history(&f, 6, WEIR__MEMBER_MESSAGE__BODY_EVAL, 3);
  assert_history(&f, 7, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, 0);
  order_unload(&f);
  order_keep(&f, 1, 3);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_string_equal(message->refused->message, "there is no run 'unit-1' on this server");
  role_fini(&f);
}

static void what_a_former_coordinator_ordered_is_not_answered_to_the_next(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_write(&f, 1);
  lose_coordinator(&f, nothing_happens);
  order_keep(&f, 1, 0);
  push_version(&f.workers, 0);
  order_write(&f, 1);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 1);
  f.coordinator.has_no_model = true;
  order_load_from(&f, 2, 0, ""); /* takes the place of the first, and does not get on */
  lose_coordinator(&f, nothing_happens);
  f.coordinator.has_no_model = false;
  order_load_from(&f, 3, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  assert_int_equal(f.coordinator.messages[WEIR__MEMBER_MESSAGE__BODY_LOADED]->loaded->incarnation, 3);
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_WRITTEN], 1);
  role_fini(&f);
}

static void a_run_that_is_there_is_not_loaded_again(void **state) {
  struct role_fixture f;
  struct attempt pull;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  push_version(&f.workers, 0);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 1);
  lose_coordinator(&f, nothing_happens);
  f.coordinator.has_no_model = true;
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  start_pull(&f.workers, &pull, 0, 1);
  finish_with_version(&pull, 1);
  fake_coordinator_wait(&f.coordinator, &f.n_history, 2); /* step 0, again */
  role_fini(&f);
}

static void a_run_is_rolled_back_to_its_checkpoint_or_says_that_it_is_lost(void **state) {
  struct role_fixture f;
  struct attempt pull;
  const Weir__MemberMessage *message;
  char *name;
  (void)state;
  role_init(&f);
  order_load(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_write(&f, 1);
  push_version(&f.workers, 0);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 1);
  assert_string_equal(message->written->error, "");
  name = commit_version(&f.store.base, message->written, f.model_sha256);
  push_version(&f.workers, 1);
  order_load_from(&f, 2, 1, name);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  start_pull(&f.workers, &pull, 0, 1);
  finish_with_error(&pull, ERR_STALE, "run 'unit-1' is in incarnation 2 here, not in 1");
  double_find(&f.store, message->written->blocks[1]->sha256)->name[0] = 'x';
  order_load_from(&f, 3, 1, name);
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_true(message->refused->lost_checkpoint && !message->refused->bad_input);
  assert_int_equal(message->refused->incarnation, 3);
  assert_non_null(strstr(message->refused->message, "run 'unit-1' at version 1: block 1, key "));
  order_load_from(&f, 4, 2, "runs/unit-1/checkpoints/00000000000000000002");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 2);
  assert_true(message->refused->lost_checkpoint && !message->refused->bad_input);
  order_load_from(&f, 5, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 3);
  order_load_from(&f, 4, 0, "");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 3);
  assert_false(message->refused->lost_checkpoint);
  assert_string_equal(message->refused->message, "run 'unit-1' is loaded already, in incarnation 5");
  free(name);
  role_fini(&f);
}

static void a_run_of_another_store_is_refused(void **state) {
  static const char ours[] = "00112233445566778899aabbccddeeff",
                    theirs[] = "ff112233445566778899aabbccddeeff";
  struct role_fixture f;
  const Weir__MemberMessage *message;
  struct err err = ERR_NONE;
  (void)state;
  role_init(&f);
  order_load_of(&f, theirs, 1, 0, "");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_true(message->refused->wrong_store && !message->refused->bad_input);
  assert_non_null(strstr(message->refused->message, "is not the coordinator's: it has not its record"));
  assert_int_equal(store_put_record(&f.store.base,
                                    &(struct store_record){"store/identity", ours, strlen(ours), NULL}, &err),
                   0);
  order_load_of(&f, theirs, 2, 1, "runs/unit-1/checkpoints/00000000000000000001");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 2);
  assert_true(message->refused->wrong_store && !message->refused->lost_checkpoint);
  assert_non_null(strstr(message->refused->message, "is not the coordinator's: its record"));
  order_load_of(&f, ours, 3, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  f.store.n_failures = 1 << 20; /* what is known need not be asked again */
  f.store.fail_code = ERR_UNAVAILABLE;
  order_load_of(&f, ours, 4, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  role_fini(&f);
}

/* Else it would stand still at its first step, and nobody would be told. */
static void a_run_whose_keeper_of_sums_is_out_of_reach_is_refused(void **state) {
  struct role_fixture f;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  order_load_beside(&f, 1, true, (char *)"127.0.0.1:1");
  message = fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_false(message->refused->bad_input || message->refused->lost_checkpoint);
  assert_non_null(
      strstr(message->refused->message, "cannot be reached from this one: 127.0.0.1:1: connection"));
  order_load_beside(&f, 2, false, (char *)"127.0.0.1:1"); /* without sums it does not matter */
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_load_beside(&f, 3, true, f.coordinator.target); /* any server answers */
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  order_load_beside(&f, 4, true, (char *)"127.0.0.1:1");
  order_load_of(&f, "", 5, 0, ""); /* a newer order ends the wait */
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 3);
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_REFUSED], 1);
  order_load_beside(&f, 6, true, (char *)"127.0.0.1:1");
  role_fini(&f); /* a stop does, too */
}

static void a_newer_order_ends_the_wait_for_a_store(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  double_fail(&f.store, 1 << 30, ERR_UNAVAILABLE);
  order_load_from(&f, 2, 1, "runs/unit-1/checkpoints/00000000000000000001");
  order_load_from(&f, 3, 0, "");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_load_from(&f, 4, 1, "runs/unit-1/checkpoints/00000000000000000001");
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, 1);
  role_fini(&f); /* a stop does, too */
  assert_int_equal(f.coordinator.n_messages[WEIR__MEMBER_MESSAGE__BODY_REFUSED], 0);
}

static void a_server_can_stop_while_a_model_does_not_come(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  f.coordinator.has_no_model = true;
  order_load(&f);
  order_unload(&f);
  fake_coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, 1);
  role_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_is_loaded_by_order),
      cmocka_unit_test(a_model_that_came_wrong_is_refused),
      cmocka_unit_test(a_model_that_is_none_is_the_users_mistake),
      cmocka_unit_test(blocks_are_written_with_their_slots),
      cmocka_unit_test(an_order_is_carried_out_while_the_store_hangs),
      cmocka_unit_test(an_unloaded_run_is_gone),
      cmocka_unit_test(a_run_goes_on_without_a_coordinator_and_the_next_is_told_what_it_missed),
      cmocka_unit_test(what_a_former_coordinator_ordered_is_not_answered_to_the_next),
      cmocka_unit_test(a_run_that_is_there_is_not_loaded_again),
      cmocka_unit_test(a_run_is_rolled_back_to_its_checkpoint_or_says_that_it_is_lost),
      cmocka_unit_test(a_run_of_another_store_is_refused),
      cmocka_unit_test(a_run_whose_keeper_of_sums_is_out_of_reach_is_refused),
      cmocka_unit_test(a_newer_order_ends_the_wait_for_a_store),
      cmocka_unit_test(a_server_can_stop_while_a_model_does_not_come),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
