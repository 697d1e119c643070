/* Loops over arrays: whether all is finite, and sums in a fixed order. */
#ifndef WEIR_SERVER_PARAMETERS_VECTOR_H
#define WEIR_SERVER_PARAMETERS_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

/* sum[i] += values[i]. False if an element of the sum is not finite. No aliasing. */
bool vector_add(float *restrict sum, const float *restrict values, uint32_t elems);

/* The index of the first element that is NaN or infinite; elems if there is none. */
uint32_t vector_first_not_finite(const float *values, uint32_t elems);
bool vector_is_finite(const double *values, uint32_t n); /* likewise, of f64[n] */

/* The sum of squares, in f64: eight lanes, added at the end, which is an order that vector code can keep. */
double vector_sum_squares(const float *values, uint32_t elems);

void vector_scale(float *values, uint32_t elems, float factor);
void vector_clamp(float *values, uint32_t elems, float limit); /* to [-limit, limit] */

#endif
