/* Marks on numbers. */
#include "server/parameters/round/marks.h"

static uint64_t mask_from(uint32_t bit) {
  return ~UINT64_C(0) << bit;
}

void marks_set(uint64_t *marks, uint32_t begin, uint32_t end) {
  while (begin < end) {
    uint32_t word = begin / 64, word_end = (word + 1) * 64;
    uint64_t mask = mask_from(begin % 64);
    if (end < word_end)
      mask &= ~mask_from(end % 64);
    marks[word] |= mask;
    begin = word_end;
  }
}

static bool marks_has(const uint64_t *marks, uint32_t number) {
  return marks[number / 64] >> number % 64 & 1;
}

bool marks_next(const uint64_t *marks, uint32_t n, uint32_t *begin, uint32_t *end) {
  while (*begin < n && !marks_has(marks, *begin))
    ++*begin;
  for (*end = *begin; *end < n && marks_has(marks, *end);)
    ++*end;
  return *begin < *end;
}
