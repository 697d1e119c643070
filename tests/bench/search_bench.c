/* A searcher over the unit cube, driven by pipes: `search_bench NAME SEED DIMENSIONS [univariate]` writes a
   line with the numbers of the next trial, reads a line with its value, and so on until its input ends.
   `search_bench` alone says what suggestions cost: for each searcher the thread's CPU time of one after 100
   and after 500 trials in ten dimensions, median of 9 in milliseconds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/message.h"
#include "common/sweep/searcher.h"
#include "tests/support/common/sweep_fixture.h"

enum { LINE_SIZE = 4096, WIDE = 10, ROUNDS = 9 };

static void cube_write(int n, char line[LINE_SIZE]) {
  size_t length = 0;
  for (int i = 0; i < n; i++)
    length += (size_t)snprintf(line + length, LINE_SIZE - length, "x%d uniform 0 1;", i);
}

static int drive(const char *name, uint64_t seed, int n, bool is_univariate) {
  struct trials trials;
  double point[SPACE_DIMENSIONS_MAX], value;
  char line[LINE_SIZE], text[SPACE_NUMBER_SIZE];
  cube_write(n, line);
  trials_init(&trials, line, name, seed);
  trials.options->multivariate &= !is_univariate;
  do {
    trials_suggest(&trials, point);
    for (int i = 0; i < n; i++)
      printf("%s%s", space_text(&trials.space->dimensions[i], point[i], text), i + 1 < n ? " " : "\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
      break;
    value = strtod(line, NULL);
    trials_add(&trials, point, SWEEP_DONE, 1, value);
  } while (true);
  trials_fini(&trials);
  return 0;
}

static double thread_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* The history is of the searcher's own trials up to 100, then of random ones, which are quicker made. */
static double suggestion_ms(const char *name, int n) {
  struct trials trials, random;
  double times[ROUNDS], point[SPACE_DIMENSIONS_MAX];
  char line[LINE_SIZE];
  cube_write(WIDE, line);
  trials_init(&trials, line, name, 1);
  trials_init(&random, line, "random", 2);
  for (int i = 0; i < n; i++) {
    double value = 0;
    trials_suggest(i < 100 ? &trials : &random, point);
    for (int d = 0; d < WIDE; d++)
      value += (point[d] - 0.3) * (point[d] - 0.3) * (d + 1);
    trials_add(&trials, point, SWEEP_DONE, 1, value);
    trials_add(&random, point, SWEEP_DONE, 1, value);
  }
  for (int round = 0; round < ROUNDS; round++) {
    double begin = thread_ms();
    trials_suggest(&trials, point);
    times[round] = thread_ms() - begin;
  }
  qsort(times, ROUNDS, sizeof *times, compare);
  trials_fini(&trials);
  trials_fini(&random);
  return times[ROUNDS / 2];
}

int main(int argc, char **argv) {
  const struct searcher_def *searcher;
  if (argc > 3)
    return drive(argv[1], strtoull(argv[2], NULL, 10), atoi(argv[3]), argc > 4);
  for (int row = 0; (searcher = searcher_at(row)); row++)
    if (strcmp(searcher->name, "grid") != 0)
      printf("%s %.2f %.2f\n", searcher->name, suggestion_ms(searcher->name, 100),
             suggestion_ms(searcher->name, 500));
  return 0;
}
