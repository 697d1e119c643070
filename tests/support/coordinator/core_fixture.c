#include "tests/support/coordinator/core_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/placement.h"
#include "common/base/message.h"
#include "server/coordinator/messages/info.h"
#include "tests/support/coordinator/core_given.h"
#include "tests/support/coordinator/core_reissue.h"

enum { AWAITED = 16 }; /* runs whose records are waited for in one event, at most */

const uint32_t fixture_block_elems[BLOCKS] = {100, 200, 300, 50, 4};
static const char sha256_of_blocks[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const char *const sha256_of_weights = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

/* A view says nothing but what its receiver and the members of its group are to compute. */
static void take_view(struct core_fixture *f, struct told *told, const Weir__View *view) {
  uint32_t end = 0;
  if (f->given_view != view->number || strcmp(f->given_run, view->run) != 0)
    given_check(f);
  f->given_view = view->number;
  snprintf(f->given_run, sizeof f->given_run, "%s", view->run);
  assert_int_equal(view->number >> 32, TERM);
  told->view = view->number & UINT32_MAX;
  told->view_incarnation = view->incarnation;
  told->hold = view->hold;
  told->view_number = view->number;
  told->view_workers = (uint32_t)view->n_workers;
  told->begin = told->end = told->group = told->team = told->place = told->follows = 0; /* unless named */
  for (size_t i = 0; i < view->n_servers; i++)
    assert_memory_equal(view->servers[i]->address, "host:", 5);
  for (size_t i = 0; i < view->n_workers; i++) {
    const Weir__Assignment *assignment = view->workers[i];
    assert_int_equal(assignment->group, view->workers[0]->group);
    assert_int_equal(assignment->team, view->workers[0]->team);
    if (assignment->team) { /* those of a team have the same, those of a group adjoin */
      assert_int_equal(assignment->microbatch_begin, view->workers[0]->microbatch_begin);
      assert_int_equal(assignment->microbatch_end, view->workers[0]->microbatch_end);
      assert_true(assignment->microbatch_begin < assignment->microbatch_end && *assignment->address);
    } else
      assert_true(i == 0 || assignment->microbatch_begin == end);
    end = assignment->microbatch_end;
    if (strcmp(assignment->worker, told->id) == 0) {
      told->group = assignment->group;
      told->team = assignment->team;
      told->place = (uint32_t)i;
      told->follows = assignment->follows;
      told->begin = assignment->microbatch_begin;
      told->end = assignment->microbatch_end;
    } else
      assert_int_not_equal(assignment->group + assignment->team, 0);
  }
  for (uint32_t m = told->begin; m < told->end && (told->team == 0 || told->place == 0); m++)
    f->given[m]++;
}

static void take_load(struct told *told, const Weir__LoadRun *load) {
  uint32_t owner[BLOCKS];
  snprintf(told->load, sizeof told->load, "%s", load->run);
  snprintf(told->manifest, sizeof told->manifest, "%s", load->manifest);
  snprintf(told->load_ticket, sizeof told->load_ticket, "%s", load->ticket);
  memset(told->key, 0, sizeof told->key);
  memcpy(told->key, load->key.len ? (const void *)load->key.data : "", load->key.len);
  memset(told->peer_key, 0, sizeof told->peer_key);
  memcpy(told->peer_key, load->peer_key.len ? (const void *)load->peer_key.data : "", load->peer_key.len);
  told->loads++;
  told->load_incarnation = load->incarnation;
  told->load_step = load->step;
  told->load_slots_step = load->slots_step;
  told->hold = load->hold;
  told->load_servers = (uint32_t)load->n_servers;
  snprintf(told->from, sizeof told->from, "%s", load->from ? load->from->run : "");
  told->from_incarnation = load->from ? load->from->incarnation : 0;
  told->from_step = load->from ? load->from->step : 0;
  told->load_has_plan = load->plan != NULL;
  told->stage_begin = load->stage_begin;
  told->stage_end = load->stage_end;
  if (load->n_servers == 0)
    return;
  placement_compute(fixture_block_elems, BLOCKS, told->load_servers, owner);
  for (int i = 0; i < BLOCKS; i++)
    told->owns[i] = strcmp(load->servers[owner[i]]->id, told->id) == 0;
}

static void take_order(struct core_fixture *f, uint64_t member, const Weir__Order *order) {
  struct told *told = &f->told[member];
  assert_true(told->is_member && !told->is_closed);
  assert_int_equal(order->term, TERM);
  told_seats_take(told->seats, told->id, order);
  switch (order->body_case) {
  case WEIR__ORDER__BODY_WELCOME:
    snprintf(told->id, sizeof told->id, "%s", order->welcome->id);
    break;
  case WEIR__ORDER__BODY_LOAD:
    take_load(told, order->load);
    break;
  case WEIR__ORDER__BODY_BEAT:
    told->beats++;
    break;
  case WEIR__ORDER__BODY_KEEP:
    snprintf(told->keep, sizeof told->keep, "%s", order->keep->run);
    told->keep_step = order->keep->step;
    told->hold = order->keep->hold;
    break;
  case WEIR__ORDER__BODY_HOLD:
    told->hold = order->hold->step;
    told->holds++;
    break;
  case WEIR__ORDER__BODY_VIEW:
    snprintf(told->view_ticket, sizeof told->view_ticket, "%s", order->view->ticket);
    snprintf(told->peer_ticket, sizeof told->peer_ticket, "%s", order->view->peer_ticket);
    take_view(f, told, order->view);
    break;
  case WEIR__ORDER__BODY_WRITE:
    told->write_step = order->write->step;
    told->writes++;
    break;
  case WEIR__ORDER__BODY_DRAIN:
  case WEIR__ORDER__BODY_NO_OTHER:
    ++*(order->body_case == WEIR__ORDER__BODY_DRAIN ? &told->drains : &told->no_others);
    break;
  case WEIR__ORDER__BODY_REISSUE:
    told_reissue(told, order->reissue);
    break;
  case WEIR__ORDER__BODY_UNLOAD:
    snprintf(told->unload, sizeof told->unload, "%s", order->unload->run);
    told->rests += order->unload->may_return;
    told->view = *told->load = 0;
    break;
  default:
    fail_msg("an order without a body");
  }
}

static void take_action(struct core_fixture *f, const struct coordinator_action *action) {
  switch (action->kind) {
  case ACTION_ORDER:
    take_order(f, action->member, action->order);
    break;
  case ACTION_CLOSE:
    f->told[action->member].is_closed = true;
    break;
  case ACTION_COMMIT:
    f->commits++;
    f->commit_step = action->manifest->step;
    f->commit_is_last = action->is_last;
    break;
  case ACTION_DROP:
    f->dropped[f->n_dropped++ % 16] = action->step;
    break;
  case ACTION_BASE:
    f->bases++;
    break;
  case ACTION_SAVE:
    f->saves++;
    break;
  case ACTION_RELEASE:
    f->releases++;
    break;
  case ACTION_PUBLISH:
    f->publishes++;
    break;
  case ACTION_MEMBERS:
    f->members++;
    break;
  case ACTION_DOUBT:
    f->doubts++;
    break;
  case ACTION_DEPOSED:
    f->deposed++;
    break;
  }
}

void store_saves(struct core_fixture *f, const char *run, uint64_t incarnation, Weir__RunState run_state) {
  struct coordinator_event event = {.kind = EVENT_RUN_SAVED, .saved = {run, incarnation, run_state}};
  core_step(f, &event);
}

void core_step(struct core_fixture *f, const struct coordinator_event *event) {
  Weir__RunRecord *awaited[AWAITED];
  int n_awaited = 0;
  coordinator_step(f->coordinator, event, f->now_ms, &f->actions);
  for (int i = 0; i < f->actions.count; i++) {
    const struct coordinator_action *action = &f->actions.items[i];
    take_action(f, action);
    if (action->kind != ACTION_SAVE || !action->is_awaited || f->is_store_away)
      continue;
    assert_true(n_awaited < AWAITED);
    awaited[n_awaited++] = message_copy(action->record);
  }
  given_check(f);
  for (int i = 0; i < n_awaited; i++) {
    store_saves(f, awaited[i]->run, awaited[i]->incarnation, awaited[i]->state);
    message_free(awaited[i]);
  }
}

void says_hello(struct core_fixture *f, uint64_t key, Weir__Hello *hello) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_JOINED, .member = key, .hello = hello};
  f->told[key].is_member = true;
  f->told[key].is_closed = false;
  core_step(f, &event);
}

void member_joins(struct core_fixture *f, uint64_t key, Weir__Role role, uint32_t executors,
                  const char *fingerprint) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  char address[32];
  snprintf(address, sizeof address, "host:%llu", (unsigned long long)key);
  hello.role = role;
  hello.host = "host";
  hello.pid = (uint32_t)key;
  hello.address = role == WEIR__ROLE__SERVER || f->stages ? address : "";
  hello.device = "cpu";
  hello.executors = executors;
  hello.fingerprint = (char *)fingerprint;
  hello.holder = (char *)(f->holder ? f->holder : "");
  hello.memory_bytes = role == WEIR__ROLE__SERVER ? f->memory_bytes : 0;
  says_hello(f, key, &hello);
}

static void joins_again(struct core_fixture *f, uint64_t from, uint64_t key, Weir__Role role,
                        Weir__HostedRun *hosted) {
  Weir__Hello hello = WEIR__HELLO__INIT;
  char address[32];
  snprintf(address, sizeof address, "host:%llu", (unsigned long long)from);
  hello.role = role;
  hello.host = "host";
  hello.pid = (uint32_t)from;
  hello.address = role == WEIR__ROLE__SERVER || f->stages ? address : "";
  hello.executors = 1;
  hello.fingerprint = "build-1";
  hello.holder = (char *)(f->holder ? f->holder : "");
  hello.id = f->told[from].id;
  hello.draining = f->told[from].drains > 0;
  hello.term = TERM;
  hello.runs = &hosted;
  hello.n_runs = 1;
  memcpy(f->told[key].owns, f->told[from].owns, sizeof f->told[key].owns);
  says_hello(f, key, &hello);
}

void worker_joins_again(struct core_fixture *f, uint64_t from, uint64_t key, const char *run) {
  Weir__HostedRun hosted = WEIR__HOSTED_RUN__INIT;
  hosted.run = (char *)run;
  hosted.stage_begin = f->told[from].stage_begin;
  hosted.stage_end = f->told[from].stage_end;
  joins_again(f, from, key, WEIR__ROLE__WORKER, &hosted);
}

void server_joins_again(struct core_fixture *f, uint64_t from, uint64_t key, const char *run,
                        uint64_t version) {
  Weir__HostedRun hosted = WEIR__HOSTED_RUN__INIT;
  hosted.run = (char *)run;
  hosted.version = version;
  hosted.hold = f->hosted_hold;
  joins_again(f, from, key, WEIR__ROLE__SERVER, &hosted);
}

void worker_joins(struct core_fixture *f, uint64_t key, uint32_t executors) {
  member_joins(f, key, WEIR__ROLE__WORKER, executors, "build-1");
}

void server_joins(struct core_fixture *f, uint64_t key) {
  member_joins(f, key, WEIR__ROLE__SERVER, 0, "build-1");
}

void member_leaves(struct core_fixture *f, uint64_t key) {
  struct coordinator_event event = {.kind = EVENT_MEMBER_LEFT, .member = key, .reason = "connection reset"};
  f->told[key].is_closed = true;
  core_step(f, &event);
}

void member_says(struct core_fixture *f, uint64_t key, Weir__MemberMessage__BodyCase body, void *content) {
  Weir__MemberMessage message = WEIR__MEMBER_MESSAGE__INIT;
  struct coordinator_event event = {.kind = EVENT_MEMBER_MESSAGE, .member = key, .message = &message};
  message.body_case = body;
  message.hello = content;
  core_step(f, &event);
}

void member_beats(struct core_fixture *f, uint64_t key) {
  member_tells(f, key, NULL);
}

void member_tells(struct core_fixture *f, uint64_t key, Weir__RunCounters *counters) {
  Weir__Heartbeat beat = {PROTOBUF_C_MESSAGE_INIT(&weir__heartbeat__descriptor), counters != NULL, &counters};
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_HEARTBEAT, &beat);
}

void member_counts(struct core_fixture *f, uint64_t key, const char *run, uint64_t computed,
                   double busy_seconds) {
  Weir__RunCounters counters = WEIR__RUN_COUNTERS__INIT;
  counters.run = (char *)run;
  counters.incarnation = f->incarnation;
  counters.computed = computed;
  counters.busy_seconds = busy_seconds;
  counters.received_bytes = f->received_bytes;
  member_tells(f, key, &counters);
}

void core_ticks(struct core_fixture *f) {
  struct coordinator_event event = {.kind = EVENT_TICK};
  core_step(f, &event);
}

void time_passes(struct core_fixture *f, uint64_t ms) {
  for (uint64_t end_ms = f->now_ms + ms; f->now_ms < end_ms; core_ticks(f))
    f->now_ms += end_ms - f->now_ms < 100 ? end_ms - f->now_ms : 100;
}

static Weir__RunLoaded loaded_of(struct core_fixture *f, uint64_t key, const char *run, const char *dataset) {
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  loaded.stage_begin = f->told[key].stage_begin;
  loaded.stage_end = f->told[key].stage_end;
  loaded.run = (char *)run;
  loaded.incarnation = f->incarnation;
  loaded.train_samples = SAMPLES;
  loaded.eval_samples = f->evaluates ? SAMPLES : 0;
  loaded.dataset_sha256 = (char *)dataset;
  loaded.probe_sha256 = "probe";
  return loaded;
}

void loads_and_probes(struct core_fixture *f, uint64_t key, const char *run, const char *dataset,
                      const char *probe) {
  Weir__RunLoaded loaded = loaded_of(f, key, run, dataset);
  loaded.probe_sha256 = (char *)probe;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
}

void member_loads(struct core_fixture *f, uint64_t key, const char *run, const char *dataset,
                  uint64_t samples) {
  Weir__RunLoaded loaded = loaded_of(f, key, run, dataset);
  loaded.train_samples = samples;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
}

void worker_loads(struct core_fixture *f, uint64_t key, const char *run) {
  member_loads(f, key, run, "data", SAMPLES);
  if (f->told[key].follows)
    worker_catches_up(f, key, run, 0);
}

void worker_catches_up(struct core_fixture *f, uint64_t key, const char *run, uint64_t version) {
  Weir__Ready ready = WEIR__READY__INIT;
  ready.run = (char *)run;
  ready.incarnation = f->incarnation;
  ready.version = version;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_READY, &ready);
}

void server_loads(struct core_fixture *f, uint64_t key, const char *run) {
  member_loads(f, key, run, "", 0);
}

void member_refuses(struct core_fixture *f, uint64_t key, const char *run, const char *message,
                    bool bad_input) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  refused.run = (char *)run;
  refused.incarnation = f->incarnation;
  refused.message = (char *)message;
  refused.bad_input = bad_input;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused);
}

void reports_step(struct core_fixture *f, uint64_t key, const char *run, uint64_t number) {
  Weir__StepReport report = WEIR__STEP_REPORT__INIT;
  report.run = (char *)run;
  report.incarnation = f->incarnation;
  report.step = number;
  report.loss = 2.5;
  report.lr = 0.1;
  report.samples = BATCH;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_STEP, &report);
}

void reports_steps(struct core_fixture *f, uint64_t key, const char *run, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; i++)
    reports_step(f, key, run, i);
}

void reports_eval(struct core_fixture *f, uint64_t key, const char *run, uint64_t version) {
  Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
  report.run = (char *)run;
  report.incarnation = f->incarnation;
  report.step = version;
  report.loss = 0.5;
  report.accuracy = 0.75;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_EVAL, &report);
}

void reports_held(struct core_fixture *f, uint64_t key, const char *run, uint64_t version) {
  Weir__RunHeld held = WEIR__RUN_HELD__INIT;
  held.run = (char *)run;
  held.incarnation = f->incarnation;
  held.step = version;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_HELD, &held);
}

void member_completes(struct core_fixture *f, uint64_t key, const char *run) {
  Weir__RunComplete complete = WEIR__RUN_COMPLETE__INIT;
  complete.run = (char *)run;
  complete.incarnation = f->incarnation;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_COMPLETE, &complete);
}

void writes_blocks(struct core_fixture *f, uint64_t key, const char *run, const bool which[BLOCKS],
                   bool is_last) {
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  Weir__WrittenBlock blocks[BLOCKS], *list[BLOCKS];
  for (uint32_t i = 0; i < BLOCKS; i++) {
    if (!which[i])
      continue;
    list[written.n_blocks] = &blocks[written.n_blocks];
    weir__written_block__init(&blocks[written.n_blocks]);
    blocks[written.n_blocks].block = i;
    blocks[written.n_blocks].sha256 = (char *)sha256_of_blocks;
    blocks[written.n_blocks++].bytes = 4;
  }
  written.run = (char *)run;
  written.incarnation = f->incarnation;
  written.step = f->told[key].write_step;
  written.blocks = list;
  written.is_last = is_last;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
}

void member_writes(struct core_fixture *f, uint64_t key, const char *run) {
  writes_blocks(f, key, run, f->told[key].owns, true);
}

void cannot_write(struct core_fixture *f, uint64_t key, const char *run, const char *error,
                  bool is_too_late) {
  Weir__BlocksWritten written = WEIR__BLOCKS_WRITTEN__INIT;
  written.run = (char *)run;
  written.incarnation = f->incarnation;
  written.step = f->told[key].write_step;
  written.error = (char *)error;
  written.is_too_late = is_too_late;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_WRITTEN, &written);
}

void member_drains(struct core_fixture *f, uint64_t key) {
  Weir__Leaving leaving = WEIR__LEAVING__INIT;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_LEAVING, &leaving);
}

Weir__RunInfo info_of_run(struct core_fixture *f, const char *run) {
  Weir__RunInfo answer;
  assert_true(coordinator_run_info(f->coordinator, run, f->now_ms, &answer));
  return answer;
}

void assert_state(struct core_fixture *f, const char *run, Weir__RunState expected) {
  assert_int_equal(info_of_run(f, run).state, expected);
}

Weir__WorkerInfo worker_row(struct core_fixture *f, uint64_t key) {
  struct arena arena;
  Weir__ListWorkersReply reply;
  Weir__WorkerInfo row = WEIR__WORKER_INFO__INIT;
  arena_init(&arena);
  coordinator_list_workers(f->coordinator, &viewer_of_all, f->now_ms, &arena, &reply);
  for (size_t i = 0; i < reply.n_workers; i++)
    if (strcmp(reply.workers[i]->id, f->told[key].id) == 0)
      row = *reply.workers[i];
  arena_fini(&arena);
  return row;
}

int core_setup(void **state) {
  struct coordinator_options options = {
      .term = TERM, .missing_after_ms = MISSING_MS, .server_grace_ms = GRACE_MS, .follow_ms = FOLLOW_MS};
  struct core_fixture *f = calloc(1, sizeof *f);
  f->coordinator = coordinator_new(&options);
  f->now_ms = 1000;
  core_ticks(f);
  *state = f;
  return 0;
}

int core_teardown(void **state) {
  struct core_fixture *f = *state;
  coordinator_free(f->coordinator);
  coordinator_actions_fini(&f->actions);
  free(f);
  return 0;
}
