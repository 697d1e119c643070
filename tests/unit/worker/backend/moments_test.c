/* Means, variances and gradients of channels in every layout that they may have on a CPU, beside plain sums
   in f64 of elements that are found one by one. */
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

static const struct layout_case {
  dnnl_format_tag_t tag;
  int ndims;
  dnnl_dims_t dims;
} cases[] = {
    {dnnl_ab, 2, {300, 20}},
    {dnnl_ab, 2, {1, 7}},
    {dnnl_ab, 2, {40, 1}},
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
  float *x, *dy, *dx, *mean, *variance, *scale, *inv_std, *dscale, *dbias;
};

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
    t->scale[c] = 1 + 0.5f * draw(3, c);
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
  t->mean = mem_new(vector);
  t->variance = mem_new(vector);
  t->scale = mem_new(vector);
  t->inv_std = mem_new(vector);
  t->dscale = mem_new(vector);
  t->dbias = mem_new(vector);
  trial_fill(t);
}

static void trial_fini(struct trial *t) {
  float *const memory[] = {t->x,     t->dy,      t->dx,     t->mean, t->variance,
                           t->scale, t->inv_std, t->dscale, t->dbias};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
    free(memory[i]);
}

static void trial_compute(struct trial *t) {
  moments_compute(&t->moments, t->x, t->mean, t->variance);
  for (int64_t c = 0; c < t->channels; c++)
    t->inv_std[c] = 1 / sqrtf(t->variance[c] + 0.01f);
}

static void trial_differentiate(struct trial *t, float *dx) {
  struct moments_gradient gradient = {.dy = t->dy,
                                      .x = t->x,
                                      .scale = t->scale,
                                      .mean = t->mean,
                                      .inv_std = t->inv_std,
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
    trial_compute(&t);
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
    trial_compute(&t);
    trial_differentiate(&t, t.dx);
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
    trial_compute(&t);
    for (size_t at = 0; at < t.elems; at++)
      t.dx[at] = 7;
    trial_differentiate(&t, t.dx);
    for (size_t at = 0; at < t.elems; at++)
      all += fabs(t.dx[at]);
    for (int64_t n = 0; n < t.samples; n++)
      for (int64_t c = 0; c < t.channels; c++)
        for (int64_t p = 0; p < t.positions; p++)
          own += fabs(t.dx[offset_of(&t.layout, n, c, p)]);
    expect_near("padding", -1, all, own, 1);
    trial_differentiate(&t, t.dy);
    assert_memory_equal(t.dx, t.dy, t.elems * sizeof *t.dx);
    trial_fini(&t);
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
      cmocka_unit_test(other_layouts_are_left_to_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
