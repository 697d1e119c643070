/* What the operations of every collective give: each row of collective.def, and nccl where weir-cuda.so can
   be loaded, by groups of threads and of processes. Sums are compared bit by bit with the reduction tree
   written out. How groups come and go is in collective_life_test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective_group.h"
#include "common/agree/float_setting.h"
#include "common/agree/random.h"
#include "common/agree/tree.h"
#include "tests/conformance/sum_cases.h"

static const int sizes[] = {1, 2, 3, 5, 8};
static const size_t elem_counts[] = {0, 1, 7, 1000, 4097, 70001};
static const size_t elems_large = 600001; /* more than a group's shared memory holds at a time */

/* A prime number of values, drawn once: they come again, but never at a place of equal meaning. */
enum { VALUES = 65521 };
static float values[VALUES];

static void draw_values(void) {
  uint64_t key = random_key(7, 0, 0, 0);
  for (size_t i = 0; i < VALUES; i++) {
    uint64_t bits = random_bits(key, i);
    values[i] = ((float)(bits & 0xffffff) / 0x800000 - 1.0f) * (float)(1 << (bits >> 40 & 7));
  }
}

static float value(int member, size_t i) {
  return values[(i + (size_t)member * 7919) % VALUES];
}

static float combine(enum collective_reduction reduction, float a, float b) {
  switch (reduction) {
  case COLLECTIVE_SUM:
    return a + b;
  case COLLECTIVE_PRODUCT:
    return a * b;
  case COLLECTIVE_MAX:
    return a > b ? a : b;
  default:
    return a < b ? a : b;
  }
}

static float reduced(enum collective_reduction reduction, struct tree_node node, uint32_t size, size_t i) {
  uint32_t right;
  float left;
  if (node.level == 0)
    return value((int)node.first, i);
  right = node.first + (1u << (node.level - 1));
  left = reduced(reduction, (struct tree_node){node.first, node.level - 1}, size, i);
  if (right >= size)
    return left;
  return combine(reduction, left, reduced(reduction, (struct tree_node){right, node.level - 1}, size, i));
}

/* Element i of what the member must have in out. */
static float expected(const struct collective_call *call, int rank, int size, size_t i) {
  size_t n = call->elems;
  struct tree_node root = tree_root((uint32_t)size);
  switch (call->kind) {
  case COLLECTIVE_ALL_REDUCE:
  case COLLECTIVE_REDUCE:
    return reduced(call->reduction, root, (uint32_t)size, i);
  case COLLECTIVE_REDUCE_SCATTER:
    return reduced(call->reduction, root, (uint32_t)size, (size_t)rank * n + i);
  case COLLECTIVE_GATHER:
  case COLLECTIVE_ALL_GATHER:
    return value((int)(i / n), i % n);
  case COLLECTIVE_SCATTER:
    return value(call->root, (size_t)rank * n + i);
  default:
    return value(call->root, i);
  }
}

static const char *check_out(struct member *m, const struct collective_call *call, const float *out) {
  size_t elems = collective_out_elems(call, m->rank, m->size);
  for (size_t i = 0; i < elems; i++) {
    float want = expected(call, m->rank, m->size, i);
    if (m->is_fast && fabsf(out[i] - want) <= 1e-4f * (fabsf(want) + 100))
      continue;
    if (memcmp(&out[i], &want, sizeof want))
      return member_fail(m, "kind %d reduction %d root %d of %zu elements: out[%zu] is %a, not %a",
                         call->kind, call->reduction, call->root, call->elems, i, out[i], want);
  }
  return NULL;
}

/* Where `in` and `out` lie: apart, at the same place, or one the member's own part of the other. */
enum places { APART, SAME, PART, PLACES };

static const char *try_call(struct member *m, struct collective_call call, enum places places) {
  size_t whole = call.elems * (size_t)m->size, in_elems, own = (size_t)m->rank * call.elems;
  float *memory = malloc((2 * whole + 1) * sizeof *memory), *in = memory, *out = memory + whole;
  struct err err = ERR_NONE;
  const char *wrong;
  if (places != APART)
    out = memory;
  if (places == PART && call.kind == COLLECTIVE_REDUCE_SCATTER)
    out = memory + own;
  if (places == PART && call.kind == COLLECTIVE_ALL_GATHER)
    in = memory + own;
  in_elems = collective_in_elems(&call, m->rank, m->size);
  for (size_t i = 0; i < in_elems; i++)
    in[i] = value(m->rank, i);
  call.in = in_elems ? in : NULL;
  call.out = collective_out_elems(&call, m->rank, m->size) ? out : NULL;
  wrong = collective_run(m->def, m->group, &call, &err) ? member_fail(m, "%s", err.text)
                                                        : check_out(m, &call, out);
  free(memory);
  return wrong;
}

static bool is_reduction(int kind) {
  return kind == COLLECTIVE_ALL_REDUCE || kind == COLLECTIVE_REDUCE || kind == COLLECTIVE_REDUCE_SCATTER;
}

/* Each member sends to the next one of the ring; even ones first. */
static const char *try_ring(struct member *m, size_t elems) {
  int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
  struct collective_call send = {.kind = COLLECTIVE_SEND, .root = next, .elems = elems};
  struct collective_call receive = {.kind = COLLECTIVE_RECEIVE, .root = before, .elems = elems};
  const char *wrong;
  if (m->size == 1)
    return NULL;
  wrong = try_call(m, m->rank == 0 ? receive : send, APART);
  return wrong ? wrong : try_call(m, m->rank == 0 ? send : receive, APART);
}

static const char *every_operation(struct member *m) {
  const char *wrong = NULL;
  for (size_t n = 0; n < sizeof elem_counts / sizeof *elem_counts && !wrong; n++) {
    size_t elems = elem_counts[n];
    for (int kind = 0; kind < COLLECTIVE_SEND; kind++)
      for (int reduction = 0; reduction < (is_reduction(kind) ? COLLECTIVE_REDUCTIONS : 1); reduction++)
        for (int places = 0; places < PLACES && !wrong; places++)
          wrong = try_call(m,
                           (struct collective_call){.kind = kind,
                                                    .reduction = reduction,
                                                    .root = (int)(n + (size_t)places) % m->size,
                                                    .elems = elems},
                           places);
    wrong = wrong ? wrong : try_ring(m, elems);
  }
  return wrong;
}

static void every_operation_gives_what_the_reference_gives(void **state) {
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    group_run(*state, AS_THREADS, sizes[i], every_operation);
    group_run(*state, AS_PROCESSES, sizes[i], every_operation);
  }
}

/* Members that have neither number of the case give -0, which changes no sum. */
static const char *border_sums(struct member *m) {
  enum { N = 3000 };
  const int giver_a = m->size == 2 ? 0 : 1, giver_b = giver_a + 1;
  float *in = malloc(N * sizeof *in), *out = malloc(N * sizeof *out);
  struct collective_call call = {.kind = COLLECTIVE_ALL_REDUCE, .in = in, .out = out, .elems = N};
  struct err err = ERR_NONE;
  const char *wrong;
  for (size_t i = 0; i < N; i++) {
    const struct sum_case *it = &sum_cases[i % SUM_CASES];
    in[i] = sum_float(m->rank == giver_a ? it->a : m->rank == giver_b ? it->b : 0x80000000);
  }
  wrong = collective_run(m->def, m->group, &call, &err) ? member_fail(m, "%s", err.text) : NULL;
  for (size_t i = 0; i < N && !wrong; i++)
    if (!sum_is_case(&sum_cases[i % SUM_CASES], out[i]))
      wrong = member_fail(m, "case %zu at %zu is %a", i % SUM_CASES, i, (double)out[i]);
  free(in);
  free(out);
  return wrong;
}

static void sums_on_the_borders_have_the_bits_that_the_rules_say(void **state) {
  for (int size = 2; size <= 6; size++) {
    group_run(*state, AS_THREADS, size, border_sums);
    group_run(*state, AS_PROCESSES, size, border_sums);
  }
}

static void fast_reductions_are_near_the_reference(void **state) {
  for (size_t i = 0; i < 3; i++)
    group_run_fast(*state, AS_THREADS, sizes[i], every_operation);
}

static const char *large_operations(struct member *m) {
  static const int kinds[] = {COLLECTIVE_ALL_REDUCE,     COLLECTIVE_REDUCE,     COLLECTIVE_BROADCAST,
                              COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_GATHER, COLLECTIVE_GATHER,
                              COLLECTIVE_SCATTER};
  const char *wrong = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !wrong; i++)
    wrong = try_call(m, (struct collective_call){.kind = kinds[i], .root = m->size - 1, .elems = elems_large},
                     i % 2 ? SAME : APART);
  return wrong ? wrong : try_ring(m, elems_large);
}

static void operations_may_be_larger_than_shared_memory(void **state) {
  group_run(*state, AS_PROCESSES, 2, large_operations);
  group_run(*state, AS_THREADS, 3, large_operations);
}

/* Each operation's input is the output of the one before it: any other order gives other numbers. */
static const char *chained(struct member *m, bool is_polled) {
  enum { CHAIN = 12, N = 3000 };
  static const float halves[] = {1.0f, 0.5f, 0.25f};
  float *x = malloc(N * sizeof *x), factor = 1.0f;
  struct collective_work *works[CHAIN];
  struct err err = ERR_NONE;
  const char *wrong = NULL;
  for (size_t i = 0; i < N; i++)
    x[i] = halves[i % 3];
  for (int k = 0; k < CHAIN && !wrong; k++) {
    struct collective_call call = {.kind = k % 3 == 2 ? COLLECTIVE_BROADCAST : COLLECTIVE_ALL_REDUCE,
                                   .in = x,
                                   .out = x,
                                   .root = k % m->size,
                                   .elems = N};
    factor *= k % 3 == 2 ? 1.0f : (float)m->size;
    wrong = m->def->start(m->group, &call, &works[k], &err) ? member_fail(m, "%s", err.text) : NULL;
  }
  if (!wrong && is_polled)
    while (!m->def->is_done(works[CHAIN - 1]))
      sched_yield();
  for (int k = CHAIN - 1; k >= 0 && !wrong; k--)
    wrong = m->def->wait(works[k], &err) ? member_fail(m, "%s", err.text) : NULL;
  for (size_t i = 0; i < N && !wrong; i++)
    wrong = x[i] == halves[i % 3] * factor ? NULL : member_fail(m, "x[%zu] is %g", i, (double)x[i]);
  free(x);
  return wrong;
}

static const char *chained_and_waited(struct member *m) {
  return chained(m, false);
}

static const char *chained_and_polled(struct member *m) {
  return chained(m, true);
}

static void operations_are_done_in_the_order_in_which_they_were_started(void **state) {
  group_run(*state, AS_THREADS, 2, chained_and_waited);
  group_run(*state, AS_PROCESSES, 4, chained_and_waited);
  group_run(*state, AS_THREADS, 4, chained_and_polled);
}

/* Three more groups at a time, whose operations are asked after in different orders. */
static const char *in_several_groups(struct member *m) {
  enum { GROUPS = 3, N = 200000 };
  float *x = malloc(GROUPS * N * sizeof *x);
  struct collective *groups[GROUPS] = {NULL};
  struct collective_work *works[GROUPS];
  struct collective_options options = member_options(m);
  struct err err = ERR_NONE;
  const char *wrong = NULL;
  char name[COLLECTIVE_NAME_MAX + 1];
  int left = GROUPS;
  options.name = name;
  for (int g = 0; g < GROUPS && !wrong; g++) {
    snprintf(name, sizeof name, "%.80s-%d", m->name, g);
    wrong = m->def->open(&options, &groups[g], &err) ? member_fail(m, "%s", err.text) : NULL;
  }
  for (int g = 0; g < GROUPS && !wrong; g++) {
    struct collective_call call = {
        .kind = COLLECTIVE_ALL_REDUCE, .in = x + g * N, .out = x + g * N, .elems = N};
    for (size_t i = 0; i < N; i++)
      x[(size_t)g * N + i] = (float)(g + m->rank);
    wrong = m->def->start(groups[g], &call, &works[g], &err) ? member_fail(m, "%s", err.text) : NULL;
  }
  while (left && !wrong) {
    left = 0;
    for (int g = 0; g < GROUPS; g++)
      left += !m->def->is_done(works[(g + m->rank) % GROUPS]);
    sched_yield();
  }
  for (int g = 0; g < GROUPS && !wrong; g++) {
    float want = (float)(g * m->size + m->size * (m->size - 1) / 2);
    wrong = m->def->wait(works[g], &err) ? member_fail(m, "%s", err.text) : NULL;
    for (size_t i = 0; i < N && !wrong; i++)
      wrong = x[(size_t)g * N + i] == want ? NULL : member_fail(m, "group %d: out[%zu]", g, i);
  }
  for (int g = 0; g < GROUPS; g++)
    m->def->close(groups[g]);
  free(x);
  return wrong;
}

static void groups_of_one_process_are_independent(void **state) {
  group_run(*state, AS_PROCESSES, 2, in_several_groups);
  group_run(*state, AS_THREADS, 3, in_several_groups);
}

/* What member 0 sends to whom, and how much: drawn, to some of several receivers in a row and back again. */
static size_t drawn_message(int message, int size, int *to) {
  unsigned draw = (unsigned)message * 2654435761u;
  *to = 1 + (int)(draw >> 16) % (size - 1);
  return draw % 5 == 0 ? 1 + (draw >> 8) % 150000 : 1 + (draw >> 8) % 3000;
}

/* Member 0 sends to all others, who take no notice of each other. */
static const char *one_sends(struct member *m) {
  enum { MESSAGES = 80, N = 150000 };
  float *x = malloc(N * sizeof *x);
  const char *wrong = NULL;
  for (int message = 0; message < MESSAGES && !wrong; message++) {
    struct err err = ERR_NONE;
    int to;
    size_t n = drawn_message(message, m->size, &to);
    struct collective_call call = {.kind = COLLECTIVE_SEND, .in = x, .root = to, .elems = n};
    if (m->rank != 0 && m->rank != to)
      continue;
    if (m->rank != 0)
      call = (struct collective_call){.kind = COLLECTIVE_RECEIVE, .out = x, .elems = n};
    for (size_t i = 0; i < n && m->rank == 0; i++)
      x[i] = (float)(message + (int)i);
    wrong = collective_run(m->def, m->group, &call, &err) ? member_fail(m, "%s", err.text) : NULL;
    for (size_t i = 0; i < n && !wrong; i++)
      wrong = x[i] == (float)(message + (int)i) ? NULL : member_fail(m, "message %d: x[%zu]", message, i);
  }
  free(x);
  return wrong;
}

static void what_one_sends_to_several_comes_in_order_and_whole(void **state) {
  group_run(*state, AS_PROCESSES, 3, one_sends);
  group_run(*state, AS_THREADS, 4, one_sends);
  group_run(*state, AS_PROCESSES, 4, one_sends);
}

static const char *nonsense(struct member *m) {
  float x[4];
  const struct collective_call calls[] = {
      {.kind = COLLECTIVE_KINDS, .in = x, .out = x, .elems = 1},
      {.kind = COLLECTIVE_ALL_REDUCE, .reduction = COLLECTIVE_REDUCTIONS, .in = x, .out = x, .elems = 1},
      {.kind = COLLECTIVE_REDUCE, .root = m->size, .in = x, .out = x, .elems = 1},
      {.kind = COLLECTIVE_BROADCAST, .root = -1, .in = x, .out = x, .elems = 1},
      {.kind = COLLECTIVE_ALL_REDUCE, .out = x, .elems = 1},
      {.kind = COLLECTIVE_ALL_REDUCE, .in = x, .elems = 1},
      {.kind = COLLECTIVE_ALL_GATHER, .in = x, .out = x, .elems = SIZE_MAX / 4},
      {.kind = COLLECTIVE_SEND, .root = m->rank, .in = x, .elems = 1},
  };
  struct collective_work *work;
  struct err err;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (m->def->start(m->group, &calls[i], &work, &err) != ERR_INVALID)
      return member_fail(m, "call %zu was taken", i);
  return NULL;
}

static void calls_that_no_member_could_mean_are_invalid(void **state) {
  group_run(*state, AS_THREADS, 2, nonsense);
}

int main(int argc, char **argv) {
  float_setting_apply();
  const struct CMUnitTest tests[] = {
      GROUP_TEST(every_operation_gives_what_the_reference_gives),
      GROUP_TEST(sums_on_the_borders_have_the_bits_that_the_rules_say),
      GROUP_TEST(fast_reductions_are_near_the_reference),
      GROUP_TEST(operations_may_be_larger_than_shared_memory),
      GROUP_TEST(operations_are_done_in_the_order_in_which_they_were_started),
      GROUP_TEST(what_one_sends_to_several_comes_in_order_and_whole),
      GROUP_TEST(groups_of_one_process_are_independent),
      GROUP_TEST(calls_that_no_member_could_mean_are_invalid),
  };
  draw_values();
  return group_tests_run(argc > 1 ? argv[1] : NULL, tests, sizeof tests / sizeof *tests);
}
