/* Sorts as parts of steps. */
#include "worker/backend/cuda/engine/sort.h"

int cuda_sorting_add(struct backend_program *program, struct cuda_step *step, int64_t n) {
  int first = cuda_scratch(program, step, (size_t)n * sizeof(uint32_t));
  for (int i = 0; i < 3; i++)
    cuda_scratch(program, step, (size_t)n * sizeof(uint32_t));
  cuda_scratch(program, step, (size_t)(cuda_sort_blocks(n) * SORT_DIGITS) * sizeof(uint32_t));
  return first;
}

struct cuda_sorting cuda_sorting_of(const struct cuda_step *step, int first) {
  struct cuda_sorting sorting = {.counts = step->args[first + 4].tensor.data};
  for (int i = 0; i < 2; i++) {
    sorting.keys[i] = step->args[first + i].tensor.data;
    sorting.rows[i] = step->args[first + 2 + i].tensor.data;
  }
  return sorting;
}
