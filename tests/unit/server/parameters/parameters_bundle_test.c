/* Parts that are named in shared memory and come in one call. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/message.h"
#include "tests/support/common/patience.h"
#include "tests/support/parameters/share_worker.h"

/* Parts of one microbatch that come in one call. */
struct together {
  Weir__PushRequest push;
  Weir__FurtherPart parts[SHARE_PARTS_MAX], *list[SHARE_PARTS_MAX];
  Weir__SharedBytes names[SHARE_PARTS_MAX + 1];
  struct buffer *buffers[SHARE_PARTS_MAX + 1];
};

/* Of these blocks. */
static void together_init(struct share_worker *worker, struct together *together, uint32_t first,
                          const uint32_t *blocks, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    together->buffers[i] = share_worker_part(worker, blocks[i], (float)(first + 1), &together->names[i]);
  together->push = share_worker_push(worker, blocks[0], 0, first, &together->names[0]);
  for (uint32_t i = 1; i < n; i++) {
    together->list[i - 1] = &together->parts[i - 1];
    weir__further_part__init(&together->parts[i - 1]);
    together->parts[i - 1].block = blocks[i];
    together->parts[i - 1].shared = &together->names[i];
  }
  together->push.further = together->list;
  together->push.n_further = n - 1;
}

static void together_fini(struct together *together) {
  for (size_t i = 0; i <= together->push.n_further; i++)
    buffer_put(together->buffers[i]);
}

static Weir__PushReply *ask_together(struct share_worker *worker, const struct together *together) {
  struct err err = ERR_NONE;
  void *reply;
  if (share_worker_ask(worker, RPC_PUSH, &together->push, &reply, &err))
    fail_msg("%s", err.text);
  assert_int_equal(((Weir__PushReply *)reply)->n_answers, 1 + together->push.n_further);
  return reply;
}

static void parts_that_come_together_are_answered_each_by_itself(void **state) {
  struct share_worker *worker = *state;
  struct together together;
  Weir__PushReply *reply;
  float before, after;
  pull_first_element(&worker->server, 0, 0, &before);
  together_init(worker, &together, 0, (uint32_t[]){0, 1, 2, 1}, 4);
  together.parts[0].block = BLOCKS;
  together.names[3].size -= 4;
  reply = ask_together(worker, &together);
  assert_int_equal(reply->answers[0]->status, 0);
  assert_int_equal(err_from_grpc_status((int)reply->answers[1]->status), ERR_INVALID);
  assert_int_equal(reply->answers[2]->status, 0);
  assert_int_equal(err_from_grpc_status((int)reply->answers[3]->status), ERR_INVALID);
  assert_non_null(strstr(reply->answers[3]->error, "bytes of data, but its"));
  message_free(reply);
  together_fini(&together);
  for (uint32_t m = 1; m < MICROBATCHES; m++) {
    push_part(&worker->server, 0, 0, m, m + 1 == MICROBATCHES);
    push_part(&worker->server, 2, 0, m, m + 1 == MICROBATCHES);
  }
  pull_first_element(&worker->server, 0, 1, &after);
  assert_true(after == before - 0.5f * 21);
  push_step(&worker->server, 1, 0); /* of which nothing was counted */
}

static void one_that_comes_twice_counts_once(void **state) {
  struct share_worker *worker = *state;
  struct together together;
  Weir__PushReply *reply;
  float before, after;
  pull_first_element(&worker->server, 0, 0, &before);
  together_init(worker, &together, 0, (uint32_t[]){0, 0, 0}, 3);
  reply = ask_together(worker, &together);
  for (size_t i = 0; i < reply->n_answers; i++)
    assert_int_equal(reply->answers[i]->status, 0);
  message_free(reply);
  together_fini(&together);
  for (uint32_t m = 1; m < MICROBATCHES; m++)
    push_part(&worker->server, 0, 0, m, m + 1 == MICROBATCHES);
  pull_first_element(&worker->server, 0, 1, &after);
  assert_true(after == before - 0.5f * 21);
}

static void together_they_wait_for_the_last_version(void **state) {
  struct share_worker *worker = *state;
  struct together together;
  Weir__PushReply *reply;
  together_init(worker, &together, MICROBATCHES - 1, (uint32_t[]){0, 1}, 2);
  together.push.wait = true;
  push_all_but_last(&worker->server, 0, 0);
  push_all_but_last(&worker->server, 1, 0);
  reply = ask_together(worker, &together);
  for (size_t i = 0; i < reply->n_answers; i++) {
    assert_int_equal(reply->answers[i]->status, 0);
    assert_int_equal(reply->answers[i]->version, 1);
  }
  message_free(reply);
  together_fini(&together);
}

/* Of block 0 nothing is missing but the other microbatches. */
static void assert_not_held_back(struct share_worker *worker, const struct together *together) {
  Weir__PushReply *reply = ask_together(worker, together);
  assert_int_equal(reply->answers[0]->status, 0);
  assert_int_equal(reply->answers[0]->version, 0);
  assert_null(reply->answers[0]->shared);
  assert_int_equal(err_from_grpc_status((int)reply->answers[1]->status), ERR_INVALID);
  message_free(reply);
  wait_parked(&worker->server, 0, 0);
}

static void one_that_is_refused_is_not_held_back_by_others_that_wait(void **state) {
  struct share_worker *worker = *state;
  struct together together;
  float before, after;
  pull_first_element(&worker->server, 0, 0, &before);
  together_init(worker, &together, 0, (uint32_t[]){0, 1}, 2);
  together.push.wait = true;
  together.names[1].size -= 4; /* it never gets to its shard */
  assert_not_held_back(worker, &together);
  together_fini(&together);
  together_init(worker, &together, 1, (uint32_t[]){0, 1}, 2);
  together.push.wait = true;
  *(float *)together.buffers[1]->data = NAN; /* its shard finds that, before the other one waits or after */
  assert_not_held_back(worker, &together);
  together_fini(&together);
  for (uint32_t m = 2; m < MICROBATCHES; m++)
    push_part(&worker->server, 0, 0, m, m + 1 == MICROBATCHES);
  pull_first_element(&worker->server, 0, 1, &after);
  assert_true(after == before - 0.5f * 21);
  push_step(&worker->server, 1, 0); /* of which nothing was counted */
}

/* The first one's version is there, the second one's never comes. */
static void a_client_that_leaves_takes_all_of_them_with_it(void **state) {
  struct share_worker *worker = *state;
  struct together together;
  struct err err = ERR_NONE;
  void *reply;
  together_init(worker, &together, MICROBATCHES - 1, (uint32_t[]){0, 1}, 2);
  together.push.wait = true;
  push_all_but_last(&worker->server, 0, 0);
  assert_int_equal(rpc_unary(worker->server.channel, &(struct rpc_question){RPC_PUSH, &together.push, 100},
                             false, &reply, &err),
                   ERR_TIMEOUT);
  wait_parked(&worker->server, 0, 0);
  wait_parked(&worker->server, 1, 0);
  together_fini(&together);
}

static void what_cannot_come_together_is_refused(void **state) {
  static const uint32_t blocks[SHARE_PARTS_MAX + 1]; /* all of them block 0 */
  struct share_worker *worker = *state;
  struct together together;
  together_init(worker, &together, 0, blocks, SHARE_PARTS_MAX);
  together.parts[2].shared = NULL;
  share_worker_assert_refused(worker, &together.push, ERR_INVALID, "each must name its bytes");
  together.parts[2].shared = &together.names[3];
  together.push.shared = NULL;
  share_worker_assert_refused(worker, &together.push, ERR_INVALID, "each must name its bytes");
  together.push.shared = &together.names[0];
  together.list[SHARE_PARTS_MAX - 1] = together.list[0];
  together.push.n_further++;
  share_worker_assert_refused(worker, &together.push, ERR_INVALID,
                              "brings 17 parts; at most 16 come together");
  together.push.n_further--;
  together_fini(&together);
  push_step(&worker->server, 0, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, share_worker_setup, share_worker_teardown)

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      TEST(parts_that_come_together_are_answered_each_by_itself),
      TEST(one_that_comes_twice_counts_once),
      TEST(together_they_wait_for_the_last_version),
      TEST(one_that_is_refused_is_not_held_back_by_others_that_wait),
      TEST(a_client_that_leaves_takes_all_of_them_with_it),
      TEST(what_cannot_come_together_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
