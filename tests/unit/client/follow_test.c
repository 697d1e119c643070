/* Submitting to and following a run of a scripted coordinator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/cluster/download.h"
#include "client/cluster/follow.h"
#include "client/cluster/stop.h"
#include "client/cluster/submission.h"
#include "common/agree/float_setting.h"
#include "tests/support/common/rpc_fixture.h"
#include "training.pb-c.h"

/* What the coordinator does; the rest is counted in the fixture: n_messages SubmitRequests, n_bytes of model.
 */
static struct script {
  Weir__RunState state; /* of GetRun */
  int breaks_after;     /* events, in the first stream; 0: it does not break */
  int n_events;         /* in all, the last is `done` */
  bool is_done_at_end;  /* GetRun says DONE once the last event was sent */
  bool never_ends;      /* no event, no end */
  bool is_renumbered; /* the second stream is a successor's: events from 1 on come again, by other numbers */
  uint64_t incarnation; /* of the second stream's steps */
  int paused_streams;   /* so many streams begin by saying that the run is paused, and end */
  Weir__RunState once;  /* event 0 says that the run was that, and others follow; 0: it does not */
  bool is_refused;      /* by the only worker: the first stream says that the run is loading */
  bool stop_pending;    /* of GetRun: the run has failed, which the second stream tells */
  int n_streams;
  uint64_t from[4]; /* of each stream */
} script;

static void get_run(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__RunRequest *request = message;
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  (void)bytes;
  if (strcmp(request->run, "unknown") == 0) {
    rpc_call_fail(call, ERR_NOT_FOUND, "no run is named '%s'", request->run);
    return;
  }
  info.run = (char *)"a-123456";
  info.state = script.state;
  info.message = (char *)"all samples are alike";
  info.bad_input = true;
  info.stop_pending = script.stop_pending;
  rpc_call_reply(call, &info, NULL);
}

static void list_workers(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  Weir__ListWorkersReply reply = WEIR__LIST_WORKERS_REPLY__INIT;
  Weir__WorkerInfo worker = WEIR__WORKER_INFO__INIT;
  (void)message;
  (void)bytes;
  worker.id = (char *)"worker-1";
  worker.state = (char *)"refused";
  worker.message = (char *)"out of memory";
  reply.n_workers = 1;
  reply.workers = (Weir__WorkerInfo *[]){&worker};
  rpc_call_reply(call, &reply, NULL);
}

static void send_state(struct rpc_call *call, Weir__RunState state) {
  Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
  Weir__RunInfo info = WEIR__RUN_INFO__INIT;
  info.run = (char *)"a-123456";
  info.state = state;
  event.event_case = WEIR__RUN_EVENT__EVENT_INFO;
  event.info = &info;
  rpc_call_send(call, &event, NULL);
}

static void watch_refused(struct rpc_call *call, int stream) {
  if (stream == 0) {
    send_state(call, WEIR__RUN_STATE__LOADING);
  } else {
    script.state = WEIR__RUN_STATE__FAILED;
    script.stop_pending = false;
  }
  rpc_call_finish(call, NULL);
}

static void watch(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const Weir__WatchRequest *request = message;
  int stream = script.n_streams++;
  int first = stream > 0 && script.is_renumbered ? 1 : (int)request->from;
  (void)bytes;
  script.from[stream] = request->from;
  if (script.never_ends) {
    rpc_fixture_park(rpc_call_context(call), call);
    return;
  }
  if (stream < script.paused_streams) {
    send_state(call, WEIR__RUN_STATE__PAUSED);
    rpc_call_finish(call, NULL);
    return;
  }
  if (script.is_refused) {
    watch_refused(call, stream);
    return;
  }
  if (script.once && first == 0)
    send_state(call, script.once), first++;
  for (int i = first; i < script.n_events; i++) {
    Weir__RunEvent event = WEIR__RUN_EVENT__INIT;
    Weir__StepEvent step = WEIR__STEP_EVENT__INIT;
    Weir__DoneEvent done = WEIR__DONE_EVENT__INIT;
    if (stream == 0 && script.breaks_after && i == script.breaks_after) {
      rpc_call_fail(call, ERR_UNAVAILABLE, "restarting");
      return;
    }
    event.number = (stream > 0 && script.is_renumbered ? UINT64_C(1) << 32 : 0) + (uint64_t)i;
    step.step = (uint64_t)i;
    step.incarnation = stream > 0 ? script.incarnation : 0;
    done.samples_per_second = 77;
    event.event_case = i + 1 < script.n_events ? WEIR__RUN_EVENT__EVENT_STEP : WEIR__RUN_EVENT__EVENT_DONE;
    if (event.event_case == WEIR__RUN_EVENT__EVENT_STEP)
      event.step = &step;
    else
      event.done = &done;
    if (event.event_case == WEIR__RUN_EVENT__EVENT_DONE && script.is_done_at_end)
      script.state = WEIR__RUN_STATE__DONE;
    rpc_call_send(call, &event, NULL);
  }
  rpc_call_finish(call, NULL);
}

static void submit_message(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  struct rpc_fixture *f = rpc_call_context(call);
  const Weir__SubmitRequest *request = message;
  (void)bytes;
  f->n_bytes += request->chunk.len;
  rpc_fixture_count(f, &f->n_messages);
}

static void submit_end(struct rpc_call *call) {
  Weir__SubmitReply reply = WEIR__SUBMIT_REPLY__INIT;
  reply.run = (char *)"a-123456";
  rpc_call_reply(call, &reply, NULL);
}

static void get_weights(struct rpc_call *call, const void *message, struct rpc_bytes *bytes) {
  const float values[] = {1, 2, 3, 4, 5};
  Weir__Chunk chunk = WEIR__CHUNK__INIT;
  (void)message;
  (void)bytes;
  chunk.data.data = (uint8_t *)values;
  chunk.data.len = 7; /* cuts a float in two */
  rpc_call_send(call, &chunk, NULL);
  chunk.data.data += 7;
  chunk.data.len = sizeof values - 7;
  rpc_call_send(call, &chunk, NULL);
  rpc_call_finish(call, NULL);
}

static const struct rpc_method methods[] = {
    {.id = RPC_GET_RUN, .on_message = get_run},
    {.id = RPC_WATCH, .on_message = watch},
    {.id = RPC_LIST_WORKERS, .on_message = list_workers},
    {.id = RPC_SUBMIT, .is_request_stream = true, .on_message = submit_message, .on_half_close = submit_end},
    {.id = RPC_GET_WEIGHTS, .on_message = get_weights},
};

static struct rpc_fixture fixture;
static struct connection connection;

static int begin(void **state) {
  struct err err = ERR_NONE;
  (void)state;
  script = (struct script){.state = WEIR__RUN_STATE__DONE, .n_events = 6};
  rpc_fixture_init(&fixture, methods, sizeof methods / sizeof *methods);
  return connection_open(&connection, fixture.target, &(const struct rpc_security){0}, &err);
}

static int end(void **state) {
  (void)state;
  connection_close(&connection);
  for (int i = 0; i < fixture.n_parked; i++)
    rpc_call_finish(fixture.parked[i], NULL);
  rpc_fixture_fini(&fixture);
  return 0;
}

static int follow_to(struct follow_options *options, struct follow_result *result, struct err *err) {
  options->file = fopen("/dev/null", "w");
  *err = ERR_NONE;
  follow(options, result, err);
  fclose(options->file);
  return err->code;
}

static int follow_quietly(const char *run, struct metrics *metrics, struct follow_result *result,
                          struct err *err) {
  struct follow_options options = {.connection = &connection, .run = run, .metrics = {metrics}};
  return follow_to(&options, result, err);
}

/* Follows with a metrics file of its own; returns what that holds. Freed by the caller. */
static char *followed_metrics_of(bool ends_when_paused) {
  char path[] = "/tmp/weir-follow-XXXXXX", *text = calloc(1, 65536);
  struct follow_result result;
  struct metrics *metrics;
  struct err err = ERR_NONE;
  FILE *file;
  close(mkstemp(path));
  assert_int_equal(metrics_open(path, false, &metrics, &err), ERR_OK);
  assert_int_equal(follow_to(&(struct follow_options){.connection = &connection,
                                                      .run = "a",
                                                      .metrics = {metrics},
                                                      .ends_when_paused = ends_when_paused},
                             &result, &err),
                   ERR_OK);
  metrics_close(metrics);
  assert_int_equal(result.info->state, WEIR__RUN_STATE__DONE);
  assert_true(result.samples_per_second == 77);
  assert_int_equal(follow_exit(&result), 0);
  follow_result_fini(&result);
  file = fopen(path, "r");
  assert_true(fread(text, 1, 65535, file) > 0);
  fclose(file);
  remove(path);
  return text;
}

static char *followed_metrics(void) {
  return followed_metrics_of(false);
}

/* The steps of a metrics file, as "0 1 2+1 done": a step, and its incarnation where it has one. */
static const char *steps_of(const char *metrics) {
  static char list[1024];
  list[0] = '\0';
  for (const char *line = metrics; *line; line = strchr(line, '\n') + 1) {
    unsigned step, incarnation;
    const char *key = strstr(line, "\"incarnation\":");
    char *end = list + strlen(list);
    if (sscanf(line, "{\"event\":\"step\",\"step\":%u,", &step) != 1)
      sprintf(end, "done");
    else if (key && key < strchr(line, '\n') && sscanf(key, "\"incarnation\":%u", &incarnation) == 1)
      sprintf(end, "%u+%u ", step, incarnation);
    else
      sprintf(end, "%u ", step);
  }
  return list;
}

static void every_event_is_recorded_once_though_the_stream_breaks(void **state) {
  char *metrics;
  (void)state;
  script.breaks_after = 3;
  metrics = followed_metrics();
  assert_int_equal(script.n_streams, 2);
  assert_int_equal(script.from[1], 3);
  assert_string_equal(steps_of(metrics), "0 1 2 3 4 done");
  free(metrics);
}

static void events_that_come_again_from_a_successor_are_recorded_once(void **state) {
  char *metrics;
  (void)state;
  script.breaks_after = 3;
  script.is_renumbered = true;
  metrics = followed_metrics();
  assert_string_equal(steps_of(metrics), "0 1 2 3 4 done");
  free(metrics);
}

static void steps_after_a_roll_back_are_recorded_again(void **state) {
  char *metrics;
  (void)state;
  script.breaks_after = 3;
  script.is_renumbered = true;
  script.incarnation = 1;
  metrics = followed_metrics();
  assert_string_equal(steps_of(metrics), "0 1 2 1+1 2+1 3+1 4+1 done");
  free(metrics);
}

/* GetRun says DONE: what an old event says of a pause is no end. */
static void a_run_that_was_paused_once_is_followed_on(void **state) {
  struct follow_result result;
  FILE *nowhere = fopen("/dev/null", "w");
  struct err err = ERR_NONE;
  struct follow_options options = {.connection = &connection, .run = "a", .file = nowhere};
  (void)state;
  script.state = WEIR__RUN_STATE__PAUSED;
  script.paused_streams = 2;
  options.ends_when_paused = true;
  assert_int_equal(follow(&options, &result, &err), ERR_OK);
  assert_int_equal(result.info->state, WEIR__RUN_STATE__PAUSED);
  assert_int_equal(script.n_streams, 1);
  assert_int_equal(follow_exit(&result), 1);
  follow_result_fini(&result);
  options.ends_when_paused = false;
  script.is_done_at_end = true;
  assert_int_equal(follow(&options, &result, &err), ERR_OK);
  assert_int_equal(result.info->state, WEIR__RUN_STATE__DONE);
  assert_int_equal(script.n_streams, 3);
  follow_result_fini(&result);
  fclose(nowhere);
}

static void a_run_that_was_stopped_has_a_result(void **state) {
  struct follow_result result;
  FILE *nowhere = fopen("/dev/null", "w");
  struct err err = ERR_NONE;
  struct follow_options options = {.connection = &connection, .run = "a", .file = nowhere};
  (void)state;
  script = (struct script){.state = WEIR__RUN_STATE__STOPPED, .n_events = 3};
  assert_int_equal(follow(&options, &result, &err), ERR_OK);
  assert_int_equal(result.info->state, WEIR__RUN_STATE__STOPPED);
  assert_int_equal(follow_exit(&result), 0);
  assert_true(follow_has_result(WEIR__RUN_STATE__DONE) && !follow_has_result(WEIR__RUN_STATE__HELD));
  follow_result_fini(&result);
  fclose(nowhere);
}

/* Whoever comes when all is over gets what came after, too. */
static void what_came_after_a_run_was_resumed_is_recorded(void **state) {
  static const Weir__RunState states[] = {WEIR__RUN_STATE__FAILED, WEIR__RUN_STATE__CANCELLED,
                                          WEIR__RUN_STATE__PAUSED, WEIR__RUN_STATE__PAUSED};
  (void)state;
  for (int i = 0; i < 4; i++) {
    char *metrics;
    script = (struct script){.state = WEIR__RUN_STATE__DONE, .n_events = 6, .once = states[i]};
    metrics = followed_metrics_of(i % 2 > 0);
    assert_string_equal(steps_of(metrics), "1 2 3 4 done");
    free(metrics);
  }
}

static void following_ends_at_its_deadline(void **state) {
  struct follow_result result;
  FILE *nowhere = fopen("/dev/null", "w");
  struct err err = ERR_NONE;
  struct follow_options options = {
      .connection = &connection, .run = "a", .file = nowhere, .deadline_ms = 200};
  (void)state;
  script.never_ends = true;
  script.state = WEIR__RUN_STATE__RUNNING;
  assert_int_equal(follow(&options, &result, &err), ERR_TIMEOUT);
  follow_result_fini(&result);
  fclose(nowhere);
}

static void a_failed_run_exits_by_whose_fault_it_was(void **state) {
  struct follow_result result;
  struct err err;
  (void)state;
  script.state = WEIR__RUN_STATE__FAILED;
  assert_int_equal(follow_quietly("a", NULL, &result, &err), ERR_OK);
  assert_int_equal(follow_exit(&result), 2);
  result.info->bad_input = false;
  assert_int_equal(follow_exit(&result), 1);
  follow_result_fini(&result);
}

/* The state that is told and the worker's row are the same in both cases. */
static void a_run_that_all_have_refused_waits_in_vain_unless_it_has_stopped(void **state) {
  struct follow_options options = {.connection = &connection, .run = "a", .all_workers = 1};
  struct follow_result result;
  struct err err;
  (void)state;
  script = (struct script){.state = WEIR__RUN_STATE__LOADING, .is_refused = true};
  assert_int_equal(follow_to(&options, &result, &err), ERR_INVALID);
  assert_string_equal(err.text, "run 'a-123456': worker-1 refused: out of memory");
  follow_result_fini(&result);
  script = (struct script){.state = WEIR__RUN_STATE__LOADING, .is_refused = true, .stop_pending = true};
  assert_int_equal(follow_to(&options, &result, &err), ERR_OK);
  assert_int_equal(result.info->state, WEIR__RUN_STATE__FAILED);
  assert_int_equal(follow_exit(&result), 2);
  follow_result_fini(&result);
}

static void an_unknown_run_is_an_error(void **state) {
  struct follow_result result;
  struct err err;
  (void)state;
  assert_int_equal(follow_quietly("unknown", NULL, &result, &err), ERR_NOT_FOUND);
  follow_result_fini(&result);
}

static void unwritable_metrics_are_reported_at_the_end(void **state) {
  struct follow_result result;
  struct metrics *metrics;
  struct err err = ERR_NONE;
  (void)state;
  assert_int_equal(metrics_open("/dev/full", false, &metrics, &err), ERR_OK);
  assert_int_equal(follow_quietly("a", metrics, &result, &err), ERR_IO);
  assert_int_equal(result.info->state, WEIR__RUN_STATE__DONE);
  metrics_close(metrics);
  follow_result_fini(&result);
}

static void a_model_is_sent_in_chunks(void **state) {
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  struct submission submission = {.spec = &spec, .onnx_size = 2 * RPC_CHUNK_BYTES + 5};
  struct err err = ERR_NONE;
  char *run = NULL;
  (void)state;
  submission.onnx = calloc(1, submission.onnx_size);
  assert_int_equal(submission_send(&submission, &connection, &run, &err), ERR_OK);
  assert_string_equal(run, "a-123456");
  assert_int_equal(fixture.n_messages, 4);
  assert_int_equal(fixture.n_bytes, submission.onnx_size);
  free(run);
  free(submission.onnx);
}

static void weights_are_parted_into_parameters_and_state(void **state) {
  Weir__WeightsRequest request = WEIR__WEIGHTS_REQUEST__INIT;
  struct trained_weights weights;
  struct err err = ERR_NONE;
  (void)state;
  request.run = (char *)"a";
  assert_int_equal(download_weights(&connection, &request, 3, &weights, &err), ERR_OK);
  assert_int_equal(weights.n_state, 2);
  assert_true(weights.params[2] == 3 && weights.state[0] == 4 && weights.state[1] == 5);
  download_fini(&weights);
  assert_int_equal(download_weights(&connection, &request, 6, &weights, &err), ERR_CORRUPT);
  download_fini(&weights);
}

static void *stop_when_watched(void *arg) {
  rpc_fixture_wait(&fixture, &fixture.n_parked, 1);
  stop_request(STOP_SIGNAL);
  return arg;
}

/* The last test: a stop stays. */
static void a_stop_ends_the_following_of_a_silent_run(void **state) {
  struct follow_result result;
  struct err err;
  pthread_t thread;
  (void)state;
  script.never_ends = true;
  pthread_create(&thread, NULL, stop_when_watched, NULL);
  assert_int_equal(follow_quietly("a", NULL, &result, &err), ERR_CANCELLED);
  pthread_join(thread, NULL);
  follow_result_fini(&result);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(every_event_is_recorded_once_though_the_stream_breaks, begin, end),
      cmocka_unit_test_setup_teardown(events_that_come_again_from_a_successor_are_recorded_once, begin, end),
      cmocka_unit_test_setup_teardown(steps_after_a_roll_back_are_recorded_again, begin, end),
      cmocka_unit_test_setup_teardown(a_run_that_was_paused_once_is_followed_on, begin, end),
      cmocka_unit_test_setup_teardown(a_run_that_was_stopped_has_a_result, begin, end),
      cmocka_unit_test_setup_teardown(what_came_after_a_run_was_resumed_is_recorded, begin, end),
      cmocka_unit_test_setup_teardown(following_ends_at_its_deadline, begin, end),
      cmocka_unit_test_setup_teardown(a_failed_run_exits_by_whose_fault_it_was, begin, end),
      cmocka_unit_test_setup_teardown(a_run_that_all_have_refused_waits_in_vain_unless_it_has_stopped, begin,
                                      end),
      cmocka_unit_test_setup_teardown(an_unknown_run_is_an_error, begin, end),
      cmocka_unit_test_setup_teardown(unwritable_metrics_are_reported_at_the_end, begin, end),
      cmocka_unit_test_setup_teardown(a_model_is_sent_in_chunks, begin, end),
      cmocka_unit_test_setup_teardown(weights_are_parted_into_parameters_and_state, begin, end),
      cmocka_unit_test_setup_teardown(a_stop_ends_the_following_of_a_silent_run, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
