/* Means, variances, norms and gradients of channels in every layout that they may have on a CPU, beside plain
   sums in f64 of elements that are found one by one; and norms with an activation beside norms and
   activations one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/base/memory.h"
#include "worker/backend/cpu/norms/moments.h"
#include "worker/backend/cpu/reals.h"

static const struct layout_case {
  dnnl_format_tag_t tag;
  int ndims;
  dnnl_dims_t dims;
} cases[] = {
    {dnnl_ab, 2, {300, 20}},
    {dnnl_ab, 2, {1, 7}},
    {dnnl_ab, 2, {40, 1}},
    {dnnl_ab, 2, {1, 1}},
    {dnnl_abcdef, 6, {2, 3, 4, 1, 5, 2}},
    {dnnl_abc, 3, {3, 5, 33}},
    {dnnl_abcd, 4, {3, 5, 6, 7}},
    {dnnl_abcd, 4, {2, 3, 64, 70}},
    {dnnl_abcd, 4, {4, 6, 1, 1}},
    {dnnl_acdb, 4, {3, 20, 4, 5}},
    {dnnl_acdb, 4, {2, 24, 40, 1}},
    {dnnl_aBcd4b, 4, {3, 10, 3, 5}},
    {dnnl_aBcd8b, 4, {3, 24, 7, 5}},
    {dnnl_aBcd8b, 4, {2, 3, 64, 71}},
    {dnnl_aBcd8b, 4, {5, 20, 1, 1}},
    {dnnl_aBcd16b, 4, {3, 32, 6, 6}},
    {dnnl_aBcd16b, 4, {2, 3, 9, 7}},
    {dnnl_aBcd16b, 4, {50, 20, 1, 1}},
    {dnnl_aBcde8b, 5, {2, 12, 3, 5, 4}},
};

enum { CASES = sizeof cases / sizeof cases[0] };

/* A tensor's place for element p of channel c of sample n, positions counted in row-major order. */
static size_t offset_of(const dnnl_memory_desc_t *layout, int64_t n, int64_t c, int64_t p) {
  const dnnl_blocking_desc_t *blocking = &layout->format_desc.blocking;
  int64_t block = blocking->inner_nblks ? blocking->inner_blks[0] : 1;
  int64_t offset = n * blocking->strides[0] + c / block * blocking->strides[1] + c % block;
  for (int d = layout->ndims - 1; d >= 2; d--) {
    offset += p % layout->dims[d] * blocking->strides[d];
    p /= layout->dims[d];
  }
  return (size_t)offset;
}

/* A norm of one case: tensors in its layout, whose padding is 0, and vectors of its channels. */
struct trial {
  dnnl_memory_desc_t layout;
  struct moments moments;
  size_t elems; /* of a tensor, with padding */
  int64_t samples, channels, positions;
  float *x, *dy, *dx, *y, *mean, *variance, *scale, *bias, *inv_std, *dscale, *dbias, *line;
};

static const float epsilon = 0.01f;

static float draw(uint64_t stream, int64_t i) {
  return 2 * random_uniform(random_key(stream, 0, 0, 0), (uint64_t)i) - 1;
}

static void trial_fill(struct trial *t) {
  int64_t i = 0;
  for (int64_t n = 0; n < t->samples; n++)
    for (int64_t c = 0; c < t->channels; c++)
      for (int64_t p = 0; p < t->positions; p++, i++) {
        size_t at = offset_of(&t->layout, n, c, p);
        t->x[at] = 3 + (float)c + draw(1, i);
        t->dy[at] = 0.5f + draw(2, i);
      }
  for (int64_t c = 0; c < t->channels; c++)
    t->scale[c] = 1 + 0.5f * draw(3, c), t->bias[c] = draw(4, c);
}

static void trial_init(struct trial *t, const struct layout_case *of) {
  size_t vector = (size_t)of->dims[1] * sizeof(float), tensor;
  *t = (struct trial){.samples = of->dims[0], .channels = of->dims[1], .positions = 1};
  for (int d = 2; d < of->ndims; d++)
    t->positions *= of->dims[d];
  assert_int_equal(dnnl_memory_desc_init_by_tag(&t->layout, of->ndims, of->dims, dnnl_f32, of->tag), 0);
  assert_true(moments_init(&t->moments, &t->layout));
  tensor = dnnl_memory_desc_get_size(&t->layout);
  t->elems = tensor / sizeof(float);
  t->x = mem_new(tensor);
  t->dy = mem_new(tensor);
  t->dx = mem_new(tensor);
  t->y = mem_new(tensor);
  t->mean = mem_new(vector);
  t->variance = mem_new(vector);
  t->scale = mem_new(vector);
  t->bias = mem_new(vector);
  t->inv_std = mem_new(vector);
  t->dscale = mem_new(vector);
  t->dbias = mem_new(vector);
  t->line = mem_new(2 * vector);
  trial_fill(t);
}

static void trial_fini(struct trial *t) {
  float *const memory[] = {t->x,     t->dy,   t->dx,      t->y,      t->mean,  t->variance,
                           t->scale, t->bias, t->inv_std, t->dscale, t->dbias, t->line};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
    free(memory[i]);
}

static struct moments_norm trial_norm(const struct trial *t, const struct fused_activation *activation) {
  return (struct moments_norm){.x = t->x,
                               .scale = t->scale,
                               .bias = t->bias,
                               .epsilon = epsilon,
                               .activation = *activation,
                               .mean = t->mean,
                               .variance = t->variance,
                               .y = t->y,
                               .line = t->line};
}

static const struct fused_activation none = {.kind = FUSED_NONE};

static void trial_compute(struct trial *t, const struct fused_activation *activation) {
  struct moments_norm norm = trial_norm(t, activation);
  moments_train(&t->moments, &norm);
  for (int64_t c = 0; c < t->channels; c++)
    t->inv_std[c] = 1 / sqrtf(t->variance[c] + epsilon);
}

static void trial_differentiate(struct trial *t, const struct fused_activation *activation, float *dx) {
  struct moments_gradient gradient = {.dy = t->dy,
                                      .x = t->x,
                                      .scale = t->scale,
                                      .mean = t->mean,
                                      .inv_std = t->inv_std,
                                      .line = t->line,
                                      .activation = *activation,
                                      .dx = dx,
                                      .dscale = t->dscale,
                                      .dbias = t->dbias};
  moments_differentiate(&t->moments, &gradient);
}

/* Within a few roundings of f32: a part of the sum of the terms' magnitudes. */
static void expect_near(const char *what, int64_t channel, double is, double wanted, double magnitude) {
  if (!(fabs(is - wanted) <= 3e-7 * magnitude))
    fail_msg("%s of channel %d is %.9g, not %.9g", what, (int)channel, is, wanted);
}

static void expect_moments(const struct trial *t, int64_t c) {
  double mean = 0, variance = 0, elems = (double)(t->samples * t->positions);
  for (int64_t n = 0; n < t->samples; n++)
    for (int64_t p = 0; p < t->positions; p++)
      mean += t->x[offset_of(&t->layout, n, c, p)] / elems;
  for (int64_t n = 0; n < t->samples; n++)
    for (int64_t p = 0; p < t->positions; p++)
      variance += pow(t->x[offset_of(&t->layout, n, c, p)] - mean, 2) / elems;
  expect_near("mean", c, t->mean[c], mean, mean);
  expect_near("variance", c, t->variance[c], variance, variance + 1e-6);
}

static void expect_norm(const struct trial *t, int64_t c) {
  double deviation = sqrt((double)t->variance[c] + epsilon);
  for (int64_t n = 0; n < t->samples; n++)
    for (int64_t p = 0; p < t->positions; p++) {
      size_t at = offset_of(&t->layout, n, c, p);
      double term = (t->x[at] - (double)t->mean[c]) * t->scale[c] / deviation;
      expect_near("y", c, t->y[at], term + t->bias[c], fabs(term) + fabs(t->bias[c]) + fabs(t->mean[c]));
    }
}

static void expect_gradient(const struct trial *t, int64_t c) {
  double dbias = 0, dscale = 0, sizes[2] = {0}, inv_std = t->inv_std[c];
  double elems = (double)(t->samples * t->positions), factor = t->scale[c] * inv_std;
  for (int64_t n = 0; n < t->samples; n++)
    for (int64_t p = 0; p < t->positions; p++) {
      size_t at = offset_of(&t->layout, n, c, p);
      double dy = t->dy[at], term = dy * (t->x[at] - (double)t->mean[c]) * inv_std;
      dbias += dy;
      dscale += term;
      sizes[0] += fabs(dy);
      sizes[1] += fabs(term);
    }
  expect_near("dbias", c, t->dbias[c], dbias, sizes[0]);
  expect_near("dscale", c, t->dscale[c], dscale, sizes[1]);
  for (int64_t n = 0; n < t->samples; n++)
    for (int64_t p = 0; p < t->positions; p++) {
      size_t at = offset_of(&t->layout, n, c, p);
      double x_hat = (t->x[at] - (double)t->mean[c]) * inv_std;
      expect_near("dx", c, t->dx[at], factor * (t->dy[at] - dbias / elems - x_hat * dscale / elems),
                  3 * factor);
    }
}

static void moments_are_exact_sums_rounded_in_every_layout(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    struct trial t;
    trial_init(&t, &cases[i]);
    trial_compute(&t, &none);
    for (int64_t c = 0; c < t.channels; c++)
      expect_moments(&t, c);
    trial_fini(&t);
  }
}

static void gradients_are_by_exact_sums_in_every_layout(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    struct trial t;
    trial_init(&t, &cases[i]);
    trial_compute(&t, &none);
    trial_differentiate(&t, &none, t.dx);
    for (int64_t c = 0; c < t.channels; c++)
      expect_gradient(&t, c);
    trial_fini(&t);
  }
}

static void a_gradient_in_the_place_of_another_has_the_same_bits_and_no_padding(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    struct trial t;
    double all = 0, own = 0;
    trial_init(&t, &cases[i]);
    trial_compute(&t, &none);
    for (size_t at = 0; at < t.elems; at++)
      t.dx[at] = 7;
    trial_differentiate(&t, &none, t.dx);
    for (size_t at = 0; at < t.elems; at++)
      all += fabs(t.dx[at]);
    for (int64_t n = 0; n < t.samples; n++)
      for (int64_t c = 0; c < t.channels; c++)
        for (int64_t p = 0; p < t.positions; p++)
          own += fabs(t.dx[offset_of(&t.layout, n, c, p)]);
    expect_near("padding", -1, all, own, 1);
    trial_differentiate(&t, &none, t.dy);
    assert_memory_equal(t.dx, t.dy, t.elems * sizeof *t.dx);
    trial_fini(&t);
  }
}

static double magnitude(const float *values, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += fabs(values[i]);
  return sum;
}

static void norms_are_near_exact_ones_in_every_layout_without_padding(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    struct trial t;
    double own = 0;
    trial_init(&t, &cases[i]);
    for (size_t at = 0; at < t.elems; at++)
      t.y[at] = 7;
    trial_compute(&t, &none);
    for (int64_t c = 0; c < t.channels; c++)
      expect_norm(&t, c);
    for (int64_t n = 0; n < t.samples; n++)
      for (int64_t c = 0; c < t.channels; c++)
        for (int64_t p = 0; p < t.positions; p++)
          own += fabs(t.y[offset_of(&t.layout, n, c, p)]);
    expect_near("padding", -1, magnitude(t.y, t.elems), own, 1);
    trial_fini(&t);
  }
}

static void norms_by_given_moments_and_in_place_have_the_same_bits(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++) {
    struct trial t;
    struct moments_norm norm;
    trial_init(&t, &cases[i]);
    trial_compute(&t, &none);
    norm = trial_norm(&t, &none);
    norm.y = t.x;
    norm.line = NULL;
    moments_normalize(&t.moments, &norm);
    assert_memory_equal(t.x, t.y, t.elems * sizeof *t.x);
    trial_fini(&t);
  }
}

static const struct fused_activation activations[] = {
    {.kind = FUSED_RELU}, {FUSED_CLIP, 0, 1.5f},          {FUSED_CLIP, -0.5f, 0.25f},
    {FUSED_CLIP, 0, 6},   {FUSED_CLIP, -INFINITY, 0.75f}, {FUSED_CLIP, -1, INFINITY}};

enum { ACTIVATIONS = sizeof activations / sizeof activations[0] };

static float activated(const struct fused_activation *activation, float x) {
  if (activation->kind == FUSED_RELU)
    return x > 0 ? x : 0;
  return fminf(fmaxf(x, activation->low), activation->high);
}

/* Zero at the bounds, too. */
static float passed(const struct fused_activation *activation, float dy, float y) {
  bool is_within = activation->kind == FUSED_RELU ? y > 0 : y > activation->low && y < activation->high;
  return is_within ? dy : 0;
}

/* The trial's tensors become bf16, in the same memory. */
static void trial_halve(struct trial *t) {
  float *const tensors[] = {t->x, t->dy, t->y, t->dx};
  dnnl_memory_desc_t layout = t->layout;
  layout.data_type = dnnl_bf16;
  assert_true(moments_init(&t->moments, &layout));
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
    reals_narrow(tensors[i], (int64_t)t->elems, 1, tensors[i], 0);
}

static void each_element(struct trial *t, const struct fused_activation *activation, float *y,
                         float (*of)(const struct fused_activation *activation, float y, float dy)) {
  bool is_bf16 = t->moments.is_bf16;
  for (size_t i = 0; i < t->elems; i++) {
    int64_t at = (int64_t)i;
    real_put(y, at, is_bf16, of(activation, real_at(t->y, at, is_bf16), real_at(t->dy, at, is_bf16)));
  }
}

static float of_y(const struct fused_activation *activation, float y, float dy) {
  (void)dy;
  return activated(activation, y);
}

static float of_dy(const struct fused_activation *activation, float y, float dy) {
  return passed(activation, dy, y);
}

/* One after the other: the norm, its activation, the gradient of that, and the gradient of the norm. */
static void expect_fused_as_apart(const struct layout_case *of, const struct fused_activation *activation,
                                  bool is_bf16) {
  struct trial fused, apart;
  trial_init(&fused, of);
  trial_init(&apart, of);
  size_t tensor = fused.elems * (is_bf16 ? sizeof(uint16_t) : sizeof(float));
  size_t vector = (size_t)fused.channels * sizeof(float);
  if (is_bf16) {
    trial_halve(&fused);
    trial_halve(&apart);
  }
  trial_compute(&fused, activation);
  trial_differentiate(&fused, activation, fused.dx);
  trial_compute(&apart, &none);
  each_element(&apart, activation, apart.y, of_y);
  each_element(&apart, activation, apart.dy, of_dy);
  trial_differentiate(&apart, &none, apart.dx);
  assert_memory_equal(fused.y, apart.y, tensor);
  assert_memory_equal(fused.dx, apart.dx, tensor);
  assert_memory_equal(fused.dscale, apart.dscale, vector);
  assert_memory_equal(fused.dbias, apart.dbias, vector);
  trial_fini(&fused);
  trial_fini(&apart);
}

static void an_activation_along_with_the_norm_has_the_bits_of_both_one_after_the_other(void **state) {
  (void)state;
  for (int i = 0; i < CASES; i++)
    for (int a = 0; a < ACTIVATIONS; a++)
      expect_fused_as_apart(&cases[i], &activations[a], false);
}

static void the_same_in_bf16(void **state) {
  (void)state;
  if (backend_check_precision(backend_find("cpu"), PRECISION_BF16, &(struct err){0}))
    skip();
  for (int i = 0; i < CASES; i++)
    for (int a = 0; a < ACTIVATIONS; a++)
      expect_fused_as_apart(&cases[i], &activations[a], true);
}

/* dbias of one element, whose dy is 1 and whose norm is `norm`, which is no bf16: whether it passes. */
static float passes(float norm, const struct fused_activation *activation) {
  uint16_t x = bf16_of_real(1), dy = bf16_of_real(1), dx;
  float scale = 1, mean = 0, inv_std = 1, line[] = {1, norm - 1}, dscale, dbias;
  dnnl_memory_desc_t layout;
  struct moments moments;
  assert_int_equal(dnnl_memory_desc_init_by_tag(&layout, 2, (dnnl_dims_t){1, 1}, dnnl_bf16, dnnl_ab), 0);
  assert_true(moments_init(&moments, &layout));
  moments_differentiate(&moments, &(struct moments_gradient){.dy = &dy,
                                                             .x = &x,
                                                             .scale = &scale,
                                                             .mean = &mean,
                                                             .inv_std = &inv_std,
                                                             .line = line,
                                                             .activation = *activation,
                                                             .dx = &dx,
                                                             .dscale = &dscale,
                                                             .dbias = &dbias});
  return dbias;
}

static void a_norm_that_is_rounded_to_a_bound_is_at_it(void **state) {
  static const float bounds[] = {1.5f, 1.4921875f, 6, 0.3f, 1e-3f}; /* even, odd, and no bf16 */
  (void)state;
  if (backend_check_precision(backend_find("cpu"), PRECISION_BF16, &(struct err){0}))
    skip();
  for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++)
    for (int32_t off = -0x18000; off <= 0x18000; off += 0x800) {
      int32_t bits;
      float norm;
      memcpy(&bits, &bounds[b], sizeof bits);
      bits = (bits & -0x800) + off;
      memcpy(&norm, &bits, sizeof norm);
      norm = (norm - 1) + 1; /* as 1 and another make it */
      float rounded = real_of_bf16(bf16_of_real(norm));
      struct fused_activation high = {FUSED_CLIP, -INFINITY, bounds[b]}, low = {FUSED_CLIP, -bounds[b], 8};
      assert_float_equal(passes(norm, &high), rounded < bounds[b], 0);
      norm = (-norm - 1) + 1;
      rounded = real_of_bf16(bf16_of_real(norm));
      assert_float_equal(passes(norm, &low), rounded > -bounds[b], 0);
    }
}

static void other_layouts_are_left_to_others(void **state) {
  dnnl_memory_desc_t layout;
  struct moments moments;
  dnnl_dims_t dims = {2, 16, 3, 5}, turned = {240, 1, 16, 48};
  (void)state;
  assert_int_equal(dnnl_memory_desc_init_by_tag(&layout, 4, dims, dnnl_f32, dnnl_ABcd8b8a), 0);
  assert_false(moments_init(&moments, &layout));
  assert_int_equal(dnnl_memory_desc_init_by_tag(&layout, 4, dims, dnnl_f32, dnnl_Abcd16a), 0);
  assert_false(moments_init(&moments, &layout));
  assert_int_equal(dnnl_memory_desc_init_by_strides(&layout, 4, dims, dnnl_f32, turned), 0);
  assert_false(moments_init(&moments, &layout));
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(moments_are_exact_sums_rounded_in_every_layout),
      cmocka_unit_test(gradients_are_by_exact_sums_in_every_layout),
      cmocka_unit_test(a_gradient_in_the_place_of_another_has_the_same_bits_and_no_padding),
      cmocka_unit_test(norms_are_near_exact_ones_in_every_layout_without_padding),
      cmocka_unit_test(norms_by_given_moments_and_in_place_have_the_same_bits),
      cmocka_unit_test(an_activation_along_with_the_norm_has_the_bits_of_both_one_after_the_other),
      cmocka_unit_test(the_same_in_bf16),
      cmocka_unit_test(a_norm_that_is_rounded_to_a_bound_is_at_it),
      cmocka_unit_test(other_layouts_are_left_to_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
