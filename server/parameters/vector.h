/* Loops over f32 arrays that say whether all is finite. */
#ifndef WEIR_SERVER_PARAMETERS_VECTOR_H
#define WEIR_SERVER_PARAMETERS_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

/* sum[i] += values[i]. False if an element of the sum is not finite. No aliasing. */
bool vector_add(float *restrict sum, const float *restrict values, uint32_t elems);

/* The index of the first element that is NaN or infinite; elems if there is none. */
uint32_t vector_first_not_finite(const float *values, uint32_t elems);

#endif
