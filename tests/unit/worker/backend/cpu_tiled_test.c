/* Convolutions of precision bf16 by Winograd's algorithm F(2x2, 3x3): the transforms, which convolutions it
   computes, and how near it comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/half.h"
#include "tests/support/worker/network.h"
#include "worker/backend/cpu/conv/tiles.h"
#include "worker/backend/cpu/conv/winograd.h"

static const struct backend_options half = {.precision = PRECISION_BF16};

static void skip_without_bf16(void) {
  struct err err = ERR_NONE;
  if (backend_check_precision(backend_of("cpu"), PRECISION_BF16, &err) == ERR_OK)
    return;
  print_message("%s\n", err.text);
  skip();
}

/* A convolution of small whole numbers, which neither transforms nor roundings change. */
struct exact {
  struct tiles from, to;
  struct kernels kernels;
  uint16_t *x, *y, *v, *w, *u;
  float *weights, *m;
  const float *bias; /* NULL: none */
};

enum { N = 2 };

/* Whole numbers of [-most, most], times `by`. */
static int whole_number(uint64_t key, int64_t i, int most) {
  return (int)(random_bits(random_key(key, 0, 0, 0), (uint64_t)i) % (uint64_t)(2 * most + 1)) - most;
}

static int64_t image_elems(const struct tiles *tiles) {
  return tiles->samples * tiles->channels * tiles->height * tiles->width;
}

static uint16_t *image_new(const struct tiles *tiles, uint64_t key) {
  uint16_t *image = mem_new((size_t)image_elems(tiles) * sizeof *image);
  for (int64_t i = 0; i < image_elems(tiles); i++)
    image[i] = bf16_of_f32((float)whole_number(key, i, 2));
  return image;
}

static int64_t tile_count(const struct tiles *tiles) {
  return tiles->samples * tiles->rows * tiles->columns;
}

struct image_case {
  int64_t in, out, height, width, pad;
};

/* Images of so many channels and of that size, whose convolution with that padding has the other's. */
static void exact_init(struct exact *e, const struct image_case *of) {
  int64_t in = of->in, out = of->out, height = of->height, width = of->width, pad = of->pad;
  int64_t y_height = height + 2 * pad - 2, y_width = width + 2 * pad - 2;
  int64_t rows = (y_height + 1) / 2, columns = (y_width + 1) / 2;
  *e = (struct exact){.from = {N, in, height, width, rows, columns, {pad, pad}},
                      .to = {N, out, y_height, y_width, rows, columns, {0, 0}},
                      .kernels = {.out = out, .in = in}};
  e->x = image_new(&e->from, 1);
  e->y = image_new(&e->to, 2);
  e->weights = mem_new((size_t)(in * out * TILE_TAPS) * sizeof(float));
  for (int64_t i = 0; i < in * out * TILE_TAPS; i++)
    e->weights[i] = (float)(4 * whole_number(3, i, 1)); /* a part is a quarter of a whole number */

  int64_t n = N * ((height + 1) / 2) * ((width + 1) / 2); /* of the larger image */
  int64_t most = in > out ? in : out;
  e->v = mem_new((size_t)(TILE_PARTS * n * most) * sizeof(uint16_t));
  e->w = mem_new((size_t)(TILE_PARTS * n * out) * sizeof(uint16_t));
  e->u = mem_new((size_t)(TILE_PARTS * in * out) * sizeof(uint16_t));
  e->m = mem_new((size_t)(TILE_PARTS * (n > in ? n * most : in * most)) * sizeof(float));
}

static void exact_fini(struct exact *e) {
  free(e->x);
  free(e->y);
  free(e->weights);
  free(e->v);
  free(e->w);
  free(e->u);
  free(e->m);
}

struct spot {
  int64_t s, c, r, column;
};

static float pixel(const struct tiles *tiles, const uint16_t *image, struct spot at) {
  int64_t s = at.s, c = at.c, r = at.r, column = at.column;
  if (r < 0 || column < 0 || r >= tiles->height || column >= tiles->width)
    return 0;
  return f32_of_bf16(
      image[(((s * (tiles->channels / TILE_BLOCK) + c / TILE_BLOCK) * tiles->height + r) * tiles->width +
             column) *
                TILE_BLOCK +
            c % TILE_BLOCK]);
}

/* m[rows, columns] = v[rows, inner] u[inner, columns] of each part. */
static void multiply(struct exact *e, int64_t rows, int64_t inner, int64_t columns) {
  for (int64_t p = 0; p < TILE_PARTS; p++)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) {
        float sum = 0;
        for (int64_t k = 0; k < inner; k++)
          sum += f32_of_bf16(e->v[(i * TILE_PARTS + p) * inner + k]) *
                 f32_of_bf16(e->u[(k * TILE_PARTS + p) * columns + j]);
        e->m[(i * TILE_PARTS + p) * columns + j] = sum;
      }
}

/* In two ranges, of which the first may end within a row of tiles. */
static void run_exact(struct exact *e, const struct tiles *from, const struct tiles *to,
                      const uint16_t *image, uint16_t *result) {
  int64_t n = tile_count(to), first = 0;
  for (int64_t part = n / 2 + 1; first < n; first += part, part = n - first) {
    struct tile_range range = {first, part};
    tiles_take(from, range, image, e->v);
    multiply(e, part, from->channels, to->channels);
    tiles_put(to, range, e->m, e->bias, result);
  }
}

/* Of output element (k, r, c) of sample s, by its definition. */
static float direct(const struct exact *e, int64_t s, int64_t k, int64_t r, int64_t c) {
  float sum = 0;
  for (int64_t i = 0; i < e->kernels.in; i++)
    for (int t = 0; t < TILE_TAPS; t++)
      sum +=
          e->weights[(k * e->kernels.in + i) * TILE_TAPS + t] *
          pixel(&e->from, e->x, (struct spot){s, i, r + t / 3 - e->from.pad[0], c + t % 3 - e->from.pad[1]});
  return sum;
}

static void check_forward(struct exact *e) {
  float bias[64];
  for (int k = 0; k < e->kernels.out; k++)
    bias[k] = (float)(k - 9);
  kernels_take(&e->kernels, e->weights, e->u);
  e->bias = bias;
  run_exact(e, &e->from, &e->to, e->x, e->y);
  for (int64_t s = 0; s < N; s++)
    for (int64_t k = 0; k < e->kernels.out; k++)
      for (int64_t r = 0; r < e->to.height; r++)
        for (int64_t c = 0; c < e->to.width; c++)
          assert_true(pixel(&e->to, e->y, (struct spot){s, k, r, c}) ==
                      f32_of_bf16(bf16_of_f32(direct(e, s, k, r, c) + bias[k])));
}

/* Of x's element (i, r, c) of sample s. */
static float direct_gradient(const struct exact *e, int64_t s, int64_t i, int64_t r, int64_t c) {
  float sum = 0;
  for (int64_t k = 0; k < e->kernels.out; k++)
    for (int t = 0; t < TILE_TAPS; t++)
      sum += e->weights[(k * e->kernels.in + i) * TILE_TAPS + t] *
             pixel(&e->to, e->y, (struct spot){s, k, r - t / 3 + e->from.pad[0], c - t % 3 + e->from.pad[1]});
  return sum;
}

static void check_input_gradient(struct exact *e) {
  struct tiles from = e->to, to = e->from;
  from.rows = to.rows = (to.height + 1) / 2;
  from.columns = to.columns = (to.width + 1) / 2;
  from.pad[0] = from.pad[1] = 2 - e->from.pad[0];
  uint16_t *dx = image_new(&to, 4);
  kernels_take_turned(&e->kernels, e->weights, e->u);
  run_exact(e, &from, &to, e->y, dx);
  for (int64_t s = 0; s < N; s++)
    for (int64_t i = 0; i < e->kernels.in; i++)
      for (int64_t r = 0; r < to.height; r++)
        for (int64_t c = 0; c < to.width; c++)
          assert_true(pixel(&to, dx, (struct spot){s, i, r, c}) ==
                      f32_of_bf16(bf16_of_f32(direct_gradient(e, s, i, r, c))));
  free(dx);
}

/* m f32[out, part, in] = sum over tiles of w[tile, part, out] v[tile, part, in]. */
static void multiply_turned(const struct exact *e) {
  int64_t n = tile_count(&e->from), out = e->kernels.out, in = e->kernels.in;
  for (int64_t p = 0; p < TILE_PARTS; p++)
    for (int64_t k = 0; k < out; k++)
      for (int64_t i = 0; i < in; i++) {
        float sum = 0;
        for (int64_t t = 0; t < n; t++)
          sum += f32_of_bf16(e->w[(t * TILE_PARTS + p) * out + k]) *
                 f32_of_bf16(e->v[(t * TILE_PARTS + p) * in + i]);
        e->m[(k * TILE_PARTS + p) * in + i] = sum;
      }
}

static void check_weight_gradient(struct exact *e) {
  int64_t n = tile_count(&e->from), out = e->kernels.out, in = e->kernels.in;
  float *dw = mem_new((size_t)(in * out * TILE_TAPS) * sizeof *dw);
  for (int64_t first = 0, part = n / 2 + 1; first < n; first += part, part = n - first) {
    struct tile_range range = {first, part};
    tiles_take(&e->from, range, e->x, e->v + TILE_PARTS * first * in);
    tiles_spread(&e->to, range, e->y, e->w + TILE_PARTS * first * out);
  }
  multiply_turned(e);
  kernels_put(&e->kernels, e->m, dw);
  for (int64_t d = 0; d < in * out * TILE_TAPS; d++) {
    int64_t k = d / TILE_TAPS / in, i = d / TILE_TAPS % in, t = d % TILE_TAPS;
    float sum = 0;
    for (int64_t s = 0; s < N; s++)
      for (int64_t r = 0; r < e->to.height; r++)
        for (int64_t c = 0; c < e->to.width; c++)
          sum += pixel(&e->to, e->y, (struct spot){s, k, r, c}) *
                 pixel(&e->from, e->x,
                       (struct spot){s, i, r + t / 3 - e->from.pad[0], c + t % 3 - e->from.pad[1]});
    assert_true(dw[d] == sum);
  }
  free(dw);
}

/* Whole tiles, tiles that are empty in part, one and several blocks of channels. */
static void transforms_are_exact_where_nothing_is_rounded(void **state) {
  (void)state;
  static const struct image_case cases[] = {
      {16, 16, 4, 6, 1}, {32, 16, 5, 7, 1}, {16, 48, 6, 5, 0}, {48, 32, 3, 3, 1}};
  skip_without_bf16();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct exact e;
    exact_init(&e, &cases[i]);
    check_weight_gradient(&e);
    check_input_gradient(&e);
    check_forward(&e);
    exact_fini(&e);
  }
}

/* Two convolutions, of which the second has the gradient of its input and a bias, too. */
struct pair {
  int64_t in, out, height, width;
  int pad;
};

static int add_padded(struct network *f, int x, int64_t in, const struct pair *pair, bool has_bias) {
  int64_t p = pair->pad;
  struct attr pads = {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (int64_t[]){p, p, p, p}};
  int w = add_weight(f, (struct shape){4, {pair->out, in, 3, 3}}, 0.2f);
  int b = has_bias ? add_weight(f, (struct shape){1, {pair->out}}, 0.2f) : -1;
  return add_node(f, "Conv", has_bias ? VALUES(x, w, b) : VALUES(x, w), ATTR_LIST(pads));
}

static void network_init_pair(struct network *f, const struct pair *pair) {
  struct shape image = {4, {BATCH, pair->in, pair->height, pair->width}};
  *f = (struct network){.graph = graph_new()};
  f->graph->opset = 17;
  f->graph->is_training = true;
  int x = graph_add_input(f->graph, "images", DTYPE_F32, &image);
  x = add_node(f, "Relu", VALUES(add_padded(f, x, pair->in, pair, false)), ATTRS_NONE);
  x = add_node(f, "Relu", VALUES(add_padded(f, x, pair->out, pair, true)), ATTRS_NONE);
  add_backward(f, add_gemm(f, add_mean(f, x), pair->out, CLASSES));
  network_feed(f, &image);
}

/* Twice: what the first execution leaves in memory changes nothing. */
static void run_half(struct network *f, struct answer *a) {
  struct backend_program *program = network_prepare_with("cpu", f, &half);
  struct answer first;
  answer_init(&first, f);
  network_run("cpu", program, NULL, 1, &first);
  answer_init(a, f);
  network_run("cpu", program, NULL, 1, a);
  assert_true(answer_is_same(a, &first));
  answer_fini(&first);
  backend_of("cpu")->release(program);
}

static void convolutions_by_tiles_are_near_ref(void **state) {
  (void)state;
  static const struct pair pairs[] = {
      {128, 128, 16, 16, 1}, {128, 128, 19, 22, 1}, {128, 128, 34, 33, 0}, {112, 144, 20, 18, 1}};
  skip_without_bf16();
  for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
    struct network f;
    struct answer got, want;
    network_init_pair(&f, &pairs[p]);
    run_half(&f, &got);
    network_run_once("cpu", &f, &want);
    answer_check_near(&got, &want, 0.12); /* direct kernels of bf16: 0.06 */
    answer_fini(&got);
    answer_fini(&want);
    network_fini(&f);
  }
}

struct row {
  int64_t n, in, out, height, width;
  int stride, pad;
  bool pays[3]; /* by enum conv_way */
};

static void the_shape_alone_decides(void **state) {
  (void)state;
  static const struct row rows[] = {
      /* ResNet-18 at 32x32 */
      {32, 3, 64, 32, 32, 1, 1, {false}},
      {32, 64, 64, 32, 32, 1, 1, {true, true, true}},
      {32, 64, 128, 32, 32, 2, 1, {false}},
      {32, 128, 128, 16, 16, 1, 1, {true, true, true}},
      {32, 256, 256, 8, 8, 1, 1, {true, true, true}},
      {32, 512, 512, 4, 4, 1, 1, {false, false, true}},
      /* few samples, few channels, and what fills no blocks */
      {4, 64, 64, 32, 32, 1, 1, {true, true, true}},
      {1, 256, 256, 8, 8, 1, 1, {false}},
      {4, 256, 256, 8, 8, 1, 1, {false, false, true}},
      {32, 16, 64, 32, 32, 1, 1, {false, false, true}},
      {32, 32, 32, 16, 16, 1, 1, {true, true, true}},
      {32, 16, 32, 32, 32, 1, 1, {false}},
      {8, 512, 512, 4, 4, 1, 1, {false}},
      {32, 16, 16, 32, 32, 1, 1, {false}},
      {32, 72, 64, 32, 32, 1, 1, {false}},
  };
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    const struct row *row = &rows[r];
    int beyond = 2 - 2 * row->pad;
    const int64_t in[] = {row->n, row->in, row->height, row->width};
    const int64_t out[] = {row->n, row->out, (row->height - beyond) / row->stride,
                           (row->width - beyond) / row->stride};
    const struct window window = {.kernel = {3, 3},
                                  .strides = {row->stride, row->stride},
                                  .pads_begin = {row->pad, row->pad},
                                  .pads_end = {row->pad, row->pad}};
    const struct winograd_shape shape = {4, 4, in, out, &window};
    for (int way = CONV_FORWARD; way <= CONV_GRAD_WEIGHT; way++)
      if (winograd_pays_half(&shape, (enum conv_way)way) != row->pays[way])
        fail_msg("row %zu, way %d", r, way);
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transforms_are_exact_where_nothing_is_rounded),
      cmocka_unit_test(convolutions_by_tiles_are_near_ref),
      cmocka_unit_test(the_shape_alone_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
