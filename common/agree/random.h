/* Randomness from counters: every value is a pure function of its key and index, so that any worker draws the
   same numbers without shared state. */
#ifndef WEIR_COMMON_AGREE_RANDOM_H
#define WEIR_COMMON_AGREE_RANDOM_H

#include <stdint.h>

/* 64 well-mixed bits of four counters (seed, step, microbatch or epoch, node or stream). */
uint64_t random_key(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* The index-th 64-bit value of a key's stream (splitmix64: Steele, Lea and Flood, 2014). */
uint64_t random_bits(uint64_t key, uint64_t index);

/* Uniform in [0, 1) with 24 bits: exact in f32. */
float random_uniform(uint64_t key, uint64_t index);
/* The same of `index` and the n - 1 after it: out f32[n]. */
void random_uniforms(uint64_t key, uint64_t index, float *out, uint32_t n);

/* Normal with mean 0 and standard deviation 1, by Box and Muller's transform of the key's uniform values
   2 * index and 2 * index + 1. */
double random_normal(uint64_t key, uint64_t index);

/* Element `index` of a keyed permutation of [0, count), in O(1): a four-round Feistel network over the next
   even power of two, walked until it lands below count. index < count. */
uint64_t random_permute(uint64_t key, uint64_t index, uint64_t count);

#endif
