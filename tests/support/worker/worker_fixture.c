#include "tests/support/worker/worker_fixture.h"

#include <errno.h>
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

#include "common/agree/spec.h"
#include "common/rpc/server.h"
#include "tests/support/common/patience.h"

static void fixture_write_file(struct worker_fixture *f, const char *name, const void *header,
                               size_t header_bytes, size_t n) {
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

static void fixture_make_run(struct worker_fixture *f, bool evaluates) {
  static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 4, 0, 0, 0, 4};
  static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
  struct err err = ERR_NONE;
  char *text;
  strcpy(f->folder, "/tmp/weir-worker-XXXXXX");
  assert_non_null(mkdtemp(f->folder));
  fixture_write_file(f, "images", images, sizeof images, SAMPLES * PIXELS);
  fixture_write_file(f, "labels", labels, sizeof labels, SAMPLES);
  onnx_build_mlp(&f->build, PIXELS, HIDDEN, 4);
  f->onnx = onnx_build_pack(&f->build, &f->onnx_bytes);
  sha256_hex(f->onnx, f->onnx_bytes, f->sha256);
  text = mem_printf("name: t\nmodel: {onnx: m}\ndata:\n  root: %s\n"
                    "  train: {format: idx, images: images, labels: labels}\n%s"
                    "train: {steps: %d, batch: %d, microbatches: %d, optimizer: {lr: 1}}\n%s",
                    f->folder, evaluates ? "  eval: {format: idx, images: images, labels: labels}\n" : "",
                    STEPS, BATCH, MICROBATCHES, evaluates ? "eval: {every_steps: 1}\n" : "");
  if (spec_read("t", text, strlen(text), &f->spec, &err) || spec_check(f->spec, &err) ||
      model_open(
          &(struct model_source){
              .onnx = f->onnx, .size_bytes = f->onnx_bytes, .spec = f->spec, .samples = BATCH / MICROBATCHES},
          &f->model, &err))
    fail_msg("%s", err.text);
  free(text);
  assert_in_range(f->model->n_blocks, 4, BLOCKS_MAX);
}

struct worker_fixture *fixture_new(bool evaluates) {
  struct worker_fixture *f = mem_new(sizeof *f);
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->changed, NULL);
  fixture_make_run(f, evaluates);
  for (int s = 0; s < SERVERS; s++) {
    f->servers[s] = (struct fake_server){
        .f = f, .index = s, .incarnation = 1, .held_step = UINT64_MAX, .held_block = UINT32_MAX};
    fake_server_listen(&f->servers[s]);
  }
  f->meeting_ms = f->question_ms = f->silent_ms = WEEK_MS;
  f->client = rpc_client_new(1, NULL);
  f->channel = rpc_channel_open(f->client, f->servers[0].target, PEER_ANY);
  return f;
}

void fixture_free(struct worker_fixture *f) {
  static const char *const names[] = {"images", "labels"};
  char path[128];
  run_stop(f->run);
  rpc_channel_close(f->channel);
  for (int s = 0; s < SERVERS; s++)
    rpc_server_stop(f->servers[s].server);
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
}

int worker_setup(void **state) {
  *state = fixture_new(false);
  return 0;
}

int worker_setup_evaluating(void **state) {
  *state = fixture_new(true);
  return 0;
}

int worker_teardown(void **state) {
  fixture_free(*state);
  return 0;
}

void fixture_on_told(void *user, const Weir__MemberMessage *message) {
  struct worker_fixture *f = user;
  pthread_mutex_lock(&f->lock);
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_LOADED) {
    f->n_loaded++;
    f->loaded_incarnation = message->loaded->incarnation;
  }
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_GROUP_FAILED) {
    f->n_groups_failed++;
    f->failed_group = message->group_failed->group;
  }
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_UNREACHED) {
    f->n_unreached_told++;
    f->n_unreached = message->unreached->n_servers;
    snprintf(f->unreached, sizeof f->unreached, "%s", f->n_unreached ? message->unreached->servers[0] : "");
  }
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_READY) {
    f->n_ready++;
    f->ready_version = message->ready->version;
  }
  if (message->body_case == WEIR__MEMBER_MESSAGE__BODY_REFUSED) {
    f->is_refused = true;
    f->is_bad_input = message->refused->bad_input;
    f->no_memory_beside = message->refused->no_memory_beside;
    snprintf(f->refusal, sizeof f->refusal, "%s", message->refused->message);
  }
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->lock);
}

const char *fixture_run_id(void) {
  static char id[32];
  snprintf(id, sizeof id, "t-%d", (int)getpid());
  return id;
}

Weir__LoadRun fixture_order(struct worker_fixture *f, uint64_t incarnation) {
  Weir__LoadRun load = WEIR__LOAD_RUN__INIT;
  load.run = (char *)fixture_run_id();
  load.incarnation = incarnation;
  load.spec = f->spec;
  load.model_bytes = f->onnx_bytes;
  load.model_sha256 = f->sha256;
  load.stage_begin = f->stage_begin;
  load.stage_end = f->stage_end;
  return load;
}

void fixture_load(struct worker_fixture *f, const struct backend_def *backend, int threads) {
  Weir__LoadRun load = fixture_order(f, 1);
  f->run = run_start(&(struct run_options){.client = f->client,
                                           .coordinator = f->channel,
                                           .backend = backend,
                                           .data_root = {.path = "/"},
                                           .threads = threads,
                                           .parked_max = f->parked_max,
                                           .question_ms = f->question_ms,
                                           .silent_ms = f->silent_ms,
                                           .unreached_ms = f->unreached_ms,
                                           .meeting_ms = f->meeting_ms,
                                           .send = fixture_on_told,
                                           .user = f},
                     &load);
}

void fixture_view(struct worker_fixture *f, struct view_of of,
                  void (*take)(struct worker_fixture *f, const Weir__View *view, const char *worker)) {
  Weir__View view = WEIR__VIEW__INIT;
  Weir__Plan plan = WEIR__PLAN__INIT;
  Weir__Endpoint endpoints[SERVERS], *servers[SERVERS];
  Weir__Assignment assignment = WEIR__ASSIGNMENT__INIT, *assignments[] = {&assignment};
  char ids[SERVERS][24];
  for (int s = 0; s < of.n_servers; s++) {
    weir__endpoint__init(&endpoints[s]);
    snprintf(ids[s], sizeof ids[s], "server-%d", of.first_server + s + 1);
    endpoints[s].id = ids[s];
    endpoints[s].address = f->servers[of.first_server + s].target;
    servers[s] = &endpoints[s];
  }
  plan.train_samples = of.plan_samples ? of.plan_samples : SAMPLES;
  plan.eval_samples = f->spec->data->eval ? SAMPLES : 0;
  plan.steps = STEPS;
  assignment.worker = (char *)(of.worker ? of.worker : "worker-1");
  assignment.microbatch_end = of.microbatches;
  assignment.eval_end = of.chunks;
  assignment.follows = of.follows;
  assignment.executors = of.executors;
  view.run = (char *)fixture_run_id();
  view.number = of.number;
  view.incarnation = of.incarnation;
  view.plan = &plan;
  view.hold = of.hold;
  view.servers = servers;
  view.n_servers = (size_t)of.n_servers;
  view.workers = assignments;
  view.n_workers = 1;
  if (of.ticket)
    view.ticket = (char *)of.ticket;
  take(f, &view, assignment.worker);
}

void fixture_give_view(struct worker_fixture *f, const Weir__View *view, const char *worker) {
  run_view(f->run, view, worker);
}

void fixture_give_pair(struct worker_fixture *f, struct pair_view of) {
  Weir__View view = WEIR__VIEW__INIT;
  Weir__Plan plan = WEIR__PLAN__INIT;
  Weir__Endpoint endpoint = WEIR__ENDPOINT__INIT, *servers[] = {&endpoint};
  Weir__Assignment members[2], *list[2];
  for (int rank = 0; rank < 2; rank++) {
    weir__assignment__init(&members[rank]);
    members[rank].worker = (char *)of.names[rank];
    members[rank].microbatch_begin = of.alone < 0 ? (uint32_t)rank : 0;
    members[rank].microbatch_end = of.alone < 0 ? (uint32_t)rank + 1 : MICROBATCHES;
    members[rank].group = of.group;
    list[rank] = &members[rank];
  }
  endpoint.id = "server-1";
  endpoint.address = f->servers[0].target;
  plan.train_samples = SAMPLES;
  plan.steps = STEPS;
  view.run = (char *)fixture_run_id();
  view.number = of.number;
  view.incarnation = 1;
  view.plan = &plan;
  view.servers = servers;
  view.n_servers = 1;
  view.workers = of.alone < 0 ? list : list + of.alone;
  view.n_workers = of.alone < 0 ? 2 : 1;
  for (int rank = 0; rank < 2; rank++)
    if (of.runs[rank] && (of.alone < 0 || of.alone == rank))
      run_view(of.runs[rank], &view, of.names[rank]);
}

bool is_trained(const struct worker_fixture *f) {
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    if (f->servers[0].version[b] < STEPS && f->servers[1].version[b] < STEPS)
      return false;
  return true;
}

void fixture_wait(struct worker_fixture *f, bool (*is_so)(const struct worker_fixture *f)) {
  struct timespec until;
  int rc = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience_seconds();
  pthread_mutex_lock(&f->lock);
  while (!is_so(f) && rc != ETIMEDOUT)
    rc = pthread_cond_timedwait(&f->changed, &f->lock, &until);
  pthread_mutex_unlock(&f->lock);
  if (rc)
    fail_msg("nothing happened for %d seconds; refused: '%s'", patience_seconds(), f->refusal);
}

int count_pushes(const struct worker_fixture *f, int server, uint64_t incarnation, uint64_t step) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].server == server && f->pushes[i].incarnation == incarnation &&
         f->pushes[i].step == step && !f->pushes[i].is_evaluation;
  return n;
}

int pushes_of_step(const struct worker_fixture *f) {
  return (int)(f->model->n_param_blocks + (f->model->n_blocks - f->model->n_param_blocks) * MICROBATCHES);
}

bool is_all_pushed(const struct worker_fixture *f) {
  for (uint64_t step = 0; step < STEPS; step++)
    if (count_pushes(f, 0, 1, step) < pushes_of_step(f))
      return false;
  return is_trained(f);
}

void fixture_linger(int ms) {
  nanosleep(&(struct timespec){ms / 1000, (ms % 1000) * 1000000L}, NULL);
}
