/* Version 0 of a model that comes as an outline: a server reads the pieces of its own blocks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "model/onnx/onnx_outline.h"
#include "server/parameters/load/hosted_run.h"
#include "tests/support/parameters/given_model.h"
#include "tests/support/parameters/parameters_fixture.h"

/* The fixture's model in pieces, and what was read of them. */
struct pieces_fixture {
  struct parameters_fixture f;
  struct onnx_outline outline;
  int n_read;
  bool is_lost;
  float *damage; /* a number of the first element that is read; NULL: none */
};

static int read_pieces(void *user, const struct piece_read *reads, int n, struct err *err) {
  struct pieces_fixture *p = user;
  if (p->is_lost)
    return err_set(err, ERR_UNAVAILABLE, "nobody is there");
  for (int i = 0; i < n; i++) {
    const struct piece_place *place = onnx_outline_find(&p->outline, reads[i].key);
    assert_non_null(place);
    memcpy(reads[i].to, place->data, place->size_bytes);
    if (p->damage)
      *(float *)reads[i].to = *p->damage;
    p->n_read++;
  }
  return 0;
}

static void pieces_open(struct pieces_fixture *p) {
  *p = (struct pieces_fixture){0};
  parameters_fixture_open(&p->f);
  onnx_outline_make(p->f.model, p->f.model_bytes, &p->outline);
  assert_non_null(p->outline.bytes);
  assert_int_equal(p->outline.n_places, 2);
}

static void pieces_close(struct pieces_fixture *p) {
  onnx_outline_fini(&p->outline);
  parameters_fixture_fini(&p->f);
}

static int load(struct pieces_fixture *p, const Weir__LoadRun *order, const char *own_id,
                struct hosted_run **run, struct err *err) {
  struct piece_source source = {read_pieces, p};
  struct run_setup setup = {.order = order,
                            .own_id = own_id,
                            .pieces = &source,
                            .shards = p->f.shards,
                            .n_shards = 2,
                            .sums_client = p->f.sums_client};
  *run = NULL;
  *err = ERR_NONE;
  return given_model_load(&setup, p->outline.bytes, p->outline.size_bytes, run, err);
}

/* Blocks 0 and 1 are the two pieces. */
static int own_pieces(const struct hosted_run *run) {
  return (run->own[0] >= 0) + (run->own[1] >= 0);
}

static void a_server_reads_the_pieces_that_it_owns_and_no_others(void **state) {
  static const char *const ids[] = {"server-1", "server-2", "server-3"};
  struct pieces_fixture p;
  struct err err = ERR_NONE;
  int n_read = 0;
  (void)state;
  pieces_open(&p);
  for (int s = 0; s < 3; s++) {
    struct hosted_run *run, *whole;
    p.n_read = 0;
    if (load(&p, make_order(1, 3), ids[s], &run, &err) ||
        make_run(&p.f, make_order(1, 3), ids[s], &whole, &err))
      fail_msg("%s", err.text);
    assert_int_equal(p.n_read, own_pieces(run));
    n_read += p.n_read;
    assert_int_equal(run->n_own, whole->n_own);
    for (uint32_t b = 0; b < run->n_own; b++) {
      assert_int_equal(run->blocks[b].index, whole->blocks[b].index);
      assert_memory_equal(run->blocks[b].current->data, whole->blocks[b].current->data,
                          whole->blocks[b].current->size_bytes);
    }
    hosted_run_put(run);
    hosted_run_put(whole);
  }
  assert_int_equal(n_read, 2);
  pieces_close(&p);
}

static void slots_begin_with_the_weights_that_came(void **state) {
  struct pieces_fixture p;
  const Weir__LoadRun *order = make_order(1, 1);
  Weir__AverageSpec average = WEIR__AVERAGE_SPEC__INIT;
  struct err err = ERR_NONE;
  struct hosted_run *run, *whole;
  (void)state;
  average.has_decay = true;
  average.decay = 0.9;
  order->spec->train->average = &average;
  pieces_open(&p);
  if (load(&p, order, "server-1", &run, &err) || make_run(&p.f, order, "server-1", &whole, &err))
    fail_msg("%s", err.text);
  for (uint32_t b = 0; b < 2; b++) {
    assert_int_equal(run->blocks[b].slots->size_bytes, 2 * run->blocks[b].current->size_bytes);
    assert_memory_equal(run->blocks[b].slots->data, whole->blocks[b].slots->data,
                        whole->blocks[b].slots->size_bytes);
  }
  hosted_run_put(run);
  hosted_run_put(whole);
  order->spec->train->average = NULL;
  pieces_close(&p);
}

/* The checkpoint has it all. */
static void a_later_version_needs_no_piece(void **state) {
  struct pieces_fixture p;
  Weir__LoadRun order = *make_order(1, 1);
  struct hosted_run *run;
  struct err err;
  (void)state;
  order.step = 2;
  order.manifest = (char *)"runs/unit-1/checkpoints/00000000000000000002";
  pieces_open(&p);
  p.is_lost = true;
  if (load(&p, &order, "server-1", &run, &err))
    fail_msg("%s", err.text);
  hosted_run_put(run);
  pieces_close(&p);
}

static void pieces_that_do_not_come_or_are_not_finite_are_an_error(void **state) {
  struct pieces_fixture p;
  struct hosted_run *run;
  struct err err;
  float damage = NAN;
  (void)state;
  pieces_open(&p);
  p.is_lost = true;
  assert_int_equal(load(&p, make_order(1, 1), "server-1", &run, &err), ERR_UNAVAILABLE);
  assert_non_null(strstr(err.text, "initializer '"));
  p.is_lost = false;
  p.damage = &damage;
  assert_int_equal(load(&p, make_order(1, 1), "server-1", &run, &err), ERR_INVALID);
  assert_non_null(strstr(err.text, "element 0 is nan, weights must be finite"));
  pieces_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_server_reads_the_pieces_that_it_owns_and_no_others),
      cmocka_unit_test(slots_begin_with_the_weights_that_came),
      cmocka_unit_test(a_later_version_needs_no_piece),
      cmocka_unit_test(pieces_that_do_not_come_or_are_not_finite_are_an_error),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
