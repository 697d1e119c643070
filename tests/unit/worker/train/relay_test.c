/* A worker in a group of two, whose other member is the test: it comes late or never, and dies or freezes at
   any point of what members do together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/log.h"
#include "tests/support/common/patience.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/train/run/group.h"

enum { GROUP = 5, BRIEF_MS = 100 };

static const char us[] = "worker-1", them[] = "worker-2";

/* What the other member does before it is gone. */
enum phase { NOTHING, MEETS, AGREES, GIVES_SOME, GIVES, TAKES_SOME, TAKES, ALL };

/* The other member. */
struct peer {
  struct worker_fixture *f;
  int rank;
  const struct collective_def *def;
  struct collective *up, *down;
  struct block_map map;
  struct bucket_plan plan;
  float *memory; /* f32[BLOCK_ELEMS_MAX] */
  float spoils;  /* an element of the first block that it gives, once; 0: none */
};

static int setup_group(void **state) {
  struct worker_fixture *f = fixture_new(false);
  f->spec->train->collective = mem_strdup("shm");
  *state = f;
  return 0;
}

/* A view with one microbatch for each, the lower for rank 0; or with all of them for us. */
static void show_number(struct worker_fixture *f, uint64_t number, uint32_t group, int our_rank,
                        bool are_we_alone) {
  struct pair_view of = {.number = number, .group = group, .alone = are_we_alone ? our_rank : -1};
  of.names[our_rank] = us;
  of.names[!our_rank] = them;
  of.runs[our_rank] = f->run;
  fixture_give_pair(f, of);
}

static struct collective *peer_open(const struct peer *peer, const char *what) {
  struct group group = {.incarnation = 1, .number = GROUP, .rank = peer->rank, .size = 2};
  char name[COLLECTIVE_NAME_MAX + 1];
  struct collective_options options = {
      .name = name, .rank = peer->rank, .size = 2, .timeout_ms = patience_ms()};
  struct collective *opened = NULL;
  struct err err = ERR_NONE;
  group_name(&group, fixture_run_id(), what, name);
  if (peer->def->open(&options, &opened, &err))
    fail_msg("%s", err.text);
  return opened;
}

/* Does a call on the peer's memory, which also gets what the call brings. */
static void peer_do(const struct peer *peer, struct collective *collective, struct collective_call call) {
  bool gets = call.kind != COLLECTIVE_SEND && (call.kind != COLLECTIVE_BROADCAST || call.root != peer->rank);
  struct err err = ERR_NONE;
  call.in = peer->memory;
  call.out = gets ? peer->memory : NULL;
  if (collective_run(peer->def, collective, &call, &err))
    fail_msg("%s", err.text);
}

static void peer_agree(struct peer *peer) {
  float all[8] = {0};
  struct collective_call call = {
      .kind = COLLECTIVE_ALL_GATHER, .in = all + 4 * peer->rank, .out = all, .elems = 4};
  struct err err = ERR_NONE;
  if (collective_run(peer->def, peer->down, &call, &err))
    fail_msg("%s", err.text);
}

/* What a step needs of the other member: its part of each of so many blocks, or ours, if it is the owner. */
static void peer_give(struct peer *peer, uint32_t blocks) {
  for (uint32_t i = 0; i < blocks; i++) {
    uint32_t elems = peer->f->model->blocks[peer->plan.order[i]].elems;
    memset(peer->memory, 0, elems * sizeof(float));
    peer->memory[0] = peer->spoils;
    peer->spoils = 0;
    peer_do(peer, peer->up,
            (struct collective_call){.kind = peer->rank == 0 ? COLLECTIVE_RECEIVE : COLLECTIVE_SEND,
                                     .root = 1 - peer->rank,
                                     .elems = elems});
  }
}

static void peer_take(struct peer *peer, uint32_t blocks) {
  for (uint32_t i = 0; i < blocks; i++) {
    uint32_t block = peer->plan.order[i];
    model_initial_block(peer->f->model, block, peer->memory);
    peer_do(peer, peer->down,
            (struct collective_call){
                .kind = COLLECTIVE_BROADCAST, .root = 0, .elems = peer->f->model->blocks[block].elems});
  }
}

static void peer_begin(struct peer *peer, struct worker_fixture *f, int rank) {
  *peer = (struct peer){.f = f, .rank = rank, .def = collective_find("shm")};
  peer->memory = mem_new(BLOCK_ELEMS_MAX * sizeof(float));
  block_map_init(&peer->map, f->model);
  bucket_plan_init(&peer->plan, f->model, &peer->map, 2, BUCKET_BYTES);
  assert_int_equal(peer->plan.n_buckets, 1); /* which rank 0 owns */
}

/* From step 1 to the end. */
static void peer_go_on(struct peer *peer) {
  for (uint64_t step = 1; step < STEPS; step++) {
    peer_give(peer, peer->f->model->n_param_blocks);
    peer_take(peer, peer->f->model->n_param_blocks);
  }
}

static void peer_act(struct peer *peer, enum phase last) {
  uint32_t blocks = peer->f->model->n_param_blocks;
  if (last >= MEETS) {
    peer->up = peer_open(peer, "up");
    peer->down = peer_open(peer, "down");
  }
  if (last >= AGREES)
    peer_agree(peer);
  if (last >= GIVES_SOME)
    peer_give(peer, last == GIVES_SOME ? 1 : blocks);
  if (last >= TAKES_SOME)
    peer_take(peer, last == TAKES_SOME ? 1 : blocks);
  if (last == ALL)
    peer_go_on(peer);
}

static void peer_end(struct peer *peer) {
  peer->def->close(peer->up);
  peer->def->close(peer->down);
  bucket_plan_fini(&peer->plan);
  block_map_fini(&peer->map);
  free(peer->memory);
}

static bool is_loaded(const struct worker_fixture *f) {
  return f->n_loaded > 0;
}

/* Loads the run and shows it the group. Where the other member never comes, the worker is given time to begin
   to wait for it: nothing says when it does. */
static void show_group(struct worker_fixture *f, int our_rank, enum phase phase) {
  fixture_load(f, backend_find("ref"), 1);
  fixture_wait(f, is_loaded);
  show_number(f, 1, GROUP, our_rank, false);
  if (phase == NOTHING)
    fixture_linger(100);
}

static bool has_group_failed(const struct worker_fixture *f) {
  return f->n_groups_failed > 0;
}

/* Every version of the statistics block, which is not the group's, was made. */
static bool is_last_row_sent(const struct worker_fixture *f) {
  return f->servers[0].version[f->model->n_blocks - 1] == STEPS;
}

/* Pushes of parameter blocks that cover both microbatches, in a step. */
static int count_sums(const struct worker_fixture *f, uint64_t step) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n +=
        f->pushes[i].block < f->model->n_param_blocks && f->pushes[i].step == step && f->pushes[i].level == 1;
  return n;
}

/* Pushes of parameter blocks at all. */
static int count_parts(const struct worker_fixture *f) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].block < f->model->n_param_blocks;
  return n;
}

static void the_owner_of_a_block_pushes_the_sum_of_the_group_once(void **state) {
  struct worker_fixture *f = *state;
  struct peer peer;
  peer_begin(&peer, f, 1);
  fixture_load(f, backend_find("ref"), 1);
  show_number(f, 1, GROUP, 0, false);
  peer_act(&peer, ALL);
  fixture_wait(f, is_trained);
  for (uint64_t step = 0; step < STEPS; step++)
    assert_int_equal(count_sums(f, step), f->model->n_param_blocks);
  assert_int_equal(count_parts(f), STEPS * f->model->n_param_blocks);
  assert_int_equal(f->n_groups_failed, 0);
  peer_end(&peer);
}

static void who_owns_nothing_pushes_no_gradient(void **state) {
  struct worker_fixture *f = *state;
  struct peer peer;
  peer_begin(&peer, f, 0);
  fixture_load(f, backend_find("ref"), 1);
  show_number(f, 1, GROUP, 1, false);
  peer_act(&peer, ALL);
  fixture_wait(f, is_last_row_sent);
  assert_int_equal(count_parts(f), 0);
  peer_end(&peer);
}

static void a_view_that_leaves_the_group_as_it_is_does_not_disturb_it(void **state) {
  struct worker_fixture *f = *state;
  struct peer peer;
  peer_begin(&peer, f, 1);
  fixture_load(f, backend_find("ref"), 1);
  show_number(f, 1, GROUP, 0, false);
  peer_act(&peer, GIVES);
  show_number(f, 2, GROUP, 0, false);
  peer_take(&peer, f->model->n_param_blocks);
  peer_go_on(&peer);
  fixture_wait(f, is_trained);
  assert_int_equal(f->n_groups_failed, 0);
  peer_end(&peer);
}

/* Pushes of microbatches alone, of a parameter block or of any. */
static int count_alone(const struct worker_fixture *f, uint64_t step, uint32_t block) {
  int n = 0;
  for (int i = 0; i < f->n_pushes; i++)
    n += f->pushes[i].block < f->model->n_param_blocks && f->pushes[i].step == step &&
         f->pushes[i].level == 0 && (block == UINT32_MAX || f->pushes[i].block == block);
  return n;
}

static bool are_all_alone(const struct worker_fixture *f) {
  return count_alone(f, 0, UINT32_MAX) == MICROBATCHES * (int)f->model->n_param_blocks;
}

/* The other's part is a sum that overflowed there. Whose microbatch it was, only parts of each alone show. */
static void microbatches_of_a_groups_sum_that_overflows_are_pushed_by_themselves(void **state) {
  struct worker_fixture *f = *state;
  struct peer peer;
  peer_begin(&peer, f, 1);
  peer.spoils = INFINITY;
  f->servers[0].parks_pulls = true;
  fixture_load(f, backend_find("ref"), 1);
  show_number(f, 1, GROUP, 0, false);
  peer_act(&peer, GIVES);
  fixture_wait(f, are_all_alone);
  fake_server_reach(&f->servers[0], 1); /* it has added them */
  peer_take(&peer, f->model->n_param_blocks);
  peer_go_on(&peer);
  fixture_wait(f, is_trained);
  for (uint32_t i = 0; i < f->model->n_param_blocks; i++)
    assert_int_equal(count_alone(f, 0, peer.plan.order[i]), MICROBATCHES);
  assert_int_equal(count_sums(f, 0), f->model->n_param_blocks - 1);
  for (uint64_t step = 1; step < STEPS; step++)
    assert_int_equal(count_sums(f, step), f->model->n_param_blocks);
  assert_int_equal(f->n_groups_failed, 0);
  assert_false(f->is_refused);
  peer_end(&peer);
}

static void extra_tasks_do_not_wait_for_the_group(void **state) {
  struct worker_fixture *f = *state;
  Weir__Reissue order = WEIR__REISSUE__INIT;
  Weir__Range range = WEIR__RANGE__INIT, *ranges[] = {&range};
  struct peer peer;
  peer_begin(&peer, f, 1);
  fixture_load(f, backend_find("ref"), 1);
  show_number(f, 1, GROUP, 0, false);
  peer_act(&peer, AGREES);
  range.end = MICROBATCHES;
  order.run = (char *)fixture_run_id();
  order.incarnation = 1;
  order.microbatches = ranges;
  order.n_microbatches = 1;
  run_reissue(f->run, &order);
  fixture_wait(f, are_all_alone);
  assert_int_equal(count_sums(f, 0), 0);
  peer_give(&peer, f->model->n_param_blocks);
  peer_take(&peer, f->model->n_param_blocks);
  peer_go_on(&peer);
  fixture_wait(f, is_trained);
  assert_int_equal(count_sums(f, 0), f->model->n_param_blocks);
  peer_end(&peer);
}

/* It is gone after each phase; a view tells that, or the group's end does, and then a view. The view ends a
   wait for the other, which else lasts a week. */
static void end_in_phase(enum phase phase, int our_rank, bool aborts) {
  void *state;
  struct worker_fixture *f;
  struct peer peer;
  setup_group(&state);
  f = state;
  peer_begin(&peer, f, 1 - our_rank);
  show_group(f, our_rank, phase);
  peer_act(&peer, phase);
  if (aborts) {
    peer.def->abort(peer.up);
    peer.def->abort(peer.down);
    fixture_wait(f, has_group_failed);
    assert_int_equal(f->failed_group, GROUP);
  }
  show_number(f, 2, 0, our_rank, true);
  fixture_wait(f, is_trained);
  assert_false(f->is_refused);
  peer_end(&peer);
  fixture_free(f);
}

static void whoever_is_left_goes_on_wherever_the_other_died(void **state) {
  (void)state;
  for (int our_rank = 0; our_rank < 2; our_rank++)
    for (enum phase phase = MEETS; phase < ALL; phase++)
      end_in_phase(phase, our_rank, true);
}

static void whoever_is_left_goes_on_wherever_the_other_froze(void **state) {
  (void)state;
  for (int our_rank = 0; our_rank < 2; our_rank++)
    for (enum phase phase = NOTHING; phase < ALL; phase++)
      end_in_phase(phase, our_rank, false);
}

/* Nobody makes another group, for the coordinator is away. */
static void without_news_a_worker_whose_group_is_no_more_goes_on_alone(void **state) {
  struct worker_fixture *f = *state;
  struct peer peer;
  peer_begin(&peer, f, 1);
  fixture_load(f, backend_find("ref"), 1);
  show_number(f, 1, GROUP, 0, false);
  peer_act(&peer, GIVES);
  peer.def->abort(peer.up);
  fixture_wait(f, is_trained);
  assert_int_equal(f->n_groups_failed, 1);
  assert_int_equal(count_sums(f, STEPS - 1), 0);
  peer_end(&peer);
}

static void a_run_is_stopped_while_it_waits_for_its_group(void **state) {
  for (enum phase phase = NOTHING; phase < ALL; phase++) {
    struct worker_fixture *f;
    struct peer peer;
    setup_group(state);
    f = *state;
    peer_begin(&peer, f, 1);
    show_group(f, 0, phase);
    peer_act(&peer, phase);
    patience_begin();
    run_stop(f->run);
    patience_end();
    f->run = NULL;
    peer_end(&peer);
    fixture_free(f);
  }
}

/* Of one worker. */
struct forged {
  const char *worker;
  uint32_t begin, end, group;
};

/* What no coordinator of ours would say. */
static void show_forged(struct worker_fixture *f, const struct forged *of, size_t n) {
  Weir__View view = WEIR__VIEW__INIT;
  Weir__Endpoint endpoint = WEIR__ENDPOINT__INIT, *servers[] = {&endpoint};
  Weir__Assignment workers[2], *list[] = {&workers[0], &workers[1]};
  for (size_t i = 0; i < n; i++) {
    weir__assignment__init(&workers[i]);
    workers[i].worker = (char *)of[i].worker;
    workers[i].microbatch_begin = of[i].begin;
    workers[i].microbatch_end = of[i].end;
    workers[i].group = of[i].group;
  }
  endpoint.id = "server-1";
  endpoint.address = f->servers[0].target;
  view.run = (char *)fixture_run_id();
  view.number = view.incarnation = 1;
  view.servers = servers;
  view.n_servers = 1;
  view.workers = list;
  view.n_workers = n;
  run_view(f->run, &view, us);
}

/* A share of its own was computed, or a group was given up. */
static bool has_gone_on(const struct worker_fixture *f) {
  return f->n_pushes > 0 || f->n_groups_failed > 0;
}

static void a_forged_view_ends_nothing(void **state) {
  static const struct {
    struct forged workers[2];
    bool has_work;
  } views[] = {{{{us, 0, 1, 5}, {us, 1, 2, 0}}, true}, /* twice */
               {{{us, 0, 1, 5}, {us, 0, 1, 5}}, true},
               {{{us, 0, 1, 5}, {them, 0, 1, 5}}, true},    /* the same */
               {{{us, 0, 1, 5}, {them, 1, 4000, 5}}, true}, /* more than there are */
               {{{us, 0, 1, 5}, {them, 1, UINT32_MAX, 5}}, true},
               {{{them, 0, 1, 5}, {us, 1, 4000, 5}}, true},
               {{{us, 0, UINT32_MAX, 5}, {"", 0, 0, 5}}, true},
               {{{us, 0, 4000, 0}, {them, 0, 0, 0}}, true},
               {{{us, 2, 1, 5}, {them, 1, 2, 5}}, false}, /* less than none */
               {{{us, UINT32_MAX - 1, UINT32_MAX, UINT32_MAX}, {"", 0, 0, 0}}, false}};
  for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
    struct worker_fixture *f;
    setup_group(state);
    f = *state;
    f->meeting_ms = BRIEF_MS; /* some of these members never come */
    fixture_load(f, backend_find("ref"), 1);
    show_forged(f, views[i].workers, 2);
    if (views[i].has_work)
      fixture_wait(f, has_gone_on);
    show_number(f, 2, 0, 0, true);
    fixture_wait(f, is_trained);
    assert_false(f->is_refused);
    fixture_free(f);
  }
}

int main(void) {
  float_setting_apply();
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_group, worker_teardown)
  const struct CMUnitTest tests[] = {
      TEST(the_owner_of_a_block_pushes_the_sum_of_the_group_once),
      TEST(who_owns_nothing_pushes_no_gradient),
      TEST(a_view_that_leaves_the_group_as_it_is_does_not_disturb_it),
      TEST(microbatches_of_a_groups_sum_that_overflows_are_pushed_by_themselves),
      TEST(extra_tasks_do_not_wait_for_the_group),
      TEST(without_news_a_worker_whose_group_is_no_more_goes_on_alone),
      cmocka_unit_test(whoever_is_left_goes_on_wherever_the_other_died),
      cmocka_unit_test(whoever_is_left_goes_on_wherever_the_other_froze),
      cmocka_unit_test(a_forged_view_ends_nothing),
      cmocka_unit_test(a_run_is_stopped_while_it_waits_for_its_group),
  };
#undef TEST
  log_set_level(LOG_ERROR);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
