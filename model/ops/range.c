/* Range: start, start + delta, ... before limit, all three known (ONNX 11..21). */
#include <math.h>

#include "model/ops/shared/infer.h"

/* More are refused with the size of tensors. */
#define RANGE_MAX ((int64_t)1 << 60)

static int64_t integer_of(const struct value *value) {
  return value->dtype == DTYPE_I32 ? *(const int32_t *)value->data : *(const int64_t *)value->data;
}

static int64_t count_reals(float start, float limit, float delta) {
  double count = ceil(((double)limit - start) / delta);
  return !(count > 0.0) ? 0 : count > (double)RANGE_MAX ? RANGE_MAX : (int64_t)count;
}

static int64_t count_integers(int64_t start, int64_t limit, int64_t delta) {
  __int128 span = (__int128)limit - start, count = span / delta + (span % delta != 0);
  return (span > 0) != (delta > 0) || span == 0 ? 0 : count > RANGE_MAX ? RANGE_MAX : (int64_t)count;
}

static int range_infer(struct graph *graph, const struct node *node, struct err *err) {
  const struct value *in[3];
  struct shape shape = {.rank = 1};
  for (int i = 0; i < 3; i++) {
    in[i] = node_input(graph, node, i);
    if (in[i]->dtype != in[0]->dtype || shape_elems(&in[i]->shape) != 1)
      return node_error(node, err, ERR_INVALID,
                        "input %d ('%s') must be a scalar of one type with the others", i, in[i]->name);
    if (infer_check_known(graph, node, i, err))
      return err->code;
  }
  if (in[0]->dtype != DTYPE_F32 && in[0]->dtype != DTYPE_I32 && in[0]->dtype != DTYPE_I64)
    return node_error(node, err, ERR_UNSUPPORTED, "a range of %s is not supported", dtype_name(in[0]->dtype));
  if (in[0]->dtype == DTYPE_F32 ? *(const float *)in[2]->data == 0.0f : integer_of(in[2]) == 0)
    return node_error(node, err, ERR_INVALID, "delta is 0");
  shape.dim[0] =
      in[0]->dtype == DTYPE_F32
          ? count_reals(*(const float *)in[0]->data, *(const float *)in[1]->data, *(const float *)in[2]->data)
          : count_integers(integer_of(in[0]), integer_of(in[1]), integer_of(in[2]));
  return infer_output(graph, node, 0, &(struct tensor){.dtype = in[0]->dtype, .shape = shape}, err);
}

/* No sum overflows: each lies before the limit. */
static int range_ref(const struct op_call *call, struct err *err) {
  const struct tensor *start = &call->in[0], *delta = &call->in[2], *out = &call->out[0];
  (void)err;
  for (int64_t i = 0; i < out->shape.dim[0]; i++)
    if (out->dtype == DTYPE_F32)
      ((float *)out->data)[i] =
          (float)(*(const float *)start->data + (double)i * *(const float *)delta->data);
    else if (out->dtype == DTYPE_I32)
      ((int32_t *)out->data)[i] =
          (int32_t)(*(const int32_t *)start->data + i * *(const int32_t *)delta->data);
    else
      ((int64_t *)out->data)[i] = *(const int64_t *)start->data + i * *(const int64_t *)delta->data;
  return ERR_OK;
}

static const struct op_case range_cases[] = {
    {.inputs = "i64[]==0 i64[]==n i64[]==d", .draw = "n=0..9 d=1..3"},
    {.inputs = "i32[]==5 i32[]==-2 i32[]==-3"},
    {.inputs = "i64[1]==5 i64[1]==7 i64[1]==-1"},
    {.inputs = "f32[]==1 f32[]==2.5 f32[]==0.25"},
    {0},
};

const struct op_def op_Range = {
    .name = "Range",
    .domain = "",
    .min_inputs = 3,
    .max_inputs = 3,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .infer = range_infer,
    .ref = range_ref,
    .cases = range_cases,
};
