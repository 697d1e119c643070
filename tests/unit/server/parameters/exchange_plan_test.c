/* Plans of exchanges: every row that needs sums, on a model whose first tensor lies across two blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "server/parameters/run/exchange_plan.h"
#include "tests/support/parameters/parameters_fixture.h"

static struct model *open_model(void) {
  const Weir__LoadRun *order = make_order(1, 1);
  struct err err = ERR_NONE;
  struct model *model;
  size_t size_bytes;
  void *bytes;
  make_model(&bytes, &size_bytes);
  if (model_open(
          &(struct model_source){.onnx = bytes, .size_bytes = size_bytes, .spec = order->spec, .samples = 2},
          &model, &err))
    fail_msg("%s", err.text);
  free(bytes);
  return model;
}

static void pieces_cover_their_block_and_their_tensors(void **state) {
  struct model *model = open_model();
  struct arena arena = {0};
  uint64_t *covered = arena_new(&arena, (size_t)model->n_params * sizeof *covered);
  (void)state;
  for (uint32_t b = 0; b < model->n_param_blocks; b++) {
    uint32_t n, at = 0;
    struct piece *pieces = pieces_of(model, &model->blocks[b], &arena, &n);
    for (uint32_t p = 0; p < n; p++) {
      assert_int_equal(pieces[p].begin, at);
      assert_int_equal(pieces[p].offset, covered[pieces[p].tensor]);
      assert_int_equal(pieces[p].tensor_elems, model->params[pieces[p].tensor].elems);
      assert_true(n == 1 || piece_is_whole(&pieces[p]));
      covered[pieces[p].tensor] += pieces[p].elems;
      at += pieces[p].elems;
    }
    assert_int_equal(at, model->blocks[b].elems);
  }
  for (int p = 0; p < model->n_params; p++)
    assert_int_equal(covered[p], model->params[p].elems);
  arena_fini(&arena);
  model_close(model);
}

/* A share's windows lie one after another among its values, and somewhere in the vector: they are counted. */
static void count_windows(const struct exchange_share *share, uint32_t *counts, uint64_t n_totals) {
  uint32_t at = 0;
  for (uint32_t w = 0; w < share->n_windows; w++) {
    const struct exchange_window *window = &share->windows[w];
    assert_int_equal(window->at, at);
    assert_true(window->count > 0 && window->place + window->count <= n_totals);
    for (uint32_t i = 0; i < window->count; i++)
      counts[window->place + i]++;
    at += window->count;
  }
  assert_int_equal(at, share->is_shared ? share->n_values : 0);
}

static void assert_phase(const struct exchange_plan *plan, uint32_t number) {
  const struct exchange_phase *phase = &plan->phases[number];
  uint32_t *counts = mem_new((phase->n_totals + 1) * sizeof *counts), n_contributors = 0;
  bool is_met = false; /* some value has more than one contributor */
  for (uint32_t b = 0; b < plan->n_blocks; b++) {
    const struct exchange_share *share = &phase->shares[b];
    assert_true(share->begin + share->n_values <= exchange_plan_values(plan, b));
    n_contributors += share->is_shared;
    count_windows(share, counts, phase->n_totals);
  }
  assert_int_equal(n_contributors, phase->n_contributors);
  for (uint64_t i = 0; i < phase->n_totals; i++) {
    assert_int_not_equal(counts[i], 0);
    is_met |= counts[i] > 1;
  }
  assert_true(is_met);
  free(counts);
}

static void every_row_has_a_plan_without_gaps(void **state) {
  struct model *model = open_model();
  (void)state;
  for (int row = 0; optimizer_at(row); row++)
    for (int has_norm = 0; has_norm < 2; has_norm++) {
      struct exchange_plan plan;
      exchange_plan_init(&plan, model, optimizer_at(row), has_norm);
      assert_int_equal(plan.n_phases, optimizer_at(row)->n_phases + (uint32_t)has_norm);
      for (uint32_t phase = 0; phase < plan.n_phases; phase++)
        assert_phase(&plan, phase);
      if (has_norm)
        assert_true(plan.phases[0].n_totals == 1 && plan.phases[0].n_contributors == plan.n_blocks);
      else if (plan.n_phases > 0) /* the third block's tensors are whole */
        assert_true(plan.phases[0].shares[1].is_shared && !plan.phases[0].shares[2].is_shared);
      exchange_plan_fini(&plan);
    }
  model_close(model);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_cover_their_block_and_their_tensors),
      cmocka_unit_test(every_row_has_a_plan_without_gaps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
