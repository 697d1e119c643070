/* The addition of gradients: on the borders of f32 by hand, and drawn numbers beside f64, which holds the sum
   of two f32 well enough to be rounded once more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/sum.h"
#include "tests/conformance/sum_cases.h"

enum { LENGTHS = 70, DRAWS = 1000000 };

/* Of every length, so that each case meets each lane and each rest of the vector code. */
static void sums_on_the_borders_have_the_bits_that_the_rules_say(void **state) {
  (void)state;
  for (size_t n = 1; n <= LENGTHS; n++) {
    float sum[LENGTHS], added[LENGTHS];
    for (int swapped = 0; swapped < 2; swapped++) {
      bool is_finite = true;
      for (size_t i = 0; i < n; i++) {
        const struct sum_case *it = &sum_cases[(i + n) % SUM_CASES];
        sum[i] = sum_float(swapped ? it->b : it->a);
        added[i] = sum_float(swapped ? it->a : it->b);
        is_finite &= sum_case_is_finite(it);
      }
      assert_int_equal(sum_add(sum, added, n), is_finite);
      for (size_t i = 0; i < n; i++)
        if (!sum_is_case(&sum_cases[(i + n) % SUM_CASES], sum[i]))
          fail_msg("case %zu is %a", (i + n) % SUM_CASES, (double)sum[i]);
    }
  }
}

static float flushed(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return sum_float((bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits);
}

/* Half of them of sizes where sums are subnormal. */
static float drawn(uint64_t bits) {
  uint32_t word = (uint32_t)bits;
  return sum_float(bits >> 63 ? (word & 0x80ffffff) | (uint32_t)(bits >> 40 & 1) << 24 : word);
}

static void drawn_sums_are_rounded_once_and_flushed(void **state) {
  static float sum[DRAWS], added[DRAWS], a[DRAWS];
  uint64_t key = random_key(11, 0, 0, 0);
  (void)state;
  for (size_t i = 0; i < DRAWS; i++) {
    uint64_t bits = random_bits(key, 2 * i);
    a[i] = sum[i] = drawn(bits);
    added[i] = drawn((random_bits(key, 2 * i + 1) & ~(UINT64_C(1) << 63)) | (bits >> 63 << 63));
  }
  sum_add(sum, added, DRAWS);
  for (size_t i = 0; i < DRAWS; i++) {
    float want = flushed((float)((double)flushed(a[i]) + (double)flushed(added[i])));
    if (isnan(want) ? !isnan(sum[i]) : memcmp(&want, &sum[i], sizeof want) != 0)
      fail_msg("%a + %a is %a, not %a", (double)a[i], (double)added[i], (double)sum[i], (double)want);
  }
}

static void copies_keep_every_bit_and_tell_what_is_not_finite(void **state) {
  static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f800001};
  float in[LENGTHS], out[LENGTHS];
  (void)state;
  for (size_t n = 1; n <= LENGTHS; n++) {
    for (size_t i = 0; i < LENGTHS; i++)
      in[i] = sum_float((uint32_t)(i * 0x10203 % 0x01000000) | (uint32_t)(i & 1) << 31);
    assert_true(sum_copy(out, in, n));
    assert_memory_equal(out, in, n * sizeof *in);
    assert_true(sum_is_finite(in, n));
    assert_int_equal(sum_first_not_finite(in, n), n);
    for (size_t at = 0; at < n; at++) {
      float kept = in[at];
      in[at] = sum_float(bad[at % 5]);
      assert_false(sum_copy(out, in, n));
      assert_memory_equal(out, in, n * sizeof *in);
      assert_false(sum_is_finite(in, n));
      assert_int_equal(sum_first_not_finite(in, n), at);
      in[at] = kept;
    }
  }
}

int main(void) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_on_the_borders_have_the_bits_that_the_rules_say),
      cmocka_unit_test(drawn_sums_are_rounded_once_and_flushed),
      cmocka_unit_test(copies_keep_every_bit_and_tell_what_is_not_finite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
