/* The 16-bit floating-point formats: IEEE 754 binary16 (f16) and bfloat16 (bf16). */
#ifndef WEIR_COMMON_BASE_HALF_H
#define WEIR_COMMON_BASE_HALF_H

#include <stdint.h>

/* Exact: f32 holds every f16 and bf16, subnormals, infinities and NaNs included. */
float f32_of_f16(uint16_t bits);
float f32_of_bf16(uint16_t bits);

/* To the nearest, ties to even; beyond the largest: infinity; a NaN stays one. */
uint16_t f16_of_f32(float value);
uint16_t bf16_of_f32(float value);

#endif
