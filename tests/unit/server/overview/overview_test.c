/* What a dashboard is told: the same by changes as at once, no more often than twice a second, and of other
   tenants nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/log.h"
#include "common/base/message.h"
#include "server/coordinator/overview/executors.h"
#include "server/coordinator/overview/overview.h"
#include "tests/support/coordinator/core_run.h"

enum { ROWS = 200, EVENTS = 400, SECOND = 1000 };

/* Somebody who polls, and what they have by now: rows by their ids. */
struct client {
  struct core_fixture *f;
  struct overview *overview;
  struct viewer viewer;
  uint64_t cursor;
  struct row {
    char id[64];
    ProtobufCMessage *message;
  } rows[ROWS];
  int n_rows, n_samples, polls, pages;
  Weir__FleetInfo *fleet;
};

static void client_clear(struct client *client) {
  for (int i = 0; i < client->n_rows; i++)
    message_free(client->rows[i].message);
  message_free(client->fleet);
  client->fleet = NULL;
  client->n_rows = client->n_samples = 0;
}

static struct row *client_row(struct client *client, const char *id) {
  for (int i = 0; i < client->n_rows; i++)
    if (strcmp(client->rows[i].id, id) == 0)
      return &client->rows[i];
  return NULL;
}

static void client_put(struct client *client, const char *id, const void *message) {
  struct row *row = client_row(client, id);
  if (!row) {
    assert_true(client->n_rows < ROWS);
    row = &client->rows[client->n_rows++];
    snprintf(row->id, sizeof row->id, "%s", id);
    row->message = NULL;
  }
  message_free(row->message);
  row->message = message_copy(message);
}

static void client_drop(struct client *client, const char *id) {
  struct row *row = client_row(client, id);
  if (!row)
    return;
  message_free(row->message);
  *row = client->rows[--client->n_rows];
}

/* One answer; whether there is more. */
static bool client_takes(struct client *client, uint32_t max_rows) {
  Weir__OverviewRequest request = WEIR__OVERVIEW_REQUEST__INIT;
  struct arena arena;
  struct overview_question question = {client->f->coordinator, &client->viewer, client->f->now_ms, &arena};
  Weir__Overview answer;
  struct err err = ERR_NONE;
  bool has_more;
  arena_init(&arena);
  request.since = client->cursor;
  request.max_rows = max_rows;
  assert_int_equal(overview_answer(client->overview, &question, &request, &answer, &err), 0);
  if (answer.is_whole)
    client_clear(client);
  assert_true(answer.n_runs + answer.n_members + answer.n_gone <= (max_rows ? max_rows : OVERVIEW_ROWS));
  for (size_t i = 0; i < answer.n_gone; i++)
    client_drop(client, answer.gone[i]);
  for (size_t i = 0; i < answer.n_runs; i++)
    client_put(client, answer.runs[i]->run, answer.runs[i]);
  for (size_t i = 0; i < answer.n_members; i++)
    client_put(client, answer.members[i]->id, answer.members[i]);
  message_free(client->fleet);
  client->fleet = message_copy(answer.fleet);
  client->n_samples += (int)answer.history->n_unix_ms;
  client->cursor = answer.cursor;
  client->pages++;
  has_more = answer.has_more;
  arena_fini(&arena);
  return has_more;
}

static void client_polls(struct client *client, uint32_t max_rows) {
  client->polls++;
  while (client_takes(client, max_rows))
    continue;
}

static void client_begin(struct client *client, struct core_fixture *f, struct viewer viewer) {
  *client = (struct client){
      .f = f, .viewer = viewer, .overview = overview_new(f->coordinator, 1600000000000 - (int64_t)f->now_ms)};
}

static void client_end(struct client *client) {
  client_clear(client);
  overview_free(client->overview);
}

/* Whoever had nothing and asks now has the same. */
static void assert_has_all(struct client *client) {
  struct client fresh = {.f = client->f, .overview = client->overview, .viewer = client->viewer};
  client_polls(&fresh, OVERVIEW_ROWS_MAX);
  assert_int_equal(client->n_rows, fresh.n_rows);
  assert_int_equal(client->n_samples, fresh.n_samples);
  for (int i = 0; i < fresh.n_rows; i++) {
    struct row *row = client_row(client, fresh.rows[i].id);
    assert_non_null(row);
    assert_true(message_is_same(row->message, fresh.rows[i].message));
  }
  client_clear(&fresh);
}

static const Weir__RunRow *run_of(struct client *client, const char *id) {
  struct row *row = client_row(client, id);
  assert_non_null(row);
  return (const Weir__RunRow *)row->message;
}

static const Weir__MemberRow *member_of(struct client *client, const char *id) {
  struct row *row = client_row(client, id);
  assert_non_null(row);
  return (const Weir__MemberRow *)row->message;
}

/* Keeps the time, and members alive. */
static void moment(struct client *client, uint64_t ms) {
  struct core_fixture *f = client->f;
  for (uint64_t key = 1; key < MEMBERS; key++)
    if (f->told[key].is_member && !f->told[key].is_closed)
      member_beats(f, key);
  time_passes(f, ms);
  overview_tick(client->overview, f->coordinator, f->now_ms);
}

/* Something happens. */
static void anything(struct client *client, uint64_t *key, int *runs, uint64_t *step) {
  struct core_fixture *f = client->f;
  char id[64];
  switch (rand() % 6) {
  case 0:
    snprintf(id, sizeof id, "more-%06d", (*runs)++);
    if (*runs < 60)
      user_submits(f, id, (uint32_t)(rand() % 4 + 1), 0);
    break;
  case 1:
    snprintf(id, sizeof id, "more-%06d", *runs ? rand() % *runs : 0);
    user_cancels(f, id);
    break;
  case 2:
    if (*key < MEMBERS - 1)
      worker_joins(f, (*key)++, 1);
    break;
  case 3:
    if (*key > W2 + 1 && f->told[*key - 1].is_member && !f->told[*key - 1].is_closed)
      member_leaves(f, *key - 1);
    break;
  case 4:
    if (*step + 1 < STEPS)
      reports_step(f, S1, RUN, (*step)++);
    break;
  default:
    moment(client, (uint64_t)(rand() % 3) * SECOND);
    break;
  }
}

static void changes_applied_to_what_one_had_are_what_there_is(void **state) {
  struct core_fixture *f = *state;
  struct client client;
  uint64_t key = W2 + 1, step = 0;
  int runs = 0;
  srand(7);
  core_run_begin(f, 2);
  client_begin(&client, f, viewer_of_all);
  for (int i = 0; i < EVENTS; i++) {
    anything(&client, &key, &runs, &step);
    if (rand() % 4)
      continue;
    client_polls(&client, (uint32_t)(rand() % 2 ? 3 : 0));
    assert_has_all(&client);
  }
  assert_true(client.pages > client.polls && client.n_rows > 40);
  client_end(&client);
}

static void a_row_says_where_the_run_stands(void **state) {
  struct core_fixture *f = *state;
  struct client client;
  const Weir__RunRow *run;
  core_run_begin(f, 2);
  f->priority = 5;
  user_submits(f, "later-bbbbbb", 99, 0);
  client_begin(&client, f, viewer_of_all);
  reports_steps(f, S1, RUN, 0, 4);
  member_refuses(f, W1, RUN, "no such data", false);
  moment(&client, SECOND);
  client_polls(&client, 0);
  run = run_of(&client, RUN);
  assert_string_equal(run->state, "running");
  assert_int_equal(run->step, 4);
  assert_int_equal(run->steps, STEPS);
  assert_int_equal(run->n_sparkline, 4);
  assert_int_equal(run->workers, 1);
  assert_string_equal(run->tenant, "default");
  assert_true(strstr(run_of(&client, "later-bbbbbb")->message, "waiting for workers") != NULL);
  assert_int_equal(client.fleet->queued, 1);
  assert_string_equal(client.fleet->queue[0], "later-bbbbbb");
  assert_int_equal(client.fleet->executors, 3);
  assert_int_equal(client.fleet->busy_executors, 2);
  assert_int_equal(member_of(&client, "worker-1")->refusals, 1);
  assert_string_equal(member_of(&client, "worker-1")->state, "refused");
  assert_string_equal(member_of(&client, "worker-2")->seats[0]->run, RUN);
  assert_string_equal(member_of(&client, "server-1")->state, "ready");
  assert_true(member_of(&client, "server-1")->bytes > 0);
  client_end(&client);
}

/* However many ask. */
static void a_snapshot_is_made_at_most_twice_a_second(void **state) {
  struct core_fixture *f = *state;
  struct client client, other;
  core_run_begin(f, 1);
  client_begin(&client, f, viewer_of_all);
  other = client;
  client_polls(&client, 0);
  reports_step(f, S1, RUN, 0);
  f->now_ms += OVERVIEW_EVERY_MS - 1;
  client_polls(&client, 0);
  client_polls(&other, 0);
  assert_int_equal(run_of(&client, RUN)->step, 0);
  assert_int_equal(run_of(&other, RUN)->step, 0);
  f->now_ms++;
  client_polls(&other, 0);
  assert_int_equal(run_of(&other, RUN)->step, 1);
  client_clear(&other);
  client_end(&client);
}

static void a_tenant_is_told_of_its_own_alone(void **state) {
  struct core_fixture *f = *state;
  struct client vision, nlp;
  core_run_begin(f, 1);
  f->tenant = "vision";
  user_submits(f, "mlp-visions", 9, 0);
  client_begin(&vision, f, viewer_of_tenant("vision"));
  client_begin(&nlp, f, viewer_of_tenant("nlp"));
  moment(&vision, 3 * SECOND);
  moment(&nlp, 3 * SECOND);
  client_polls(&vision, 0);
  client_polls(&nlp, 0);
  assert_non_null(client_row(&vision, "mlp-visions"));
  assert_null(client_row(&vision, RUN));
  assert_null(client_row(&nlp, "mlp-visions"));
  assert_int_equal(vision.fleet->runs, 1);
  assert_int_equal(vision.fleet->queued, 1);
  assert_int_equal(nlp.fleet->runs + nlp.fleet->queued + nlp.fleet->busy_executors, 0);
  assert_int_equal(member_of(&nlp, "worker-1")->n_seats, 0);
  assert_string_equal(member_of(&nlp, "worker-1")->state, "busy");
  assert_int_equal(member_of(&nlp, "server-1")->runs, 0);
  client_end(&vision);
  client_end(&nlp);
}

static void a_cursor_that_says_nothing_begins_with_everything(void **state) {
  struct core_fixture *f = *state;
  struct client client;
  const uint64_t garbage[] = {1, 12345, UINT64_MAX, 2ull << 40, 1ull << 63};
  core_run_begin(f, 1);
  client_begin(&client, f, viewer_of_all);
  client_polls(&client, 0);
  for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
    client.cursor = garbage[i];
    client_put(&client, "stale", client_row(&client, RUN)->message);
    client_polls(&client, 2);
    assert_null(client_row(&client, "stale"));
    assert_has_all(&client);
  }
  client_end(&client);
}

static void too_many_rows_are_refused(void **state) {
  struct core_fixture *f = *state;
  Weir__OverviewRequest request = WEIR__OVERVIEW_REQUEST__INIT;
  struct arena arena;
  struct overview *overview;
  struct overview_question question = {f->coordinator, &viewer_of_all, 0, &arena};
  Weir__Overview answer;
  struct err err = ERR_NONE;
  core_run_begin(f, 1);
  overview = overview_new(f->coordinator, 0);
  arena_init(&arena);
  request.max_rows = OVERVIEW_ROWS_MAX + 1;
  assert_int_equal(overview_answer(overview, &question, &request, &answer, &err), ERR_INVALID);
  assert_string_equal(err.text, "max_rows: 2001: at most 2000 rows are sent at a time");
  arena_fini(&arena);
  overview_free(overview);
}

/* More of them than snapshots are kept: each is answered, and what it had is whole again. */
static void tenants_without_end_are_answered(void **state) {
  struct core_fixture *f = *state;
  struct client client;
  core_run_begin(f, 1);
  client_begin(&client, f, viewer_of_all);
  for (int i = 0; i < 3 * OVERVIEW_SNAPSHOTS_MAX; i++) {
    char tenant[CERT_WORD_SIZE];
    snprintf(tenant, sizeof tenant, "t%d", i % (2 * OVERVIEW_SNAPSHOTS_MAX));
    client.viewer = viewer_of_tenant(tenant);
    moment(&client, SECOND);
    client_polls(&client, 0);
    assert_null(client_row(&client, RUN));
    assert_non_null(client_row(&client, "worker-1"));
  }
  client_end(&client);
}

static void executors_by_run_reach_back_ten_minutes(void **state) {
  struct core_fixture *f = *state;
  struct executors *executors = executors_new();
  uint64_t counter = 1;
  Weir__ExecutorHistory history;
  struct arena arena;
  core_run_begin(f, 3);
  arena_init(&arena);
  for (int i = 0; i < 2 * EXECUTORS_SAMPLES; i++) {
    if (i == EXECUTORS_SAMPLES + 100)
      user_cancels(f, RUN);
    f->now_ms += EXECUTORS_EVERY_MS;
    for (int again = 0; again < 3; again++) /* only once */
      executors_tick(executors, f->coordinator, f->now_ms, 1000 * i, &counter);
  }
  assert_int_equal(counter, 1 + 2 * EXECUTORS_SAMPLES);
  executors_list(executors, &viewer_of_all, (struct executors_span){0, counter}, &arena, &history);
  assert_int_equal(history.n_unix_ms, EXECUTORS_SAMPLES);
  assert_int_equal(history.unix_ms[0], 1000 * EXECUTORS_SAMPLES);
  assert_int_equal(history.executors[0], 4);
  assert_int_equal(history.n_tracks, 1);
  assert_string_equal(history.tracks[0]->run, RUN);
  for (int i = 0; i < EXECUTORS_SAMPLES; i++)
    assert_int_equal(history.tracks[0]->executors[i], i < 100 ? 4 : 0);
  executors_list(executors, &viewer_of_all, (struct executors_span){counter - 5, counter - 2}, &arena,
                 &history);
  assert_int_equal(history.n_unix_ms, 3);
  assert_int_equal(history.n_tracks, 0); /* the run had none then */
  for (int i = 0; i < EXECUTORS_SAMPLES; i++) {
    f->now_ms += EXECUTORS_EVERY_MS;
    executors_tick(executors, f->coordinator, f->now_ms, 0, &counter);
  }
  executors_list(executors, &viewer_of_all, (struct executors_span){0, counter}, &arena, &history);
  assert_int_equal(history.n_tracks, 0);
  arena_fini(&arena);
  executors_free(executors);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(changes_applied_to_what_one_had_are_what_there_is),
      TEST(a_row_says_where_the_run_stands),
      TEST(a_snapshot_is_made_at_most_twice_a_second),
      TEST(a_tenant_is_told_of_its_own_alone),
      TEST(a_cursor_that_says_nothing_begins_with_everything),
      TEST(too_many_rows_are_refused),
      TEST(tenants_without_end_are_answered),
      TEST(executors_by_run_reach_back_ten_minutes),
  };
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
