/* A worker's part in a run, against a coordinator and a server that fail in every way that a network or a
   stranger may bring about. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/graph/model.h"
#include "common/log.h"
#include "common/message.h"
#include "common/rpc/server.h"
#include "common/sha256.h"
#include "common/spec.h"
#include "parameters.pb-c.h"
#include "tests/unit/onnx_build.h"
#include "worker/train/run.h"

enum { SAMPLES = 8, PIXELS = 16, BATCH = 4, MICROBATCHES = 2, STEPS = 3, HIDDEN = 5000, BLOCKS_MAX = 8 };
enum { WAIT_SECONDS_MAX = 30 };

/* What goes wrong, each for the first `times` calls that it concerns. */
struct faults {
  int models_cut, pushes_unavailable, pulls_unavailable, versions_unavailable, versions_unknown,
      pushes_dropped;
  int blocks_short, blocks_old;
  bool model_is_another;
};

struct fixture {
  char folder[64], target[32];
  struct onnx_build build;
  const void *onnx;
  size_t onnx_bytes;
  Weir__RunSpec *spec;
  struct model *model; /* for its blocks */
  struct rpc_server *server;
  struct rpc_client *client;
  struct rpc_channel *channel;
  struct run *run;

  pthread_mutex_t lock; /* what follows */
  pthread_cond_t changed;
  struct faults faults;
  uint64_t version[BLOCKS_MAX];
  int n_pushes;    /* answered with a version */
  bool is_loaded;  /* RunLoaded came */
  bool is_refused; /* RunRefused came, saying: */
  bool is_bad_input;
  char refusal[512];
};

static bool strikes(int *times) {
  bool is_left = *times > 0;
  *times -= is_left;
  return is_left;
}

static void on_fetch(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fixture *f = rpc_call_context(call);
  Weir__Chunk chunk = WEIR__CHUNK__INIT;
  size_t half = f->onnx_bytes / 2;
  bool is_cut, is_another;
  (void)message;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  is_cut = strikes(&f->faults.models_cut);
  is_another = f->faults.model_is_another;
  pthread_mutex_unlock(&f->lock);
  chunk.data = (ProtobufCBinaryData){half, (uint8_t *)f->onnx};
  rpc_call_send(call, &chunk, NULL);
  chunk.data = (ProtobufCBinaryData){f->onnx_bytes - half, (uint8_t *)f->onnx + (is_another ? 0 : half)};
  if (!is_cut)
    rpc_call_send(call, &chunk, NULL);
  rpc_call_finish(call, NULL);
}

static void on_versions(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fixture *f = rpc_call_context(call);
  Weir__VersionsReply reply = WEIR__VERSIONS_REPLY__INIT;
  bool is_unavailable, is_unknown;
  (void)message;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  is_unavailable = strikes(&f->faults.versions_unavailable);
  is_unknown = strikes(&f->faults.versions_unknown);
  reply.lowest = UINT64_MAX;
  for (uint32_t b = 0; b < f->model->n_blocks; b++) {
    reply.lowest = f->version[b] < reply.lowest ? f->version[b] : reply.lowest;
    reply.highest = f->version[b] > reply.highest ? f->version[b] : reply.highest;
  }
  pthread_mutex_unlock(&f->lock);
  if (is_unavailable)
    rpc_call_fail(call, ERR_UNAVAILABLE, "later");
  else if (is_unknown)
    rpc_call_fail(call, ERR_NOT_FOUND, "there is no such run on this server");
  else
    rpc_call_reply(call, &reply, NULL);
}

/* The weights of every version are the initial ones. */
static void give_block(struct fixture *f, struct rpc_call *call, uint32_t block, uint64_t version) {
  Weir__PullReply reply = WEIR__PULL_REPLY__INIT; /* PushReply has the same fields */
  size_t size_bytes = f->model->blocks[block].elems * sizeof(float);
  struct buffer *buffer = buffer_new(size_bytes);
  struct rpc_payload payload = {buffer, 0, size_bytes};
  Weir__PushReply push = WEIR__PUSH_REPLY__INIT;
  model_initial_block(f->model, block, buffer->data);
  pthread_mutex_lock(&f->lock);
  payload.size_bytes -= strikes(&f->faults.blocks_short) ? sizeof(float) : 0;
  reply.version = push.version = version - (version > 0 && strikes(&f->faults.blocks_old));
  pthread_mutex_unlock(&f->lock);
  rpc_call_reply(call, rpc_call_user(call) ? (void *)&push : (void *)&reply, &payload);
  buffer_put(buffer);
}

static void on_pull(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fixture *f = rpc_call_context(call);
  const Weir__PullRequest *pull = message;
  bool is_unavailable;
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  is_unavailable = strikes(&f->faults.pulls_unavailable);
  pthread_mutex_unlock(&f->lock);
  if (is_unavailable)
    rpc_call_fail(call, ERR_UNAVAILABLE, "later");
  else
    give_block(f, call, pull->block, pull->version);
}

static void on_push(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct fixture *f = rpc_call_context(call);
  const Weir__PushRequest *push = message;
  Weir__PushReply reply = WEIR__PUSH_REPLY__INIT;
  bool is_unavailable, is_dropped;
  assert_int_equal(rpc_bytes_size(bytes), f->model->blocks[push->block].elems * sizeof(float));
  rpc_bytes_free(bytes);
  pthread_mutex_lock(&f->lock);
  is_unavailable = strikes(&f->faults.pushes_unavailable);
  is_dropped = !is_unavailable && push->step > 0 && strikes(&f->faults.pushes_dropped);
  if (!is_unavailable && !is_dropped && push->wait) {
    f->version[push->block] = push->step + 1;
    f->n_pushes++;
  }
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
  rpc_call_set_user(call, f);
  if (is_unavailable)
    rpc_call_fail(call, ERR_UNAVAILABLE, "later");
  else if (is_dropped)
    rpc_call_fail(call, ERR_DROPPED, "that version is no more");
  else if (push->wait)
    give_block(f, call, push->block, push->step + 1);
  else
    rpc_call_reply(call, &reply, NULL);
}

static const struct rpc_method methods[] = {{.id = RPC_FETCH_MODEL, .on_message = on_fetch},
                                            {.id = RPC_VERSIONS, .on_message = on_versions},
                                            {.id = RPC_PULL, .on_message = on_pull},
                                            {.id = RPC_PUSH, .on_message = on_push}};

static void on_told(void *user, const Weir__MemberMessage *message) {
  struct fixture *f = user;
  pthread_mutex_lock(&f->lock);
  f->is_loaded |= message->body_case == WEIR__MEMBER_MESSAGE__BODY_LOADED;
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_REFUSED) {
    f->is_refused = true;
    f->is_bad_input = message->refused->bad_input;
    snprintf(f->refusal, sizeof f->refusal, "%s", message->refused->message);
  }
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

static void write_file(struct fixture *f, const char *name, const void *header, size_t header_bytes,
                       size_t n) {
  char path[128];
  FILE *file;
  snprintf(path, sizeof path, "%s/%s", f->folder, name);
  file = fopen(path, "wb");
  assert_non_null(file);
  fwrite(header, 1, header_bytes, file);
  for (size_t i = 0; i < n; i++)
    fputc((int)(i % 4), file);
  fclose(file);
}

static int setup(void **state) {
  static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 4, 0, 0, 0, 4};
  static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
  struct fixture *f = mem_new(sizeof *f);
  struct rpc_service service = {methods, sizeof methods / sizeof *methods, f};
  struct rpc_server_options options = {.listen = "127.0.0.1:0", .services = &service, .n_services = 1};
  struct err err = ERR_NONE;
  char *text;
  strcpy(f->folder, "/tmp/weir-worker-run-XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  write_file(f, "images", images, sizeof images, SAMPLES * PIXELS);
  write_file(f, "labels", labels, sizeof labels, SAMPLES);
  onnx_build_mlp(&f->build, PIXELS, HIDDEN, 4);
  f->onnx = onnx_build_pack(&f->build, &f->onnx_bytes);
  text = mem_printf("name: t\nmodel: {onnx: m}\ndata:\n  root: %s\n"
                    "  train: {format: idx, images: images, labels: labels}\n"
                    "train: {steps: %d, batch: %d, microbatches: %d, optimizer: {lr: 1}}\n",
                    f->folder, STEPS, BATCH, MICROBATCHES);
  if (spec_read("t", text, strlen(text), &f->spec, &err) || spec_check(f->spec, &err) ||
      model_open(f->onnx, f->onnx_bytes, f->spec, BATCH / MICROBATCHES, BATCH, &f->model, &err) ||
      rpc_server_start(&options, &f->server, &err))
    fail_msg("%s", err.text);
  free(text);
  assert_in_range(f->model->n_blocks, 4, BLOCKS_MAX);
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  snprintf(f->target, sizeof f->target, "127.0.0.1:%d", rpc_server_port(f->server));
  f->client = rpc_client_new(1);
  f->channel = rpc_channel_open(f->client, f->target);
  *state = f;
  return 0;
}

static int teardown(void **state) {
  static const char *const names[] = {"images", "labels"};
  struct fixture *f = *state;
  char path[128];
  run_stop(f->run);
  rpc_channel_close(f->channel);
  rpc_server_stop(f->server);
  rpc_client_free(f->client);
  model_close(f->model);
  spec_free(f->spec);
  onnx_build_fini(&f->build);
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", f->folder, names[i]);
    unlink(path);
  }
  rmdir(f->folder);
  pthread_cond_destroy(&f->changed);
  pthread_mutex_destroy(&f->lock);
  free(f);
  return 0;
}

/* Loads the run and gives its only worker all microbatches. */
static void begin(struct fixture *f, struct faults faults, uint64_t plan_samples) {
  Weir__LoadRun load = WEIR__LOAD_RUN__INIT;
  Weir__View view = WEIR__VIEW__INIT;
  Weir__Plan plan = WEIR__PLAN__INIT;
  Weir__Endpoint endpoint = WEIR__ENDPOINT__INIT, *endpoints[] = {&endpoint};
  Weir__Assignment assignment = WEIR__ASSIGNMENT__INIT, *assignments[] = {&assignment};
  char sha256[SHA256_HEX_SIZE];
  f->faults = faults;
  sha256_hex(f->onnx, f->onnx_bytes, sha256);
  load.run = view.run = (char *)"t-1";
  load.spec = f->spec;
  load.model_bytes = f->onnx_bytes;
  load.model_sha256 = sha256;
  f->run = run_start(&(struct run_options){.client = f->client,
                                           .coordinator = f->channel,
                                           .backend = backend_find("ref"),
                                           .data_root = "/",
                                           .threads = 2,
                                           .send = on_told,
                                           .user = f},
                     &load);
  plan.train_samples = plan_samples;
  plan.steps = STEPS;
  endpoint.id = (char *)"server-1";
  endpoint.address = f->target;
  assignment.worker = (char *)"worker-1";
  assignment.microbatch_end = MICROBATCHES;
  view.number = 1;
  view.plan = &plan;
  view.servers = endpoints;
  view.n_servers = view.n_workers = 1;
  view.workers = assignments;
  run_view(f->run, &view, "worker-1");
}

static bool is_trained(const struct fixture *f) {
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    if (f->version[b] < STEPS)
      return false;
  return true;
}

/* Waits until the last version of every block was made, or the run was refused. */
static void wait_end(struct fixture *f) {
  struct timespec until;
  int rc = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += WAIT_SECONDS_MAX;
  pthread_mutex_lock(&f->lock);
  while (!is_trained(f) && !f->is_refused && rc != ETIMEDOUT)
    rc = pthread_cond_timedwait(&f->changed, &f->lock, &until);
  pthread_mutex_unlock(&f->lock);
  assert_int_equal(rc, 0);
}

static void expect_trained(struct fixture *f, struct faults faults) {
  begin(f, faults, SAMPLES);
  wait_end(f);
  if (f->is_refused)
    fail_msg("refused: %s", f->refusal);
  assert_true(f->is_loaded);
}

static void expect_refused(struct fixture *f, struct faults faults, const char *why) {
  begin(f, faults, SAMPLES);
  wait_end(f);
  assert_true(f->is_refused);
  if (!strstr(f->refusal, why))
    fail_msg("'%s' is not in '%s'", why, f->refusal);
  assert_false(f->is_bad_input);
}

static void every_block_is_pushed_once_a_step(void **state) {
  struct fixture *f = *state;
  expect_trained(f, (struct faults){0});
  assert_int_equal(f->n_pushes, STEPS * f->model->n_blocks);
}

static void what_fails_for_a_while_is_tried_again(void **state) {
  struct fixture *f = *state;
  expect_trained(
      f, (struct faults){
             .models_cut = 2, .versions_unavailable = 2, .pulls_unavailable = 3, .pushes_unavailable = 5});
  assert_int_equal(f->n_pushes, STEPS * f->model->n_blocks);
}

static void a_worker_that_is_behind_asks_where_the_servers_are(void **state) {
  expect_trained(*state, (struct faults){.pushes_dropped = 1});
}

static void a_worker_goes_on_asking_servers_that_do_not_know_the_run(void **state) {
  expect_trained(*state, (struct faults){.versions_unknown = 2});
}

static void another_model_than_announced_is_refused(void **state) {
  expect_refused(*state, (struct faults){.model_is_another = true}, "the model came with sha256");
}

static void a_block_of_the_wrong_size_is_refused(void **state) {
  expect_refused(*state, (struct faults){.blocks_short = 1}, "answered block");
}

static void a_block_of_the_wrong_version_is_refused(void **state) {
  expect_refused(*state, (struct faults){.blocks_old = 1}, "expected 1 in");
}

static void a_plan_over_other_data_is_refused(void **state) {
  struct fixture *f = *state;
  begin(f, (struct faults){0}, SAMPLES + 1);
  wait_end(f);
  assert_true(f->is_refused && !f->is_bad_input);
  assert_non_null(strstr(f->refusal, "this worker's data has 8 training"));
  assert_int_equal(f->n_pushes, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(every_block_is_pushed_once_a_step),
      TEST(what_fails_for_a_while_is_tried_again),
      TEST(a_worker_that_is_behind_asks_where_the_servers_are),
      TEST(a_worker_goes_on_asking_servers_that_do_not_know_the_run),
      TEST(another_model_than_announced_is_refused),
      TEST(a_block_of_the_wrong_size_is_refused),
      TEST(a_block_of_the_wrong_version_is_refused),
      TEST(a_plan_over_other_data_is_refused),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
