/* Residuals of gradients: each block has its own, they are added to what is sent next, and a worker that
   begins a run anew begins with none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "tests/support/worker/worker_fixture.h"
#include "worker/train/run/residuals.h"

enum { BLOCKS = 2 };
static const uint32_t elems[BLOCKS] = {3, COMPRESSOR_RANGE + 1};

static struct compression top1(void) {
  struct err err;
  return (struct compression){.gradients = compressor_find("train.compression.gradients", "top1", &err),
                              .microbatches = 1};
}

/* Of a block whose sum is {1, 2, 4, 0, ...}. */
static void assert_sent(struct residuals *residuals, uint32_t block, float a, float b, float c) {
  struct compression compression = top1();
  struct wire_sum sum = {.block = block};
  float values[COMPRESSOR_RANGE + 1] = {1, 2, 4}, sent[COMPRESSOR_RANGE + 1];
  struct err err;
  residuals_encode(residuals, &sum, values);
  assert_int_equal(compressor_decode(compression.gradients, values, elems[block], sent, &err), 0);
  assert_true(sent[0] == a && sent[1] == b && sent[2] == c);
}

static void each_block_has_its_own(void **state) {
  struct compression compression = top1();
  struct residuals *residuals = residuals_new(&compression, elems, BLOCKS);
  (void)state;
  assert_sent(residuals, 0, 0, 0, 4); /* {1, 2, 0} are left */
  assert_sent(residuals, 0, 0, 4, 0); /* of {2, 4, 4}, the first of the two: {2, 0, 4} are left */
  assert_sent(residuals, 0, 0, 0, 8); /* of {3, 2, 8} */
  assert_sent(residuals, 1, 0, 0, 4);
  residuals_clear(residuals);
  assert_sent(residuals, 0, 0, 0, 4);
  assert_sent(residuals, 1, 0, 0, 4);
  residuals_free(residuals);
  residuals_clear(NULL);
  residuals_free(NULL);
}

static void send_the_largest_alone(Weir__TrainSpec *train) {
  train->has_deterministic = true;
  train->deterministic = false;
  train->compression = mem_new(sizeof *train->compression);
  weir__compression_spec__init(train->compression);
  train->compression->gradients = mem_strdup("top1");
  train->compression->has_parts = true;
  train->compression->parts = 1;
}

static void show(struct worker_fixture *f, uint64_t incarnation) {
  fixture_view(
      f,
      (struct view_of){
          .number = incarnation, .incarnation = incarnation, .n_servers = 1, .microbatches = MICROBATCHES},
      fixture_give_view);
}

static bool is_step_1_held(const struct worker_fixture *f) {
  return f->servers[0].n_parked == (int)f->model->n_blocks;
}

static void roll_back(struct fake_server *server) {
  struct worker_fixture *f = server->f;
  pthread_mutex_lock(&f->lock);
  server->incarnation++;
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    server->version[b] = 0;
  pthread_mutex_unlock(&f->lock);
  fake_server_release(server, ERR_CANCELLED);
}

/* Of what the worker pushed of a block in step 0. */
static uint64_t digest_of(const struct worker_fixture *f, uint64_t incarnation, uint32_t block) {
  for (int i = 0; i < f->n_pushes; i++)
    if (f->pushes[i].incarnation == incarnation && f->pushes[i].step == 0 && f->pushes[i].block == block)
      return f->pushes[i].digest;
  fail_msg("block %u was not pushed", block);
  return 0;
}

static void what_was_not_sent_before_a_roll_back_is_not_sent_after_it(void **state) {
  struct worker_fixture *f = *state;
  send_the_largest_alone(f->spec->train);
  f->servers[0].held_step = 1;
  f->servers[0].held_block = UINT32_MAX;
  fixture_load(f, backend_find("ref"), 2);
  show(f, 1);
  fixture_wait(f, is_step_1_held);
  roll_back(&f->servers[0]);
  show(f, 2);
  fixture_wait(f, is_trained);
  for (uint32_t b = 0; b < f->model->n_blocks; b++)
    if (f->model->blocks[b].kind == BLOCK_PARAMETERS)
      assert_true(digest_of(f, 1, b) == digest_of(f, 2, b));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_block_has_its_own),
      cmocka_unit_test_setup_teardown(what_was_not_sent_before_a_roll_back_is_not_sent_after_it, worker_setup,
                                      worker_teardown),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
