/* Division of element numbers by a divisor that is the same in a whole launch, done as a multiplication
   (Granlund and Montgomery, 1994, figure 4.1). Index arithmetic would otherwise take longer than the access
   to memory that it is for. Read by C and CUDA C. */
#ifndef WEIR_WORKER_BACKEND_CUDA_ENGINE_DIVIDE_H
#define WEIR_WORKER_BACKEND_CUDA_ENGINE_DIVIDE_H

#include <stdint.h>

/* multiplier 0: `by` is too large for it. */
struct cuda_divisor {
  int64_t by;
  uint32_t multiplier, shift;
};

static inline struct cuda_divisor cuda_divisor_of(int64_t by) {
  struct cuda_divisor d = {by, 0, 0};
  if (by >= (int64_t)1 << 31)
    return d;
  while (((int64_t)1 << d.shift) < by)
    d.shift++;
  d.multiplier =
      (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - (uint64_t)by)) / (uint64_t)by + 1);
  return d;
}

#ifdef __cplusplus
/* n / d.by, for n >= 0 and a d.by that is not too large */
static __device__ inline int cuda_divide_int(const struct cuda_divisor *d, int n) {
  return (int)((uint32_t)(((uint64_t)(uint32_t)n * d->multiplier >> 32) + (uint64_t)n) >> d->shift);
}

/* n / d.by, for n >= 0 */
static __device__ inline int64_t cuda_divide(const struct cuda_divisor *d, int64_t n) {
  return d->multiplier == 0 || n >> 31 != 0 ? n / d->by : cuda_divide_int(d, (int)n);
}

/* n % d.by; n becomes n / d.by. */
static __device__ inline int64_t cuda_digit(const struct cuda_divisor *d, int64_t *n) {
  int64_t quotient = cuda_divide(d, *n), digit = *n - quotient * d->by;
  *n = quotient;
  return digit;
}
#endif

#endif
