/* The coordinator's services over real RPC, with fake members and a store in a directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/model_kind.h"
#include "cluster.pb-c.h"
#include "common/graph/model.h"
#include "common/log.h"
#include "common/message.h"
#include "common/rpc/client.h"
#include "common/spec.h"
#include "server/coordinator/service.h"
#include "store.pb-c.h"

enum { STEPS = 3, BATCH = 8, MICROBATCHES = 2, SAMPLES = 100, DEADLINE_MS = 8000 };

extern const struct model_kind_def model_kind_mlp;

struct fixture {
  char dir[64];
  struct store *store;
  struct coordinator_service *service;
  struct rpc_server *server;
  struct rpc_client *client;
  struct rpc_channel *channel;
  Weir__RunSpec *spec;
  uint8_t *onnx;
  size_t onnx_bytes;
};

static const char spec_text[] =
    "name: mlp\n"
    "model: {onnx: mlp.onnx, loss: cross_entropy}\n"
    "data: {train: {format: idx, images: i, labels: l}}\n"
    "train: {steps: 3, batch: 8, microbatches: 2, optimizer: {name: sgd, lr: 0.1}}\n";

static void build_model(struct fixture *f) {
  struct model_options options = {
      .input = {1, 4, 4}, .input_rank = 3, .classes = 3, .hidden = {5}, .n_hidden = 1, .n_channels = -1};
  struct onnx_writer writer;
  struct err err = ERR_NONE;
  onnx_writer_init(&writer, "mlp", 1);
  assert_int_equal(model_kind_mlp.build(&writer, &options, &err), 0);
  f->onnx_bytes = onnx__model_proto__get_packed_size(&writer.model);
  f->onnx = mem_new(f->onnx_bytes);
  onnx__model_proto__pack(&writer.model, f->onnx);
  onnx_writer_fini(&writer);
}

static int setup(void **state) {
  struct fixture *f = mem_new(sizeof *f);
  struct err err = ERR_NONE;
  char *url, target[32];
  strcpy(f->dir, "/tmp/weir-coordinator-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  url = mem_printf("file://%s", f->dir);
  assert_int_equal(store_open(url, &f->store, &err), 0);
  free(url);
  f->service = coordinator_service_new(&(struct coordinator_service_options){.store = f->store});
  assert_int_equal(
      rpc_server_start(&(struct rpc_server_options){.listen = "127.0.0.1:0",
                                                    .services = coordinator_service_list(f->service),
                                                    .n_services = COORDINATOR_SERVICES,
                                                    .threads = 2},
                       &f->server, &err),
      0);
  snprintf(target, sizeof target, "127.0.0.1:%d", rpc_server_port(f->server));
  f->client = rpc_client_new(1);
  f->channel = rpc_channel_open(f->client, target);
  assert_int_equal(spec_read("spec", spec_text, sizeof spec_text - 1, &f->spec, &err), 0);
  build_model(f);
  *state = f;
  return 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at) {
  (void)status, (void)kind, (void)at;
  return remove(path);
}

static int teardown(void **state) {
  struct fixture *f = *state;
  rpc_channel_close(f->channel);
  rpc_client_free(f->client);
  coordinator_service_stop(f->service);
  rpc_server_stop(f->server);
  coordinator_service_free(f->service);
  store_close(f->store);
  nftw(f->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  spec_free(f->spec);
  free(f->onnx);
  free(f);
  return 0;
}

/* Sends the first message of a submission. */
static struct rpc_reader *upload_begin(struct fixture *f, Weir__RunSpec *spec, uint64_t model_bytes) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_SUBMIT, DEADLINE_MS);
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err err = ERR_NONE;
  request.spec = spec;
  request.model_bytes = model_bytes;
  rpc_reader_send(reader, &request, &err); /* a refusal shows in the reply */
  return reader;
}

static void upload_add(struct rpc_reader *reader, void *data, size_t size) {
  Weir__SubmitRequest request = WEIR__SUBMIT_REQUEST__INIT;
  struct err err = ERR_NONE;
  request.chunk.data = data;
  request.chunk.len = size;
  rpc_reader_send(reader, &request, &err);
}

/* The run's id, freed by the caller; NULL with err set. */
static char *upload_end(struct rpc_reader *reader, struct err *err) {
  Weir__SubmitReply *reply = NULL;
  char *id = NULL;
  *err = ERR_NONE;
  rpc_reader_half_close(reader);
  if (rpc_reader_next(reader, (void **)&reply, err) == 0 && reply)
    id = mem_strdup(reply->run);
  message_free(reply);
  rpc_reader_close(reader);
  return id;
}

static char *submit(struct fixture *f) {
  struct rpc_reader *reader = upload_begin(f, f->spec, f->onnx_bytes);
  struct err err;
  char *id;
  upload_add(reader, f->onnx, f->onnx_bytes / 2);
  upload_add(reader, f->onnx + f->onnx_bytes / 2, f->onnx_bytes - f->onnx_bytes / 2);
  id = upload_end(reader, &err);
  assert_string_equal(err.text, "");
  assert_non_null(id);
  return id;
}

static int ask_run(struct fixture *f, enum rpc_method_id method, const char *run, Weir__RunInfo **info,
                   struct err *err) {
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT;
  request.run = (char *)run;
  *err = ERR_NONE;
  return rpc_unary(f->channel, method, &request, DEADLINE_MS, false, (void **)info, err);
}

/* All bytes of a stream of chunks; -1 with err set. */
static long download(struct fixture *f, enum rpc_method_id method, const char *run, uint8_t *out, size_t size,
                     struct err *err) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, method, DEADLINE_MS);
  Weir__RunRequest request = WEIR__RUN_REQUEST__INIT; /* a WeightsRequest has the same form */
  Weir__WeightsRequest weights = WEIR__WEIGHTS_REQUEST__INIT;
  Weir__Chunk *chunk = NULL;
  size_t got = 0;
  *err = ERR_NONE;
  request.run = weights.run = (char *)run;
  rpc_reader_send(reader, method == RPC_GET_WEIGHTS ? (void *)&weights : (void *)&request, err);
  rpc_reader_half_close(reader);
  while (rpc_reader_next(reader, (void **)&chunk, err) == 0 && chunk) {
    assert_true(got + chunk->data.len <= size);
    memcpy(out + got, chunk->data.data, chunk->data.len);
    got += chunk->data.len;
    message_free(chunk);
  }
  rpc_reader_close(reader);
  return err->code ? -1 : (long)got;
}

static void a_submitted_run_is_queued_and_its_model_kept(void **state) {
  struct fixture *f = *state;
  Weir__RunInfo *info;
  struct err err;
  char *id = submit(f);
  uint8_t *copy = mem_new(f->onnx_bytes);
  assert_int_equal(ask_run(f, RPC_GET_RUN, "mlp-", &info, &err), 0);
  assert_string_equal(info->run, id);
  assert_int_equal(info->state, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(info->message, "waiting for a server");
  assert_int_equal(info->parameters, 16 * 5 + 5 + 5 * 3 + 3);
  assert_int_equal(info->spec->train->batch, BATCH);
  message_free(info);
  assert_int_equal(download(f, RPC_FETCH_MODEL, id, copy, f->onnx_bytes, &err), f->onnx_bytes);
  assert_memory_equal(copy, f->onnx, f->onnx_bytes);
  assert_int_equal(ask_run(f, RPC_CANCEL, id, &info, &err), 0);
  assert_int_equal(info->state, WEIR__RUN_STATE__CANCELLED);
  message_free(info);
  memset(copy, 0, f->onnx_bytes); /* now from the store */
  assert_int_equal(download(f, RPC_GET_MODEL, id, copy, f->onnx_bytes, &err), f->onnx_bytes);
  assert_memory_equal(copy, f->onnx, f->onnx_bytes);
  free(copy);
  free(id);
}

static void what_cannot_be_trained_is_refused_with_its_reason(void **state) {
  struct fixture *f = *state;
  struct err err;
  struct rpc_reader *reader;
  assert_null(upload_end(upload_begin(f, NULL, 10), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_null(upload_end(upload_begin(f, f->spec, 0), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_null(upload_end(upload_begin(f, f->spec, UINT64_MAX), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_null(upload_end(rpc_reader_open(f->channel, RPC_SUBMIT, DEADLINE_MS), &err));
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
  f->spec->train->batch = BATCH;
  f->spec->train->optimizer->name[0] = 'x';
  assert_null(upload_end(upload_begin(f, f->spec, f->onnx_bytes), &err));
  assert_int_equal(err.code, ERR_INVALID);
  assert_non_null(strstr(err.text, "optimizer"));
  f->spec->train->optimizer->name[0] = 's';
  free(submit(f)); /* and nothing of it did any harm */
}

static void a_run_that_is_not_there_is_not_found(void **state) {
  struct fixture *f = *state;
  Weir__RunInfo *info;
  struct err err;
  uint8_t none[1];
  assert_int_equal(ask_run(f, RPC_GET_RUN, "nobody", &info, &err), ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "no run 'nobody'"));
  assert_int_equal(ask_run(f, RPC_CANCEL, "nobody", &info, &err), ERR_NOT_FOUND);
  assert_int_equal(download(f, RPC_GET_MODEL, "nobody", none, 0, &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
  assert_int_equal(ask_run(f, RPC_GET_RUN, "", &info, &err), ERR_INVALID);
}

/* A fake member: a stream that one thread writes and reads. */
static struct rpc_reader *join(struct fixture *f, Weir__Role role) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_JOIN, DEADLINE_MS);
  Weir__Hello hello = WEIR__HELLO__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__Order *order = NULL;
  struct err err = ERR_NONE;
  hello.role = role;
  hello.host = "here";
  hello.address = role == WEIR__ROLE__SERVER ? "127.0.0.1:1" : "";
  hello.executors = 1;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HELLO;
  message.hello = &hello;
  assert_int_equal(rpc_reader_send(reader, &message, &err), 0);
  assert_int_equal(rpc_reader_next(reader, (void **)&order, &err), 0);
  assert_int_equal(order->body_case, WEIR__ORDER__BODY_WELCOME);
  message_free(order);
  return reader;
}

static void tell(struct rpc_reader *member, Weir__MemberMessage__BodyCase body, void *content) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  struct err err = ERR_NONE;
  message.body_case = body;
  message.hello = content;
  assert_int_equal(rpc_reader_send(member, &message, &err), 0);
}

/* The next order, which must be of this kind; freed by the caller. */
static Weir__Order *expect(struct rpc_reader *member, Weir__Order__BodyCase body) {
  Weir__Order *order = NULL;
  struct err err = ERR_NONE;
  assert_int_equal(rpc_reader_next(member, (void **)&order, &err), 0);
  assert_non_null(order);
  assert_int_equal(order->body_case, body);
  return order;
}

static void tell_loaded(struct rpc_reader *member, const char *run, uint64_t samples) {
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  loaded.run = (char *)run;
  loaded.train_samples = samples;
  tell(member, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
}

/* Stores the initial weights as the last ones, and fills in what weights_sha256 and the weights must be. */
static void write_blocks(struct fixture *f, struct rpc_reader *server, const char *run, char sha256[65],
                         float *weights) {
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  Weir__WrittenBlock blocks[8], *list[8];
  char keys[8][65];
  struct model *model;
  struct err err = ERR_NONE;
  float state[64];
  assert_int_equal(model_open(f->onnx, f->onnx_bytes, f->spec, BATCH / MICROBATCHES, BATCH, &model, &err), 0);
  assert_true(model->n_blocks <= 8 && model->row_elems <= 64);
  for (uint32_t i = 0; i < model->n_blocks; i++) {
    const struct block *block = &model->blocks[i];
    float *values = (block->kind == BLOCK_PARAMETERS ? weights : state) + block->begin;
    model_initial_block(model, i, values);
    assert_int_equal(store_put(f->store, values, block->elems * sizeof(float), keys[i], &err), 0);
    list[i] = &blocks[i];
    weir__written_block__init(list[i]);
    blocks[i].block = i;
    blocks[i].sha256 = keys[i];
  }
  model_weights_sha256(model, weights, state, sha256);
  written.run = (char *)run;
  written.step = STEPS;
  written.blocks = list;
  written.n_blocks = model->n_blocks;
  tell(server, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
  model_close(model);
}

/* Reads a run's events from `from` on, to their end. Returns how many; the last one goes to *last. */
static uint64_t watch_all(struct fixture *f, const char *run, uint64_t from, Weir__RunEvent **last) {
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_WATCH, DEADLINE_MS);
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  Weir__RunEvent *event = NULL;
  struct err err = ERR_NONE;
  uint64_t next = from;
  request.run = (char *)run;
  request.from = from;
  *last = NULL;
  assert_int_equal(rpc_reader_send(reader, &request, &err), 0);
  rpc_reader_half_close(reader);
  while (rpc_reader_next(reader, (void **)&event, &err) == 0 && event) {
    assert_int_equal(event->number, next++);
    message_free(*last);
    *last = event;
  }
  assert_string_equal(err.text, "");
  rpc_reader_close(reader);
  return next - from;
}

/* A run's life up to WriteBlocks. */
static void train(const char *id, struct rpc_reader *server, struct rpc_reader *worker) {
  Weir__RunComplete complete = WEIR__RUN_COMPLETE__INIT;
  message_free(expect(worker, WEIR__ORDER__BODY_LOAD));
  tell_loaded(worker, id, SAMPLES);
  message_free(expect(server, WEIR__ORDER__BODY_LOAD));
  tell_loaded(server, id, 0);
  message_free(expect(worker, WEIR__ORDER__BODY_VIEW));
  for (uint64_t step = 0; step < STEPS; step++) {
    Weir__StepReport report = WEIR__STEP_REPORT__INIT;
    report.run = (char *)id;
    report.step = step;
    tell(server, WEIR__MEMBER_MESSAGE__BODY_STEP, &report);
  }
  complete.run = (char *)id;
  tell(server, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, &complete);
  message_free(expect(server, WEIR__ORDER__BODY_WRITE));
}

static void a_trained_run_gives_its_weights_back(void **state) {
  struct fixture *f = *state;
  struct rpc_reader *server = join(f, WEIR__ROLE__SERVER), *worker = join(f, WEIR__ROLE__WORKER);
  char *id = submit(f), sha256[65], *name;
  float expected[256], got[256];
  Weir__RunEvent *last;
  struct err err;
  uint64_t events;
  void *record;
  size_t size;
  train(id, server, worker);
  assert_int_equal(download(f, RPC_GET_WEIGHTS, id, (uint8_t *)got, sizeof got, &err), -1);
  assert_int_equal(err.code, ERR_NOT_FOUND);
  assert_non_null(strstr(err.text, "not done"));
  write_blocks(f, server, id, sha256, expected);
  message_free(expect(worker, WEIR__ORDER__BODY_UNLOAD));
  events = watch_all(f, id, 0, &last);
  assert_int_equal(last->event_case, WEIR__RUN_EVENT__EVENT_DONE);
  assert_string_equal(last->done->weights_sha256, sha256);
  message_free(last);
  assert_int_equal(watch_all(f, id, events - 1, &last), 1);
  message_free(last);
  assert_int_equal(download(f, RPC_GET_WEIGHTS, id, (uint8_t *)got, sizeof got, &err), 103 * sizeof(float));
  assert_memory_equal(got, expected, 103 * sizeof(float));
  name = mem_printf("runs/%s/checkpoints/%020d", id, STEPS);
  assert_int_equal(store_get_record(f->store, name, &record, &size, &err), 0);
  free(record);
  free(name);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void a_block_lost_from_the_store_fails_the_run_not_the_process(void **state) {
  struct fixture *f = *state;
  struct rpc_reader *server = join(f, WEIR__ROLE__SERVER), *worker = join(f, WEIR__ROLE__WORKER);
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  Weir__WrittenBlock blocks[2] = {WEIR__WRITTEN_BLOCK__INIT, WEIR__WRITTEN_BLOCK__INIT};
  Weir__WrittenBlock *list[2] = {&blocks[0], &blocks[1]};
  static char nowhere[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  char *id = submit(f);
  Weir__RunEvent *last;
  train(id, server, worker);
  blocks[1].block = 1;
  blocks[0].sha256 = blocks[1].sha256 = nowhere;
  written.run = id;
  written.step = STEPS;
  written.blocks = list;
  written.n_blocks = 2;
  tell(server, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
  watch_all(f, id, 0, &last);
  assert_int_equal(last->info->state, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(last->info->message, "block 0: store: no such block"));
  message_free(last);
  rpc_reader_close(server);
  rpc_reader_close(worker);
  free(id);
}

static void a_watcher_sees_a_run_end_without_asking_again(void **state) {
  struct fixture *f = *state;
  char *id = submit(f);
  struct rpc_reader *reader = rpc_reader_open(f->channel, RPC_WATCH, DEADLINE_MS);
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
  struct fixture *f = *state;
  struct rpc_reader *member = join(f, WEIR__ROLE__WORKER);
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  expect_shown_out(member, "hello");
  member = rpc_reader_open(f->channel, RPC_JOIN, DEADLINE_MS);
  tell(member, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, &heartbeat);
  expect_shown_out(member, "hello");
  hello.role = WEIR__ROLE__ROLE_UNKNOWN;
  member = rpc_reader_open(f->channel, RPC_JOIN, DEADLINE_MS);
  tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  expect_shown_out(member, "no role");
  hello.role = WEIR__ROLE__SERVER;
  member = rpc_reader_open(f->channel, RPC_JOIN, DEADLINE_MS);
  tell(member, WEIR__MEMBER_MESSAGE__BODY_HELLO, &hello);
  expect_shown_out(member, "no address");
}

static void stopping_ends_watchers_and_members(void **state) {
  struct fixture *f = *state;
  char *id = submit(f);
  struct rpc_reader *worker = join(f, WEIR__ROLE__WORKER);
  struct rpc_reader *watcher = rpc_reader_open(f->channel, RPC_WATCH, DEADLINE_MS);
  Weir__WatchRequest request = WEIR__WATCH_REQUEST__INIT;
  Weir__RunEvent *event = NULL;
  Weir__Order *order = NULL;
  Weir__RunInfo *info;
  struct err err = ERR_NONE;
  request.run = id;
  assert_int_equal(rpc_reader_send(watcher, &request, &err), 0);
  assert_int_equal(rpc_reader_next(watcher, (void **)&event, &err), 0);
  message_free(event);
  coordinator_service_stop(f->service);
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_submitted_run_is_queued_and_its_model_kept),
      TEST(what_cannot_be_trained_is_refused_with_its_reason),
      TEST(a_run_that_is_not_there_is_not_found),
      TEST(a_trained_run_gives_its_weights_back),
      TEST(a_block_lost_from_the_store_fails_the_run_not_the_process),
      TEST(a_watcher_sees_a_run_end_without_asking_again),
      TEST(a_member_without_manners_is_shown_out),
      TEST(stopping_ends_watchers_and_members),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
