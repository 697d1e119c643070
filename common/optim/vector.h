/* Loops over arrays, sums in a fixed order. Sums of gradients are common/agree/sum.h. */
#ifndef WEIR_COMMON_OPTIM_VECTOR_H
#define WEIR_COMMON_OPTIM_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

bool vector_is_finite(const double *values, uint32_t n); /* every element is */

/* The sum of squares, in f64: eight lanes, added at the end, which is an order that vector code can keep. */
double vector_sum_squares(const float *values, uint32_t elems);

void vector_scale(float *values, uint32_t elems, float factor);
void vector_clamp(float *values, uint32_t elems, float limit); /* to [-limit, limit] */

#endif
