/* ScaledAttention and its gradient, by kernels of our own. */
#include "worker/backend/cuda/attention.h"

#include <math.h>

#include "common/ops/scaled_attention.h"
#include "worker/backend/cuda/cuda.h"

/* What a mask holds that hides: exporters write -inf, or the least of all floats. */
static const float HIDDEN = -1e30f;

/* Whether the mask is known and only hides what is beyond a diagonal, which each row has something before. */
static bool is_causal(const struct scaled_attention *a, const struct value *mask, int64_t *diagonal) {
  const float *data = mask->data;
  int64_t first = 0;
  if (mask->kind != VALUE_CONSTANT || !data || mask->shape.rank < 2 ||
      shape_elems(&mask->shape) != a->t * a->s || mask->shape.dim[mask->shape.rank - 1] != a->s)
    return false;
  while (first < a->s && data[first] == 0)
    first++;
  if (first == 0)
    return false;
  for (int64_t i = 0; i < a->t; i++)
    for (int64_t j = 0; j < a->s; j++)
      if (j < first + i ? data[i * a->s + j] != 0 : !(data[i * a->s + j] <= HIDDEN))
        return false;
  *diagonal = first - 1;
  return true;
}

/* Strides of the mask along the dimensions of the stack. */
static void lead_init(struct cuda_attention *own, const struct scaled_attention *a) {
  int missing = a->scores.rank - a->mask.rank;
  int64_t stride = a->mask.rank >= 2 ? a->mask.dim[a->mask.rank - 1] * a->mask.dim[a->mask.rank - 2] : 1;
  own->lead = a->scores.rank - 2;
  for (int d = own->lead - 1; d >= 0; d--) {
    int64_t dim = a->mask.rank >= 2 && d >= missing ? a->mask.dim[d - missing] : 1;
    own->lead_dim[d] = a->scores.dim[d];
    own->lead_stride[d] = dim > 1 ? stride : 0;
    stride *= dim;
  }
}

/* reads_mask: whether the kernel still needs the mask. */
static bool attention_init(struct cuda_attention *own, const struct graph *graph, const struct node *node,
                           int first, int mask, bool *reads_mask) {
  const struct value *value = node_input(graph, node, mask);
  struct scaled_attention a;
  struct err err = ERR_NONE;
  if (scaled_attention_init(&a, graph, node, first, mask, &err))
    return false;
  *own = (struct cuda_attention){
      .stack = a.stack, .t = a.t, .s = a.s, .d = a.d, .e = a.e, .scale = (float)a.scale, .diagonal = a.s};
  *reads_mask = value && !is_causal(&a, value, &own->diagonal);
  scaled_attention_mask_strides(&a, &own->mask_row, &own->mask_column);
  lead_init(own, &a);
  return true;
}

static struct cuda_tensor tensor_of(const struct cuda_step *step, int arg) {
  return arg < step->n_args && step->args[arg].buffer >= 0 ? step->args[arg].tensor : (struct cuda_tensor){0};
}

enum { QUERY, KEY, VALUE, Y, LOG_SUMS, MASK };

static int enqueue(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                   struct err *err) {
  (void)program;
  (void)err;
  cuda_attention_launch(step->details, tensor_of(step, QUERY), tensor_of(step, KEY), tensor_of(step, VALUE),
                        tensor_of(step, MASK), tensor_of(step, Y), tensor_of(step, LOG_SUMS).data, stream);
  return ERR_OK;
}

/* query, key, value, [mask] -> y, [log_sums] */
static bool prepare(struct backend_program *program, const struct node *node) {
  struct cuda_attention *own = arena_new(cuda_view(program)->memory, sizeof *own);
  bool reads_mask;
  if (!attention_init(own, cuda_view(program)->graph, node, 0, 3, &reads_mask))
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  step->enqueue = enqueue;
  step->details = own;
  for (int i = 0; i < 3; i++)
    cuda_read(program, step, node->inputs[i], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_write(program, step, node->n_outputs > 1 ? node->outputs[1] : -1, CUDA_F32, CUDA_DENSE);
  if (reads_mask)
    cuda_read(program, step, node->inputs[3], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_step_end(program, step);
  return true;
}

enum { G_DY, G_QUERY, G_KEY, G_VALUE, G_Y, G_LOG_SUMS, G_DQUERY, G_DKEY, G_DVALUE, G_ALONG, G_MASK };

static int enqueue_grad(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct cuda_attention_grad grad = {.dy = tensor_of(step, G_DY),
                                           .query = tensor_of(step, G_QUERY),
                                           .key = tensor_of(step, G_KEY),
                                           .value = tensor_of(step, G_VALUE),
                                           .y = tensor_of(step, G_Y),
                                           .mask = tensor_of(step, G_MASK),
                                           .log_sums = tensor_of(step, G_LOG_SUMS).data,
                                           .along = tensor_of(step, G_ALONG).data,
                                           .dquery = tensor_of(step, G_DQUERY),
                                           .dkey = tensor_of(step, G_DKEY),
                                           .dvalue = tensor_of(step, G_DVALUE)};
  (void)program;
  (void)err;
  cuda_attention_grad_launch(step->details, &grad, stream);
  return ERR_OK;
}

/* dy, query, key, value, y, log_sums, [mask] -> dquery, dkey, dvalue */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  struct cuda_attention *own = arena_new(cuda_view(program)->memory, sizeof *own);
  bool reads_mask;
  if (!attention_init(own, cuda_view(program)->graph, node, 1, 6, &reads_mask))
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  step->enqueue = enqueue_grad;
  step->details = own;
  for (int i = 0; i < 5; i++)
    cuda_read(program, step, node->inputs[i], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_read(program, step, node->inputs[5], CUDA_F32, CUDA_DENSE);
  for (int i = 0; i < 3; i++)
    cuda_write(program, step, node->outputs[i], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_scratch(program, step, (size_t)(own->stack * own->t) * sizeof(float));
  if (reads_mask)
    cuda_read(program, step, node->inputs[6], CUDA_ANY_TYPE, CUDA_DENSE);
  cuda_step_end(program, step);
  return true;
}

const struct cuda_kernel cuda_kernel_scaled_attention = {.op = "ScaledAttention", .prepare = prepare};
const struct cuda_kernel cuda_kernel_scaled_attention_grad = {.op = "ScaledAttentionGrad",
                                                              .prepare = prepare_grad};
