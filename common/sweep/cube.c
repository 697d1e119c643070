/* The unit cube of a space, and Sobol's points in it. */
#include "common/sweep/cube.h"

#include "common/agree/random.h"

enum { BITS = 32, DEGREE_MAX = 9 };

/* A primitive polynomial of GF(2), whose inner coefficients are the bits of `inner`, and the first direction
   numbers. */
struct polynomial {
  int degree;
  uint32_t inner;
  uint32_t first[DEGREE_MAX];
};

/* Dimensions 2 to 64 of new-joe-kuo-6.21201 (S. Joe and F. Y. Kuo, Constructing Sobol sequences with better
   two-dimensional projections, SIAM J. Sci. Comput. 30, 2008; https://web.maths.unsw.edu.au/~fkuo/sobol/). */
static const struct polynomial polynomials[SPACE_DIMENSIONS_MAX - 1] = {
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
    {7, 7, {1, 1, 3, 13, 7, 35, 63}},
    {7, 8, {1, 3, 5, 9, 1, 25, 53}},
    {7, 14, {1, 3, 1, 13, 9, 35, 107}},
    {7, 19, {1, 3, 1, 5, 27, 61, 31}},
    {7, 21, {1, 1, 5, 11, 19, 41, 61}},
    {7, 28, {1, 3, 5, 3, 3, 13, 69}},
    {7, 31, {1, 1, 7, 13, 1, 19, 1}},
    {7, 32, {1, 3, 7, 5, 13, 19, 59}},
    {7, 37, {1, 1, 3, 9, 25, 29, 41}},
    {7, 41, {1, 3, 5, 13, 23, 1, 55}},
    {7, 42, {1, 3, 7, 3, 13, 59, 17}},
    {7, 50, {1, 3, 1, 3, 5, 53, 69}},
    {7, 55, {1, 1, 5, 5, 23, 33, 13}},
    {7, 56, {1, 1, 7, 7, 1, 61, 123}},
    {7, 59, {1, 1, 7, 9, 13, 61, 49}},
    {7, 62, {1, 3, 3, 5, 3, 55, 33}},
    {8, 14, {1, 3, 1, 15, 31, 13, 49, 245}},
    {8, 21, {1, 3, 5, 15, 31, 59, 63, 97}},
    {8, 22, {1, 3, 1, 11, 11, 11, 77, 249}},
    {8, 38, {1, 3, 1, 11, 27, 43, 71, 9}},
    {8, 47, {1, 1, 7, 15, 21, 11, 81, 45}},
    {8, 49, {1, 3, 7, 3, 25, 31, 65, 79}},
    {8, 50, {1, 3, 1, 1, 19, 11, 3, 205}},
    {8, 52, {1, 1, 5, 9, 19, 21, 29, 157}},
    {8, 56, {1, 3, 7, 11, 1, 33, 89, 185}},
    {8, 67, {1, 3, 3, 3, 15, 9, 79, 71}},
    {8, 70, {1, 3, 7, 11, 15, 39, 119, 27}},
    {8, 84, {1, 1, 3, 1, 11, 31, 97, 225}},
    {8, 97, {1, 1, 1, 3, 23, 43, 57, 177}},
    {8, 103, {1, 3, 7, 7, 17, 17, 37, 71}},
    {8, 115, {1, 3, 1, 5, 27, 63, 123, 213}},
    {8, 122, {1, 1, 3, 5, 11, 43, 53, 133}},
    {9, 8, {1, 3, 5, 5, 29, 17, 47, 173, 479}},
    {9, 13, {1, 3, 3, 11, 3, 1, 109, 9, 69}},
    {9, 16, {1, 1, 1, 5, 17, 39, 23, 5, 343}},
    {9, 22, {1, 3, 1, 5, 25, 15, 31, 103, 499}},
    {9, 25, {1, 1, 1, 11, 11, 17, 63, 105, 183}},
    {9, 44, {1, 1, 5, 11, 9, 29, 97, 231, 363}},
    {9, 47, {1, 1, 5, 15, 19, 45, 41, 7, 383}},
    {9, 52, {1, 3, 7, 7, 31, 19, 83, 137, 221}},
    {9, 55, {1, 1, 1, 3, 23, 15, 111, 223, 83}},
    {9, 59, {1, 1, 5, 13, 31, 15, 55, 25, 161}},
    {9, 62, {1, 1, 3, 13, 25, 47, 39, 87, 257}},
};

double cube_position(const struct dimension *dimension, double place) {
  if (dimension->n_values) {
    uint32_t index = (uint32_t)(place * dimension->n_values);
    return space_value_position(dimension, index < dimension->n_values ? index : dimension->n_values - 1);
  }
  return place;
}

void cube_draw(const struct space *space, struct draw *draw, double *point) {
  for (int i = 0; i < space->n; i++)
    point[i] = cube_position(&space->dimensions[i], draw_uniform(draw));
}

/* Direction numbers by Bratley and Fox's recurrence (1988), the first bit the highest. */
static void directions_make(int dimension, uint32_t directions[BITS]) {
  const struct polynomial *polynomial = dimension ? &polynomials[dimension - 1] : NULL;
  for (int bit = 0; bit < BITS; bit++) {
    uint32_t made;
    if (!polynomial || bit < polynomial->degree)
      made = (polynomial ? polynomial->first[bit] : 1) << (BITS - 1 - bit);
    else {
      int degree = polynomial->degree;
      made = directions[bit - degree] ^ directions[bit - degree] >> degree;
      for (int k = 1; k < degree; k++)
        if (polynomial->inner >> (degree - 1 - k) & 1)
          made ^= directions[bit - k];
    }
    directions[bit] = made;
  }
}

static uint32_t owen_scramble(uint32_t bits, uint64_t key) {
  uint32_t scrambled = bits;
  for (int bit = 0; bit < BITS; bit++) {
    uint32_t higher = bit ? bits >> (BITS - bit) : 0;
    uint64_t node = (1ull << bit) + higher; /* of the binary tree: one number for each prefix */
    scrambled ^= (uint32_t)(random_bits(key, node) & 1) << (BITS - 1 - bit);
  }
  return scrambled;
}

void cube_sobol(uint32_t index, uint64_t key, int n, double *places) {
  for (int i = 0; i < n; i++) {
    uint32_t directions[BITS], bits = 0;
    directions_make(i, directions);
    for (int bit = 0; bit < BITS; bit++)
      if (index >> bit & 1)
        bits ^= directions[bit];
    if (key)
      bits = owen_scramble(bits, random_bits(key, (uint64_t)i));
    places[i] = bits * 0x1p-32;
  }
}
