/* Marks on the numbers 0 .. n-1: microbatches, or eval chunks. */
#ifndef WEIR_SERVER_PARAMETERS_ROUND_MARKS_H
#define WEIR_SERVER_PARAMETERS_ROUND_MARKS_H

#include <stdbool.h>
#include <stdint.h>

static inline uint32_t marks_words(uint32_t n) { /* of 64 bits that hold them */
  return n / 64 + (n % 64 != 0);
}

void marks_set(uint64_t *marks, uint32_t begin, uint32_t end); /* those in [begin, end) */

/* The first range of marked numbers that begins at or after *begin. False if there is none. */
bool marks_next(const uint64_t *marks, uint32_t n, uint32_t *begin, uint32_t *end);

#endif
