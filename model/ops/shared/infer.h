/* What the shape inference of several ops shares. Errors go through node_error. */
#ifndef WEIR_MODEL_OPS_SHARED_INFER_H
#define WEIR_MODEL_OPS_SHARED_INFER_H

#include "model/graph/op.h"

/* Gives output i a type and a shape (of a tensor without data); nothing to do where it is absent. Errors:
   INVALID for a shape with an unknown dimension or more elements than can be counted. */
int infer_output(struct graph *graph, const struct node *node, int output, const struct tensor *tensor,
                 struct err *err);
int infer_f32(struct graph *graph, const struct node *node, int output, const struct shape *shape,
              struct err *err);

/* Output 0 is like input 0. */
int infer_same(struct graph *graph, const struct node *node, struct err *err);
int infer_same_f32(struct graph *graph, const struct node *node, struct err *err); /* and that is f32 */

/* Every input present is f32; else UNSUPPORTED. */
int infer_check_f32(const struct graph *graph, const struct node *node, struct err *err);

/* Sets of types. */
enum {
  DTYPES_NUMBERS = 1 << DTYPE_F32 | 1 << DTYPE_I32 | 1 << DTYPE_I64 | 1 << DTYPE_U8,
  DTYPES_INTEGERS = 1 << DTYPE_I32 | 1 << DTYPE_I64 | 1 << DTYPE_U8,
  DTYPES_ALL = DTYPES_NUMBERS | 1 << DTYPE_BOOL,
};

/* Input i is there, and its type is among dtypes; else INVALID or UNSUPPORTED. */
int infer_check_dtype(const struct graph *graph, const struct node *node, int input, unsigned dtypes,
                      struct err *err);
int infer_same_number(struct graph *graph, const struct node *node,
                      struct err *err); /* as infer_same, of DTYPES_NUMBERS */

/* Input i has `rank` dimensions; else INVALID. */
int infer_check_rank(const struct graph *graph, const struct node *node, int input, int rank,
                     struct err *err);

/* Input i is a vector of n elements; else INVALID. */
int infer_check_vector(const struct graph *graph, const struct node *node, int input, int64_t n,
                       struct err *err);

/* axis in [-rank, rank) -> [0, rank); or one more at the upper end, as for Flatten. Errors: INVALID. */
int infer_axis(const struct node *node, int64_t axis, int rank, int *out, struct err *err);
int infer_axis_or_end(const struct node *node, int64_t axis, int rank, int *out, struct err *err);

/* The shape in the ints attribute "shape" of our own ops. */
int infer_shape_attr(const struct node *node, struct shape *shape, struct err *err);

/* The type that an attribute names by ONNX's number (TensorProto.DataType); `otherwise` where it is absent.
   f16 and bf16 are f32 to us. Errors: UNSUPPORTED for a type that we have not. */
int infer_dtype_attr(const struct node *node, const char *attr, enum dtype otherwise, enum dtype *dtype,
                     struct err *err);

/* The data of input i, where it is present, is known before execution; else UNSUPPORTED. */
int infer_check_known(const struct graph *graph, const struct node *node, int input, struct err *err);

/* Elements of input or output i, as a number that cannot overflow; 0 where it is absent. */
double infer_input_elems(const struct graph *graph, const struct node *node, int i);
double infer_output_elems(const struct graph *graph, const struct node *node, int i);

/* Where a node has its integers that are known before execution: in the i64 input, where it is present, else
   in the attribute (NULL: none). input INFER_NO_INPUT: it can only be an attribute. */
enum { INFER_NO_INPUT = OP_INPUTS_MAX };
struct ints_source {
  int input;
  const char *attr;
};

/* Integers of the graph's; NULL and 0 where neither is there. Errors: UNSUPPORTED when the input is computed
   at execution. */
struct int_list {
  const int64_t *at;
  int n;
};
int infer_ints(const struct graph *graph, const struct node *node, struct ints_source source,
               struct int_list *ints, struct err *err);

/* The same, also of an i32 input, copied: at most `max` of them, else INVALID. *n: how many there are. */
struct ints_room {
  int64_t *values;
  int max, *n;
};
int infer_few_ints(const struct graph *graph, const struct node *node, struct ints_source source,
                   struct ints_room room, struct err *err);

/* Axes of a tensor of `rank` dimensions. */
struct axis_set {
  int rank, n;
  bool has[RANK_MAX];
};
/* Fills the set, whose rank is given, with the axes that infer_few_ints gives. Errors: INVALID for one that
   is out of range or named twice. */
int infer_axes(const struct graph *graph, const struct node *node, struct ints_source source,
               struct axis_set *axes, struct err *err);

#endif
