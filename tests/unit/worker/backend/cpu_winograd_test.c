/* Precision fp32-fast: which convolutions Winograd's algorithm computes, and how near it comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "common/agree/float_setting.h"
#include "tests/support/worker/network.h"
#include "worker/backend/cpu/conv/winograd.h"

static const struct backend_options fast = {.precision = PRECISION_F32_FAST};

/* Two convolutions, of which the second has the gradient of its input, too. */
struct pair {
  int64_t in, out, height, width;
  int pad; /* of the first */
  int kernel, stride, group;
};

static int add_first(struct network *f, int x, const struct pair *pair) {
  int64_t k = pair->kernel, p = pair->pad, s = pair->stride;
  struct attr attrs[] = {
      {.name = "kernel_shape", .type = ATTR_INTS, .n = 2, .ints = (int64_t[]){k, k}},
      {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (int64_t[]){p, p, p, p}},
      {.name = "strides", .type = ATTR_INTS, .n = 2, .ints = (int64_t[]){s, s}},
      {.name = "group", .type = ATTR_INT, .i = pair->group},
  };
  int w = add_weight(f, (struct shape){4, {pair->out, pair->in / pair->group, k, k}}, 0.2f);
  return add_node(f, "Conv", VALUES(x, w), (struct attr_list){attrs, 4});
}

static void network_init_pair(struct network *f, const struct pair *pair) {
  struct shape image = {4, {BATCH, pair->in, pair->height, pair->width}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  x = add_node(f, "Relu", VALUES(add_first(f, x, pair)), ATTRS_NONE);
  x = add_node(f, "Relu", VALUES(add_conv(f, x, pair->out, pair->out, pair->group)), ATTRS_NONE);
  add_backward(f, add_gemm(f, add_mean(f, x), pair->out, CLASSES));
  network_feed(f, &image);
}

/* Twice: what the first execution leaves in memory changes nothing. */
static void run_fast(struct network *f, struct answer *a) {
  struct backend_program *program = network_prepare_with("cpu", f, &fast);
  struct answer first;
  answer_init(&first, f);
  network_run("cpu", program, NULL, 1, &first);
  answer_init(a, f);
  network_run("cpu", program, NULL, 1, a);
  assert_true(answer_is_same(a, &first));
  answer_fini(&first);
  backend_of("cpu")->release(program);
}

static void skip_without_winograd(void) {
  if (strstr(backend_of("cpu")->fingerprint(), "avx512_core"))
    return;
  print_message("%s: without AVX-512 there is no Winograd\n", backend_of("cpu")->fingerprint());
  skip();
}

/* Whole tiles; tiles that are empty in part, with padding and without; channels of three numbers. */
static const struct pair paying[] = {
    {128, 128, 16, 16, 1, 3, 1, 1},
    {128, 128, 19, 22, 1, 3, 1, 1},
    {128, 128, 22, 21, 0, 3, 1, 1},
    {96, 160, 20, 20, 1, 3, 1, 1},
};

static void check_pair(const struct pair *pair, const char *beside) {
  struct network f;
  struct answer got, want;
  network_init_pair(&f, pair);
  run_fast(&f, &got);
  network_run_once(beside, &f, &want);
  answer_check_near(&got, &want, 2e-5);
  for (int w = 0; w < 3; w++) /* both kernels and the bias of the second */
    assert_memory_not_equal(got.values[1 + w], want.values[1 + w], watched_bytes(&f, 1 + w));
  answer_fini(&got);
  answer_fini(&want);
  network_fini(&f);
}

static void shapes_that_pay_are_near_fp32_and_have_other_bits(void **state) {
  (void)state;
  skip_without_winograd();
  for (size_t p = 0; p < sizeof paying / sizeof paying[0]; p++)
    check_pair(&paying[p], "cpu");
}

static void a_shape_that_pays_agrees_with_ref(void **state) {
  (void)state;
  check_pair(&paying[0], "ref");
}

static void other_shapes_have_the_bits_of_fp32(void **state) {
  (void)state;
  static const struct pair pairs[] = {
      {16, 16, 14, 14, 1, 3, 1, 1},
      {3, 24, 14, 14, 1, 3, 1, 1},
      {64, 64, 20, 20, 1, 3, 1, 64},
      {32, 32, 4, 4, 1, 3, 1, 1},
  };
  for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
    struct network f;
    struct answer got, want;
    network_init_pair(&f, &pairs[p]);
    run_fast(&f, &got);
    network_run_once("cpu", &f, &want);
    assert_true(answer_is_same(&got, &want));
    answer_fini(&got);
    answer_fini(&want);
    network_fini(&f);
  }
}

struct side {
  struct network network;
  struct answer answer;
};

static void *run_side(void *of) {
  struct side *side = of;
  run_fast(&side->network, &side->answer);
  return NULL;
}

/* As executors do. */
static void threads_side_by_side_compute_the_same_bits(void **state) {
  (void)state;
  enum { SIDES = 3 };
  static const struct pair pair = {112, 128, 20, 18, 1, 3, 1, 1};
  struct side sides[SIDES];
  pthread_t threads[SIDES];
  for (int s = 0; s < SIDES; s++)
    network_init_pair(&sides[s].network, &pair);
  for (int s = 1; s < SIDES; s++)
    assert_int_equal(pthread_create(&threads[s], NULL, run_side, &sides[s]), 0);
  run_side(&sides[0]);
  for (int s = 1; s < SIDES; s++) {
    pthread_join(threads[s], NULL);
    assert_true(answer_is_same(&sides[s].answer, &sides[0].answer));
  }
  for (int s = 0; s < SIDES; s++) {
    answer_fini(&sides[s].answer);
    network_fini(&sides[s].network);
  }
}

struct row {
  int64_t n, in, out, height, width;
  int kernel, stride, pad;
  bool pays[3]; /* by enum conv_way */
};

static void the_shape_alone_decides(void **state) {
  (void)state;
  static const struct row rows[] = {
      /* ResNet-18 at 32x32 */
      {32, 3, 64, 32, 32, 3, 1, 1, {false}},
      {32, 64, 64, 32, 32, 3, 1, 1, {true, true, true}},
      {32, 64, 128, 32, 32, 3, 2, 1, {false}},
      {32, 128, 128, 16, 16, 3, 1, 1, {true, true, true}},
      {32, 256, 256, 8, 8, 3, 1, 1, {true, true, true}},
      {32, 512, 512, 4, 4, 3, 1, 1, {false, false, true}},
      /* fewer samples, tiles that are empty in part, few channels */
      {4, 256, 256, 8, 8, 3, 1, 1, {false}},
      {32, 128, 128, 5, 5, 3, 1, 1, {false}},
      {32, 128, 128, 9, 9, 3, 1, 1, {false}},
      {32, 32, 32, 32, 32, 3, 1, 1, {false}},
      /* 16 tiles of the output, 25 of the input */
      {16, 128, 128, 18, 18, 3, 1, 0, {true, false, true}},
      /* what oneDNN has no kernel for */
      {32, 72, 64, 32, 32, 3, 1, 1, {false}},
      {32, 64, 64, 32, 32, 5, 1, 2, {false}},
      {32, 64, 64, 32, 32, 1, 1, 0, {false}},
  };
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    const struct row *row = &rows[r];
    int beyond = row->kernel - 1 - 2 * row->pad;
    const int64_t in[] = {row->n, row->in, row->height, row->width};
    const int64_t out[] = {row->n, row->out, (row->height - beyond) / row->stride,
                           (row->width - beyond) / row->stride};
    const struct window window = {.kernel = {row->kernel, row->kernel},
                                  .strides = {row->stride, row->stride},
                                  .pads_begin = {row->pad, row->pad},
                                  .pads_end = {row->pad, row->pad}};
    const struct winograd_shape shape = {4, 4, in, out, &window};
    for (int way = CONV_FORWARD; way <= CONV_GRAD_WEIGHT; way++)
      if (winograd_pays(&shape, (enum conv_way)way) != row->pays[way])
        fail_msg("row %zu, way %d", r, way);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_that_pay_are_near_fp32_and_have_other_bits),
      cmocka_unit_test(a_shape_that_pays_agrees_with_ref),
      cmocka_unit_test(other_shapes_have_the_bits_of_fp32),
      cmocka_unit_test(threads_side_by_side_compute_the_same_bits),
      cmocka_unit_test(the_shape_alone_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
