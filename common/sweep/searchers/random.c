/* Every trial is drawn by itself, uniformly. */
#include "common/sweep/cube.h"
#include "common/sweep/searcher.h"

static int random_suggest(const struct search *search, double *point, struct err *err) {
  struct draw draw = draw_begin(search->options->seed, search->trial, 0);
  (void)err;
  cube_draw(search->space, &draw, point);
  return 0;
}

const struct searcher_def searcher_random = {
    .name = "random", .suggest = random_suggest, .takes_several = true};
