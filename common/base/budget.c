/* Bytes that may be taken of something. */
#include "common/base/budget.h"

static size_t bytes_taken(const struct budget *budget) {
  return __atomic_load_n(&budget->bytes, __ATOMIC_RELAXED);
}

static bool is_within(const struct budget *budget, size_t taken, size_t more) {
  return taken <= budget->bytes_max && more <= budget->bytes_max - taken;
}

bool budget_has(const struct budget *budget, size_t bytes) {
  return is_within(budget, bytes_taken(budget), bytes);
}

bool budget_try(struct budget *budget, size_t bytes) {
  size_t taken = bytes_taken(budget);
  while (is_within(budget, taken, bytes))
    if (__atomic_compare_exchange_n(&budget->bytes, &taken, taken + bytes, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
      return true;
  return false;
}

void budget_take(struct budget *budget, size_t bytes) {
  __atomic_fetch_add(&budget->bytes, bytes, __ATOMIC_RELAXED);
}

void budget_give(struct budget *budget, size_t bytes) {
  __atomic_fetch_sub(&budget->bytes, bytes, __ATOMIC_RELAXED);
}
