/* The coordinator's core, driven by events: what it orders, publishes and decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/random.h"
#include "common/spec.h"
#include "server/coordinator/core.h"

enum {
  MEMBERS = 64,
  MISSING_MS = 5000,
  BLOCKS = 5,
  MICROBATCHES = 8,
  SAMPLES = 1000,
  BATCH = 128,
  STEPS = 10
};

/* What a member was told: the newest order of each kind. */
struct told {
  bool is_member, is_closed;
  char id[32];
  char load[64], unload[64]; /* run ids */
  uint32_t load_servers;
  bool load_has_plan;
  uint64_t view;       /* number */
  uint32_t begin, end; /* of its microbatches */
  uint32_t view_workers;
  uint64_t write_step;
};

struct fixture {
  struct coordinator *coordinator;
  struct coordinator_actions actions;
  uint64_t now_ms;
  struct told told[MEMBERS];
  int commits, records, publishes;
  uint32_t covered; /* microbatches of the newest view, in all its workers' ranges */
};

static void take_view(struct fixture *f, struct told *told, const Weir__View *view) {
  assert_true(view->number > told->view);
  told->view = view->number;
  told->view_workers = (uint32_t)view->n_workers;
  f->covered = 0;
  for (size_t i = 0; i < view->n_workers; i++) {
    const Weir__Assignment *assignment = view->workers[i];
    assert_int_equal(assignment->microbatch_begin, f->covered); /* once each, without a gap */
    f->covered = assignment->microbatch_end;
    if (strcmp(assignment->worker, told->id) == 0) {
      told->begin = assignment->microbatch_begin;
      told->end = assignment->microbatch_end;
    }
  }
  assert_int_equal(f->covered, MICROBATCHES);
}

static void take_order(struct fixture *f, uint64_t member, const Weir__Order *order) {
  struct told *told = &f->told[member];
  assert_true(told->is_member && !told->is_closed);
  assert_int_equal(order->epoch, 1);
  switch (order->body_case) {
  case WEIR__ORDER__BODY_WELCOME:
    snprintf(told->id, sizeof told->id, "%s", order->welcome->id);
    break;
  case WEIR__ORDER__BODY_LOAD:
    snprintf(told->load, sizeof told->load, "%s", order->load->run);
    told->view = 0;
    told->load_servers = (uint32_t)order->load->n_servers;
    told->load_has_plan = order->load->plan != NULL;
    break;
  case WEIR__ORDER__BODY_VIEW:
    take_view(f, told, order->view);
    break;
  case WEIR__ORDER__BODY_WRITE:
    told->write_step = order->write->step;
    break;
  case WEIR__ORDER__BODY_UNLOAD:
    snprintf(told->unload, sizeof told->unload, "%s", order->unload->run);
    *told->load = 0;
    told->view = 0;
    break;
  default:
    fail_msg("an order without a body");
  }
}

static void step(struct fixture *f, const struct coordinator_event *event) {
  coordinator_step(f->coordinator, event, f->now_ms, &f->actions);
  for (int i = 0; i < f->actions.count; i++) {
    const struct coordinator_action *action = &f->actions.items[i];
    if (action->kind == ACTION_ORDER)
      take_order(f, action->member, action->order);
    else if (action->kind == ACTION_CLOSE)
      f->told[action->member].is_closed = true;
    f->commits += action->kind == ACTION_COMMIT;
    f->records += action->kind == ACTION_RECORD;
    f->publishes += action->kind == ACTION_PUBLISH;
  }
}

static void join(struct fixture *f, uint64_t key, Weir__Role role, uint32_t executors,
                 const char *fingerprint) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct coordinator_event event = {.kind = EVENT_MEMBER_JOINED, .member = key, .hello = &hello};
  char address[32];
  snprintf(address, sizeof address, "host:%llu", (unsigned long long)key);
  hello.role = role;
  hello.host = "host";
  hello.address = role == WEIR__ROLE__SERVER ? address : "";
  hello.device = "cpu";
  hello.executors = executors;
  hello.fingerprint = (char *)fingerprint;
  f->told[key].is_member = true;
  step(f, &event);
}

static void worker_joins(struct fixture *f, uint64_t key, uint32_t executors) {
  join(f, key, WEIR__ROLE__WORKER, executors, "build-1");
}

static void server_joins(struct fixture *f, uint64_t key) {
  join(f, key, WEIR__ROLE__SERVER, 0, "build-1");
}

static void leave(struct fixture *f, uint64_t key) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_LEFT, .member = key, .reason = "connection reset"};
  f->told[key].is_closed = true;
  step(f, &event);
}

static void send(struct fixture *f, uint64_t key, Weir__MemberMessage__BodyCase body, void *content) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  struct coordinator_event event = {.kind = EVENT_MEMBER_MESSAGE, .member = key, .message = &message};
  message.body_case = body;
  message.hello = content;
  step(f, &event);
}

static void beat(struct fixture *f, uint64_t key) {
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  send(f, key, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, &heartbeat);
}

static void tick(struct fixture *f) {
  struct coordinator_event event = {.kind = EVENT_TICK};
  step(f, &event);
}

static void loads(struct fixture *f, uint64_t key, const char *run, const char *dataset, uint64_t samples) {
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  loaded.run = (char *)run;
  loaded.train_samples = samples;
  loaded.dataset_sha256 = (char *)dataset;
  loaded.probe_sha256 = "probe";
  send(f, key, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
}

static void worker_loads(struct fixture *f, uint64_t key, const char *run) {
  loads(f, key, run, "data", SAMPLES);
}

static void server_loads(struct fixture *f, uint64_t key, const char *run) {
  loads(f, key, run, "", 0);
}

static void refuses(struct fixture *f, uint64_t key, const char *run, const char *message, bool bad_input) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  refused.run = (char *)run;
  refused.message = (char *)message;
  refused.bad_input = bad_input;
  send(f, key, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused);
}

static void reports_step(struct fixture *f, uint64_t key, const char *run, uint64_t number) {
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  report.run = (char *)run;
  report.step = number;
  report.loss = 2.5;
  report.lr = 0.1;
  report.samples = BATCH;
  send(f, key, WEIR__MEMBER_MESSAGE__BODY_STEP, &report);
}

static void reports_eval(struct fixture *f, uint64_t key, const char *run, uint64_t version) {
  Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
  report.run = (char *)run;
  report.step = version;
  report.loss = 0.5;
  report.accuracy = 0.75;
  send(f, key, WEIR__MEMBER_MESSAGE__BODY_EVAL, &report);
}

static void completes(struct fixture *f, uint64_t key, const char *run) {
  Weir__RunComplete complete = WEIR__RUN_COMPLETE__INIT;
  complete.run = (char *)run;
  send(f, key, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, &complete);
}

/* Blocks [begin, end), or an error. */
static void writes(struct fixture *f, uint64_t key, const char *run, uint32_t begin, uint32_t end,
                   const char *error) {
  static char sha256[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  Weir__WrittenBlock blocks[BLOCKS + 1], *list[BLOCKS + 1];
  for (uint32_t i = begin; i < end; i++) {
    list[written.n_blocks] = &blocks[written.n_blocks];
    weir__written_block__init(&blocks[written.n_blocks]);
    blocks[written.n_blocks].block = i;
    blocks[written.n_blocks].sha256 = sha256;
    blocks[written.n_blocks++].bytes = 4;
  }
  written.run = (char *)run;
  written.step = STEPS;
  written.blocks = list;
  written.error = (char *)error;
  send(f, key, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
}

static void drains(struct fixture *f, uint64_t key) {
  Weir__Leaving leaving = WEIR__LEAVING__INIT;
  send(f, key, WEIR__MEMBER_MESSAGE__BODY_LEAVING, &leaving);
}

static void submit(struct fixture *f, const char *id, uint32_t min, uint32_t max) {
  static const uint32_t block_elems[BLOCKS] = {100, 200, 300, 50, 4};
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  Weir__ModelSpec model = WEIR__MODEL_SPEC__INIT;
  Weir__DataSpec data = WEIR__DATA_SPEC__INIT;
  Weir__DataSource source = WEIR__DATA_SOURCE__INIT;
  Weir__TrainSpec train = WEIR__TRAIN_SPEC__INIT;
  Weir__OptimizerSpec optimizer = WEIR__OPTIMIZER_SPEC__INIT;
  Weir__WorkersSpec workers = WEIR__WORKERS_SPEC__INIT;
  struct run_submission submission = {.id = id,
                                      .spec = &spec,
                                      .model_bytes = 1000,
                                      .model_sha256 = "feed",
                                      .parameters = 650,
                                      .block_elems = block_elems,
                                      .n_blocks = BLOCKS,
                                      .submitted_unix_ms = 1700000000000};
  struct coordinator_event event = {.kind = EVENT_RUN_SUBMITTED, .submission = &submission};
  spec.name = "mlp";
  spec.model = &model;
  spec.data = &data;
  spec.train = &train;
  spec.workers = &workers;
  model.onnx = "mlp.onnx";
  source.format = "idx";
  data.train = &source;
  train.has_steps = train.has_batch = train.has_microbatches = true;
  train.steps = STEPS;
  train.batch = BATCH;
  train.microbatches = MICROBATCHES;
  train.optimizer = &optimizer;
  workers.has_min = true;
  workers.min = min;
  workers.has_max = max != 0;
  workers.max = max;
  step(f, &event);
}

static void cancel(struct fixture *f, const char *run) {
  struct coordinator_event event = {.kind = EVENT_RUN_CANCELLED, .run = run};
  step(f, &event);
}

static void commits(struct fixture *f, const char *run, const char *error) {
  struct coordinator_event event = {
      .kind = EVENT_CHECKPOINT,
      .checkpoint = {.run = run,
                     .weights_sha256 = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
                     .error = error}};
  step(f, &event);
}

static Weir__RunInfo info(struct fixture *f, const char *run) {
  Weir__RunInfo answer;
  assert_true(coordinator_run_info(f->coordinator, run, f->now_ms, &answer));
  return answer;
}

static void assert_state(struct fixture *f, const char *run, Weir__RunState expected) {
  assert_int_equal(info(f, run).state, expected);
}

/* The worker's row in ListWorkers; its strings hold until the next step. */
static Weir__WorkerInfo worker_row(struct fixture *f, uint64_t key) {
  struct arena arena;
  Weir__ListWorkersReply reply;
  Weir__WorkerInfo row = WEIR__WORKER_INFO__INIT;
  arena_init(&arena);
  coordinator_list_workers(f->coordinator, f->now_ms, &arena, &reply);
  for (size_t i = 0; i < reply.n_workers; i++)
    if (strcmp(reply.workers[i]->id, f->told[key].id) == 0)
      row = *reply.workers[i];
  arena_fini(&arena);
  return row;
}

static int setup(void **state) {
  struct coordinator_options options = {.epoch = 1, .missing_after_ms = MISSING_MS};
  struct fixture *f = calloc(1, sizeof *f);
  f->coordinator = coordinator_new(&options);
  f->now_ms = 1000;
  *state = f;
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  coordinator_free(f->coordinator);
  coordinator_actions_fini(&f->actions);
  free(f);
  return 0;
}

enum { S1 = 1, S2 = 2, W1 = 3, W2 = 4, W3 = 5 };
static const char RUN[] = "mlp-aaaaaa";
static const char RUN2[] = "mlp-bbbbbb";

/* Servers S1 and S2, workers W1 (one executor) and W2 (three), training. */
static void start_run(struct fixture *f) {
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 3);
  submit(f, RUN, 2, 0);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_run_goes_from_queue_to_done(void **state) {
  struct fixture *f = *state;
  submit(f, RUN, 2, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__QUEUED);
  assert_string_equal(info(f, RUN).message, "waiting for a server");
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  assert_string_equal(info(f, RUN).message, "waiting for workers: 1 of 2");
  assert_string_equal(f->told[W1].load, "");
  worker_joins(f, W2, 3);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[W1].load, RUN);
  assert_string_equal(f->told[W2].load, RUN);
  assert_string_equal(f->told[S1].load, ""); /* servers need the plan, and so the data */
  worker_loads(f, W1, RUN);
  assert_string_equal(f->told[S1].load, RUN);
  assert_true(f->told[S1].load_has_plan);
  assert_int_equal(f->told[S2].load_servers, 2);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING); /* one worker of two */
  worker_loads(f, W2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].view, 1);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, 2);
  assert_int_equal(f->told[W2].end - f->told[W2].begin, 6);
  for (uint64_t i = 0; i < STEPS; i++) {
    f->now_ms += 100;
    reports_step(f, S1, RUN, i);
  }
  assert_int_equal(info(f, RUN).step, STEPS);
  completes(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  completes(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  assert_int_equal(f->told[S1].write_step, STEPS);
  assert_int_equal(f->told[S2].write_step, STEPS);
  writes(f, S1, RUN, 0, 3, "");
  assert_int_equal(f->commits, 0);
  writes(f, S2, RUN, 3, BLOCKS, "");
  assert_int_equal(f->commits, 1);
  commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_int_equal(f->records, 1);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_string_equal(f->told[S1].unload, RUN);
  assert_string_equal(info(f, RUN).weights_sha256,
                      "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff");
  assert_true(info(f, RUN).samples_per_second == STEPS * BATCH / 1.0);
}

static void events_are_numbered_and_end_with_done(void **state) {
  struct fixture *f = *state;
  struct run_event_view view;
  uint64_t number = 0, steps = 0;
  start_run(f);
  for (uint64_t i = 0; i < STEPS; i++)
    reports_step(f, S1, RUN, i);
  reports_step(f, S1, RUN, 3); /* said twice, counted once */
  completes(f, S1, RUN);
  completes(f, S2, RUN);
  writes(f, S1, RUN, 0, BLOCKS, "");
  writes(f, S2, RUN, 0, 0, "");
  commits(f, RUN, NULL);
  for (; coordinator_run_event(f->coordinator, RUN, number, &view); number++) {
    assert_int_equal(view.event.number, number);
    if (view.event.event_case != WEIR__RUN_EVENT__EVENT_STEP)
      continue;
    assert_int_equal(view.event.step->step, steps++);
    assert_int_equal(view.event.step->workers, 2);
    assert_int_equal(view.event.step->samples, BATCH);
  }
  assert_int_equal(steps, STEPS);
  assert_int_equal(view.event.event_case, WEIR__RUN_EVENT__EVENT_DONE);
  assert_int_equal(view.event.done->steps, STEPS);
  assert_true(coordinator_run_is_over(f->coordinator, RUN));
  assert_false(coordinator_run_event(f->coordinator, RUN, UINT64_MAX, &view));
}

static void the_last_evaluation_is_awaited(void **state) {
  struct fixture *f = *state;
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  submit(f, RUN, 1, 0);
  loaded.run = (char *)RUN;
  loaded.train_samples = SAMPLES;
  loaded.eval_samples = 100;
  send(f, W1, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
  server_loads(f, S1, RUN);
  completes(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_eval(f, S1, RUN, STEPS);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
  assert_true(info(f, RUN).accuracy == 0.75);
}

static void a_lost_worker_leaves_its_work_to_the_others(void **state) {
  struct fixture *f = *state;
  start_run(f);
  leave(f, W2);
  assert_int_equal(f->told[W1].view, 2);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, MICROBATCHES);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_silent_member_is_closed_and_replaced(void **state) {
  struct fixture *f = *state;
  start_run(f);
  f->now_ms += MISSING_MS;
  beat(f, S1), beat(f, S2), beat(f, W1);
  tick(f);
  assert_false(f->told[W2].is_closed);
  f->now_ms += 1;
  tick(f);
  assert_true(f->told[W2].is_closed);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, MICROBATCHES);
}

static void a_joiner_loads_and_gets_work(void **state) {
  struct fixture *f = *state;
  start_run(f);
  worker_joins(f, W3, 4);
  assert_string_equal(f->told[W3].load, RUN);
  assert_int_equal(f->told[W1].view, 1); /* nothing changes before it is ready */
  worker_loads(f, W3, RUN);
  assert_int_equal(f->told[W1].view, 2);
  assert_int_equal(f->told[W3].view, 2);
  assert_int_equal(f->told[W3].end - f->told[W3].begin, 4);
  assert_int_equal(f->told[W3].view_workers, 3);
}

static void a_drained_worker_hands_over_then_unloads(void **state) {
  struct fixture *f = *state;
  start_run(f);
  drains(f, W2);
  assert_int_equal(f->told[W1].view, 2);
  assert_int_equal(f->told[W1].end - f->told[W1].begin, MICROBATCHES);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_string_equal(worker_row(f, W2).state, "draining");
  assert_string_equal(worker_row(f, W2).run, "");
  cancel(f, RUN);
  submit(f, RUN2, 1, 0);
  assert_string_equal(f->told[W1].load, RUN2);
  assert_string_equal(f->told[W2].load, ""); /* never asked again */
}

static void a_run_without_workers_waits_and_goes_on(void **state) {
  struct fixture *f = *state;
  start_run(f);
  leave(f, W1);
  drains(f, W2);
  assert_string_equal(f->told[W2].unload, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_string_equal(info(f, RUN).message, "waiting for workers: 0 of 1");
  worker_joins(f, W3, 2);
  worker_loads(f, W3, RUN);
  assert_int_equal(f->told[W3].end - f->told[W3].begin, MICROBATCHES);
  assert_string_equal(info(f, RUN).message, "");
}

static void a_worker_that_differs_is_refused_with_both_sides_named(void **state) {
  struct fixture *f = *state;
  start_run(f);
  join(f, W3, WEIR__ROLE__WORKER, 1, "build-2");
  worker_loads(f, W3, RUN);
  assert_string_equal(worker_row(f, W3).state, "refused");
  assert_non_null(strstr(worker_row(f, W3).message, "build-1"));
  assert_non_null(strstr(worker_row(f, W3).message, "build-2"));
  assert_string_equal(f->told[W3].unload, RUN);
  assert_string_equal(f->told[W3].load, ""); /* not asked again */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].view, 1);
  worker_joins(f, 10, 1);
  loads(f, 10, RUN, "other data", SAMPLES);
  assert_non_null(strstr(worker_row(f, 10).message, "other data"));
  worker_joins(f, 11, 1);
  loads(f, 11, RUN, "data", SAMPLES + 1);
  assert_string_equal(worker_row(f, 11).state, "refused");
}

static void bad_input_fails_the_run_once_nobody_may_think_otherwise(void **state) {
  struct fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  submit(f, RUN, 1, 0);
  refuses(f, W1, RUN, "/data/labels.gz: no such file", true);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  refuses(f, W2, RUN, "/data/labels.gz: no such file", true);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_true(info(f, RUN).bad_input);
  assert_string_equal(info(f, RUN).message, "/data/labels.gz: no such file");
}

static void a_machine_that_cannot_is_not_bad_input(void **state) {
  struct fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  submit(f, RUN, 1, 0);
  refuses(f, W1, RUN, "out of memory", false);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_non_null(strstr(info(f, RUN).message, "out of memory"));
  worker_joins(f, W2, 1);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void too_little_data_is_bad_input(void **state) {
  struct fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  submit(f, RUN, 1, 0);
  loads(f, W1, RUN, "data", 0);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_true(info(f, RUN).bad_input);
  assert_string_equal(f->told[W1].unload, RUN);
}

static void a_lost_server_fails_the_run_by_name(void **state) {
  struct fixture *f = *state;
  start_run(f);
  leave(f, S2);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_false(info(f, RUN).bad_input);
  assert_string_equal(info(f, RUN).message, "server-2 (host:2) was lost: connection reset");
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(f->told[S1].unload, RUN);
}

static void a_server_that_refuses_fails_the_run(void **state) {
  struct fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  submit(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  refuses(f, S1, RUN, "out of memory", false);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info(f, RUN).message, "server-1"));
}

static void a_checkpoint_that_fails_fails_the_run(void **state) {
  struct fixture *f = *state;
  start_run(f);
  completes(f, S1, RUN);
  completes(f, S2, RUN);
  writes(f, S1, RUN, 0, 0, "/store: No space left on device");
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info(f, RUN).message, "No space left"));
  assert_int_equal(f->commits, 0);
}

static void blocks_that_nobody_or_two_wrote_fail_the_run(void **state) {
  struct fixture *f = *state;
  start_run(f);
  completes(f, S1, RUN);
  completes(f, S2, RUN);
  writes(f, S1, RUN, 0, 2, "");
  writes(f, S2, RUN, 3, BLOCKS, "");
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info(f, RUN).message, "block 2"));
}

static void a_cancelled_run_lets_everyone_go(void **state) {
  struct fixture *f = *state;
  struct run_event_view view;
  uint64_t last = 0;
  start_run(f);
  cancel(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(f->told[S2].unload, RUN);
  assert_string_equal(worker_row(f, W1).state, "idle");
  cancel(f, RUN); /* and is over for good */
  commits(f, RUN, NULL);
  reports_step(f, S1, RUN, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
  while (coordinator_run_event(f->coordinator, RUN, last, &view))
    last++;
  assert_int_equal(view.event.event_case, WEIR__RUN_EVENT__EVENT_INFO);
  assert_int_equal(view.event.info->state, WEIR__RUN_STATE__CANCELLED);
}

static void runs_take_workers_in_the_order_of_submission(void **state) {
  struct fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  submit(f, RUN, 1, 1);
  submit(f, RUN2, 1, 0);
  assert_string_equal(f->told[W1].load, RUN);
  assert_state(f, RUN2, WEIR__RUN_STATE__QUEUED);
  worker_joins(f, W2, 1);
  assert_string_equal(f->told[W2].load, RUN2); /* the first has its most */
  cancel(f, RUN);
  assert_string_equal(f->told[W1].load, RUN2);
}

static void a_run_that_needs_many_is_not_starved_by_those_behind_it(void **state) {
  struct fixture *f = *state;
  server_joins(f, S1);
  submit(f, RUN, 2, 0);
  submit(f, RUN2, 1, 0);
  worker_joins(f, W1, 1);
  assert_string_equal(f->told[W1].load, "");
  worker_joins(f, W2, 1);
  assert_string_equal(f->told[W1].load, RUN);
  assert_string_equal(f->told[W2].load, RUN);
}

static void a_run_is_found_by_a_unique_prefix(void **state) {
  struct fixture *f = *state;
  struct err err = ERR_NONE;
  const char *id;
  submit(f, RUN, 1, 0);
  submit(f, RUN2, 1, 0);
  assert_int_equal(coordinator_find_run(f->coordinator, "mlp-b", &id, &err), 0);
  assert_string_equal(id, RUN2);
  assert_int_equal(coordinator_find_run(f->coordinator, "mlp", &id, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, RUN));
  assert_non_null(strstr(err.text, RUN2));
  assert_int_equal(coordinator_find_run(f->coordinator, "cnn", &id, &err), ERR_NOT_FOUND);
  assert_int_equal(coordinator_find_run(f->coordinator, "", &id, &err), ERR_INVALID);
}

static void a_hello_without_a_role_is_turned_away(void **state) {
  struct fixture *f = *state;
  join(f, W1, WEIR__ROLE__ROLE_UNKNOWN, 1, "");
  assert_true(f->told[W1].is_closed);
  assert_int_equal(worker_row(f, W1).pid, 0);
}

/* A cluster of random fate: members come, load, lie, report, drain and vanish; runs are submitted and
   cancelled. take_view and take_order check on the way that every view assigns every microbatch once, that
   view numbers grow, and that nobody is told anything after leaving. */
static void a_random_cluster_step(struct fixture *f, uint64_t seed, uint64_t at, uint64_t *next_key,
                                  int *runs) {
  uint64_t dice = random_bits(seed, at * 4), pick = random_bits(seed, at * 4 + 1),
           extra = random_bits(seed, at * 4 + 2);
  uint64_t key = 1 + pick % (*next_key - 1);
  char run[64];
  snprintf(run, sizeof run, "mlp-%06llu", (unsigned long long)(extra % (uint64_t)(*runs ? *runs : 1)));
  f->now_ms += random_bits(seed, at * 4 + 3) % 700;
  switch (dice % 16) {
  case 0:
  case 1:
    if (*next_key < MEMBERS)
      join(f, (*next_key)++, extra % 4 == 0 ? WEIR__ROLE__SERVER : WEIR__ROLE__WORKER, (uint32_t)(extra % 5),
           "build-1");
    break;
  case 2:
    if (extra % 4 == 0)
      leave(f, key);
    break;
  case 3:
    drains(f, key);
    break;
  case 4:
    if (*runs < 20) {
      snprintf(run, sizeof run, "mlp-%06d", (*runs)++);
      submit(f, run, 1 + (uint32_t)(extra % 3), extra % 2 ? 0 : 3);
    }
    break;
  case 5:
    if (extra % 8 == 0)
      cancel(f, run);
    break;
  case 6:
    refuses(f, key, f->told[key].load, "no", extra % 2);
    break;
  case 7:
    completes(f, key, run);
    break;
  case 8:
    writes(f, key, run, 0, BLOCKS, extra % 5 ? "" : "disk full");
    break;
  case 9:
    commits(f, run, extra % 3 ? NULL : "corrupt");
    break;
  case 10:
    reports_step(f, key, run, extra % STEPS);
    break;
  case 11:
    tick(f);
    break;
  default:
    loads(f, key, f->told[key].load, extra % 9 ? "data" : "other", SAMPLES);
    for (uint64_t i = 1; i < *next_key; i++)
      beat(f, i);
  }
}

static void a_random_cluster_keeps_its_promises(void **state) {
  int running = 0;
  (void)state;
  for (uint64_t seed = 0; seed < 60; seed++) {
    struct fixture *f;
    uint64_t next_key = 1;
    int runs = 0;
    setup((void **)&f);
    server_joins(f, next_key++);
    for (uint64_t at = 0; at < 600; at++) {
      a_random_cluster_step(f, seed, at, &next_key, &runs);
      running += f->covered > 0;
    }
    teardown((void **)&f);
  }
  assert_true(running > 1000); /* the dice did make clusters that train */
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_run_goes_from_queue_to_done),
      TEST(events_are_numbered_and_end_with_done),
      TEST(the_last_evaluation_is_awaited),
      TEST(a_lost_worker_leaves_its_work_to_the_others),
      TEST(a_silent_member_is_closed_and_replaced),
      TEST(a_joiner_loads_and_gets_work),
      TEST(a_drained_worker_hands_over_then_unloads),
      TEST(a_run_without_workers_waits_and_goes_on),
      TEST(a_worker_that_differs_is_refused_with_both_sides_named),
      TEST(bad_input_fails_the_run_once_nobody_may_think_otherwise),
      TEST(a_machine_that_cannot_is_not_bad_input),
      TEST(too_little_data_is_bad_input),
      TEST(a_lost_server_fails_the_run_by_name),
      TEST(a_server_that_refuses_fails_the_run),
      TEST(a_checkpoint_that_fails_fails_the_run),
      TEST(blocks_that_nobody_or_two_wrote_fail_the_run),
      TEST(a_cancelled_run_lets_everyone_go),
      TEST(runs_take_workers_in_the_order_of_submission),
      TEST(a_run_that_needs_many_is_not_starved_by_those_behind_it),
      TEST(a_run_is_found_by_a_unique_prefix),
      TEST(a_hello_without_a_role_is_turned_away),
      TEST(a_random_cluster_keeps_its_promises),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
