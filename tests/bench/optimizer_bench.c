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
#include "common/base/err.h"
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

/* As a server keeps a block: a buffer for each of these. */
struct block {
  struct buffer *weights, *grad, *out, *slots;
};

static struct buffer *make(size_t elems, uint64_t seed) {
  struct buffer *buffer = buffer_new(elems * sizeof(float));
  CHECK(buffer);
  for (size_t i = 0; i < elems; i++)
    ((float *)buffer->data)[i] = seed ? (float)(2 * random_uniform(seed, i) - 1) : 0;
  return buffer;
}

static void block_make(struct block *block, size_t n_slots, uint64_t seed) {
  block->weights = make(ELEMS, 3 * seed + 1);
  block->grad = make(ELEMS, 3 * seed + 2);
  block->out = make(ELEMS, 3 * seed + 3);
  block->slots = make(n_slots * ELEMS, 0);
}

static void block_free(struct block *block) {
  buffer_put(block->weights);
  buffer_put(block->grad);
  buffer_put(block->out);
  buffer_put(block->slots);
}

static void block_update(const Weir__OptimizerSpec *spec, struct block *block, uint64_t step) {
  struct buffer *written = block->out;
  struct optimizer_update update = {.step = step,
                                    .lr = 1e-3,
                                    .elems = ELEMS,
                                    .weights = block->weights->data,
                                    .grad = block->grad->data,
                                    .out = written->data,
                                    .slots = block->slots->data,
                                    .next_slots = block->slots->data};
  optimizer_find(spec->name)->update(spec, &update);
  block->out = block->weights;
  block->weights = written;
}

static double measure(const Weir__OptimizerSpec *spec, int rounds) {
  static struct block blocks[BLOCKS];
  double *times = mem_new((size_t)rounds * sizeof *times), median;
  for (uint64_t b = 0; b < BLOCKS; b++)
    block_make(&blocks[b], optimizer_find(spec->name)->slots(spec), b);
  for (int round = 0; round < rounds; round++) {
    double begin = thread_ns();
    for (int b = 0; b < BLOCKS; b++)
      block_update(spec, &blocks[b], (uint64_t)round);
    times[round] = (thread_ns() - begin) / ((double)BLOCKS * ELEMS);
  }
  qsort(times, (size_t)rounds, sizeof *times, compare);
  median = times[rounds / 2];
  for (int b = 0; b < BLOCKS; b++)
    block_free(&blocks[b]);
  free(times);
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
