/* The weights and gradients that tests/parity/optimizers.py makes up; f32 holds their values exactly. */
#ifndef WEIR_TESTS_OPTIMIZER_NUMBERS_H
#define WEIR_TESTS_OPTIMIZER_NUMBERS_H

static inline float first_weight(int i) {
  return (float)((i % 2 ? -1 : 1) * (0.5 + i * 7 % 16 / 8.0));
}

static inline float gradient(int step, int i) {
  return (float)(((i * 29 + step * 53 + 7) % 64 - 31.5) / 32 / (1 << i % 6));
}

#endif
