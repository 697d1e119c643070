/* The parameters role as the coordinator sees it: runs are loaded, trained, written and unloaded by order. */
#include <ftw.h>
#include <unistd.h>

#include "common/sha256.h"
#include "server/parameters/parameters.h"
#include "storage/store.h"
#include "tests/unit/fake_coordinator.h"
#include "tests/unit/parameters_fixture.h"

/* Of fixture: client, channel and model; the runs are the role's. */
struct role_fixture {
  struct fixture workers;
  struct fake_coordinator coordinator;
  struct parameters *parameters;
  struct rpc_server *server;
  struct store *store;
  char folder[64];
  char model_sha256[SHA256_HEX_SIZE];
};

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *ftw) {
  (void)stat, (void)type, (void)ftw;
  return remove(path);
}

static void role_init(struct role_fixture *f) {
  struct parameters_options options = {.shards = 2};
  struct rpc_server_options server = {.listen = "127.0.0.1:0", .n_services = 1};
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct err err;
  char text[80];
  *f = (struct role_fixture){.folder = "/tmp/weir-role-test-XXXXXX"};
  assert_non_null(mkdtemp(f->folder));
  snprintf(text, sizeof text, "file://%s", f->folder);
  if (store_open(text, &f->store, &err))
    fail_msg("%s", err.text);
  coordinator_init(&f->coordinator);
  make_model(&f->workers.model, &f->workers.model_bytes);
  f->coordinator.model = f->workers.model;
  f->coordinator.model_bytes = f->workers.model_bytes;
  sha256_hex(f->workers.model, f->workers.model_bytes, f->model_sha256);
  pthread_mutex_init(&f->workers.lock, NULL);
  pthread_cond_init(&f->workers.changed, NULL);
  options.store = f->store;
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
  coordinator_wait(&f->coordinator, &f->coordinator.n_joined, 1);
}

static void role_fini(struct role_fixture *f) {
  rpc_channel_close(f->workers.channel);
  parameters_leave(f->parameters);
  rpc_server_stop(f->server);
  parameters_free(f->parameters);
  rpc_client_free(f->workers.client);
  coordinator_fini(&f->coordinator);
  store_close(f->store);
  pthread_cond_destroy(&f->workers.changed);
  pthread_mutex_destroy(&f->workers.lock);
  free(f->workers.model);
  nftw(f->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void order_load(struct role_fixture *f) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__LoadRun load = *make_order(1, 1);
  load.model_bytes = f->workers.model_bytes;
  load.model_sha256 = f->model_sha256;
  order.epoch = 1;
  order.body_case = WEIR__ORDER__BODY_LOAD;
  order.load = &load;
  coordinator_order(&f->coordinator, &order);
}

static void order_unload(struct role_fixture *f) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__UnloadRun unload = WEIR__UNLOAD_RUN__INIT;
  unload.run = (char *)"unit-1";
  unload.reason = (char *)"it was cancelled";
  order.epoch = 1;
  order.body_case = WEIR__ORDER__BODY_UNLOAD;
  order.unload = &unload;
  coordinator_order(&f->coordinator, &order);
}

static void order_write(struct role_fixture *f, uint64_t step) {
  Weir__Order order = WEIR__ORDER__INIT;
  Weir__WriteBlocks write = WEIR__WRITE_BLOCKS__INIT;
  write.run = (char *)"unit-1";
  write.incarnation = 1;
  write.step = step;
  order.epoch = 1;
  order.body_case = WEIR__ORDER__BODY_WRITE;
  order.write = &write;
  coordinator_order(&f->coordinator, &order);
}

static void a_run_is_loaded_by_order(void **state) {
  struct role_fixture f;
  struct attempt pull;
  const Weir__MemberMessage *message;
  (void)state;
  role_init(&f);
  order_load(&f);
  message = coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
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
  message = coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
  assert_false(message->refused->bad_input);
  f.model_sha256[0] ^= 1;
  f.workers.model_bytes--; /* what the order says; FetchModel gives more */
  order_load(&f);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 2);
  f.workers.model_bytes++;
  order_load(&f);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
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
  message = coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_REFUSED, 1);
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
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  order_write(&f, 0);
  message = coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 1);
  assert_string_equal(message->written->error, "");
  assert_int_equal(message->written->n_blocks, BLOCKS);
  for (uint32_t b = 0; b < BLOCKS; b++) {
    const Weir__WrittenBlock *written = message->written->blocks[b];
    void *content;
    size_t size;
    start_pull(&f.workers, &pull, b, 0);
    finish(&pull);
    assert_int_equal(written->block, b);
    assert_int_equal(store_get(f.store, written->sha256, &content, &size, &err), 0);
    assert_int_equal(size, written->bytes);
    assert_int_equal(size, pull.size_bytes * (b == STATISTICS_BLOCK ? 1 : 2)); /* one momentum slot */
    assert_memory_equal(content, pull.data, pull.size_bytes);
    free(content);
    finish_with_version(&pull, 0);
  }
  order_write(&f, 1);
  message = coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, 2);
  assert_string_equal(message->written->error, "run 'unit-1', step 1: block 0 is at version 0, not at 1");
  role_fini(&f);
}

static void an_unloaded_run_is_gone(void **state) {
  struct role_fixture f;
  struct attempt parked;
  (void)state;
  role_init(&f);
  order_load(&f);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  start_pull(&f.workers, &parked, 0, 0);
  finish_with_version(&parked, 0);
  start_pull(&f.workers, &parked, 0, 1);
  order_unload(&f);
  finish(&parked); /* CANCELLED where it was parked, NOT_FOUND where it came later */
  assert_true(parked.err.code == ERR_CANCELLED || parked.err.code == ERR_NOT_FOUND);
  free(parked.data);
  role_fini(&f);
}

static void a_server_that_lost_the_coordinator_comes_back_without_runs(void **state) {
  struct role_fixture f;
  struct attempt pull;
  (void)state;
  role_init(&f);
  order_load(&f);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 1);
  coordinator_kick(&f.coordinator);
  coordinator_wait(&f.coordinator, &f.coordinator.n_joined, 2);
  start_pull(&f.workers, &pull, 0, 0);
  finish_with_error(&pull, ERR_NOT_FOUND, "there is no run 'unit-1'");
  order_load(&f);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_LOADED, 2);
  role_fini(&f);
}

static void a_server_can_stop_while_a_model_does_not_come(void **state) {
  struct role_fixture f;
  (void)state;
  role_init(&f);
  f.coordinator.has_no_model = true;
  order_load(&f);
  order_unload(&f);
  coordinator_wait_message(&f.coordinator, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, 1);
  role_fini(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_is_loaded_by_order),
      cmocka_unit_test(a_model_that_came_wrong_is_refused),
      cmocka_unit_test(a_model_that_is_none_is_the_users_mistake),
      cmocka_unit_test(blocks_are_written_with_their_slots),
      cmocka_unit_test(an_unloaded_run_is_gone),
      cmocka_unit_test(a_server_that_lost_the_coordinator_comes_back_without_runs),
      cmocka_unit_test(a_server_can_stop_while_a_model_does_not_come),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
