/* The unit cube of a space: a number in [0, 1) for each dimension, with the same share for each value. */
#ifndef WEIR_COMMON_SWEEP_CUBE_H
#define WEIR_COMMON_SWEEP_CUBE_H

#include <stdint.h>

#include "common/sweep/draw.h"
#include "common/sweep/space.h"

/* A point's entry for a place in [0, 1) of the cube's dimension. */
double cube_position(const struct dimension *dimension, double place);

/* Writes a uniformly drawn value for every dimension. */
void cube_draw(const struct space *space, struct draw *draw, double *point);

/* Point `index` of Sobol's sequence, f64[n], n at most SPACE_DIMENSIONS_MAX, in natural order, with 32 bits,
   scrambled as Owen (1995) does: each bit is flipped by what the key says of all higher bits. Prefixes whose
   length is a power of two keep the sequence's balance. key 0: not scrambled. */
void cube_sobol(uint32_t index, uint64_t key, int n, double *places);

#endif
