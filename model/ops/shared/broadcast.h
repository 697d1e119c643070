/* Broadcasting as ONNX and numpy do it (multidirectional): shapes, and the walk over the elements. */
#ifndef WEIR_MODEL_OPS_SHARED_BROADCAST_H
#define WEIR_MODEL_OPS_SHARED_BROADCAST_H

#include "model/graph/op.h"

/* The common shape of a and b; false if they do not fit. */
bool broadcast_shapes(const struct shape *a, const struct shape *b, struct shape *out);

/* The common shape of all inputs, of whatever types; else INVALID. */
int broadcast_infer_shape(const struct graph *graph, const struct node *node, struct shape *shape,
                          struct err *err);

/* Output 0 gets the common shape of all inputs, and their type: one of f32, i32, i64 and u8. */
int broadcast_infer(struct graph *graph, const struct node *node, struct err *err);
/* The same for other types (DTYPES_... of infer.h), into a type of its own (DTYPE_NONE: theirs). */
int broadcast_infer_as(struct graph *graph, const struct node *node, unsigned dtypes, enum dtype out,
                       struct err *err);

/* A walk over a shape's elements in order, as `runs` runs of `run` elements along the innermost dimension:
   at[i] is the offset in operand i where the present run begins, step[i] (0 or 1) what one element adds. */
enum { BROADCAST_OPERANDS_MAX = 3 };
struct broadcast {
  int64_t run, runs;
  int64_t at[BROADCAST_OPERANDS_MAX], step[BROADCAST_OPERANDS_MAX];
  int operands;
  int rank; /* of the dimensions outside the run; [0] is the innermost of them */
  int64_t dim[RANK_MAX], stride[BROADCAST_OPERANDS_MAX][RANK_MAX], count[RANK_MAX];
};

/* usage: broadcast_init(&w, &out, &a, &b);
          for (int64_t r = 0; r < w.runs; r++, broadcast_next(&w))
            for (int64_t j = 0; j < w.run; j++)
              *out++ = a[w.at[0] + j * w.step[0]] + b[w.at[1] + j * w.step[1]];
   a and b must broadcast to `out`; b may be NULL. */
void broadcast_init(struct broadcast *walk, const struct shape *out, const struct shape *a,
                    const struct shape *b);
void broadcast_init_n(struct broadcast *walk, const struct shape *out, const struct shape *const *operands,
                      int n); /* the same for n operands */
void broadcast_next(struct broadcast *walk);

#endif
