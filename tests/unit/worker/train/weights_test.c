/* The worker's two versions of the weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/base/memory.h"
#include "common/share/shared.h"
#include "tests/support/worker/fake_device.h"
#include "worker/train/block/block_pool.h"
#include "worker/train/block/reducer.h"
#include "worker/train/block/weights.h"

/* Parameters of 3, 2 and 10 elements in blocks of 5, 6 and 4; a row of 4 metrics and 2 of a statistic. */
struct fixture {
  struct graph train, eval;
  struct param params[3];
  struct statistic statistics[1];
  struct block blocks[4];
  struct model model;
  struct block_map map;
  struct weights *weights;
};

static int setup(void **state) {
  struct fixture *f = mem_new(sizeof *f);
  struct err err = ERR_NONE;
  fake_devices_init();
  f->train.n_values = 8;
  f->eval.n_values = 8;
  f->params[0] = (struct param){.name = "a", .begin = 0, .elems = 3, .train_value = 1, .eval_value = 2};
  f->params[1] = (struct param){.name = "b", .begin = 3, .elems = 2, .train_value = 2, .eval_value = -1};
  f->params[2] = (struct param){.name = "c", .begin = 5, .elems = 10, .train_value = 3, .eval_value = 4};
  f->statistics[0] = (struct statistic){.name = "s", .begin = METRICS, .elems = 2, .eval_value = 5};
  f->blocks[0] = (struct block){.kind = BLOCK_PARAMETERS, .begin = 0, .elems = 5};
  f->blocks[1] = (struct block){.kind = BLOCK_PARAMETERS, .begin = 5, .elems = 6};
  f->blocks[2] = (struct block){.kind = BLOCK_PARAMETERS, .begin = 11, .elems = 4};
  f->blocks[3] = (struct block){.kind = BLOCK_STATISTICS, .elems = METRICS + 2};
  f->model = (struct model){.train = &f->train,
                            .eval = &f->eval,
                            .params = f->params,
                            .n_params = 3,
                            .statistics = f->statistics,
                            .n_statistics = 1,
                            .blocks = f->blocks,
                            .n_blocks = 4,
                            .n_param_blocks = 3,
                            .n_summed_blocks = 3,
                            .param_elems = 15,
                            .row_elems = METRICS + 2};
  block_map_init(&f->map, &f->model);
  *state = f;
  return weights_new(&f->model, 2, &f->weights, &err);
}

static int teardown(void **state) {
  struct fixture *f = *state;
  weights_free(f->weights);
  block_map_fini(&f->map);
  free(f);
  assert_int_equal(fake_devices.n_held, 0);
  return 0;
}

static void fill(struct fixture *f, uint64_t version, uint32_t block, float value) {
  float *place = weights_claim(f->weights, version, block);
  assert_non_null(place);
  for (uint32_t i = 0; i < f->blocks[block].elems; i++)
    place[i] = value;
  weights_land(f->weights, block);
}

static void the_map_knows_which_blocks_hold_a_tensor(void **state) {
  struct fixture *f = *state;
  assert_int_equal(f->map.params[0].begin, 0);
  assert_int_equal(f->map.params[0].end, 1);
  assert_int_equal(f->map.params[1].begin, 0);
  assert_int_equal(f->map.params[2].begin, 1);
  assert_int_equal(f->map.params[2].end, 3);
  assert_int_equal(f->map.eval_values[5].begin, 3);
  assert_int_equal(f->map.eval_values[5].end, 4);
  assert_int_equal(f->map.eval_values[4].begin, 1);
  assert_int_equal(f->map.train_values[0].end, 0);
  assert_int_equal(f->map.block_params[0], 2);
  assert_int_equal(f->map.block_params[1], 1);
}

static void a_tensor_is_ready_when_all_its_blocks_are(void **state) {
  struct fixture *f = *state;
  weights_open_next(f->weights, 7, false);
  fill(f, 7, 1, 1.0f);
  assert_false(weights_is_ready(f->weights->next, f->map.params[2]));
  assert_non_null(weights_claim(f->weights, 7, 2)); /* being written is not yet ready */
  assert_false(weights_is_ready(f->weights->next, f->map.params[2]));
  weights_land(f->weights, 2);
  assert_true(weights_is_ready(f->weights->next, f->map.params[2]));
  assert_false(weights_is_ready(f->weights->next, f->map.params[0]));
  assert_false(weights_is_ready(f->weights->next, f->map.eval_values[5]));
  fill(f, 7, 3, 1.0f);
  assert_true(weights_is_ready(f->weights->next, f->map.eval_values[5]));
}

static void a_version_is_complete_with_the_blocks_that_are_held(void **state) {
  struct fixture *f = *state;
  const uint8_t roles[] = {BLOCK_OWNED, BLOCK_ABSENT, BLOCK_ABSENT, BLOCK_HELD};
  weights_hold(f->weights, roles);
  weights_open_next(f->weights, 7, false);
  assert_null(weights_claim(f->weights, 7, 1)); /* nobody asked for it */
  fill(f, 7, 0, 1.0f);
  assert_false(weights_next_is_complete(f->weights));
  fill(f, 7, 3, 1.0f);
  assert_true(weights_next_is_complete(f->weights));
}

enum { PAGE_ELEMS = 1024, PINNED_MAX = 8 };

static struct weights_range pinned[PINNED_MAX]; /* begin: an address */
static int n_pinned, n_unpinned;

static void note_pinned(void *bytes, size_t size_bytes) {
  assert_true(n_pinned < PINNED_MAX);
  pinned[n_pinned++] = (struct weights_range){(size_t)bytes, size_bytes};
}

static void note_unpinned(void *bytes) {
  bool was_pinned = false;
  for (int p = 0; p < n_pinned; p++)
    was_pinned |= pinned[p].begin == (size_t)bytes;
  assert_true(was_pinned);
  n_unpinned++;
}

static void assert_pinned(int index, const float *params, size_t first_page, size_t pages) {
  assert_ptr_equal((void *)pinned[index].begin, params + first_page * PAGE_ELEMS);
  assert_int_equal(pinned[index].size_bytes, pages * PAGE_ELEMS * sizeof(float));
}

/* Blocks of 2.5, 0.5, 1.25, 2.75 and 3 pages, of which all but the third and the last are held: the page
   where the fourth begins is the third's, too. */
static void of_parameters_the_pages_of_what_is_held_are_pinned(void **state) {
  static const uint32_t quarters[] = {10, 2, 5, 11, 12};
  const uint8_t roles[] = {BLOCK_HELD, BLOCK_OWNED, BLOCK_ABSENT, BLOCK_HELD, BLOCK_ABSENT};
  static const struct backend_def pinning = {.pin = note_pinned, .unpin = note_unpinned};
  struct fixture *f = *state;
  struct block blocks[5];
  struct err err = ERR_NONE;
  uint64_t begin = 0;
  for (int b = 0; b < 5; b++) {
    blocks[b] = (struct block){
        .kind = BLOCK_PARAMETERS, .begin = begin, .elems = quarters[b] * (uint32_t)PAGE_ELEMS / 4};
    begin += blocks[b].elems;
  }
  weights_free(f->weights);
  f->model.blocks = blocks;
  f->model.n_blocks = f->model.n_param_blocks = f->model.n_summed_blocks = 5;
  f->model.param_elems = begin;
  assert_int_equal(weights_new(&f->model, 2, &f->weights, &err), 0);
  weights_hold(f->weights, roles);
  weights_pin(f->weights, &pinning);
  assert_int_equal(n_pinned, 2 * 3);
  for (int version = 0; version < 2; version++) {
    const struct weights_set *set = &f->weights->sets[version];
    assert_pinned(3 * version, set->params, 0, 3);
    assert_pinned(3 * version + 1, set->params, 4, 3);
    assert_ptr_equal((void *)pinned[3 * version + 2].begin, set->state);
  }
  weights_free(f->weights);
  assert_int_equal(n_unpinned, n_pinned);
  f->weights = NULL;
}

static void a_block_is_taken_once_and_only_of_the_version_that_fills(void **state) {
  struct fixture *f = *state;
  assert_null(weights_claim(f->weights, 0, 0));
  weights_open_next(f->weights, 7, false);
  assert_null(weights_claim(f->weights, 6, 0));
  assert_null(weights_claim(f->weights, 8, 0));
  fill(f, 7, 0, 1.0f);
  assert_null(weights_claim(f->weights, 7, 0));
}

static void the_old_version_is_kept_while_the_next_fills(void **state) {
  struct fixture *f = *state;
  weights_open_next(f->weights, 7, false);
  for (uint32_t b = 0; b < 4; b++) {
    assert_false(weights_next_is_complete(f->weights));
    fill(f, 7, b, 1.0f);
  }
  assert_true(weights_next_is_complete(f->weights));
  weights_advance(f->weights);
  weights_open_next(f->weights, 8, false);
  for (uint32_t b = 0; b < 4; b++)
    fill(f, 8, b, 2.0f);
  assert_int_equal(f->weights->current->version, 7);
  assert_true(f->weights->current->train_values[3][9] == 1.0f);
  assert_true(f->weights->next->train_values[3][9] == 2.0f);
  assert_true(f->weights->next->eval_values[5][1] == 2.0f);
  assert_null(f->weights->next->eval_values[0]);
  weights_advance(f->weights);
  assert_int_equal(f->weights->current->version, 8);
  assert_false(f->weights->next->is_open);
}

/* Fills a version on the device, as a group does: our blocks by way of host memory, the others' straight. */
static void fill_on_device(struct fixture *f, uint64_t version, float value) {
  for (uint32_t b = 0; b < f->model.n_param_blocks; b++) {
    float *landing = weights_claim(f->weights, version, b);
    float *place = weights_place(f->weights, f->weights->next, b);
    bool is_ours = b % 2 == 0;
    assert_non_null(landing);
    assert_true(fake_device_of(place) == 1);
    if (is_ours)
      weights_land(f->weights, b);
    assert_int_equal(weights_has_landed(f->weights->next, b), is_ours);
    assert_false(weights_is_ready(f->weights->next, (struct block_range){b, b + 1}));
    for (uint32_t i = 0; i < f->blocks[b].elems; i++)
      ((float *)fake_reach(place))[i] = value;
    weights_fill(f->weights, b);
    assert_true(weights_is_ready(f->weights->next, (struct block_range){b, b + 1}));
  }
}

static float value_at(const float *values, size_t at) {
  return ((const float *)fake_reach(values))[at];
}

static void a_version_on_the_device_is_read_there_once_it_is_filled(void **state) {
  struct fixture *f = *state;
  struct err err = ERR_NONE;
  assert_int_equal(weights_use_device(f->weights, &fake_memory, 1, &err), ERR_OK);
  weights_open_next(f->weights, 7, true);
  fill_on_device(f, 7, 3.0f);
  fill(f, 7, 3, 4.0f); /* a row of statistics */
  assert_true(weights_next_is_complete(f->weights));
  for (int p = 0; p < f->model.n_params; p++)
    assert_true(fake_device_of(f->weights->next->train_values[f->params[p].train_value]) == 1);
  assert_true(value_at(f->weights->next->train_values[3], 9) == 3.0f);
  assert_ptr_equal(f->weights->next->eval_values[4], f->weights->next->train_values[3]);
  assert_false(fake_device_of(f->weights->next->eval_values[5]) == 1);
  assert_true(f->weights->next->eval_values[5][1] == 4.0f);
}

/* A group forms, ends, and forms again. */
static void versions_are_on_the_device_or_not_one_by_one(void **state) {
  static const bool are_on_device[] = {false, true, true, false, true, false, false};
  struct fixture *f = *state;
  struct err err = ERR_NONE;
  for (uint64_t v = 0; v < sizeof are_on_device; v++) {
    struct weights_set *set = f->weights->next;
    assert_int_equal(weights_use_device(f->weights, &fake_memory, 1, &err), ERR_OK); /* made once */
    weights_open_next(f->weights, v, are_on_device[v]);
    if (are_on_device[v])
      fill_on_device(f, v, (float)v);
    for (uint32_t b = are_on_device[v] ? f->model.n_param_blocks : 0; b < f->model.n_blocks; b++)
      fill(f, v, b, (float)v);
    assert_true(weights_next_is_complete(f->weights));
    weights_advance(f->weights);
    assert_ptr_equal(f->weights->current, set);
    assert_int_equal(fake_device_of(set->train_values[3]) == 1, are_on_device[v]);
    assert_true(value_at(set->train_values[1], 2) == (float)v &&
                value_at(set->eval_values[4], 9) == (float)v);
    if (v == 4)
      weights_clear(f->weights);
  }
  assert_int_equal(fake_devices.n_held, 2);
}

static void a_device_that_is_too_small_for_two_versions_keeps_none(void **state) {
  struct fixture *f = *state;
  struct err err = ERR_NONE;
  fake_devices.limit[0] = 256;
  assert_int_equal(weights_use_device(f->weights, &fake_memory, 0, &err), ERR_NO_MEMORY);
  assert_int_equal(fake_devices.n_held, 0);
  assert_null(f->weights->next->device_params);
  weights_open_next(f->weights, 7, false);
  fill(f, 7, 0, 1.0f);
  assert_true(weights_is_ready(f->weights->next, f->map.params[0]));
}

static void the_pool_gives_the_same_buffer_again_unless_it_is_shared(void **state) {
  struct fixture *f = *state;
  struct block_pool *pool = block_pool_new(&f->model, backend_find("ref"), 0);
  struct buffer *first = block_pool_take(pool, 1), *shared;
  assert_int_equal(first->size_bytes, 6 * sizeof(float));
  block_pool_give(pool, 1, first);
  assert_ptr_equal(block_pool_take(pool, 1), first);
  shared = buffer_get(first);
  block_pool_give(pool, 1, first);
  first = block_pool_take(pool, 1);
  assert_ptr_not_equal(first, shared);
  block_pool_give(pool, 1, first);
  buffer_put(shared);
  block_pool_free(pool);
}

/* So that a server that reads it late learns that the gradient is another. */
static void a_buffer_of_the_pool_that_is_given_back_is_another_turn(void **state) {
  struct fixture *f = *state;
  struct block_pool *pool = block_pool_new(&f->model, backend_find("ref"), 0);
  struct buffer *buffer = block_pool_take(pool, 1);
  uint32_t turn;
  assert_non_null(buffer->place);
  turn = shared_turn(buffer->place);
  block_pool_give(pool, 1, buffer);
  assert_ptr_equal(block_pool_take(pool, 1), buffer);
  assert_int_not_equal(shared_turn(buffer->place), turn);
  block_pool_give(pool, 1, buffer);
  block_pool_free(pool);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_map_knows_which_blocks_hold_a_tensor, setup, teardown),
      cmocka_unit_test_setup_teardown(a_tensor_is_ready_when_all_its_blocks_are, setup, teardown),
      cmocka_unit_test_setup_teardown(a_version_is_complete_with_the_blocks_that_are_held, setup, teardown),
      cmocka_unit_test_setup_teardown(of_parameters_the_pages_of_what_is_held_are_pinned, setup, teardown),
      cmocka_unit_test_setup_teardown(a_block_is_taken_once_and_only_of_the_version_that_fills, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(the_old_version_is_kept_while_the_next_fills, setup, teardown),
      cmocka_unit_test_setup_teardown(a_version_on_the_device_is_read_there_once_it_is_filled, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(versions_are_on_the_device_or_not_one_by_one, setup, teardown),
      cmocka_unit_test_setup_teardown(a_device_that_is_too_small_for_two_versions_keeps_none, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(the_pool_gives_the_same_buffer_again_unless_it_is_shared, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_buffer_of_the_pool_that_is_given_back_is_another_turn, setup,
                                      teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
