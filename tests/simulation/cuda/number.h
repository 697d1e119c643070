/* Elements in device memory, of the types that the libraries are asked for. */
#ifndef WEIR_TESTS_SIMULATION_CUDA_NUMBER_H
#define WEIR_TESTS_SIMULATION_CUDA_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum number { NUMBER_F32, NUMBER_BF16 };

static inline size_t number_size(enum number type) {
  return type == NUMBER_F32 ? 4 : 2;
}

static inline float number_from_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t number_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* The 10 bits of mantissa that tensor cores take of an f32. */
static inline float number_to_tf32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7f800000u) == 0x7f800000u)
    return x;
  bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float number_load(enum number type, const void *at, int64_t i) {
  return type == NUMBER_F32 ? ((const float *)at)[i] : number_from_bf16(((const uint16_t *)at)[i]);
}

static inline void number_store(enum number type, void *at, int64_t i, float x) {
  if (type == NUMBER_F32)
    ((float *)at)[i] = x;
  else
    ((uint16_t *)at)[i] = number_to_bf16(x);
}

#endif
