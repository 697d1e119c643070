/* Bytes that may be taken of something, by several threads. */
#ifndef WEIR_COMMON_BASE_BUDGET_H
#define WEIR_COMMON_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

struct budget {
  size_t bytes; /* that are taken; atomic */
  size_t bytes_max;
};

bool budget_has(const struct budget *budget, size_t bytes);
bool budget_try(struct budget *budget, size_t bytes);  /* takes them, or is false: there are not so many */
void budget_take(struct budget *budget, size_t bytes); /* also beyond */
void budget_give(struct budget *budget, size_t bytes);

#endif
