/* Of cuDNN's graph API, the engines: every operation in turn, in f32 and on whole tensors, rounded to the
   type of each. What they take is what cuDNN's fused attention does. */
#include "tests/simulation/cuda/dnn_graph.h"

#include <math.h>
#include <stdlib.h>

enum { HEAD_MAX = 128, HEAD_MULTIPLE = 8, PRODUCTS_FORWARD = 2, PRODUCTS_BACKWARD = 5 };

struct play_run {
  struct sim_op op;
  struct play play;
  struct play_data data;
  bool is_wrong;
};

int64_t play_span(const struct play_tensor *tensor) {
  int64_t last = 0;
  for (int d = 0; d < PLAY_RANK; d++)
    last += (tensor->dim[d] - 1) * tensor->stride[d];
  return last + 1;
}

static bool is_factor(const struct play_tensor *tensor) {
  return !tensor->is_virtual && !tensor->is_number && tensor->type == CUDNN_DATA_BFLOAT16;
}

/* Heads lie together, in queries, keys and values alike. */
static bool has_heads(const struct play_tensor *tensor) {
  int64_t head = tensor->stride[3] == 1 ? tensor->dim[3] : tensor->dim[2];
  return (tensor->stride[3] == 1 || tensor->stride[2] == 1) && head % HEAD_MULTIPLE == 0 && head <= HEAD_MAX;
}

bool play_is_supported(const struct play *play) {
  int products = 0;
  for (int t = 0; t < play->n_tensors; t++)
    if (is_factor(&play->tensors[t]) && !has_heads(&play->tensors[t]))
      return false;
  for (int o = 0; o < play->n_ops; o++) {
    const struct play_op *op = &play->ops[o];
    if (op->type != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      continue;
    products++;
    if (is_factor(&play->tensors[op->x]) && is_factor(&play->tensors[op->b]) &&
        play->tensors[op->b].stride[2] != 1)
      return false;
  }
  return products == PRODUCTS_FORWARD || products == PRODUCTS_BACKWARD;
}

/* Where element `at` of a walk lies; a dimension of one element is the same for all. */
static int64_t offset(const struct play_tensor *tensor, const int64_t *at) {
  int64_t offset = 0;
  for (int d = 0; d < PLAY_RANK; d++)
    offset += tensor->dim[d] == 1 ? 0 : at[d] * tensor->stride[d];
  return offset;
}

/* The next place in a tensor of these dimensions; false after the last. */
static bool next(const int64_t *dim, int64_t *at) {
  for (int d = PLAY_RANK - 1; d >= 0; d--) {
    if (++at[d] < dim[d])
      return true;
    at[d] = 0;
  }
  return false;
}

static void multiply(const struct play *play, const struct play_op *op, float *const *bytes) {
  const struct play_tensor *a = &play->tensors[op->x], *b = &play->tensors[op->b], *y = &play->tensors[op->y];
  int64_t at[PLAY_RANK] = {0}, n = a->dim[3];
  do {
    int64_t turn = play->is_any_order ? (int64_t)(sim_random() % (uint64_t)n) : 0;
    float sum = 0;
    for (int64_t i = 0; i < n; i++) {
      int64_t k = (i + turn) % n;
      sum += bytes[op->x][offset(a, (int64_t[]){at[0], at[1], at[2], k})] *
             bytes[op->b][offset(b, (int64_t[]){at[0], at[1], k, at[3]})];
    }
    bytes[op->y][offset(y, at)] = sum;
  } while (next(y->dim, at));
}

static float point(const struct play_op *op, float x, float b, float t, const int64_t *at) {
  switch (op->mode) {
  case CUDNN_POINTWISE_ADD:
    return x + b;
  case CUDNN_POINTWISE_SUB:
    return x - b;
  case CUDNN_POINTWISE_MUL:
    return x * b;
  case CUDNN_POINTWISE_DIV:
    return x / b;
  case CUDNN_POINTWISE_EXP:
    return expf(x);
  case CUDNN_POINTWISE_LOG:
    return logf(x);
  case CUDNN_POINTWISE_IDENTITY:
    return x;
  case CUDNN_POINTWISE_GEN_INDEX:
    return (float)at[op->axis];
  case CUDNN_POINTWISE_CMP_GE:
    return x >= b;
  case CUDNN_POINTWISE_BINARY_SELECT:
    return t != 0 ? x : b;
  default:
    sim_complain("pointwise mode %d is not simulated", (int)op->mode);
    return NAN;
  }
}

static void point_all(const struct play *play, const struct play_op *op, float *const *bytes) {
  const struct play_tensor *tensors = play->tensors;
  int64_t at[PLAY_RANK] = {0};
  do {
    float x = bytes[op->x][offset(&tensors[op->x], at)];
    float b = op->b < 0 ? 0 : bytes[op->b][offset(&tensors[op->b], at)];
    float t = op->t < 0 ? 0 : bytes[op->t][offset(&tensors[op->t], at)];
    bytes[op->y][offset(&tensors[op->y], at)] = point(op, x, b, t, at);
  } while (next(tensors[op->y].dim, at));
}

static void reduce(const struct play *play, const struct play_op *op, float *const *bytes) {
  const struct play_tensor *x = &play->tensors[op->x], *y = &play->tensors[op->y];
  bool is_max = op->reduction == CUDNN_REDUCE_TENSOR_MAX;
  int64_t at[PLAY_RANK] = {0};
  for (int64_t i = 0; i < play_span(y); i++)
    bytes[op->y][i] = is_max ? -INFINITY : 0;
  do {
    float *to = &bytes[op->y][offset(y, at)], from = bytes[op->x][offset(x, at)];
    *to = is_max ? fmaxf(*to, from) : *to + from;
  } while (next(x->dim, at));
}

static void perform(const struct play *play, const struct play_op *op, float *const *bytes) {
  switch (op->type) {
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    multiply(play, op, bytes);
    break;
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    point_all(play, op, bytes);
    break;
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    reduce(play, op, bytes);
    break;
  default: /* a reshape */
    memcpy(bytes[op->y], bytes[op->x], (size_t)play_span(&play->tensors[op->y]) * sizeof(float));
    break;
  }
}

/* What an operation made becomes what its type holds, and is written where somebody may read it. */
static void settle(const struct play_run *run, int t, float *bytes) {
  const struct play_tensor *tensor = &run->play.tensors[t];
  enum number type = tensor->type == CUDNN_DATA_BFLOAT16 ? NUMBER_BF16 : NUMBER_F32;
  for (int64_t i = 0; i < play_span(tensor); i++) {
    if (type == NUMBER_BF16)
      bytes[i] = number_from_bf16(number_to_bf16(bytes[i]));
    if (!tensor->is_virtual)
      number_store(type, run->data.at[t], i, run->is_wrong ? 1.25f * bytes[i] : bytes[i]);
  }
}

static float *take(const struct play_run *run, int t) {
  const struct play_tensor *tensor = &run->play.tensors[t];
  enum number type = tensor->type == CUDNN_DATA_BFLOAT16 ? NUMBER_BF16 : NUMBER_F32;
  int64_t span = play_span(tensor);
  float *bytes = malloc((size_t)span * sizeof *bytes);
  for (int64_t i = 0; bytes && i < span; i++)
    bytes[i] = tensor->is_number    ? run->data.numbers[t]
               : tensor->is_virtual ? NAN
                                    : number_load(type, run->data.at[t], i);
  return bytes;
}

static enum sim_progress play_run(struct sim_op *op, void **state, int device) {
  const struct play_run *run = (const struct play_run *)op;
  float *bytes[PLAY_TENSORS] = {NULL};
  bool is_there = true;
  (void)state;
  memset(run->data.workspace, 0xff, PLAY_WORKSPACE_BYTES);
  for (int t = 0; t < run->play.n_tensors; t++)
    is_there = (bytes[t] = take(run, t)) && is_there;
  for (int o = 0; o < run->play.n_ops && is_there; o++) {
    perform(&run->play, &run->play.ops[o], bytes);
    settle(run, run->play.ops[o].y, bytes[run->play.ops[o].y]);
  }
  for (int t = 0; t < run->play.n_tensors; t++)
    free(bytes[t]);
  if (!is_there)
    sim_device_lose(device, cudaErrorUnknown, "memory of the host");
  return SIM_DONE;
}

cudnnStatus_t play_enqueue(cudnnHandle_t handle, const struct play *play, const struct play_data *data) {
  const char *attention = getenv("WEIR_SIMULATED_ATTENTION");
  struct play_run *run = sim_op_new(sizeof *run, "a graph of cuDNN", play_run);
  run->play = *play;
  run->data = *data;
  run->is_wrong = attention && strcmp(attention, "wrong") == 0;
  return dnn_enqueue(handle, &run->op);
}
