/* Scrambled Sobol points: spread more evenly than random ones. Trial i is point i of the sequence, so numbers
   of trials that are powers of two are the best ones. */
#include "common/agree/random.h"
#include "common/sweep/cube.h"
#include "common/sweep/searcher.h"

static int sobol_suggest(const struct search *search, double *point, struct err *err) {
  const struct space *space = search->space;
  uint64_t key = random_key(search->options->seed, 0, 0, 1);
  (void)err;
  cube_sobol(search->trial, key ? key : 1, space->n, point);
  for (int i = 0; i < space->n; i++)
    point[i] = cube_position(&space->dimensions[i], point[i]);
  return 0;
}

const struct searcher_def searcher_sobol = {.name = "sobol", .suggest = sobol_suggest, .takes_several = true};
