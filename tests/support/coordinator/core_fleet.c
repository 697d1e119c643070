#include "tests/support/coordinator/core_fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/agree/labels.h"
#include "common/agree/spec.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/forks/fork_terms.h"

enum { SAMPLES = 1 << 20, STEPS = 10000000 };

static const uint32_t block_elems[] = {1000, 2000, 3000, 500, 40};

static double cpu_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static struct fleet_answer *answer_add(struct fleet *fleet, uint64_t member, const char *run) {
  struct fleet_answer *answer;
  array_reserve((void **)&fleet->answers, &fleet->answers_capacity, fleet->n_answers, sizeof *fleet->answers);
  answer = &fleet->answers[fleet->n_answers++];
  *answer = (struct fleet_answer){.member = member};
  snprintf(answer->run, sizeof answer->run, "%s", run);
  return answer;
}

static void note_answers(struct fleet *fleet) {
  for (int i = 0; i < fleet->actions.count; i++) {
    const struct coordinator_action *action = &fleet->actions.items[i];
    struct fleet_answer *answer;
    if (action->kind == ACTION_SAVE && action->is_awaited) {
      answer = answer_add(fleet, 0, action->record->run);
      answer->incarnation = action->record->incarnation;
      answer->state = action->record->state;
    } else if (action->kind == ACTION_ORDER && action->order->body_case == WEIR__ORDER__BODY_LOAD) {
      answer = answer_add(fleet, action->member, action->order->load->run);
      answer->incarnation = action->order->load->incarnation;
    }
  }
}

static double event_take(struct fleet *fleet, const struct coordinator_event *event) {
  double begin_us = cpu_us(), us;
  coordinator_step(fleet->core, event, fleet->now_ms, &fleet->actions);
  us = cpu_us() - begin_us;
  note_answers(fleet);
  return us;
}

static void answer_take(struct fleet *fleet, const struct fleet_answer *answer) {
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  struct coordinator_event saved = {.kind = EVENT_RUN_SAVED,
                                    .saved = {answer->run, answer->incarnation, answer->state}};
  struct coordinator_event told = {
      .kind = EVENT_MEMBER_MESSAGE, .member = answer->member, .message = &message};
  loaded.run = (char *)answer->run;
  loaded.incarnation = answer->incarnation;
  loaded.train_samples = SAMPLES;
  loaded.dataset_sha256 = "data";
  loaded.probe_sha256 = "probe";
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_LOADED;
  message.loaded = &loaded;
  event_take(fleet, answer->member ? &told : &saved);
}

static void fleet_step(struct fleet *fleet, const struct coordinator_event *event) {
  fleet->us = event_take(fleet, event);
  for (int i = 0; i < fleet->n_answers; i++) {
    struct fleet_answer answer = fleet->answers[i]; /* more may come */
    answer_take(fleet, &answer);
  }
  fleet->n_answers = 0;
}

void fleet_init(struct fleet *fleet) {
  struct coordinator_options options = {.term = 1, .missing_after_ms = 5000, .server_grace_ms = 3000};
  *fleet = (struct fleet){.now_ms = 1000};
  fleet->core = coordinator_new(&options);
  fleet_ticks(fleet, 0);
}

void fleet_fini(struct fleet *fleet) {
  coordinator_free(fleet->core);
  coordinator_actions_fini(&fleet->actions);
  free(fleet->answers);
}

static uint64_t fleet_joins(struct fleet *fleet, bool is_server, struct labels labels) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  struct coordinator_event event = {.kind = EVENT_MEMBER_JOINED, .member = ++fleet->keys, .hello = &hello};
  char host[32], address[64];
  snprintf(host, sizeof host, "node-%llu.cluster", (unsigned long long)event.member);
  snprintf(address, sizeof address, "%s:7071", host);
  hello.role = is_server ? WEIR__ROLE__SERVER : WEIR__ROLE__WORKER;
  hello.host = host;
  hello.address = is_server ? address : "";
  hello.pid = (uint32_t)event.member;
  hello.device = "cpu";
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.labels = labels.list;
  hello.n_labels = labels.n;
  fleet_step(fleet, &event);
  return event.member;
}

uint64_t fleet_server_joins(struct fleet *fleet) {
  return fleet_joins(fleet, true, (struct labels){0});
}

uint64_t fleet_worker_joins(struct fleet *fleet, const char *label) {
  struct labels labels = {0};
  struct err err = ERR_NONE;
  uint64_t key;
  CHECK(!label || labels_read(&labels, label, &err) == 0);
  key = fleet_joins(fleet, false, labels);
  labels_free(&labels);
  return key;
}

void fleet_leaves(struct fleet *fleet, uint64_t key) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_LEFT, .member = key, .reason = "connection reset"};
  fleet_step(fleet, &event);
}

const char *fleet_run(int run, char id[64]) {
  snprintf(id, 64, "mlp-%06d", run);
  return id;
}

static void submit(struct fleet *fleet, const char *more, struct run_origin origin,
                   const struct run_inheritance *inheritance) {
  char text[1024], id[64];
  struct err err = ERR_NONE;
  struct run_submission submission = {.id = fleet_run(fleet->submitted++, id),
                                      .model_bytes = 1000,
                                      .model_sha256 = "feed",
                                      .parameters = 6540,
                                      .block_elems = block_elems,
                                      .n_blocks = sizeof block_elems / sizeof *block_elems,
                                      .origin = origin,
                                      .inheritance = inheritance};
  struct coordinator_event event = {.kind = EVENT_RUN_SUBMITTED, .submission = &submission};
  Weir__RunSpec *spec = NULL;
  snprintf(text, sizeof text,
           "name: mlp\nmodel: {onnx: mlp.onnx, loss: cross_entropy}\n"
           "data: {train: {format: idx, images: i, labels: l}}\n"
           "train: {steps: %d, batch: 4096, microbatches: 64, optimizer: {name: sgd, lr: 0.1}}\n"
           "checkpoint: {every_seconds: 1000000}\n%s",
           STEPS, more);
  CHECK(spec_read("spec", text, strlen(text), &spec, &err) == 0 && spec_check(spec, &err) == 0);
  submission.spec = spec;
  fleet_step(fleet, &event);
  spec_free(spec);
}

void fleet_submits(struct fleet *fleet, const char *more) {
  submit(fleet, more, (struct run_origin){0}, NULL);
}

void fleet_forks(struct fleet *fleet, int parent, uint64_t step) {
  char id[64];
  struct run_origin origin = {
      .parent = fleet_run(parent, id), .step = step, .incarnation = INCARNATION_UNKNOWN, .is_to_come = true};
  struct fork_terms terms;
  fork_terms_init(&terms, SAMPLES, STEPS, &origin);
  submit(fleet, "", origin, &terms.inheritance);
}

void fleet_cancels(struct fleet *fleet, int run) {
  char id[64];
  struct coordinator_event event = {.kind = EVENT_RUN_CANCELLED, .run = fleet_run(run, id)};
  fleet_step(fleet, &event);
}

static void fleet_says(struct fleet *fleet, uint64_t key, Weir__MemberMessage *message) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_MESSAGE, .member = key, .message = message};
  fleet_step(fleet, &event);
}

void fleet_beats(struct fleet *fleet, uint64_t key) {
  Weir__Heartbeat heartbeat = WEIR__HEARTBEAT__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT;
  message.heartbeat = &heartbeat;
  fleet_says(fleet, key, &message);
}

void fleet_ticks(struct fleet *fleet, uint64_t ms) {
  fleet->now_ms += ms;
  fleet_step(fleet, &(struct coordinator_event){.kind = EVENT_TICK});
}

void fleet_reports_step(struct fleet *fleet, int run) {
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  Weir__RunInfo info;
  char id[64];
  CHECK(coordinator_run_info(fleet->core, fleet_run(run, id), fleet->now_ms, &info));
  report.run = id;
  report.step = info.step;
  report.loss = 1;
  message.body_case = WEIR__MEMBER_MESSAGE__BODY_STEP;
  message.step = &report;
  fleet_says(fleet, 1, &message);
}

int fleet_count_runs(struct fleet *fleet, Weir__RunState state) {
  int count = 0;
  for (int i = 0; i < fleet->submitted; i++) {
    Weir__RunInfo info;
    char id[64];
    count += coordinator_run_info(fleet->core, fleet_run(i, id), fleet->now_ms, &info) && info.state == state;
  }
  return count;
}
