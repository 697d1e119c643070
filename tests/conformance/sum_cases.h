/* Sums on the borders of f32, by their bits: what common/agree/sum.h says, worked out by hand, for the host,
   devices and collectives alike. Subnormals count as zero, with their sign. */
#ifndef WEIR_TESTS_CONFORMANCE_SUM_CASES_H
#define WEIR_TESTS_CONFORMANCE_SUM_CASES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SUM_NAN = 0x7fc00000 };

static const struct sum_case {
  uint32_t a, b, sum; /* SUM_NAN stands for any NaN */
} sum_cases[] = {
    /* zeros */
    {0x00000000, 0x00000000, 0x00000000},
    {0x80000000, 0x80000000, 0x80000000},
    {0x80000000, 0x00000000, 0x00000000},
    {0x3f800000, 0xbf800000, 0x00000000},
    /* subnormal operands */
    {0x00000001, 0x00000000, 0x00000000},
    {0x007fffff, 0x80000000, 0x00000000},
    {0x807fffff, 0x80000000, 0x80000000},
    {0x807fffff, 0x00000000, 0x00000000},
    {0x80000001, 0x80000001, 0x80000000},
    {0x00400000, 0x00400000, 0x00000000}, /* would be the least normal number */
    {0x00800000, 0x007fffff, 0x00800000},
    {0x00800000, 0x807fffff, 0x00800000},
    {0x3f800000, 0x007fffff, 0x3f800000},
    /* subnormal sums of normal numbers */
    {0x00800001, 0x80800000, 0x00000000},
    {0x80800001, 0x00800000, 0x80000000},
    {0x01000000, 0x80ffffff, 0x00000000},
    {0x00ffffff, 0x81000000, 0x80000000},
    {0x01000000, 0x80800001, 0x00000000},
    /* normal sums beside them */
    {0x00800000, 0x00800000, 0x01000000},
    {0x01000000, 0x80800000, 0x00800000},
    {0x81000000, 0x00800000, 0x80800000},
    /* ties to even */
    {0x3f800000, 0x33800000, 0x3f800000},
    {0x3f800001, 0x33800000, 0x3f800002},
    {0x3f800000, 0x33800001, 0x3f800001},
    /* halves of the largest number, and what is just too much for it */
    {0x7effffff, 0x7effffff, 0x7f7fffff},
    {0x7f000000, 0x7efffffe, 0x7f7fffff},
    {0x7f000000, 0x7effffff, 0x7f800000},
    {0x7f000000, 0x7f000000, 0x7f800000},
    {0xfeffffff, 0xfeffffff, 0xff7fffff},
    {0xff000000, 0xfeffffff, 0xff800000},
    {0x7f7fffff, 0x72ffffff, 0x7f7fffff},
    {0x7f7fffff, 0x73000000, 0x7f800000},
    {0x7f7fffff, 0xff7fffff, 0x00000000},
    /* infinities and NaN */
    {0x7f800000, 0x3f800000, 0x7f800000},
    {0x7f800000, 0x00000001, 0x7f800000},
    {0xff800000, 0xff800000, 0xff800000},
    {0xff800000, 0x7f7fffff, 0xff800000},
    {0x7f800000, 0xff800000, SUM_NAN},
    {0x7fc00000, 0x3f800000, SUM_NAN},
    {0xffc00000, 0x00000001, SUM_NAN},
};

enum { SUM_CASES = sizeof sum_cases / sizeof *sum_cases };

static inline float sum_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline bool sum_is_case(const struct sum_case *it, float found) {
  uint32_t bits;
  memcpy(&bits, &found, sizeof bits);
  if (it->sum == SUM_NAN)
    return (bits & 0x7fffffff) > 0x7f800000;
  return bits == it->sum;
}

static inline bool sum_case_is_finite(const struct sum_case *it) {
  return (it->sum & 0x7f800000) != 0x7f800000;
}

#endif
