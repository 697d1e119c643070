/* Convolutions by Winograd's algorithm of tiles of 2 x 2, in f32 and in bf16: the transforms, which
   convolutions it computes, and how near it comes. */
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

static const struct backend_options half = {.precision = PRECISION_BF16},
                                    single = {.precision = PRECISION_F32};

static void skip_without(enum precision precision) {
  struct err err = ERR_NONE;
  if (backend_check_precision(backend_of("cpu"), precision, &err) == ERR_OK)
    return;
  print_message("%s\n", err.text);
  skip();
}

/* A convolution of small whole numbers, which neither transforms nor roundings change. */
struct exact {
  const struct tile_transforms *by;
  bool is_bf16;
  struct tiles in, out;
  struct kernels kernels;
  void *x, *y, *v, *w, *u;
  float *weights, *m;
};

enum { N = 2 };

/* Whole numbers of [-most, most]. */
static int whole_number(uint64_t key, int64_t i, int most) {
  return (int)(random_bits(random_key(key, 0, 0, 0), (uint64_t)i) % (uint64_t)(2 * most + 1)) - most;
}

static float real_get(const struct exact *e, const void *from, int64_t i) {
  return e->is_bf16 ? f32_of_bf16(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

static void *reals_new(const struct exact *e, int64_t elems) {
  return mem_new((size_t)elems * (e->is_bf16 ? sizeof(uint16_t) : sizeof(float)));
}

/* What an image of that type has of a value. */
static float rounded(const struct exact *e, float value) {
  return e->is_bf16 ? f32_of_bf16(bf16_of_f32(value)) : value;
}

static void *image_new(const struct exact *e, const struct tiles *tiles, uint64_t key) {
  int64_t elems = tiles->samples * tiles->channels * tiles->height * tiles->width;
  void *image = reals_new(e, elems);
  for (int64_t i = 0; i < elems; i++) {
    float value = (float)whole_number(key, i, 2);
    if (e->is_bf16)
      ((uint16_t *)image)[i] = bf16_of_f32(value);
    else
      ((float *)image)[i] = value;
  }
  return image;
}

static int64_t tile_count(const struct exact *e) {
  return N * e->out.rows * e->out.columns;
}

static int64_t taps(const struct exact *e) {
  return e->by->kernel * e->by->kernel;
}

struct image_case {
  int64_t in, out, height, width, pad;
};

/* An image of so many channels and of that size, and what a convolution with that padding makes of it. */
static void exact_init(struct exact *e, const struct tile_transforms *by, bool is_bf16,
                       const struct image_case *of) {
  int64_t in = of->in, out = of->out, beyond = 2 * of->pad - by->kernel + 1;
  int64_t height = of->height + beyond, width = of->width + beyond;
  int64_t rows = (height + 1) / 2, columns = (width + 1) / 2, n = N * rows * columns;
  int64_t most = in > out ? in : out;
  *e = (struct exact){.by = by,
                      .is_bf16 = is_bf16,
                      .in = {N, in, of->height, of->width, rows, columns, {of->pad, of->pad}},
                      .out = {N, out, height, width, rows, columns, {0, 0}},
                      .kernels = {.out = out, .in = in}};
  e->x = image_new(e, &e->in, 1);
  e->y = image_new(e, &e->out, 2);
  e->weights = mem_new((size_t)(in * out * taps(e)) * sizeof(float));
  for (int64_t i = 0; i < in * out * taps(e); i++)
    e->weights[i] = (float)(4 * whole_number(3, i, 1)); /* a part is a quarter of a whole number */
  e->v = reals_new(e, by->parts * n * in);
  e->w = reals_new(e, by->parts * n * out);
  e->u = reals_new(e, by->parts * in * out);
  e->m = mem_new((size_t)(by->parts * (n > most ? n : most) * most) * sizeof(float));
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

static float pixel(const struct exact *e, const struct tiles *tiles, const void *image, struct spot at) {
  int64_t s = at.s, c = at.c, r = at.r, column = at.column;
  if (r < 0 || column < 0 || r >= tiles->height || column >= tiles->width)
    return 0;
  int64_t row = (s * (tiles->channels / TILE_BLOCK) + c / TILE_BLOCK) * tiles->height + r;
  return real_get(e, image, (row * tiles->width + column) * TILE_BLOCK + c % TILE_BLOCK);
}

/* m[rows, columns] = factors[rows, inner] u[inner, columns] of each part. */
static void multiply(struct exact *e, const void *factors, int64_t rows, int64_t inner, int64_t columns) {
  int64_t parts = e->by->parts;
  for (int64_t p = 0; p < parts; p++)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) {
        float sum = 0;
        for (int64_t k = 0; k < inner; k++)
          sum += real_get(e, factors, (i * parts + p) * inner + k) *
                 real_get(e, e->u, (k * parts + p) * columns + j);
        e->m[(i * parts + p) * columns + j] = sum;
      }
}

/* Of output element (k, r, c) of sample s, by its definition. */
static float direct(const struct exact *e, int64_t s, int64_t k, int64_t r, int64_t c) {
  int side = e->by->kernel;
  float sum = 0;
  for (int64_t i = 0; i < e->kernels.in; i++)
    for (int t = 0; t < taps(e); t++)
      sum += e->weights[(k * e->kernels.in + i) * taps(e) + t] *
             pixel(e, &e->in, e->x,
                   (struct spot){s, i, r + t / side - e->in.pad[0], c + t % side - e->in.pad[1]});
  return sum;
}

/* Everything is done in two ranges of tiles, of which the first may end within a row. */
static void check_forward(struct exact *e) {
  float bias[64];
  for (int k = 0; k < e->kernels.out; k++)
    bias[k] = (float)(k - 9);
  e->by->kernels_take(&e->kernels, e->weights, e->u);
  for (int64_t n = tile_count(e), first = 0, part = n / 2 + 1; first < n; first += part, part = n - first) {
    struct tile_range range = {first, part};
    e->by->take(&e->in, range, e->x, e->v);
    multiply(e, e->v, part, e->kernels.in, e->kernels.out);
    e->by->put(&e->out, range, e->m, bias, e->y);
  }
  for (int64_t s = 0; s < N; s++)
    for (int64_t k = 0; k < e->kernels.out; k++)
      for (int64_t r = 0; r < e->out.height; r++)
        for (int64_t c = 0; c < e->out.width; c++)
          assert_true(pixel(e, &e->out, e->y, (struct spot){s, k, r, c}) ==
                      rounded(e, direct(e, s, k, r, c) + bias[k]));
}

/* Of x's element (i, r, c) of sample s. */
static float direct_gradient(const struct exact *e, int64_t s, int64_t i, int64_t r, int64_t c) {
  int side = e->by->kernel;
  float sum = 0;
  for (int64_t k = 0; k < e->kernels.out; k++)
    for (int t = 0; t < taps(e); t++)
      sum += e->weights[(k * e->kernels.in + i) * taps(e) + t] *
             pixel(e, &e->out, e->y,
                   (struct spot){s, k, r - t / side + e->in.pad[0], c - t % side + e->in.pad[1]});
  return sum;
}

static void check_input_gradient(struct exact *e) {
  void *dx = image_new(e, &e->in, 4);
  float *sums = mem_new((size_t)tiles_sums(&e->in, e->by->kernel) * sizeof *sums);
  e->by->kernels_take_turned(&e->kernels, e->weights, e->u);
  memset(sums, 0, (size_t)tiles_sums(&e->in, e->by->kernel) * sizeof *sums);
  for (int64_t n = tile_count(e), first = 0, part = n / 2 + 1; first < n; first += part, part = n - first) {
    struct tile_range range = {first, part};
    e->by->spread(&e->out, range, e->y, e->w);
    multiply(e, e->w, part, e->kernels.out, e->kernels.in);
    e->by->give(&e->in, range, e->m, sums, dx);
  }
  for (int64_t s = 0; s < N; s++)
    for (int64_t i = 0; i < e->kernels.in; i++)
      for (int64_t r = 0; r < e->in.height; r++)
        for (int64_t c = 0; c < e->in.width; c++)
          assert_true(pixel(e, &e->in, dx, (struct spot){s, i, r, c}) ==
                      rounded(e, direct_gradient(e, s, i, r, c)));
  free(sums);
  free(dx);
}

/* m f32[out, part, in] = sum over tiles of w[tile, part, out] v[tile, part, in]. */
static void multiply_turned(const struct exact *e) {
  int64_t n = tile_count(e), parts = e->by->parts, out = e->kernels.out, in = e->kernels.in;
  for (int64_t p = 0; p < parts; p++)
    for (int64_t k = 0; k < out; k++)
      for (int64_t i = 0; i < in; i++) {
        float sum = 0;
        for (int64_t t = 0; t < n; t++)
          sum += real_get(e, e->w, (t * parts + p) * out + k) * real_get(e, e->v, (t * parts + p) * in + i);
        e->m[(k * parts + p) * in + i] = sum;
      }
}

/* Of the weights' element d. */
static float direct_weight_gradient(const struct exact *e, int64_t d) {
  int side = e->by->kernel;
  int64_t in = e->kernels.in, k = d / taps(e) / in, i = d / taps(e) % in, t = d % taps(e);
  float sum = 0;
  for (int64_t s = 0; s < N; s++)
    for (int64_t r = 0; r < e->out.height; r++)
      for (int64_t c = 0; c < e->out.width; c++)
        sum += pixel(e, &e->out, e->y, (struct spot){s, k, r, c}) *
               pixel(e, &e->in, e->x,
                     (struct spot){s, i, r + t / side - e->in.pad[0], c + t % side - e->in.pad[1]});
  return sum;
}

static void check_weight_gradient(struct exact *e) {
  int64_t n = tile_count(e), parts = e->by->parts, out = e->kernels.out, in = e->kernels.in;
  size_t real_bytes = e->is_bf16 ? sizeof(uint16_t) : sizeof(float);
  float *dw = mem_new((size_t)(in * out * taps(e)) * sizeof *dw);
  for (int64_t first = 0, part = n / 2 + 1; first < n; first += part, part = n - first) {
    struct tile_range range = {first, part};
    e->by->take(&e->in, range, e->x, (char *)e->v + (size_t)(parts * first * in) * real_bytes);
    e->by->spread(&e->out, range, e->y, (char *)e->w + (size_t)(parts * first * out) * real_bytes);
  }
  multiply_turned(e);
  e->by->kernels_put(&e->kernels, e->m, dw);
  for (int64_t d = 0; d < in * out * taps(e); d++)
    assert_true(dw[d] == direct_weight_gradient(e, d));
  free(dw);
}

static void check_sum(const struct exact *e) {
  float sums[64];
  e->by->sum(&e->out, e->y, sums);
  for (int64_t k = 0; k < e->kernels.out; k++) {
    float sum = 0;
    for (int64_t s = 0; s < N; s++)
      for (int64_t i = 0; i < e->out.height * e->out.width; i++)
        sum += pixel(e, &e->out, e->y, (struct spot){s, k, i / e->out.width, i % e->out.width});
    assert_true(sums[k] == sum);
  }
}

/* Whole tiles, tiles that are empty in part, one and several blocks of channels. */
static void check_transforms(const struct tile_transforms *by, bool is_bf16) {
  static const struct image_case cases[] = {
      {16, 16, 4, 6, 1}, {32, 16, 5, 7, 1}, {16, 48, 6, 5, 0}, {48, 32, 3, 3, 1}, {16, 32, 7, 8, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct exact e;
    exact_init(&e, by, is_bf16, &cases[i]);
    check_sum(&e);
    check_weight_gradient(&e);
    check_input_gradient(&e);
    check_forward(&e);
    exact_fini(&e);
  }
}

static void transforms_of_bf16_are_exact_where_nothing_is_rounded(void **state) {
  (void)state;
  skip_without(PRECISION_BF16);
  check_transforms(&tiles_bf16[0], true);
  check_transforms(&tiles_bf16[1], true);
}

static void transforms_of_f32_are_exact_where_nothing_is_rounded(void **state) {
  (void)state;
  skip_without(PRECISION_F32_FAST); /* which asks for AVX-512, too */
  check_transforms(&tiles_f32[0], false);
  check_transforms(&tiles_f32[1], false);
}

/* Two convolutions, of which the second has the gradient of its input and a bias, too. */
struct pair {
  int64_t kernel, in, out, height, width, pad, pad_end;
};

static int add_padded(struct network *f, int x, int64_t in, const struct pair *pair, bool has_bias) {
  int64_t p = pair->pad, end = pair->pad_end;
  struct attr pads = {.name = "pads", .type = ATTR_INTS, .n = 4, .ints = (int64_t[]){p, p, end, end}};
  int w = add_weight(f, (struct shape){4, {pair->out, in, pair->kernel, pair->kernel}}, 0.2f);
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
static void run_twice(struct network *f, const struct backend_options *options, struct answer *a) {
  struct backend_program *program = network_prepare_with("cpu", f, options);
  struct answer first;
  answer_init(&first, f);
  network_run("cpu", program, NULL, 1, &first);
  answer_init(a, f);
  network_run("cpu", program, NULL, 1, a);
  assert_true(answer_is_same(a, &first));
  answer_fini(&first);
  backend_of("cpu")->release(program);
}

static void check_near(const struct pair *pair, const struct backend_options *options, double tolerance) {
  struct network f;
  struct answer got, want;
  network_init_pair(&f, pair);
  run_twice(&f, options, &got);
  network_run_once("ref", &f, &want);
  answer_check_near(&got, &want, tolerance);
  answer_fini(&got);
  answer_fini(&want);
  network_fini(&f);
}

/* Of both sizes of kernels, with padding, without, on one side, and with less than none, which leaves out
   what is at the end; sides that are odd numbers; channels of odd numbers of blocks. */
static const struct pair pairs[] = {{3, 64, 64, 12, 12, 1, 1},  {3, 64, 64, 15, 18, 1, 1},
                                    {3, 64, 80, 16, 15, 0, 0},  {3, 64, 64, 14, 13, 1, 0},
                                    {5, 64, 64, 10, 10, 2, 2},  {5, 64, 64, 17, 14, 0, 0},
                                    {5, 80, 48, 13, 12, 1, 1},  {5, 64, 64, 13, 12, 0, 2},
                                    {3, 64, 64, 16, 17, 1, -1}, {5, 64, 64, 18, 15, 2, -2}};

static void convolutions_of_bf16_are_near_ref(void **state) {
  (void)state;
  skip_without(PRECISION_BF16);
  for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
    check_near(&pairs[p], &half, 0.12); /* direct kernels of bf16: 0.06 */
}

static void convolutions_of_f32_are_near_ref(void **state) {
  (void)state;
  for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
    check_near(&pairs[p], &single, 2e-5);
}

struct row {
  int64_t n, in, out, height, width;
  int kernel, stride, pad;
  bool pays[2][3]; /* in f32 and in bf16, by enum conv_way */
};

static bool pays(const struct row *row, bool is_bf16, int way) {
  int beyond = row->kernel - 1 - 2 * row->pad;
  const int64_t in[] = {row->n, row->in, row->height, row->width};
  const int64_t out[] = {row->n, row->out, (row->height - beyond) / row->stride,
                         (row->width - beyond) / row->stride};
  const struct window window = {.kernel = {row->kernel, row->kernel},
                                .strides = {row->stride, row->stride},
                                .pads_begin = {row->pad, row->pad},
                                .pads_end = {row->pad, row->pad}};
  const struct winograd_shape shape = {4, 4, in, out, &window};
  return winograd_pays_tiled(&shape, (enum conv_way)way, is_bf16);
}

#define NONE                                                                                                 \
  {                                                                                                          \
    {false}, {                                                                                               \
      false                                                                                                  \
    }                                                                                                        \
  }
#define ALL                                                                                                  \
  {                                                                                                          \
    {true, true, true}, {                                                                                    \
      true, true, true                                                                                       \
    }                                                                                                        \
  }

static void the_shape_alone_decides(void **state) {
  (void)state;
  static const struct row rows[] = {
      /* ResNet-18 at 32x32 */
      {32, 3, 64, 32, 32, 3, 1, 1, NONE},
      {32, 64, 64, 32, 32, 3, 1, 1, ALL},
      {32, 64, 128, 32, 32, 3, 2, 1, NONE},
      {32, 128, 128, 16, 16, 3, 1, 1, ALL},
      {32, 256, 256, 8, 8, 3, 1, 1, ALL},
      {32, 512, 512, 4, 4, 3, 1, 1, {{false, false, true}, {false, false, true}}},
      /* LeNet of 32 and 64 channels, which fill no image, and with padding */
      {64, 1, 32, 28, 28, 5, 1, 2, NONE},
      {64, 32, 64, 14, 14, 5, 1, 0, ALL},
      {64, 16, 32, 14, 14, 5, 1, 0, NONE},
      {64, 32, 64, 14, 14, 5, 1, 2, {{true, true, false}, {false, false, true}}},
      {64, 32, 64, 14, 14, 5, 2, 2, NONE},
      {64, 32, 64, 14, 14, 7, 1, 3, NONE},
      /* few samples, few channels, and what fills no blocks */
      {4, 64, 64, 32, 32, 3, 1, 1, ALL},
      {1, 256, 256, 8, 8, 3, 1, 1, NONE},
      {4, 256, 256, 8, 8, 3, 1, 1, {{true, true, true}, {false, false, true}}},
      {32, 16, 64, 32, 32, 3, 1, 1, {{true, true, false}, {false, false, true}}},
      {32, 32, 32, 16, 16, 3, 1, 1, ALL},
      {32, 16, 32, 32, 32, 3, 1, 1, {{true, true, false}, {false}}},
      {8, 512, 512, 4, 4, 3, 1, 1, NONE},
      {32, 16, 16, 32, 32, 3, 1, 1, NONE},
      {32, 72, 64, 32, 32, 3, 1, 1, NONE},
  };
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
    for (int type = 0; type < 2; type++)
      for (int way = CONV_FORWARD; way <= CONV_GRAD_WEIGHT; way++)
        if (pays(&rows[r], type, way) != rows[r].pays[type][way])
          fail_msg("row %zu, type %d, way %d", r, type, way);
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(transforms_of_bf16_are_exact_where_nothing_is_rounded),
      cmocka_unit_test(transforms_of_f32_are_exact_where_nothing_is_rounded),
      cmocka_unit_test(convolutions_of_bf16_are_near_ref),
      cmocka_unit_test(convolutions_of_f32_are_near_ref),
      cmocka_unit_test(the_shape_alone_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
