#include "tests/support/coordinator/core_crowd.h"

#include <stdio.h>
#include <string.h>

#include "common/agree/spec.h"
#include "server/coordinator/messages/info.h"

enum { SAMPLES = 1 << 20 };

static const uint32_t block_elems[] = {1000, 2000, 3000, 500, 40};

static void crowd_step(struct crowd *crowd, const struct coordinator_event *event) {
  coordinator_step(crowd->core, event, crowd->now_ms, &crowd->actions);
  crowd->orders = crowd->views = crowd->view_bytes = 0;
  for (int i = 0; i < crowd->actions.count; i++) {
    const struct coordinator_action *action = &crowd->actions.items[i];
    struct coordinator_event saved = {.kind = EVENT_RUN_SAVED};
    if (action->kind == ACTION_SAVE && action->is_awaited) {
      saved.saved.run = CROWD_RUN;
      saved.saved.incarnation = action->record->incarnation;
      saved.saved.state = action->record->state;
      crowd_step(crowd, &saved);
      return;
    }
    crowd->orders += action->kind == ACTION_ORDER;
    if (action->kind != ACTION_ORDER || action->order->body_case != WEIR__ORDER__BODY_VIEW)
      continue;
    crowd->views++;
    crowd->view_bytes += weir__order__get_packed_size(action->order);
  }
}

void crowd_says(struct crowd *crowd, uint64_t key, Weir__MemberMessage__BodyCase body, void *content) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  struct coordinator_event event = {.kind = EVENT_MEMBER_MESSAGE, .member = key, .message = &message};
  message.body_case = body;
  message.hello = content;
  crowd_step(crowd, &event);
}

void crowd_beats(struct crowd *crowd, uint64_t key, uint64_t computed, double busy_seconds) {
  Weir__RunCounters counters = WEIR__RUN_COUNTERS__INIT, *list = &counters;
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  counters.run = CROWD_RUN;
  counters.computed = computed;
  counters.busy_seconds = busy_seconds;
  heartbeat.runs = &list;
  heartbeat.n_runs = 1;
  crowd_says(crowd, key, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, &heartbeat);
}

void crowd_ticks(struct crowd *crowd, uint64_t ms) {
  crowd->now_ms += ms;
  crowd_step(crowd, &(struct coordinator_event){.kind = EVENT_TICK});
}

void crowd_reports_step(struct crowd *crowd, uint64_t step) {
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  report.run = CROWD_RUN;
  report.step = step;
  report.loss = 1;
  crowd_says(crowd, 1, WEIR__MEMBER_MESSAGE__BODY_STEP, &report);
}

void crowd_leaves(struct crowd *crowd, uint64_t key) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_LEFT, .member = key, .reason = "connection reset"};
  crowd_step(crowd, &event);
}

static void crowd_joins(struct crowd *crowd, uint64_t key, bool is_server) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct coordinator_event event = {.kind = EVENT_MEMBER_JOINED, .member = key, .hello = &hello};
  char host[32], address[64];
  snprintf(host, sizeof host, "node-%llu.cluster", (unsigned long long)key);
  snprintf(address, sizeof address, "%s:7071", host);
  hello.role = is_server ? WEIR__ROLE__SERVER : WEIR__ROLE__WORKER;
  hello.host = host;
  hello.address = is_server ? address : "";
  hello.pid = (uint32_t)key;
  hello.device = "cpu";
  hello.executors = 1;
  hello.fingerprint = "build-1";
  crowd_step(crowd, &event);
}

static void crowd_submits(struct crowd *crowd) {
  char text[1024];
  struct err err = ERR_NONE;
  struct run_submission submission = {.id = CROWD_RUN,
                                      .model_bytes = 1000,
                                      .model_sha256 = "feed",
                                      .parameters = 6540,
                                      .block_elems = block_elems,
                                      .n_blocks = sizeof block_elems / sizeof *block_elems};
  struct coordinator_event event = {.kind = EVENT_RUN_SUBMITTED, .submission = &submission};
  Weir__RunSpec *spec = NULL;
  snprintf(text, sizeof text,
           "name: mlp\nmodel: {onnx: mlp.onnx, loss: cross_entropy}\n"
           "data: {train: {format: idx, images: i, labels: l}}\n"
           "train: {steps: 1000000, batch: 4096, microbatches: 4096, optimizer: {name: sgd, lr: 0.1}}\n"
           "checkpoint: {every_seconds: 1000000}\nworkers: {min: %d}\n",
           crowd->workers);
  CHECK(spec_read("spec", text, strlen(text), &spec, &err) == 0 && spec_check(spec, &err) == 0);
  submission.spec = spec;
  crowd_step(crowd, &event);
  spec_free(spec);
}

static void crowd_loads(struct crowd *crowd, uint64_t key) {
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  loaded.run = CROWD_RUN;
  loaded.train_samples = SAMPLES;
  loaded.dataset_sha256 = "data";
  loaded.probe_sha256 = "probe";
  crowd_says(crowd, key, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
}

void crowd_init(struct crowd *crowd, int servers, int workers) {
  struct coordinator_options options = {.term = 1, .missing_after_ms = 5000, .server_grace_ms = 3000};
  Weir__RunInfo info;
  *crowd = (struct crowd){.now_ms = 1000, .servers = servers, .workers = workers};
  crowd->core = coordinator_new(&options);
  crowd_ticks(crowd, 0);
  for (int key = 1; key <= servers + workers; key++)
    crowd_joins(crowd, (uint64_t)key, key <= servers);
  crowd_submits(crowd);
  for (int key = servers + workers; key > 0; key--) /* servers last: the run begins with all workers */
    crowd_loads(crowd, (uint64_t)key);
  CHECK(coordinator_run_info(crowd->core, CROWD_RUN, crowd->now_ms, &info));
  CHECK(info.state == WEIR__RUN_STATE__RUNNING && info.workers == (uint32_t)workers);
}

void crowd_fini(struct crowd *crowd) {
  coordinator_free(crowd->core);
  coordinator_actions_fini(&crowd->actions);
}
