/* Randomness from counters. */
#include "common/agree/random.h"

#include <math.h>

#include "common/base/err.h"
#include "common/base/vector_variants.h"

#define COUNTER_STEP 0x9e3779b97f4a7c15u

static uint64_t bits_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t random_bits(uint64_t key, uint64_t index) {
  return bits_mix(key + (index + 1) * COUNTER_STEP);
}

uint64_t random_key(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return random_bits(random_bits(random_bits(random_bits(0, a), b), c), d);
}

float random_uniform(uint64_t key, uint64_t index) {
  return (float)(random_bits(key, index) >> 40) * 0x1p-24f;
}

VECTOR_VARIANTS
void random_uniforms(uint64_t key, uint64_t index, float *out, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    out[i] = (float)(int32_t)(bits_mix(key + (index + i + 1) * COUNTER_STEP) >> 40) * 0x1p-24f;
}

double random_normal(uint64_t key, uint64_t index) {
  double above_0 = 1.0 - random_uniform(key, 2 * index);
  double turn = 2.0 * M_PI * random_uniform(key, 2 * index + 1);
  return sqrt(-2.0 * log(above_0)) * cos(turn);
}

uint64_t random_permute(uint64_t key, uint64_t index, uint64_t count) {
  unsigned half_bits = 1;
  uint64_t mask;
  CHECK(index < count);
  while (half_bits < 32 && (1ull << (2 * half_bits)) < count)
    half_bits++;
  mask = (1ull << half_bits) - 1;
  do {
    uint64_t left = index >> half_bits, right = index & mask;
    for (unsigned round = 0; round < 4; round++) {
      uint64_t next = left ^ (random_bits(key + round, right) & mask);
      left = right;
      right = next;
    }
    index = left << half_bits | right;
  } while (index >= count);
  return index;
}
