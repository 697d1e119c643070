/* All-reduce and broadcast by the shm collective, beside a copy of as many bytes: members are processes.
   Prints one line for each operation and size: OPERATION BYTES MICROSECONDS (median, at member 0). Argument:
   the number of members. With `copy` in its place: the time of a memcpy of one member's bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/agree/float_setting.h"
#include "common/base/clock.h"
#include "worker/collective/collective.h"

enum { WARM_UP = 5, ROUNDS_MAX = 2000, BYTES_PER_SIZE = 1 << 29 };

static const size_t sizes[] = {64, 4 << 10, 64 << 10, 1 << 20, 16 << 20};

static int by_time(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int rounds_of(size_t bytes) {
  size_t rounds = BYTES_PER_SIZE / 4 / bytes;
  return rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds < 7 ? 7 : (int)rounds;
}

static void print_median(const char *what, size_t bytes, double *times, int n) {
  qsort(times, (size_t)n, sizeof *times, by_time);
  printf("%s %zu %.2f\n", what, bytes, times[n / 2] * 1e6);
}

static void *pages(size_t bytes) {
  void *memory = malloc(bytes);
  CHECK(memory);
  memset(memory, 0, bytes);
  return memory;
}

static void measure_copy(size_t bytes) {
  static double times[ROUNDS_MAX];
  char *from = pages(bytes), *to = pages(bytes);
  for (int round = -WARM_UP; round < rounds_of(bytes); round++) {
    uint64_t began_ns = clock_now_ns();
    memcpy(to, from, bytes);
    __asm__ volatile("" : : "r"(to) : "memory"); /* the copy is needed */
    if (round >= 0)
      times[round] = clock_seconds(clock_now_ns() - began_ns);
  }
  print_median("copy", bytes, times, rounds_of(bytes));
  free(from);
  free(to);
}

static void measure(const struct collective_def *def, struct collective *group, int rank,
                    enum collective_kind kind, size_t bytes) {
  static double times[ROUNDS_MAX];
  struct collective_call call = {.kind = kind, .elems = bytes / sizeof(float)};
  float *in = pages(bytes), *out = pages(bytes);
  struct err err = ERR_NONE;
  call.in = in;
  call.out = out;
  for (int round = -WARM_UP; round < rounds_of(bytes); round++) {
    uint64_t began_ns = clock_now_ns();
    CHECK(collective_run(def, group, &call, &err) == 0);
    if (round >= 0)
      times[round] = clock_seconds(clock_now_ns() - began_ns);
  }
  if (rank == 0)
    print_median(kind == COLLECTIVE_ALL_REDUCE ? "all_reduce" : "broadcast", bytes, times, rounds_of(bytes));
  free(in);
  free(out);
}

static void run_member(const char *name, int rank, int size) {
  const struct collective_def *def = collective_at(0);
  struct collective_options options = {.name = name, .rank = rank, .size = size, .timeout_ms = 10000};
  struct collective *group;
  struct err err = ERR_NONE;
  if (def->open(&options, &group, &err)) {
    fprintf(stderr, "%s\n", err.text);
    exit(1);
  }
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    measure(def, group, rank, COLLECTIVE_ALL_REDUCE, sizes[i]);
    measure(def, group, rank, COLLECTIVE_BROADCAST, sizes[i]);
  }
  def->close(group);
}

int main(int argc, char **argv) {
  float_setting_apply();
  int size = argc > 1 ? atoi(argv[1]) : 2;
  char name[64];
  if (argc > 1 && strcmp(argv[1], "copy") == 0) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      measure_copy(sizes[i]);
    return 0;
  }
  if (size < 1 || size > COLLECTIVE_SIZE_MAX) {
    fprintf(stderr, "usage: collective_bench MEMBERS | copy\n");
    return 2;
  }
  snprintf(name, sizeof name, "bench-%d", (int)getpid());
  for (int rank = 1; rank < size; rank++)
    if (fork() == 0) {
      run_member(name, rank, size);
      return 0;
    }
  run_member(name, 0, size);
  while (wait(NULL) > 0)
    ;
  return 0;
}
