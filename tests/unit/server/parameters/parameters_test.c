/* What a parameter server promises to workers, over real RPC. */
#include <arpa/inet.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/common/patience.h"
#include "tests/support/model/model_bytes.h"
#include "tests/support/parameters/parameters_calls.h"

static void the_last_part_makes_the_next_version_for_all_who_wait(void **state) {
  struct parameters_fixture f;
  struct attempt worker[3];
  float before, after;
  (void)state;
  parameters_fixture_init(&f, 1);
  pull_first_element(&f, 0, 0, &before);
  start_waiting_part(&f, &worker[0], 0, 0, 5);
  start_pull(&f, &worker[1], 0, 1);
  wait_parked(&f, 0, 2);
  push_all_but_last(&f, 1, 0); /* another block's parts complete nothing here */
  for (uint32_t m = 1; m < MICROBATCHES - 1; m++)
    push_part(&f, 0, 0, m, 0);
  assert_false(attempt_is_done(&worker[0]) || attempt_is_done(&worker[1]));
  start_waiting_part(&f, &worker[2], 0, 0, 0);
  for (int w = 0; w < 3; w++) {
    attempt_finish(&worker[w]);
    assert_int_equal(worker[w].err.code, 0);
    after = before - 0.5f * (1 + 2 + 3 + 4 + 5 + 6);
    assert_int_equal(worker[w].size_bytes, block_elems[0] * sizeof(float));
    assert_true(worker[w].data[0] == after);
    finish_with_version(&worker[w], 1);
  }
  parameters_fixture_fini(&f);
}

static void momentum_is_kept_from_step_to_step(void **state) {
  struct parameters_fixture f;
  float before, after;
  (void)state;
  parameters_fixture_init(&f, 1);
  pull_first_element(&f, 2, 0, &before);
  push_version(&f, 0);
  push_step(&f, 2, 1);
  pull_first_element(&f, 2, 2, &after);
  assert_true(after == before - 0.5f * 21 - 0.5f * (0.5f * 21 + 27));
  parameters_fixture_fini(&f);
}

static void a_late_part_is_acknowledged_and_adds_nothing(void **state) {
  struct parameters_fixture f;
  struct attempt late;
  float before, after;
  (void)state;
  parameters_fixture_init(&f, 1);
  pull_first_element(&f, 0, 0, &before);
  push_version(&f, 0);
  push_part(&f, 0, 0, 3, 1);
  start_waiting_part(&f, &late, 0, 0, 3);
  finish_with_version(&late, 1);
  push_step(&f, 0, 1);
  pull_first_element(&f, 0, 2, &after);
  assert_true(after == before - 0.5f * 21 - 0.5f * (0.5f * 21 + 27));
  parameters_fixture_fini(&f);
}

static void a_version_stays_until_a_push_proves_the_next_one_complete(void **state) {
  struct parameters_fixture f;
  struct attempt old;
  float element;
  (void)state;
  parameters_fixture_init(&f, 1);
  push_version(&f, 0);
  pull_first_element(&f, 0, 0, &element);
  push_part(&f, 1, 1, 0, 1);
  start_pull(&f, &old, 0, 0);
  finish_with_error(&old, ERR_DROPPED, "block 0: version 0 was dropped, the newest is 1");
  push_step(&f, 0, 1);
  start_waiting_part(&f, &old, 0, 0, 0);
  finish_with_version(&old, 1);
  for (uint32_t block = 1; block < BLOCKS; block++)
    push_step(&f, block, 1);
  push_part(&f, 0, 2, 0, 2);
  start_waiting_part(&f, &old, 0, 0, 0);
  finish_with_error(&old, ERR_DROPPED, "version 1 was dropped");
  parameters_fixture_fini(&f);
}

static void refuse(struct parameters_fixture *f, Weir__PushRequest push, size_t size_bytes,
                   enum err_code code, const char *text) {
  struct attempt attempt;
  start_push(f, &attempt, &push, f->values, size_bytes);
  finish_with_error(&attempt, code, text);
}

/* First block 0 alone has version 1, then all blocks have it. */
static void a_push_that_is_refused_proves_nothing(void **state) {
  struct parameters_fixture f;
  size_t size_bytes;
  float element;
  (void)state;
  parameters_fixture_init(&f, 1);
  size_bytes = part_of(&f, 0, 1);
  push_step(&f, 0, 0);
  refuse(&f, push_request(0, 1, 0, 0), size_bytes - 4, ERR_INVALID, "bytes of data");
  refuse(&f, push_request(0, 1, 0, 0), size_bytes, ERR_INVALID,
         "computed from version 1, but another block of this server is at version 0");
  refuse(&f, push_request(0, 2, 0, 0), size_bytes, ERR_INVALID, "but the block is at version 1");
  pull_first_element(&f, 0, 0, &element);
  for (uint32_t block = 1; block < BLOCKS; block++)
    push_step(&f, block, 0);
  refuse(&f, push_request(0, 1, 0, 0), part_of(&f, 0, NAN), ERR_INVALID, "element 0 is nan");
  refuse(&f, push_request(STATISTICS_BLOCK, 1, 0, 0), part_of(&f, STATISTICS_BLOCK, NAN), ERR_INVALID,
         "is nan");
  for (uint32_t block = 0; block < BLOCKS; block++)
    pull_first_element(&f, block, 0, &element);
  parameters_fixture_fini(&f);
}

static void versions_are_the_lowest_and_the_highest(void **state) {
  Weir__VersionsRequest request = WEIR__VERSIONS_REQUEST__INIT;
  struct parameters_fixture f;
  struct err err;
  void *reply;
  (void)state;
  parameters_fixture_init(&f, 1);
  push_step(&f, 2, 0);
  push_step(&f, 0, 0);
  request.run = (char *)"unit-1";
  request.incarnation = 1;
  assert_int_equal(rpc_unary(f.channel, &(struct rpc_question){RPC_VERSIONS, &request, patience_ms()}, false,
                             &reply, &err),
                   0);
  assert_int_equal(((Weir__VersionsReply *)reply)->lowest, 0);
  assert_int_equal(((Weir__VersionsReply *)reply)->highest, 1);
  protobuf_c_message_free_unpacked(reply, NULL);
  request.incarnation = 2;
  assert_int_equal(rpc_unary(f.channel, &(struct rpc_question){RPC_VERSIONS, &request, patience_ms()}, false,
                             &reply, &err),
                   ERR_STALE);
  parameters_fixture_fini(&f);
}

static void a_wrong_push_is_refused_and_the_server_lives_on(void **state) {
  struct parameters_fixture f;
  size_t size_bytes;
  Weir__PushRequest push = push_request(2, 0, 0, 0);
  (void)state;
  parameters_fixture_init(&f, 1);
  size_bytes = part_of(&f, 2, 1);
  push.run = (char *)"other";
  refuse(&f, push, size_bytes, ERR_NOT_FOUND, "there is no run 'other' on this server");
  push = push_request(2, 0, 0, 0);
  push.incarnation = 0;
  refuse(&f, push, size_bytes, ERR_STALE, "run 'unit-1' is in incarnation 1 here, not in 0");
  refuse(&f, push_request(4, 0, 0, 0), size_bytes, ERR_INVALID, "there is no block 4, the model has 4");
  refuse(&f, push_request(2, 0, 0, 0), size_bytes - 4, ERR_INVALID,
         "block 2 of step 0: 7208 bytes of data, but its 1803 elements are 7212 bytes");
  refuse(&f, push_request(2, 0, 0, 0), size_bytes + 4, ERR_INVALID, "7216 bytes of data, but its 1803");
  refuse(&f, push_request(2, 0, 0, 0), 0, ERR_INVALID, "0 bytes of data");
  refuse(&f, push_request(2, 0, 1, 1), size_bytes, ERR_INVALID, "first 1, level 1 is no node of the tree");
  refuse(&f, push_request(2, 0, 0, 4000000000), size_bytes, ERR_INVALID, "is no node");
  refuse(&f, push_request(2, 0, 6, 0), size_bytes, ERR_INVALID, "is no node");
  refuse(&f, push_request(2, 1, 0, 0), size_bytes, ERR_INVALID,
         "computed from version 1, but the block is at version 0");
  refuse(&f, push_request(2, 3, 0, 0), size_bytes, ERR_INVALID, "nothing follows version 3");
  push = push_request(2, 0, 0, 0);
  push.evaluation = true;
  refuse(&f, push, size_bytes, ERR_INVALID, "it is no statistics block");
  push_step(&f, 2, 0);
  parameters_fixture_fini(&f);
}

static void a_wrong_row_is_refused(void **state) {
  struct parameters_fixture f;
  size_t size_bytes;
  Weir__PushRequest push = push_request(STATISTICS_BLOCK, 0, 0, 1);
  (void)state;
  parameters_fixture_init(&f, 1);
  size_bytes = part_of(&f, STATISTICS_BLOCK, 1);
  refuse(&f, push, size_bytes, ERR_INVALID, "level must be 0, not 1");
  push = push_request(STATISTICS_BLOCK, 0, 0, 0);
  push.evaluation = true;
  refuse(&f, push, size_bytes, ERR_INVALID, "version 0 is not evaluated");
  push.step = STEPS;
  push.first = CHUNKS;
  refuse(&f, push, size_bytes, ERR_INVALID, "there is no eval chunk 2, the plan has 2");
  push.first = 0;
  refuse(&f, push, size_bytes, ERR_INVALID, "2420 bytes of data, but an evaluation row's 5 elements are 20");
  size_bytes = METRICS * sizeof(float);
  refuse(&f, push, size_bytes, ERR_INVALID, "computed from version 3, but the block is at version 0");
  push.wait = true;
  refuse(&f, push, size_bytes, ERR_INVALID, "nothing follows version 3");
  parameters_fixture_fini(&f);
}

static void a_gradient_that_is_not_finite_never_reaches_the_weights(void **state) {
  struct parameters_fixture f;
  size_t size_bytes;
  float before, after;
  (void)state;
  parameters_fixture_init(&f, 1);
  size_bytes = part_of(&f, 2, 1);
  pull_first_element(&f, 2, 0, &before);
  push_all_but_last(&f, 2, 0);
  part_of(&f, 2, 1);
  f.values[7] = NAN;
  refuse(&f, push_request(2, 0, 5, 0), size_bytes, ERR_INVALID,
         "run 'unit-1': block 2 of step 0, microbatch 5.. (level 0), from ipv4:127.0.0.1:");
  f.values[7] = INFINITY;
  refuse(&f, push_request(2, 0, 5, 0), size_bytes, ERR_INVALID, ": element 7 is inf, not a finite number");
  push_part(&f, 2, 0, 5, 1);
  pull_first_element(&f, 2, 1, &after);
  assert_true(after == before - 0.5f * 21);
  parameters_fixture_fini(&f);
}

static void a_block_of_another_server_is_refused(void **state) {
  struct parameters_fixture f;
  (void)state;
  parameters_fixture_init(&f, 2);
  refuse(&f, push_request(1, 0, 0, 0), part_of(&f, 1, 1), ERR_INVALID, "block 1 belongs to another server");
  push_step(&f, 0, 0);
  parameters_fixture_fini(&f);
}

static void a_version_beyond_the_last_is_refused(void **state) {
  struct parameters_fixture f;
  struct attempt attempt;
  (void)state;
  parameters_fixture_init(&f, 1);
  start_pull(&f, &attempt, 0, STEPS + 1);
  finish_with_error(&attempt, ERR_INVALID, "there will be no version 4, the run's last is 3");
  parameters_fixture_fini(&f);
}

static void a_parked_call_whose_client_is_gone_is_forgotten(void **state) {
  struct parameters_fixture f;
  struct attempt gone, waiting;
  (void)state;
  parameters_fixture_init(&f, 1);
  start_waiting_part(&f, &gone, 0, 0, 0);
  start_waiting_part(&f, &waiting, 0, 0, 1);
  wait_parked(&f, 0, 2);
  rpc_request_cancel(&gone.request);
  finish_with_error(&gone, ERR_CANCELLED, "");
  wait_parked(&f, 0, 1);
  for (uint32_t m = 2; m < MICROBATCHES - 1; m++)
    push_part(&f, 0, 0, m, 0);
  push_part(&f, 0, 0, MICROBATCHES - 1, 1); /* the part of the one that is gone counts */
  finish_with_version(&waiting, 1);
  parameters_fixture_fini(&f);
}

static void unloading_a_run_ends_its_parked_calls(void **state) {
  struct parameters_fixture f;
  struct attempt waiting, pulling;
  (void)state;
  parameters_fixture_init(&f, 1);
  start_waiting_part(&f, &waiting, 0, 0, 0);
  start_pull(&f, &pulling, 1, 2);
  wait_parked(&f, 0, 1);
  wait_parked(&f, 1, 1);
  run_table_remove(&f.runs, "unit-1", "it was cancelled");
  finish_with_error(&waiting, ERR_CANCELLED, "run 'unit-1' was unloaded: it was cancelled");
  finish_with_error(&pulling, ERR_CANCELLED, "run 'unit-1' was unloaded: it was cancelled");
  start_pull(&f, &pulling, 1, 0);
  finish_with_error(&pulling, ERR_NOT_FOUND, "there is no run 'unit-1'");
  parameters_fixture_fini(&f);
}

static void a_newer_incarnation_takes_the_place_of_the_older(void **state) {
  struct parameters_fixture f;
  struct attempt waiting;
  struct err err;
  (void)state;
  parameters_fixture_init(&f, 1);
  start_waiting_part(&f, &waiting, 0, 0, 0);
  wait_parked(&f, 0, 1);
  assert_int_equal(load_order(&f, make_order(2, 1), &err), 0);
  finish_with_error(&waiting, ERR_CANCELLED, "a newer incarnation was loaded");
  start_part(&f, &waiting, 0, 0, 0);
  finish_with_error(&waiting, ERR_STALE, "run 'unit-1' is in incarnation 2 here, not in 1");
  assert_int_equal(load_order(&f, make_order(1, 1), &err), ERR_STALE);
  assert_int_equal(load_order(&f, make_order(2, 1), &err), ERR_EXISTS);
  parameters_fixture_fini(&f);
}

static void a_version_that_is_to_be_evaluated_waits_for_its_evaluation(void **state) {
  struct parameters_fixture f;
  struct attempt next;
  (void)state;
  parameters_fixture_init(&f, 1);
  push_version(&f, 0);
  push_version(&f, 1);
  start_pull(&f, &next, STATISTICS_BLOCK, 3);
  push_eval(&f, 2, 1, 2);
  push_all_but_last(&f, STATISTICS_BLOCK, 2);
  push_part(&f, STATISTICS_BLOCK, 2, MICROBATCHES - 1, 2);
  wait_parked(&f, STATISTICS_BLOCK, 1);
  assert_int_equal(f.n_told, 2);
  push_eval(&f, 2, 0, 3);
  finish_with_version(&next, 3);
  wait_told(&f, 4);
  assert_int_equal(f.told[2], WEIR__MEMBER_MESSAGE__BODY_EVAL);
  assert_int_equal(f.told[3], WEIR__MEMBER_MESSAGE__BODY_STEP);
  assert_true(f.eval.step == 2 && f.eval.samples == 200 && f.step.step == 2);
  parameters_fixture_fini(&f);
}

static void a_run_is_complete_when_its_last_version_is_evaluated(void **state) {
  enum { TOLD = STEPS + 1 }; /* and one evaluation */
  struct parameters_fixture f;
  (void)state;
  parameters_fixture_init(&f, 1);
  for (uint64_t step = 0; step < STEPS; step++)
    for (uint32_t block = 0; block < BLOCKS; block++) {
      for (uint32_t chunk = 0; step == EVAL_EVERY && block == STATISTICS_BLOCK && chunk < CHUNKS; chunk++)
        push_eval(&f, step, chunk, step);
      push_step(&f, block, step);
    }
  wait_told(&f, TOLD);
  assert_int_equal(f.n_told, TOLD);
  assert_int_equal(f.step.step, 2);
  assert_true(f.step.loss == 1 && f.step.lr == 0.5 && f.step.samples == 3 + 4 + 5 + 6 + 7 + 8);
  push_eval(&f, STEPS, 1, STEPS);
  push_eval(&f, STEPS, 1, STEPS);
  assert_int_equal(f.n_told, TOLD);
  push_eval(&f, STEPS, 0, STEPS);
  wait_told(&f, TOLD + 2);
  assert_int_equal(f.told[TOLD], WEIR__MEMBER_MESSAGE__BODY_EVAL);
  assert_int_equal(f.told[TOLD + 1], WEIR__MEMBER_MESSAGE__BODY_COMPLETE);
  assert_true(f.eval.step == STEPS && f.eval.loss == 0.5 && f.eval.accuracy == 0.75 && f.eval.samples == 200);
  push_eval(&f, STEPS, 0, STEPS);
  parameters_fixture_fini(&f);
}

static void an_order_that_does_not_fit_is_refused(void **state) {
  struct parameters_fixture f;
  struct err err;
  Weir__LoadRun order;
  (void)state;
  parameters_fixture_init(&f, 1);
  order = *make_order(3, 1);
  order.plan->steps = 4;
  assert_int_equal(load_order(&f, &order, &err), ERR_INVALID);
  assert_string_equal(err.text, "the order to load run 'unit-1' says 4 steps, its spec and data make 3");
  order = *make_order(3, 1);
  order.servers[0]->id = (char *)"server-9";
  assert_int_equal(load_order(&f, &order, &err), ERR_INVALID);
  order = *make_order(3, 1);
  order.plan = NULL;
  assert_int_equal(load_order(&f, &order, &err), ERR_INVALID);
  order = *make_order(3, 1);
  order.spec->train->mode = (char *)"psychic";
  assert_int_equal(load_order(&f, &order, &err), ERR_INVALID);
  assert_string_equal(err.text, "train.mode: unknown mode 'psychic'; known: sync, ssp, local, async");
  f.model_bytes /= 2;
  assert_int_equal(load_order(&f, make_order(3, 1), &err), ERR_INVALID);
  parameters_fixture_fini(&f);
}

static void a_server_that_is_sent_garbage_lives_on(void **state) {
  struct parameters_fixture f;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  char byte;
  int fd;
  (void)state;
  parameters_fixture_init(&f, 1);
  address.sin_port = htons((uint16_t)rpc_server_port(f.server));
  fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  part_of(&f, 0, -3.25e-7f);
  assert_true(send(fd, f.values, sizeof f.values, MSG_NOSIGNAL) > 0);
  while (recv(fd, &byte, 1, 0) > 0) /* until the server has had enough */
    ;
  close(fd);
  push_step(&f, 0, 0);
  parameters_fixture_fini(&f);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_part_makes_the_next_version_for_all_who_wait),
      cmocka_unit_test(momentum_is_kept_from_step_to_step),
      cmocka_unit_test(a_late_part_is_acknowledged_and_adds_nothing),
      cmocka_unit_test(a_version_stays_until_a_push_proves_the_next_one_complete),
      cmocka_unit_test(a_push_that_is_refused_proves_nothing),
      cmocka_unit_test(versions_are_the_lowest_and_the_highest),
      cmocka_unit_test(a_wrong_push_is_refused_and_the_server_lives_on),
      cmocka_unit_test(a_wrong_row_is_refused),
      cmocka_unit_test(a_gradient_that_is_not_finite_never_reaches_the_weights),
      cmocka_unit_test(a_block_of_another_server_is_refused),
      cmocka_unit_test(a_version_beyond_the_last_is_refused),
      cmocka_unit_test(a_parked_call_whose_client_is_gone_is_forgotten),
      cmocka_unit_test(unloading_a_run_ends_its_parked_calls),
      cmocka_unit_test(a_newer_incarnation_takes_the_place_of_the_older),
      cmocka_unit_test(a_version_that_is_to_be_evaluated_waits_for_its_evaluation),
      cmocka_unit_test(a_run_is_complete_when_its_last_version_is_evaluated),
      cmocka_unit_test(an_order_that_does_not_fit_is_refused),
      cmocka_unit_test(a_server_that_is_sent_garbage_lives_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
