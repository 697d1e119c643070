/* Every compressor, and each beside a model of its own that works on single numbers in f64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/compress/compressor.h"

enum { ELEMS = 3 * COMPRESSOR_RANGE + 7, DRAWS = 200000, KEY = 5 };

static const float borders[] = {0.0f,     -0.0f,   FLT_MIN,           -FLT_MIN,         1e-40f,
                                -1e-45f,  FLT_MAX, -FLT_MAX,          0x1.fefffep127f,  0x1.ff0002p127f,
                                1.0f,     -1.0f,   1.0f + 0x1p-8f,    1.0f + 0x1.8p-7f, 0x1p-120f,
                                0x1p121f, 127.0f,  1.0f + 0x1.01p-8f, 0x1.fffp-127f,    3.0e38f};
enum { BORDERS = sizeof borders / sizeof *borders };

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Finite, of any size; or each of a size that gradients have. */
static float drawn(uint64_t index, bool is_any) {
  uint64_t bits = random_bits(random_key(KEY, 1, 0, 0), index);
  float value = float_of((uint32_t)bits);
  if (is_any)
    return isfinite(value) ? value : 0.5f;
  return (random_uniform(7, index) - 0.5f) * (float)(1 + bits % 3);
}

static const struct compressor_def *find(const char *name) {
  struct err err;
  const struct compressor_def *compressor = compressor_find("train.compression.gradients", name, &err);
  assert_non_null(compressor);
  return compressor;
}

static void what_is_sent_is_read_as_the_other_side_rounds_it(void **state) {
  const struct compressor_def *compressor;
  float values[ELEMS], rounded[ELEMS], place[ELEMS];
  struct err err;
  (void)state;
  for (int c = 0; (compressor = compressor_at(c)); c++)
    for (uint32_t n = 0; n <= ELEMS; n++) {
      size_t size_bytes = compressor_bytes(compressor, n);
      uint8_t bytes[ELEMS * sizeof(float)];
      assert_true(size_bytes <= n * sizeof(float));
      for (uint32_t i = 0; i < n; i++)
        place[i] = rounded[i] = values[i] = i < BORDERS ? borders[i] : drawn(i, n % 2);
      compressor_round(compressor, KEY, rounded, n);
      compressor_encode(compressor, KEY, values, n, bytes);
      compressor_encode(compressor, KEY, place, n, place);
      assert_memory_equal(place, bytes, size_bytes);
      memcpy((uint8_t *)(place + n) - size_bytes, bytes, size_bytes);
      assert_int_equal(compressor_decode(compressor, (uint8_t *)(place + n) - size_bytes, n, place, &err), 0);
      assert_memory_equal(place, rounded, n * sizeof *place);
      for (uint32_t i = 0; i < n; i++)
        assert_true(isfinite(rounded[i]));
    }
}

/* The nearer of the two bf16s around it; of two that are as near, the even one. */
static float nearest_bf16(float value) {
  uint32_t bits = bits_of(value), low = bits & 0xffff0000, high = low + 0x10000;
  double below, above;
  if ((high & 0x7f800000) == 0x7f800000) /* there is none beyond the largest */
    return float_of(low);
  below = fabs((double)value - (double)float_of(low));
  above = fabs((double)float_of(high) - (double)value);
  if (below == above)
    return float_of(low & 0x10000 ? high : low);
  return float_of(below < above ? low : high);
}

/* Subnormals are looked at by their bits, since the setting has them be zero. */
static void bf16_rounds_to_the_nearest(void **state) {
  const struct compressor_def *bf16 = find("bf16");
  (void)state;
  for (uint64_t i = 0; i < DRAWS; i++) {
    float value = i < BORDERS ? borders[i] : drawn(i, true), rounded = value;
    if (i % 3 == 0)
      value = rounded = float_of((bits_of(value) & 0xffff0000) | 0x8000); /* half way */
    compressor_round(bf16, KEY, &rounded, 1);
    if ((bits_of(value) & 0x7f800000) == 0)
      assert_true((bits_of(rounded) & 0x7fffffff) <= 0x00800000 &&
                  !((bits_of(rounded) ^ bits_of(value)) >> 31));
    else if (bits_of(rounded) != bits_of(nearest_bf16(value)))
      fail_msg("%a is sent as %a", (double)value, (double)rounded);
  }
}

/* The least number of 8 bits that is no less than a 127th of the largest, as far as there is one. */
static double scale_model(const float *values, uint32_t n) {
  double largest = 0, unit;
  int exponent;
  for (uint32_t i = 0; i < n; i++)
    largest = fmax(largest, fabs((double)values[i]));
  if (largest / 127 <= (double)FLT_MIN)
    return (double)FLT_MIN;
  frexp(largest / 127, &exponent);
  unit = ldexp(1, exponent - 8);
  return fmin(ceil((double)(float)(largest / 127) / unit) * unit, 0x1p121 + 0x1p114);
}

static void int8_errs_by_less_than_a_step_and_not_at_all_on_steps(void **state) {
  const struct compressor_def *int8 = find("int8");
  float values[COMPRESSOR_RANGE], rounded[COMPRESSOR_RANGE];
  (void)state;
  for (uint64_t trial = 0; trial < 3000; trial++) {
    uint32_t n = 1 + (uint32_t)(trial % COMPRESSOR_RANGE);
    int size = (int)(trial % 250) - 125;
    double scale;
    for (uint32_t i = 0; i < n; i++)
      rounded[i] = values[i] = ldexpf(drawn(trial * COMPRESSOR_RANGE + i, false), size);
    scale = scale_model(values, n);
    for (uint32_t i = 0; i < n / 3; i++)
      rounded[i] = values[i] = (float)(scale * ((int)(i % 255) - 127) / 2 * 2);
    compressor_round(int8, trial, rounded, n);
    for (uint32_t i = 0; i < n; i++) {
      double steps = (double)rounded[i] / scale, error = fabs((double)rounded[i] - (double)values[i]);
      if (steps != rint(steps) || fabs(steps) > 127 || error >= scale * (1 + 1e-6) ||
          (i < n / 3 && size > -110 && error != 0))
        fail_msg("%a is sent as %a, in steps of %a", (double)values[i], (double)rounded[i], scale);
    }
  }
}

static void int8_is_right_on_average(void **state) {
  const struct compressor_def *int8 = find("int8");
  static const float fractions[] = {0.0f, 0.1f, 0.25f, 0.5f, 0.999f, -0.1f, -0.5f, -63.3f, 100.7f, 1e-3f};
  enum { N = sizeof fractions / sizeof *fractions, TRIALS = 100000 };
  double sums[N] = {0};
  (void)state;
  for (uint64_t trial = 0; trial < TRIALS; trial++) {
    float values[N + 1];
    memcpy(values, fractions, sizeof fractions);
    values[N] = 127; /* so the step is 1 */
    compressor_round(int8, random_key(trial, 3, 0, 0), values, N + 1);
    for (int i = 0; i < N; i++)
      sums[i] += (double)values[i];
    assert_true(values[N] == 127);
  }
  for (int i = 0; i < N; i++) { /* a draw's deviation is at most a half: five of the mean's */
    double bound = 5 * 0.5 / sqrt(TRIALS), mean = sums[i] / TRIALS;
    if (!(fabs(mean - (double)fractions[i]) <= (i == 0 ? 0 : bound)))
      fail_msg("%g is %g on average", (double)fractions[i], mean);
  }
}

static void neighbours_and_sums_draw_apart(void **state) {
  const struct compressor_def *int8 = find("int8");
  float first[ELEMS], second[ELEMS];
  int same = 0, alike = 0;
  (void)state;
  for (uint32_t i = 0; i < ELEMS; i++)
    first[i] = second[i] = i % COMPRESSOR_RANGE ? 0.5f : 127;
  compressor_round(int8, 1, first, ELEMS);
  compressor_round(int8, 2, second, ELEMS);
  for (uint32_t i = COMPRESSOR_RANGE; i < ELEMS; i++) {
    same += first[i] == second[i];
    alike += first[i] == first[i - COMPRESSOR_RANGE];
  }
  assert_in_range(same, ELEMS / 4, ELEMS / 2);
  assert_in_range(alike, ELEMS / 4, ELEMS / 2);
}

/* The largest f32 is cut by less than a ten-thousandth; subnormals and zeros are zero. */
static void the_ends_of_f32_are_sent(void **state) {
  const struct compressor_def *compressor;
  (void)state;
  for (int c = 0; (compressor = compressor_at(c)); c++)
    for (int sign = -1; sign <= 1; sign += 2) {
      float values[] = {(float)sign * FLT_MAX, 0, -0.0f, (float)sign}, tiny[] = {1e-40f, -1e-45f, 0};
      compressor_round(compressor, KEY, values, 4);
      assert_true(isfinite(values[0]) && fabs((double)values[0] / (double)FLT_MAX - sign) < 1.0 / 250);
      assert_true(values[1] == 0 && values[2] == 0);
      compressor_round(compressor, KEY, tiny, 3);
      assert_true(tiny[0] == 0 && tiny[1] == 0 && tiny[2] == 0); /* by the setting: subnormals are zero */
    }
}

/* Whatever bytes come, they are refused or make finite numbers; of those made here none is refused. */
static void other_bytes_are_refused_or_finite(void **state) {
  const struct compressor_def *compressor;
  (void)state;
  for (int c = 0; (compressor = compressor_at(c)); c++) {
    int n_refused = 0;
    for (uint64_t trial = 0; trial < DRAWS; trial++) {
      uint32_t n = 1 + (uint32_t)(trial % 9);
      uint8_t bytes[64];
      float out[9];
      struct err err = ERR_NONE;
      for (size_t i = 0; i < compressor_bytes(compressor, n); i++)
        bytes[i] = (uint8_t)random_bits(trial, i);
      if (compressor_decode(compressor, bytes, n, out, &err)) {
        assert_int_equal(err.code, ERR_INVALID);
        n_refused++;
        continue;
      }
      for (uint32_t i = 0; i < n; i++)
        assert_true(isfinite(out[i]));
    }
    assert_in_range(n_refused, 1, DRAWS - 1);
  }
}

static void infinities_and_what_no_value_makes_are_refused(void **state) {
  static const uint16_t scales[] = {0,      0x007f, 0x0080, 0x3f80, 0x7c01,
                                    0x7c02, 0x7f80, 0x7fc0, 0x8000, 0xbf80};
  static const bool are_made[] = {false, false, true, true, true, false, false, false, false, false};
  const struct compressor_def *bf16 = find("bf16"), *int8 = find("int8");
  struct err err;
  float out[2];
  (void)state;
  for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
    uint16_t word = (uint16_t)bits;
    assert_int_equal(compressor_decode(bf16, &word, 1, out, &err) != 0, (bits & 0x7f80) == 0x7f80);
  }
  for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
    uint8_t bytes[] = {(uint8_t)scales[i], (uint8_t)(scales[i] >> 8), 127, 0x81};
    assert_int_equal(compressor_decode(int8, bytes, 2, out, &err) == 0, are_made[i]);
    bytes[3] = 0x80; /* -128 */
    assert_int_not_equal(compressor_decode(int8, bytes, 2, out, &err), 0);
  }
}

static void many_uniform_numbers_are_those_of_one_at_a_time(void **state) {
  float many[70];
  (void)state;
  for (uint32_t n = 0; n <= 70; n++) {
    random_uniforms(KEY, 1000 + n, many, n);
    for (uint32_t i = 0; i < n; i++)
      assert_true(many[i] == random_uniform(KEY, 1000 + n + i));
  }
}

/* In f64: which values are sent. Those that differ by less than a 65,536th count as the same. */
static void the_largest_of_each_range_are_sent_as_bf16(void **state) {
  static const struct {
    const char *name;
    uint32_t most;
  } rows[] = {{"top1", 1}, {"top4", 4}, {"top16", 16}};
  (void)state;
  for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
    for (uint64_t trial = 0; trial < 3000; trial++) {
      uint32_t n = 1 + (uint32_t)(trial % COMPRESSOR_RANGE), n_sent = 0, most = rows[row].most;
      float values[COMPRESSOR_RANGE], sent[COMPRESSOR_RANGE];
      double least_sent = INFINITY, largest_left = 0;
      for (uint32_t i = 0; i < n; i++)
        sent[i] = values[i] =
            i > 0 && i % 9 == 0 ? values[i - 1] : drawn(trial * COMPRESSOR_RANGE + i, false);
      compressor_round(find(rows[row].name), trial, sent, n);
      for (uint32_t i = 0; i < n; i++) {
        double size = fabs((double)values[i]);
        if (sent[i] != 0) {
          assert_int_equal(bits_of(sent[i]), bits_of(nearest_bf16(values[i])));
          least_sent = fmin(least_sent, size);
          n_sent++;
        } else
          largest_left = fmax(largest_left, size);
      }
      assert_int_equal(n_sent, most < n ? most : n);
      assert_true(least_sent >= largest_left * (1 - 0x1p-16));
    }
}

static void of_equal_values_the_first_is_sent(void **state) {
  float values[COMPRESSOR_RANGE];
  (void)state;
  for (uint32_t i = 0; i < COMPRESSOR_RANGE; i++)
    values[i] = i % 2 ? 2 : -2;
  compressor_round(find("top4"), KEY, values, COMPRESSOR_RANGE);
  for (uint32_t i = 0; i < COMPRESSOR_RANGE; i++)
    assert_true(values[i] == (i >= 4 ? 0.0f : i % 2 ? 2.0f : -2.0f));
}

static const uint8_t *top4_of(float *values, uint8_t *bytes) {
  for (uint32_t i = 0; i < COMPRESSOR_RANGE; i++)
    values[i] = (float)i;
  compressor_encode(find("top4"), KEY, values, COMPRESSOR_RANGE, bytes);
  return bytes;
}

static void places_that_encode_never_makes_are_refused(void **state) {
  static const uint8_t broken[][4] = {
      {124, 125, 126, 128}, {124, 125, 126, 255}, {124, 124, 126, 127}, {125, 124, 126, 127}, {0, 0, 0, 0}};
  float values[COMPRESSOR_RANGE], infinite = INFINITY;
  uint8_t bytes[4 * 3];
  struct err err;
  (void)state;
  assert_memory_equal(top4_of(values, bytes), ((uint8_t[]){124, 125, 126, 127}), 4);
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    memcpy(bytes, broken[i], sizeof broken[i]);
    assert_int_equal(compressor_decode(find("top4"), bytes, COMPRESSOR_RANGE, values, &err), ERR_INVALID);
  }
  top4_of(values, bytes);
  memcpy(bytes + 4, (uint8_t *)&infinite + 2, 2);
  assert_int_equal(compressor_decode(find("top4"), bytes, COMPRESSOR_RANGE, values, &err), ERR_INVALID);
}

/* What is sent and what is kept is what there was, to the last bit, and hardly anything is kept for ever. */
static void what_is_not_sent_is_kept_for_later(void **state) {
  enum { STEPS = 40 };
  const struct compressor_def *compressor;
  (void)state;
  for (int c = 0; (compressor = compressor_at(c)); c++) {
    float values[ELEMS], residual[ELEMS] = {0}, sums[ELEMS], sent[ELEMS];
    struct err err;
    for (uint64_t step = 0; compressor->has_feedback && step < STEPS + COMPRESSOR_RANGE; step++) {
      size_t size_bytes = compressor_bytes(compressor, ELEMS);
      for (uint32_t i = 0; i < ELEMS; i++) {
        values[i] = step < STEPS ? drawn(step * ELEMS + i, false) : 0;
        sums[i] = values[i] + residual[i];
      }
      compressor_encode_with_feedback(compressor, step, values, residual, ELEMS);
      memmove((uint8_t *)(values + ELEMS) - size_bytes, values, size_bytes);
      assert_int_equal(
          compressor_decode(compressor, (uint8_t *)(values + ELEMS) - size_bytes, ELEMS, sent, &err), 0);
      for (uint32_t i = 0; i < ELEMS; i++)
        assert_true((double)sent[i] + (double)residual[i] == (double)sums[i]);
    }
    for (uint32_t i = 0; i < ELEMS; i++)
      assert_true(fabs((double)residual[i]) < 0.05);
  }
}

static void what_overflows_beside_a_residual_is_cut(void **state) {
  float values[2] = {FLT_MAX, -FLT_MAX}, residual[2] = {FLT_MAX, -FLT_MAX}, sent[2];
  struct err err;
  (void)state;
  compressor_encode_with_feedback(find("top4"), KEY, values, residual, 2);
  assert_int_equal(compressor_decode(find("top4"), values, 2, sent, &err), 0);
  for (int i = 0; i < 2; i++)
    assert_true(isfinite(residual[i]) &&
                (double)sent[i] + (double)residual[i] == (i == 0 ? (double)FLT_MAX : -(double)FLT_MAX));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_sent_is_read_as_the_other_side_rounds_it),
      cmocka_unit_test(bf16_rounds_to_the_nearest),
      cmocka_unit_test(int8_errs_by_less_than_a_step_and_not_at_all_on_steps),
      cmocka_unit_test(int8_is_right_on_average),
      cmocka_unit_test(the_largest_of_each_range_are_sent_as_bf16),
      cmocka_unit_test(of_equal_values_the_first_is_sent),
      cmocka_unit_test(places_that_encode_never_makes_are_refused),
      cmocka_unit_test(what_is_not_sent_is_kept_for_later),
      cmocka_unit_test(what_overflows_beside_a_residual_is_cut),
      cmocka_unit_test(neighbours_and_sums_draw_apart),
      cmocka_unit_test(the_ends_of_f32_are_sent),
      cmocka_unit_test(other_bytes_are_refused_or_finite),
      cmocka_unit_test(infinities_and_what_no_value_makes_are_refused),
      cmocka_unit_test(many_uniform_numbers_are_those_of_one_at_a_time),
  };
  float_setting_apply();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
