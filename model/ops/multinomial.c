/* Multinomial (ONNX 7): draws classes with replacement, by unnormalized log-probabilities f32[batch, classes]
   -> i32 or i64 [batch, sample_size]. */
#include <math.h>
#include <stdlib.h>

#include "common/agree/random.h"
#include "model/ops/shared/infer.h"
#include "model/ops/shared/random_op.h"

static int multinomial_infer(struct graph *graph, const struct node *node, struct err *err) {
  int64_t samples = node_attr_int(node, "sample_size", 1);
  struct shape shape;
  enum dtype dtype;
  if (infer_check_f32(graph, node, err) || infer_check_rank(graph, node, 0, 2, err) ||
      infer_dtype_attr(node, "dtype", DTYPE_I32, &dtype, err))
    return err->code;
  shape = node_input(graph, node, 0)->shape;
  if (samples < 1 || shape.dim[1] < 1)
    return node_error(node, err, ERR_INVALID, "cannot draw %lld samples of %lld classes", (long long)samples,
                      (long long)shape.dim[1]);
  if (dtype != DTYPE_I32 && dtype != DTYPE_I64)
    return node_error(node, err, ERR_INVALID, "its classes cannot be %s", dtype_name(dtype));
  shape.dim[1] = samples;
  return infer_output(graph, node, 0, &(struct tensor){.dtype = dtype, .shape = shape}, err);
}

/* Running sums of exp(row - its maximum); false if they are no distribution. */
static bool sum_up(const float *row, int64_t classes, double *sums) {
  double most = -INFINITY, sum = 0.0;
  for (int64_t c = 0; c < classes; c++)
    most = row[c] > most ? row[c] : most;
  for (int64_t c = 0; c < classes; c++)
    sums[c] = sum += exp(row[c] - most);
  return isfinite(sum) && sum > 0.0;
}

/* The first class whose running sum is above `mark`. */
static int64_t find_class(const double *sums, int64_t classes, double mark) {
  int64_t low = 0, high = classes - 1;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (sums[middle] > mark)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static int multinomial_ref(const struct op_call *call, struct err *err) {
  int64_t batch = call->in[0].shape.dim[0], classes = call->in[0].shape.dim[1];
  int64_t samples = call->out[0].shape.dim[1];
  const struct tensor *out = &call->out[0];
  const float *logits = call->in[0].data;
  uint64_t key = random_op_key(call);
  double *sums = malloc((size_t)classes * sizeof *sums);
  if (!sums)
    return node_error(call->node, err, ERR_NO_MEMORY, "no memory for %lld classes", (long long)classes);
  for (int64_t b = 0; b < batch && !err->code; b++) {
    if (!sum_up(logits + b * classes, classes, sums))
      node_error(call->node, err, ERR_INVALID, "row %lld of its input has no finite probabilities",
                 (long long)b);
    for (int64_t i = b * samples; i < (b + 1) * samples && !err->code; i++) {
      int64_t drawn = find_class(sums, classes, random_uniform(key, (uint64_t)i) * sums[classes - 1]);
      if (out->dtype == DTYPE_I32)
        ((int32_t *)out->data)[i] = (int32_t)drawn;
      else
        ((int64_t *)out->data)[i] = drawn;
    }
  }
  free(sums);
  return err->code;
}

static const struct op_case multinomial_cases[] = {
    {.inputs = "f32[2,5]", .attrs = "sample_size=7"},
    {.inputs = "f32[3,4]", .attrs = "dtype=7"},
    {0},
};

const struct op_def op_Multinomial = {
    .name = "Multinomial",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 7,
    .flags = OP_RANDOM,
    .infer = multinomial_infer,
    .ref = multinomial_ref,
    .cases = multinomial_cases,
};
