/* What every collective does: each row of collective.def, and nccl where weir-cuda.so can be loaded, by
   groups of threads and of processes. Sums are compared bit by bit with the reduction tree written out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective_group.h"
#include "common/random.h"
#include "common/tree.h"

static const int sizes[] = {1, 2, 3, 5, 8};
static const size_t elem_counts[] = {0, 1, 7, 1000, 4097, 70001};
static const size_t elems_large = 600001; /* more than a group's shared memory holds at a time */

static float value(int member, size_t i) {
  uint64_t bits = random_bits(random_key(7, (uint64_t)member, 0, 0), i);
  return ((float)(bits & 0xffffff) / 0x800000 - 1.0f) * (float)(1 << (bits >> 40 & 7));
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
  group_run(*state, AS_THREADS, 3, large_operations);
  group_run(*state, AS_PROCESSES, 2, large_operations);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      GROUP_TEST(every_operation_gives_what_the_reference_gives),
      GROUP_TEST(operations_may_be_larger_than_shared_memory),
  };
  return group_tests_run("collective", tests, sizeof tests / sizeof *tests);
}
