/* The coordinator's core: checkpoints, lost servers, pauses, and the runs of a former coordinator. */
#include "tests/support/coordinator_succession.h"

enum { S1 = 1, S2 = 2, W1 = 3, W2 = 4, S3 = 5, W3 = 6, AGAIN = 20 };
static const char RUN[] = "mlp-aaaaaa";

static Weir__CheckpointSpec every_4 = WEIR__CHECKPOINT_SPEC__INIT;

/* Servers S1 and S2, workers W1 and W2, training, with a checkpoint every four steps of ten. */
static void start_run(struct fixture *f, uint32_t keep) {
  weir__checkpoint_spec__init(&every_4);
  every_4.has_every_steps = every_4.has_keep = true;
  every_4.every_steps = 4;
  every_4.keep = keep;
  f->checkpoint = &every_4;
  server_joins(f, S1);
  server_joins(f, S2);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 2, 0);
  worker_loads(f, W1, RUN);
  worker_loads(f, W2, RUN);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

/* Both write what they were told to, and the store takes it. */
static void checkpoint(struct fixture *f) {
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  store_commits(f, RUN, NULL);
}

static uint64_t newest(struct fixture *f) {
  return info_of_run(f, RUN).checkpoint_step;
}

static void the_next_boundary_is_ordered_ahead(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  assert_int_equal(f->told[S1].write_step, 4);
  assert_int_equal(f->told[S2].write_step, 4);
  reports_steps(f, S1, RUN, 0, 5);
  member_writes(f, S1, RUN);
  assert_int_equal(f->commits, 0);
  member_writes(f, S2, RUN);
  assert_int_equal(f->commits, 1);
  assert_int_equal(f->commit_step, 4);
  assert_int_equal(f->told[S1].writes, 1); /* one at a time */
  store_commits(f, RUN, NULL);
  assert_int_equal(newest(f), 4);
  assert_int_equal(info_of_run(f, RUN).checkpoints, 1);
  assert_int_equal(f->told[S1].write_step, 8);
  reports_steps(f, S1, RUN, 5, 9);
  checkpoint(f);
  assert_int_equal(f->told[S1].writes, 2); /* the last one comes by itself */
}

static void blocks_may_come_in_several_messages(void **state) {
  struct fixture *f = *state;
  bool one[BLOCKS] = {false};
  start_run(f, 3);
  member_writes(f, S2, RUN);
  for (int i = 0; i < BLOCKS; i++) {
    if (!f->told[S1].owns[i])
      continue;
    one[i] = true;
    writes_blocks(f, S1, RUN, one, false);
    one[i] = false;
  }
  assert_int_equal(f->commits, 0);
  writes_blocks(f, S1, RUN, one, true); /* nothing more */
  assert_int_equal(f->commits, 1);
}

static void what_came_too_late_is_ordered_further_ahead(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  cannot_write(f, S2, RUN, "version 4 is gone", true);
  assert_int_equal(f->told[S1].write_step, 8); /* at least 3 + 4 */
  assert_string_equal(info_of_run(f, RUN).store_message, "");
}

static void old_checkpoints_are_dropped(void **state) {
  struct fixture *f = *state;
  start_run(f, 1);
  reports_steps(f, S1, RUN, 0, 4);
  checkpoint(f);
  reports_steps(f, S1, RUN, 4, 8);
  checkpoint(f);
  assert_int_equal(f->n_dropped, 1);
  assert_int_equal(f->dropped[0], 4);
  assert_int_equal(info_of_run(f, RUN).checkpoints, 1);
}

/* Three versions are evaluated, and say so after they were committed; the first is the best. */
static void evaluate_three(struct fixture *f, char *keep_best, const double values[3]) {
  static char *names[] = {"perplexity"};
  Weir__RunLoaded loaded = WEIR__RUN_LOADED__INIT;
  Weir__EvalSpec eval = WEIR__EVAL_SPEC__INIT;
  Weir__MetricValue metric = WEIR__METRIC_VALUE__INIT, other = WEIR__METRIC_VALUE__INIT;
  weir__checkpoint_spec__init(&every_4);
  every_4.has_every_steps = every_4.has_keep = true;
  every_4.every_steps = 2;
  every_4.keep = 1;
  every_4.keep_best = keep_best;
  f->checkpoint = &every_4;
  eval.metrics = names;
  eval.n_metrics = 1;
  f->eval = &eval;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  loaded.run = (char *)RUN;
  loaded.train_samples = 2 * BATCH; /* an epoch, and so an evaluation, each two steps */
  loaded.eval_samples = 100;
  member_says(f, W1, WEIR__MEMBER_MESSAGE__BODY_LOADED, &loaded);
  server_loads(f, S1, RUN);
  metric.name = "perplexity";
  other.name = "not asked for";
  for (int i = 0; i < 3; i++) {
    Weir__EvalReport report = WEIR__EVAL_REPORT__INIT;
    report.run = (char *)RUN;
    report.step = 2 + 2 * (uint64_t)i;
    reports_steps(f, S1, RUN, report.step - 2, report.step);
    member_writes(f, S1, RUN);
    store_commits(f, RUN, NULL);
    report.accuracy = metric.value = values[i];
    report.metrics = (Weir__MetricValue *[]){&other, &metric, &metric};
    report.n_metrics = 3;
    member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_EVAL, &report);
  }
}

static void the_best_evaluated_checkpoint_is_kept(void **state) {
  struct fixture *f = *state;
  struct arena arena;
  Weir__ListCheckpointsReply reply;
  evaluate_three(f, "accuracy", (const double[]){0.9, 0.4, 0.5});
  arena_init(&arena);
  coordinator_list_checkpoints(f->coordinator, RUN, &arena, &reply);
  assert_int_equal(reply.n_checkpoints, 2);
  assert_int_equal(reply.checkpoints[0]->step, 2);
  assert_true(reply.checkpoints[0]->accuracy == 0.9);
  assert_int_equal(reply.checkpoints[1]->step, 6);
  assert_true(reply.checkpoints[1]->accuracy == 0.5);
  arena_fini(&arena);
}

static void the_best_by_a_named_metric_may_be_the_lowest(void **state) {
  struct fixture *f = *state;
  struct arena arena;
  Weir__ListCheckpointsReply reply;
  evaluate_three(f, "perplexity", (const double[]){1.5, 4, 2});
  arena_init(&arena);
  coordinator_list_checkpoints(f->coordinator, RUN, &arena, &reply);
  assert_int_equal(reply.n_checkpoints, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(reply.checkpoints[i]->step, i == 0 ? 2 : 6);
    assert_int_equal(reply.checkpoints[i]->n_metrics, 1);
    assert_string_equal(reply.checkpoints[i]->metrics[0]->name, "perplexity");
    assert_true(reply.checkpoints[i]->metrics[0]->value == (i == 0 ? 1.5 : 2));
  }
  assert_int_equal(info_of_run(f, RUN).n_metrics, 1);
  arena_fini(&arena);
}

static void a_checkpoint_is_due_by_time(void **state) {
  struct fixture *f = *state;
  Weir__CheckpointSpec every_2_s = WEIR__CHECKPOINT_SPEC__INIT;
  every_2_s.has_every_seconds = true;
  every_2_s.every_seconds = 2;
  f->checkpoint = &every_2_s;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  server_loads(f, S1, RUN);
  reports_steps(f, S1, RUN, 0, 3);
  assert_int_equal(f->told[S1].writes, 0);
  member_beats(f, S1), member_beats(f, W1);
  time_passes(f, 2000);
  assert_int_equal(f->told[S1].write_step, 5);
  assert_int_equal(f->told[S1].writes, 1);
  member_writes(f, S1, RUN);
  store_commits(f, RUN, NULL);
  assert_int_equal(f->told[S1].writes, 1);
}

static void training_does_not_wait_for_a_store_in_trouble(void **state) {
  struct fixture *f = *state;
  struct coordinator_event well = {.kind = EVENT_STORE, .store_message = ""};
  struct coordinator_event ill = {.kind = EVENT_STORE, .store_message = "redis://store: connection refused"};
  start_run(f, 3);
  core_step(f, &ill);
  assert_string_equal(info_of_run(f, RUN).store_message, "redis://store: connection refused");
  reports_steps(f, S1, RUN, 0, 4);
  member_writes(f, S1, RUN);
  cannot_write(f, S2, RUN, "redis://store: connection refused", false);
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_non_null(strstr(info_of_run(f, RUN).store_message, "the checkpoint of step 4 failed: server-2"));
  assert_int_equal(f->told[S1].writes, 1);
  reports_steps(f, S1, RUN, 4, 6);
  assert_int_equal(info_of_run(f, RUN).step, 6);
  assert_int_equal(f->told[S1].writes, 1); /* a pause first */
  core_step(f, &well);
  assert_int_equal(f->told[S1].writes, 2);
  assert_int_equal(f->told[S1].write_step, 8);
  checkpoint(f);
  assert_string_equal(info_of_run(f, RUN).store_message, "");
}

static void a_server_that_comes_back_goes_on_where_it_was(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  writes_blocks(f, S1, RUN, f->told[S1].owns, false);
  member_leaves(f, S1);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_string_equal(info_of_run(f, RUN).message, "server-1 (host:1) was lost: connection reset");
  assert_int_equal(info_of_run(f, RUN).servers, 1);
  time_passes(f, GRACE_MS - 100);
  joins_again(f, S1, AGAIN, WEIR__ROLE__SERVER, RUN, 0, 4);
  assert_string_equal(f->told[AGAIN].id, "server-1");
  assert_string_equal(f->told[AGAIN].keep, RUN);
  assert_int_equal(f->told[AGAIN].keep_step, 3);
  assert_int_equal(f->told[AGAIN].write_step, 4); /* told again, for the order may have been lost */
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  reports_step(f, AGAIN, RUN, 5); /* of the present, before what was missed */
  assert_int_equal(info_of_run(f, RUN).step, 3);
  reports_steps(f, AGAIN, RUN, 3, 6);
  assert_int_equal(info_of_run(f, RUN).step, 6);
  member_writes(f, AGAIN, RUN);
  member_writes(f, S2, RUN);
  store_commits(f, RUN, NULL);
  assert_int_equal(newest(f), 4);
}

static void a_run_rolls_back_on_the_servers_that_remain(void **state) {
  struct fixture *f = *state;
  struct run_event_view view;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 7);
  checkpoint(f);
  f->is_store_away = true;
  member_leaves(f, S2);
  member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS - 100);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  time_passes(f, 100);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(info_of_run(f, RUN).incarnation, 1);
  assert_int_equal(info_of_run(f, RUN).step, 4);
  assert_int_equal(f->told[S1].loads, 1); /* not before the store has the incarnation */
  store_saves(f, RUN, 0);
  assert_int_equal(f->told[S1].loads, 1);
  store_saves(f, RUN, 1);
  assert_int_equal(f->told[S1].loads, 2);
  assert_int_equal(f->told[S1].load_servers, 1);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  assert_int_equal(f->told[S1].load_step, 4);
  assert_string_equal(f->told[S1].manifest, "runs/mlp-aaaaaa/checkpoints/00000000000000000004");
  assert_non_null(strstr(info_of_run(f, RUN).message, "rolled back to step 4: server-2 (host:2) was lost"));
  assert_int_equal(f->told[W1].view, 1);
  assert_string_equal(f->told[W1].unload, ""); /* workers keep what they have */
  reports_step(f, S1, RUN, 7);                 /* of before */
  assert_int_equal(info_of_run(f, RUN).step, 4);
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W1].view, 2);
  assert_int_equal(f->told[W1].view_incarnation, 1);
  assert_string_equal(info_of_run(f, RUN).message, "");
  assert_int_equal(f->told[S1].write_step, 8);
  reports_step(f, S1, RUN, 4); /* steps come again, under their incarnation */
  assert_int_equal(info_of_run(f, RUN).step, 5);
  for (uint64_t at = 0; coordinator_run_event(f->coordinator, RUN, at, &view); at = view.event.number + 1)
    ;
  assert_int_equal(view.event.event_case, WEIR__RUN_EVENT__EVENT_STEP);
  assert_int_equal(view.event.step->incarnation, 1);
}

static void a_restarted_server_is_not_waited_for(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  member_leaves(f, S2);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  server_joins(f, S3);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[S3].id, "server-3");
  assert_int_equal(f->told[S3].load_servers, 2);
  assert_int_equal(f->told[S3].load_step, 0);
  assert_string_equal(f->told[S3].manifest, "");
  member_leaves(f, W1); /* one worker is enough to go on */
  f->incarnation = 1;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  server_loads(f, S3, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(f->told[W2].view_incarnation, 1);
}

static void a_restarted_server_counts_after_the_coordinator_was_away_too(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  member_leaves(f, S1);
  member_leaves(f, S2);
  server_joins(f, S3); /* two are to be replaced */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  f->now_ms += GRACE_MS - 100;
  core_ticks(f);
  joins_again(f, S1, AGAIN, WEIR__ROLE__SERVER, RUN, 0, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S3].load_servers, 2);
}

static void a_run_without_servers_waits_for_one(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  member_leaves(f, S1);
  member_leaves(f, S2);
  member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_non_null(strstr(info_of_run(f, RUN).message, "waiting for a server"));
  server_joins(f, S3);
  assert_int_equal(f->told[S3].load_servers, 1);
}

static void a_server_that_comes_back_too_late_lets_go(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  member_leaves(f, S2);
  member_beats(f, S1), member_beats(f, W1), member_beats(f, W2);
  time_passes(f, GRACE_MS);
  joins_again(f, S2, AGAIN, WEIR__ROLE__SERVER, RUN, 0, 3);
  assert_string_equal(f->told[AGAIN].unload, RUN);
  assert_string_equal(f->told[AGAIN].keep, "");
}

static void a_roll_back_waits_for_the_commit_in_flight(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 5);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  member_leaves(f, S2);
  server_joins(f, S3);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S1].load_step, 4);
}

static void a_lost_checkpoint_gives_way_to_the_one_before(void **state) {
  struct fixture *f = *state;
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  checkpoint(f);
  reports_steps(f, S1, RUN, 4, 8);
  checkpoint(f);
  member_leaves(f, S2);
  server_joins(f, S3);
  assert_int_equal(f->told[S1].load_step, 8);
  refused.run = (char *)RUN;
  refused.incarnation = 1;
  refused.message = "block 3 is damaged";
  refused.lost_checkpoint = true;
  member_says(f, S1, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused);
  member_says(f, S3, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused); /* the same one */
  assert_int_equal(f->n_dropped, 0);                                /* it may be the servers that are wrong */
  assert_int_equal(f->told[S1].load_incarnation, 2);
  assert_int_equal(f->told[S1].load_step, 4);
  assert_int_equal(f->told[S3].load_step, 4);
}

static void refuses_store(struct fixture *f, uint64_t key, uint64_t incarnation) {
  Weir__RunRefused refused = WEIR__RUN_REFUSED__INIT;
  refused.run = (char *)RUN;
  refused.incarnation = incarnation;
  refused.message = "this server's store, file:///b, is not the coordinator's";
  refused.wrong_store = true;
  member_says(f, key, WEIR__MEMBER_MESSAGE__BODY_REFUSED, &refused);
}

static void a_server_of_another_store_is_left_out_and_no_checkpoint_suffers(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  checkpoint(f);
  member_leaves(f, S2);
  server_joins(f, S3);
  assert_int_equal(f->told[S3].load_step, 4);
  refuses_store(f, S3, 1);
  assert_int_equal(f->told[S1].load_incarnation, 2);
  assert_int_equal(f->told[S1].load_step, 4);
  assert_int_equal(f->told[S1].load_servers, 1);
  assert_int_equal(f->told[S3].load_incarnation, 1);
  assert_int_equal(f->n_dropped, 0);
  assert_string_equal(server_message(f, 0), "");
  assert_non_null(strstr(server_message(f, 1), "file:///b, is not the coordinator's"));
  f->incarnation = 2;
  server_loads(f, S1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_run_without_another_server_waits_and_asks_again(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  member_leaves(f, S2);
  member_leaves(f, S1);
  server_joins(f, S3);
  time_passes(f, GRACE_MS + 100);
  assert_int_equal(f->told[S3].load_incarnation, 1);
  refuses_store(f, S3, 1);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_non_null(strstr(info_of_run(f, RUN).message, "waiting for a server"));
  assert_non_null(strstr(info_of_run(f, RUN).message, "file:///b, is not the coordinator's"));
  assert_int_equal(f->told[S3].loads, 1);
  for (int i = 0; i < 12; i++) {
    member_beats(f, S3), member_beats(f, W1), member_beats(f, W2);
    time_passes(f, 1000);
  }
  assert_int_equal(f->told[S3].loads, 2);
  f->incarnation = f->told[S3].load_incarnation;
  server_loads(f, S3, RUN);
  assert_string_equal(server_message(f, 0), "");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_run_whose_model_is_lost_fails_and_says_so(void **state) {
  struct fixture *f = *state;
  struct coordinator_event event = {.kind = EVENT_MODEL_LOST, .model_lost = {RUN, "block feed is missing"}};
  start_run(f, 3);
  core_step(f, &event);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
  assert_non_null(strstr(info_of_run(f, RUN).message, "the store has lost the model: block feed is missing"));
  core_step(f, &event);
}

static void a_server_that_cannot_load_is_asked_again_before_the_run_fails(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  member_leaves(f, S2);
  server_joins(f, S3);
  for (f->incarnation = 1; f->incarnation < 7; f->incarnation++) {
    assert_int_equal(f->told[S1].load_incarnation, f->incarnation);
    member_refuses(f, S3, RUN, "out of memory", false);
    assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
    for (int i = 0; i < 8; i++) {
      member_beats(f, S1), member_beats(f, S3), member_beats(f, W1), member_beats(f, W2);
      time_passes(f, 2000);
    }
  }
  member_refuses(f, S3, RUN, "out of memory", false);
  assert_state(f, RUN, WEIR__RUN_STATE__FAILED);
}

static void a_worker_that_returns_is_asked_for_the_run_that_it_has(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  member_leaves(f, W1);
  joins_again(f, W1, AGAIN, WEIR__ROLE__WORKER, RUN, 0, 0);
  assert_string_equal(f->told[AGAIN].id, "worker-1");
  assert_string_equal(f->told[AGAIN].load, RUN);
  worker_loads(f, AGAIN, RUN);
  assert_int_equal(f->told[AGAIN].end - f->told[AGAIN].begin, MICROBATCHES / 2);
  joins_again(f, W2, AGAIN + 1, WEIR__ROLE__WORKER, "mlp-gone", 0, 0);
  assert_string_equal(f->told[AGAIN + 1].unload, "mlp-gone");
}

static void the_new_link_of_a_process_ends_its_former_one(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  joins_again(f, S2, AGAIN, WEIR__ROLE__SERVER, RUN, 0, 3);
  assert_true(f->told[S2].is_closed);
  assert_string_equal(f->told[AGAIN].id, "server-2");
  assert_string_equal(f->told[AGAIN].keep, RUN);
  server_joins(f, S3); /* nothing is lost: nothing is replaced */
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void two_members_never_have_one_id(void **state) {
  struct fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  server_joins(f, S1);
  hello.role = WEIR__ROLE__SERVER;
  hello.host = "another host";
  hello.address = "another:1";
  hello.id = "server-1"; /* of a former coordinator's counting */
  says_hello(f, AGAIN, &hello);
  assert_string_equal(f->told[AGAIN].id, "server-2");
  assert_false(f->told[S1].is_closed);
  hello.address = "another:2";
  hello.id = "server-7";
  says_hello(f, AGAIN + 1, &hello);
  assert_string_equal(f->told[AGAIN + 1].id, "server-7");
  server_joins(f, S2);
  assert_string_equal(f->told[S2].id, "server-8");
  hello.address = "another:3";
  hello.id = "server-99999999999999999999";
  says_hello(f, AGAIN + 2, &hello);
  assert_string_equal(f->told[AGAIN + 2].id, "server-9");
}

static void a_member_of_a_higher_term_is_refused_and_the_store_asked(void **state) {
  struct fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.term = TERM + 1;
  user_submits(f, RUN, 1, 0);
  says_hello(f, W1, &hello);
  assert_int_equal(f->deposed, 0);
  assert_int_equal(f->doubts, 1);
  assert_int_equal(f->actions.count, 2);
  assert_int_equal(f->actions.items[0].kind, ACTION_CLOSE);
  assert_int_equal(f->actions.items[0].code, ERR_STALE);
}

/* It has lost what it had: nobody else leads, and members would never obey so low a term. */
static void the_first_coordinator_of_an_empty_store_steps_down_for_members_of_a_higher_term(void **state) {
  struct fixture *f = *state;
  Weir__Hello hello = WEIR__HELLO__INIT;
  hello.role = WEIR__ROLE__WORKER;
  hello.term = TERM + 1;
  says_hello(f, W1, &hello);
  assert_int_equal(f->deposed, 1);
  assert_int_equal(f->actions.count, 1);
  user_submits(f, RUN, 1, 0);
  assert_int_equal(f->actions.count, 0); /* nothing follows */
}

static void a_paused_run_holds_nothing_and_goes_on_from_its_checkpoint(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 1);
  f->told[S1].writes = 0;
  user_pauses(f, RUN);
  assert_int_equal(f->told[S1].write_step, 3); /* as soon as may be, in place of step 4 */
  assert_int_equal(f->told[S1].writes, 1);
  assert_string_equal(info_of_run(f, RUN).message, "pausing at step 3");
  reports_steps(f, S1, RUN, 1, 5);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  checkpoint(f);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_string_equal(info_of_run(f, RUN).message, "paused at step 3");
  assert_int_equal(info_of_run(f, RUN).step, 3);
  assert_string_equal(f->told[W1].unload, RUN);
  assert_string_equal(f->told[S2].unload, RUN);
  assert_false(coordinator_run_is_over(f->coordinator, RUN));
  member_joins(f, W3, WEIR__ROLE__WORKER, 1, "build-2");
  assert_string_equal(f->told[W3].load, "");
  member_leaves(f, W1);
  member_leaves(f, W2);
  member_joins(f, AGAIN, WEIR__ROLE__WORKER, 1, "build-2");
  user_resumes(f, RUN, 2); /* there is none */
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  user_resumes(f, RUN, 3);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_string_equal(f->told[W3].load, RUN);
  f->incarnation = 1;
  assert_int_equal(f->told[S1].load_step, 3);
  assert_int_equal(f->told[S1].load_incarnation, 1);
  server_loads(f, S1, RUN);
  server_loads(f, S2, RUN);
  loads_and_probes(f, W3, RUN, "other data", SAMPLES, "new probe");
  assert_non_null(strstr(worker_row(f, W3).message, "other data"));
  loads_and_probes(f, AGAIN, RUN, "data", SAMPLES, "new probe"); /* of a new build */
  assert_string_equal(worker_row(f, AGAIN).state, "ready");
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING); /* both of two are needed, as at the first start */
  member_joins(f, AGAIN + 1, WEIR__ROLE__WORKER, 1, "build-2");
  loads_and_probes(f, AGAIN + 1, RUN, "data", SAMPLES, "new probe");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
}

static void a_run_that_has_not_begun_is_paused_at_once(void **state) {
  struct fixture *f = *state;
  user_submits(f, RUN, 1, 0);
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  assert_string_equal(f->told[W1].load, "");
  user_resumes(f, RUN, 0);
  assert_string_equal(f->told[W1].load, RUN);
  f->incarnation = 1;
  worker_loads(f, W1, RUN);
  assert_string_equal(f->told[S1].load, RUN);
  user_pauses(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_string_equal(f->told[S1].unload, RUN);
  user_cancels(f, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
}

static void an_answer_to_an_order_that_is_over_is_not_taken_for_another(void **state) {
  struct fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  user_pauses(f, RUN);
  user_resumes(f, RUN, 0);
  assert_int_equal(f->told[W1].load_incarnation, 1);
  worker_loads(f, W1, RUN); /* of before the pause */
  assert_string_equal(worker_row(f, W1).state, "loading");
  f->incarnation = 1;
  worker_loads(f, W1, RUN);
  assert_string_equal(worker_row(f, W1).state, "ready");
}

static void runs_short_of_workers_do_not_wait_for_each_other(void **state) {
  struct fixture *f = *state;
  static const char second[] = "mlp-bbbbbb";
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  worker_joins(f, W2, 1);
  user_submits(f, RUN, 2, 2);
  worker_joins(f, W3, 1);
  worker_joins(f, AGAIN, 1);
  user_submits(f, second, 2, 2);
  assert_string_equal(f->told[AGAIN].load, second);
  member_leaves(f, W1);
  member_leaves(f, W3); /* both have one of two */
  core_ticks(f);
  assert_string_equal(f->told[AGAIN].load, RUN);
  assert_state(f, second, WEIR__RUN_STATE__QUEUED);
}

static void a_pause_does_not_wait_for_workers_that_are_gone(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  checkpoint(f);
  reports_steps(f, S1, RUN, 4, 6);
  member_leaves(f, W1);
  member_leaves(f, W2);
  user_pauses(f, RUN);
  member_beats(f, S1), member_beats(f, S2);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__PAUSED);
  assert_string_equal(info_of_run(f, RUN).message, "paused at step 4");
}

static void a_resume_drops_what_comes_again(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  checkpoint(f);
  reports_steps(f, S1, RUN, 4, 8);
  checkpoint(f);
  user_cancels(f, RUN);
  user_resumes(f, RUN, 4);
  assert_int_equal(f->n_dropped, 1);
  assert_int_equal(f->dropped[0], 8);
  assert_int_equal(newest(f), 4);
  assert_int_equal(info_of_run(f, RUN).step, 4);
  assert_int_equal(info_of_run(f, RUN).finished_unix_ms, 0);
}

static void a_commit_that_a_cancelled_run_had_under_way_counts(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  member_completes(f, S1, RUN);
  member_completes(f, S2, RUN);
  assert_int_equal(f->told[S1].write_step, STEPS);
  member_writes(f, S1, RUN);
  member_writes(f, S2, RUN);
  user_cancels(f, RUN);
  store_commits(f, RUN, NULL);
  assert_state(f, RUN, WEIR__RUN_STATE__CANCELLED);
  assert_int_equal(newest(f), STEPS);
  user_resumes(f, RUN, STEPS); /* nothing is left to do */
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_string_equal(info_of_run(f, RUN).weights_sha256, sha256_of_weights);
}

static void a_successor_takes_up_servers_and_workers_where_they_are(void **state) {
  struct fixture *f = *state;
  struct run_event_view view;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  coordinator_is_succeeded(f, RUN, record_of(f));
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  assert_int_equal(info_of_run(f, RUN).step, 3);
  assert_true(info_of_run(f, RUN).loss == 2.5);
  assert_int_equal(info_of_run(f, RUN).incarnation, 0);
  joins_again(f, W1, AGAIN, WEIR__ROLE__WORKER, RUN, 0, 0);
  assert_string_equal(f->told[AGAIN].load, RUN);
  worker_loads(f, AGAIN, RUN);
  assert_int_equal(f->told[AGAIN].view, 1);
  assert_int_equal(f->told[AGAIN].view_incarnation, 0);
  time_passes(f, GRACE_MS + 100); /* all have to come back: three times the time */
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  joins_again(f, S1, AGAIN + 1, WEIR__ROLE__SERVER, RUN, 0, 5);
  joins_again(f, S2, AGAIN + 2, WEIR__ROLE__SERVER, RUN, 0, 6);
  assert_int_equal(f->told[AGAIN + 1].keep_step, 3);
  assert_string_equal(f->told[AGAIN + 2].keep, RUN);
  assert_int_equal(f->told[AGAIN + 2].write_step, 8); /* ahead of where the servers are */
  reports_steps(f, AGAIN + 1, RUN, 3, 6);
  assert_int_equal(info_of_run(f, RUN).step, 6);
  assert_true(coordinator_run_event(f->coordinator, RUN, 0, &view));
  assert_true(view.event.number < (uint64_t)TERM << 32);
  assert_true(coordinator_run_event(f->coordinator, RUN, (uint64_t)TERM << 32, &view));
  assert_int_equal(view.event.number, (uint64_t)TERM << 32);
}

static void the_end_awaits_the_steps_that_are_to_be_told_again(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  coordinator_is_succeeded(f, RUN, record_of(f));
  joins_again(f, S1, AGAIN, WEIR__ROLE__SERVER, RUN, 0, STEPS);
  joins_again(f, S2, AGAIN + 1, WEIR__ROLE__SERVER, RUN, 0, STEPS);
  member_completes(f, AGAIN, RUN);
  member_completes(f, AGAIN + 1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  reports_steps(f, AGAIN, RUN, 3, STEPS);
  assert_state(f, RUN, WEIR__RUN_STATE__FINISHING);
}

static void what_a_former_incarnation_left_above_the_base_is_dropped(void **state) {
  struct fixture *f = *state;
  Weir__CheckpointInfo infos[3];
  Weir__RunRecord *record;
  start_run(f, 3);
  record = record_of(f);
  record->incarnation = 2;
  record->base_step = 4;
  record->checkpoints = mem_new(3 * sizeof *record->checkpoints);
  for (record->n_checkpoints = 0; record->n_checkpoints < 3; record->n_checkpoints++) {
    Weir__CheckpointInfo *one = &infos[record->n_checkpoints];
    weir__checkpoint_info__init(one);
    one->step = 4 + 2 * record->n_checkpoints; /* 4 and 6 of incarnation 1, 8 of this one */
    one->incarnation = one->step == 8 ? 2 : 1;
    record->checkpoints[record->n_checkpoints] = message_copy(one);
  }
  coordinator_is_succeeded(f, RUN, record);
  assert_int_equal(f->n_dropped, 1);
  assert_int_equal(f->dropped[0], 6);
  assert_int_equal(newest(f), 8);
}

static void a_successor_rolls_back_when_servers_stay_away(void **state) {
  struct fixture *f = *state;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 3);
  coordinator_is_succeeded(f, RUN, record_of(f));
  server_joins(f, S3); /* fresh; two are to be replaced */
  assert_string_equal(f->told[S3].id, "server-3");
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  member_beats(f, S3);
  time_passes(f, GRACE_MS);
  member_beats(f, S3);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__RUNNING);
  member_beats(f, S3);
  time_passes(f, GRACE_MS);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  assert_int_equal(f->told[S3].load_incarnation, 1);
}

static void a_successor_begins_again_what_had_not_begun(void **state) {
  struct fixture *f = *state;
  server_joins(f, S1);
  worker_joins(f, W1, 1);
  user_submits(f, RUN, 1, 0);
  worker_loads(f, W1, RUN);
  assert_state(f, RUN, WEIR__RUN_STATE__LOADING);
  coordinator_is_succeeded(f, RUN, record_of(f));
  assert_int_equal(info_of_run(f, RUN).incarnation, 1); /* servers may have been told of the one before */
  joins_again(f, S1, AGAIN, WEIR__ROLE__SERVER, RUN, 0, 0);
  assert_string_equal(f->told[AGAIN].unload, RUN);
  assert_string_equal(f->told[AGAIN].load, RUN);
  assert_int_equal(f->told[AGAIN].load_incarnation, 1);
}

static void a_run_that_only_had_to_say_so_is_done(void **state) {
  struct fixture *f = *state;
  Weir__RunRecord *record;
  Weir__CheckpointInfo last = WEIR__CHECKPOINT_INFO__INIT;
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, STEPS);
  record = record_of(f);
  last.step = STEPS;
  last.accuracy = last.eval_loss = NAN;
  last.weights_sha256 = (char *)sha256_of_weights;
  record->checkpoints = mem_new(sizeof *record->checkpoints);
  record->checkpoints[0] = message_copy(&last);
  record->n_checkpoints = 1;
  coordinator_is_succeeded(f, RUN, record);
  assert_state(f, RUN, WEIR__RUN_STATE__DONE);
  assert_string_equal(info_of_run(f, RUN).weights_sha256, sha256_of_weights);
  joins_again(f, S1, AGAIN, WEIR__ROLE__SERVER, RUN, 0, STEPS);
  assert_string_equal(f->told[AGAIN].unload, RUN);
}

static void a_damaged_record_is_left_out(void **state) {
  struct fixture *f = *state;
  Weir__RunRecord record = WEIR__RUN_RECORD__INIT;
  Weir__RunSpec spec = WEIR__RUN_SPEC__INIT;
  struct coordinator_event event = {.kind = EVENT_RUN_RESTORED, .restored = {.record = &record}};
  uint32_t elems = 4;
  record.run = (char *)RUN;
  record.state = WEIR__RUN_STATE__RUNNING;
  core_step(f, &event);
  record.block_elems = &elems;
  record.n_block_elems = 1;
  record.spec = &spec;
  core_step(f, &event);
  record.state = 77;
  core_step(f, &event);
  assert_int_equal(coordinator_live_runs(f->coordinator), 0);
}

static void an_emptied_store_is_given_everything_again(void **state) {
  struct fixture *f = *state;
  struct coordinator_event emptied = {.kind = EVENT_STORE_EMPTIED};
  start_run(f, 3);
  reports_steps(f, S1, RUN, 0, 4);
  checkpoint(f);
  f->saves = 0;
  core_step(f, &emptied);
  assert_int_equal(f->saves, 1);
  assert_int_equal(info_of_run(f, RUN).checkpoints, 0);
  assert_int_equal(f->told[S1].write_step, 6); /* a new one as soon as may be */
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, core_setup, core_teardown)
  const struct CMUnitTest tests[] = {
      TEST(the_next_boundary_is_ordered_ahead),
      TEST(blocks_may_come_in_several_messages),
      TEST(what_came_too_late_is_ordered_further_ahead),
      TEST(old_checkpoints_are_dropped),
      TEST(the_best_evaluated_checkpoint_is_kept),
      TEST(the_best_by_a_named_metric_may_be_the_lowest),
      TEST(a_checkpoint_is_due_by_time),
      TEST(training_does_not_wait_for_a_store_in_trouble),
      TEST(a_server_that_comes_back_goes_on_where_it_was),
      TEST(a_run_rolls_back_on_the_servers_that_remain),
      TEST(a_restarted_server_is_not_waited_for),
      TEST(a_restarted_server_counts_after_the_coordinator_was_away_too),
      TEST(a_run_without_servers_waits_for_one),
      TEST(a_server_that_comes_back_too_late_lets_go),
      TEST(a_roll_back_waits_for_the_commit_in_flight),
      TEST(a_lost_checkpoint_gives_way_to_the_one_before),
      TEST(a_server_of_another_store_is_left_out_and_no_checkpoint_suffers),
      TEST(a_run_without_another_server_waits_and_asks_again),
      TEST(a_run_whose_model_is_lost_fails_and_says_so),
      TEST(a_server_that_cannot_load_is_asked_again_before_the_run_fails),
      TEST(a_worker_that_returns_is_asked_for_the_run_that_it_has),
      TEST(the_new_link_of_a_process_ends_its_former_one),
      TEST(two_members_never_have_one_id),
      TEST(a_member_of_a_higher_term_is_refused_and_the_store_asked),
      TEST(the_first_coordinator_of_an_empty_store_steps_down_for_members_of_a_higher_term),
      TEST(a_paused_run_holds_nothing_and_goes_on_from_its_checkpoint),
      TEST(a_run_that_has_not_begun_is_paused_at_once),
      TEST(an_answer_to_an_order_that_is_over_is_not_taken_for_another),
      TEST(runs_short_of_workers_do_not_wait_for_each_other),
      TEST(a_pause_does_not_wait_for_workers_that_are_gone),
      TEST(a_resume_drops_what_comes_again),
      TEST(a_commit_that_a_cancelled_run_had_under_way_counts),
      TEST(a_successor_takes_up_servers_and_workers_where_they_are),
      TEST(the_end_awaits_the_steps_that_are_to_be_told_again),
      TEST(what_a_former_incarnation_left_above_the_base_is_dropped),
      TEST(a_successor_rolls_back_when_servers_stay_away),
      TEST(a_successor_begins_again_what_had_not_begun),
      TEST(a_run_that_only_had_to_say_so_is_done),
      TEST(a_damaged_record_is_left_out),
      TEST(an_emptied_store_is_given_everything_again),
  };
#undef TEST
  log_set_level(LOG_ERROR + 1); /* damaged records are logged as errors */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
