/* Reductions along the tree: pieces that stay in the first cache, four sources at a time. Sums of complete
   subtrees wait on a stack, as the digits of a binary counter do: equal ones are merged at once, what is left
   at the end from the right, which is the order of common/agree/tree.h. */
#include "worker/collective/reduction.h"

#include <string.h>

#include "common/agree/sum.h"
#include "common/base/vector_variants.h"

enum { PIECE = 512, LEAF = 4, DEPTH_MAX = 6 };

/* NaN wins: a comparison with it is false. */
#define ADD(a, b) sum_of(a, b)
#define MULTIPLY(a, b) ((a) * (b))
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

/* Each loop reads element i of all before it writes element i, so that out may be an operand: ivdep tells the
   compiler that no other overlap is meant. */
#define LOOPS(name, OP)                                                                                      \
  VECTOR_VARIANTS static void name##_2(const float *const *in, size_t n, float *out) {                       \
    const float *a = in[0], *b = in[1];                                                                      \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) out[i] = OP(a[i], b[i]);                             \
  }                                                                                                          \
  VECTOR_VARIANTS static void name##_3(const float *const *in, size_t n, float *out) {                       \
    const float *a = in[0], *b = in[1], *c = in[2];                                                          \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) {                                                    \
      float ab = OP(a[i], b[i]);                                                                             \
      out[i] = OP(ab, c[i]);                                                                                 \
    }                                                                                                        \
  }                                                                                                          \
  VECTOR_VARIANTS static void name##_4(const float *const *in, size_t n, float *out) {                       \
    const float *a = in[0], *b = in[1], *c = in[2], *d = in[3];                                              \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) {                                                    \
      float ab = OP(a[i], b[i]), cd = OP(c[i], d[i]);                                                        \
      out[i] = OP(ab, cd);                                                                                   \
    }                                                                                                        \
  }

LOOPS(sum, ADD)
LOOPS(product, MULTIPLY)
LOOPS(max, LARGER)
LOOPS(min, SMALLER)

typedef void reduce_loop(const float *const *in, size_t n, float *out);

static reduce_loop *const loops[COLLECTIVE_REDUCTIONS][LEAF + 1] = {
    [COLLECTIVE_SUM] = {NULL, NULL, sum_2, sum_3, sum_4},
    [COLLECTIVE_PRODUCT] = {NULL, NULL, product_2, product_3, product_4},
    [COLLECTIVE_MAX] = {NULL, NULL, max_2, max_3, max_4},
    [COLLECTIVE_MIN] = {NULL, NULL, min_2, min_3, min_4}};

static void reduce_few(reduce_loop *const *loop, const float *const *sources, int n_sources, size_t elems,
                       float *out) {
  if (n_sources > 1)
    loop[n_sources](sources, elems, out);
  else if (sources[0] != out)
    memcpy(out, sources[0], elems * sizeof *out);
}

static void reduce_piece(reduce_loop *const *loop, const float *const *sources, int n_sources, size_t elems,
                         float *out) {
  float sums[DEPTH_MAX][PIECE];
  int depth = 0;
  for (int first = 0; first < n_sources; first += LEAF) {
    int leaves = n_sources - first < LEAF ? n_sources - first : LEAF;
    reduce_few(loop, sources + first, leaves, elems, sums[depth++]);
    for (int done = first / LEAF + 1; leaves == LEAF && done % 2 == 0; done /= 2, depth--)
      loop[2]((const float *const[]){sums[depth - 2], sums[depth - 1]}, elems, sums[depth - 2]);
  }
  for (; depth > 1; depth--)
    loop[2]((const float *const[]){sums[depth - 2], sums[depth - 1]}, elems, sums[depth - 2]);
  memcpy(out, sums[0], elems * sizeof *out);
}

void reduction_of(enum collective_reduction reduction, const float *const *sources, int n_sources,
                  size_t elems, float *out) {
  const float *pieces[COLLECTIVE_SIZE_MAX];
  if (n_sources <= LEAF) {
    reduce_few(loops[reduction], sources, n_sources, elems, out);
    return;
  }
  for (size_t at = 0; at < elems; at += PIECE) {
    for (int i = 0; i < n_sources; i++)
      pieces[i] = sources[i] + at;
    reduce_piece(loops[reduction], pieces, n_sources, elems - at < PIECE ? elems - at : PIECE, out + at);
  }
}
