/* One optimizer's update of 64 blocks, as a shard does it: `optimizer_bench '{name: adam}' ROUNDS`, or
   without arguments the names of the rows that treat each element by itself. Prints the median of the
   thread's CPU time in nanoseconds an element, and the bytes an element that it reads and writes: "1.23 28".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/spec.h"
#include "common/base/memory.h"
#include "common/optim/optimizer.h"

enum { BLOCKS = 64, ELEMS = 65536 };

static double thread_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static float *draw(uint64_t seed, size_t elems) {
  float *values = mem_new(elems * sizeof *values);
  for (size_t i = 0; i < elems; i++)
    values[i] = (float)(2 * random_uniform(seed, i) - 1);
  return values;
}

static double measure(const Weir__OptimizerSpec *spec, int rounds) {
  const struct optimizer_def *optimizer = optimizer_find(spec->name);
  const size_t n_slots = optimizer->slots(spec), all = (size_t)BLOCKS * ELEMS;
  double *times = mem_new((size_t)rounds * sizeof *times), median;
  float *weights = draw(1, all), *grad = draw(2, all), *out = draw(3, all);
  float *slots = mem_new((n_slots + 1) * all * sizeof *slots);
  for (int round = 0; round < rounds; round++) {
    double begin = thread_ns();
    float *written = out;
    for (size_t b = 0; b < BLOCKS; b++) {
      float *own = slots + b * n_slots * ELEMS;
      struct optimizer_update update = {.step = (uint64_t)round,
                                        .lr = 1e-3,
                                        .elems = ELEMS,
                                        .weights = weights + b * ELEMS,
                                        .grad = grad + b * ELEMS,
                                        .out = out + b * ELEMS,
                                        .slots = own,
                                        .next_slots = own};
      optimizer->update(spec, &update);
    }
    times[round] = (thread_ns() - begin) / (double)all;
    out = weights;
    weights = written;
  }
  qsort(times, (size_t)rounds, sizeof *times, compare);
  median = times[rounds / 2];
  free(times);
  free(weights);
  free(grad);
  free(out);
  free(slots);
  return median;
}

static void list(void) {
  for (int i = 0; optimizer_at(i); i++)
    if (optimizer_at(i)->n_phases == 0)
      puts(optimizer_at(i)->name);
}

int main(int argc, char **argv) {
  float_setting_apply();
  struct err err = ERR_NONE;
  Weir__RunSpec *spec;
  char *text;
  int rounds = argc == 3 ? atoi(argv[2]) : 0;
  if (argc == 1) {
    list();
    return 0;
  }
  if (rounds < 1) {
    fprintf(stderr, "usage: optimizer_bench [OPTIONS ROUNDS]\n");
    return 2;
  }
  text = mem_printf("train: {optimizer: %s}", argv[1]);
  if (spec_read("options", text, strlen(text), &spec, &err) ||
      optimizer_settle(spec->train->optimizer, &err)) {
    fprintf(stderr, "optimizer_bench: %s\n", err.text);
    return 2;
  }
  printf("%.3f %d\n", measure(spec->train->optimizer, rounds),
         12 + 8 * (int)optimizer_find(spec->train->optimizer->name)->slots(spec->train->optimizer));
  spec_free(spec);
  free(text);
  return 0;
}
