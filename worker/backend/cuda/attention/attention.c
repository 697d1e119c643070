/* ScaledAttention and its gradient: by cuDNN where it has engines for the pattern, by matrix products where
   factors are rounded anyway, or by tiles of our own, which take every shape. */
#include "worker/backend/cuda/attention/attention.h"

#include <string.h>

#include "model/ops/scaled_attention.h"
#include "worker/backend/cuda/attention/attention_plans.h"
#include "worker/backend/cuda/attention/attention_products.h"
#include "worker/backend/cuda/moves/moves.h"
#include "worker/backend/cuda/product/product.h"

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
                           bool is_grad, bool *reads_mask) {
  int mask = is_grad ? 6 : 3;
  const struct value *value = node_input(graph, node, mask);
  struct scaled_attention a;
  struct err err = ERR_NONE;
  if (scaled_attention_init(&a, graph, node, is_grad, &err))
    return false;
  *own = (struct cuda_attention){
      .stack = a.stack, .t = a.t, .s = a.s, .d = a.d, .e = a.e, .scale = (float)a.scale, .diagonal = a.s};
  *reads_mask = value && !is_causal(&a, value, &own->diagonal);
  scaled_attention_mask_strides(&a, &own->mask_row, &own->mask_column);
  lead_init(own, &a);
  return true;
}

/* What a step needs besides its arguments. */
struct step_attention {
  struct cuda_attention shape;
  struct attention_dnn *dnn;           /* NULL: not by cuDNN */
  struct attention_products *products; /* NULL, too: tiles */
  int mask, scratch;                   /* arguments; -1: none */
};

static struct step_attention *step_new(struct backend_program *program, const struct node *node, bool is_grad,
                                       bool *reads_mask) {
  struct step_attention *own = arena_new(cuda_view(program)->memory, sizeof *own);
  own->mask = own->scratch = -1;
  if (!attention_init(&own->shape, cuda_view(program)->graph, node, is_grad, reads_mask))
    return NULL;
  own->dnn = attention_plan_find(program, &own->shape, *reads_mask, is_grad);
  if (!own->dnn)
    own->products = attention_products_new(program, &own->shape, is_grad);
  return own;
}

/* Products and cuDNN want all tensors in the type of factors, tiles take them as they are. */
static enum cuda_type type_in(const struct backend_program *program, const struct step_attention *own) {
  return own->dnn || own->products ? cuda_factor_type(program) : CUDA_ANY_TYPE;
}

/* Arguments of a step; the first are the inputs of its node. */
enum { QUERY, KEY, VALUE, Y, LOG_SUMS };
enum { G_DY, G_QUERY, G_KEY, G_VALUE, G_Y, G_LOG_SUMS, G_DQUERY, G_DKEY, G_DVALUE, G_ALONG };

static bool is_op(const struct node *node, const char *op) {
  return strcmp(node->op->name, op) == 0;
}

bool cuda_attention_wants_turned(struct backend_program *program, int value) {
  const struct graph *graph = cuda_view(program)->graph;
  bool is_key = false;
  for (int n = 0; n < graph->n_nodes; n++) {
    const struct node *node = graph->nodes[n];
    bool is_forward = is_op(node, "ScaledAttention"), is_grad = is_op(node, "ScaledAttentionGrad"),
         reads_mask;
    int key = is_grad ? G_KEY : KEY;
    struct cuda_attention shape;
    for (int i = 0; i < node->n_inputs; i++)
      if (node->inputs[i] == value && (i != key || !(is_forward || is_grad)))
        return false;
    if (!(is_forward || is_grad) || node->inputs[key] != value)
      continue;
    if (!attention_init(&shape, graph, node, is_grad, &reads_mask) ||
        !attention_plan_find(program, &shape, reads_mask, is_grad))
      return false;
    is_key = true;
  }
  return is_key;
}

/* Keys as they lie, if cuDNN reads them so. */
static enum cuda_layout key_layout(const struct backend_program *program, const struct step_attention *own,
                                   int key) {
  return own->dnn && cuda_layout_of(program, key) == CUDA_TURNED ? CUDA_TURNED : CUDA_DENSE;
}

/* A gradient of keys that only Transposes read, which take it as it lies. */
static enum cuda_layout key_gradient_layout(const struct backend_program *program,
                                            const struct step_attention *own, int value) {
  const struct graph *graph = cuda_view(program)->graph;
  bool is_read = false;
  for (int n = 0; n < graph->n_nodes; n++)
    for (int i = 0; i < graph->nodes[n]->n_inputs; i++)
      if (graph->nodes[n]->inputs[i] == value) {
        if (!is_op(graph->nodes[n], "Transpose"))
          return CUDA_DENSE;
        is_read = true;
      }
  return own->dnn && is_read ? CUDA_TURNED : CUDA_DENSE;
}

static void step_finish(struct backend_program *program, struct cuda_step *step, int mask) {
  struct step_attention *own = step->details;
  if (mask >= 0)
    own->mask = cuda_read(program, step, mask, CUDA_ANY_TYPE, CUDA_DENSE);
  if (own->dnn)
    own->scratch = cuda_scratch(program, step, attention_dnn_bytes(own->dnn));
  else if (own->products)
    own->scratch = cuda_scratch(program, step, attention_products_bytes(own->products));
  cuda_step_end(program, step);
}

static struct cuda_tensor tensor_of(const struct cuda_step *step, int arg) {
  return arg >= 0 && step->args[arg].buffer >= 0 ? step->args[arg].tensor : (struct cuda_tensor){0};
}

static int enqueue_attention(struct backend_program *program, const struct cuda_step *step,
                             cudaStream_t stream, struct err *err) {
  const struct step_attention *own = step->details;
  const struct cuda_attention_io io = {.query = tensor_of(step, QUERY),
                                       .key = tensor_of(step, KEY),
                                       .value = tensor_of(step, VALUE),
                                       .y = tensor_of(step, Y),
                                       .mask = tensor_of(step, own->mask),
                                       .log_sums = tensor_of(step, LOG_SUMS).data};
  const struct attention_call call = {
      .node = step->node, .scratch = tensor_of(step, own->scratch).data, .stream = stream};
  if (own->dnn)
    return attention_dnn_enqueue(program, own->dnn, &io, &call, err);
  if (own->products)
    return attention_products_forward(own->products, &io, &call, err);
  cuda_attention_launch(&own->shape, &io, stream);
  return ERR_OK;
}

/* query, key, value, [mask] -> y, [log_sums] */
static bool prepare_attention(struct backend_program *program, const struct node *node) {
  bool reads_mask;
  struct step_attention *own = step_new(program, node, false, &reads_mask);
  if (!own)
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  step->enqueue = enqueue_attention;
  step->details = own;
  for (int i = 0; i < 3; i++)
    cuda_read(program, step, node->inputs[i], type_in(program, own),
              i == KEY ? key_layout(program, own, node->inputs[i]) : CUDA_DENSE);
  cuda_write(program, step, node->outputs[0], type_in(program, own), CUDA_DENSE);
  cuda_write(program, step, node->n_outputs > 1 ? node->outputs[1] : -1, CUDA_F32, CUDA_DENSE);
  step_finish(program, step, reads_mask ? node->inputs[3] : -1);
  return true;
}

static int enqueue_grad(struct backend_program *program, const struct cuda_step *step, cudaStream_t stream,
                        struct err *err) {
  const struct step_attention *own = step->details;
  const struct cuda_attention_io io = {.dy = tensor_of(step, G_DY),
                                       .query = tensor_of(step, G_QUERY),
                                       .key = tensor_of(step, G_KEY),
                                       .value = tensor_of(step, G_VALUE),
                                       .y = tensor_of(step, G_Y),
                                       .mask = tensor_of(step, own->mask),
                                       .log_sums = tensor_of(step, G_LOG_SUMS).data,
                                       .along = tensor_of(step, G_ALONG).data,
                                       .dquery = tensor_of(step, G_DQUERY),
                                       .dkey = tensor_of(step, G_DKEY),
                                       .dvalue = tensor_of(step, G_DVALUE)};
  const struct attention_call call = {
      .node = step->node, .scratch = tensor_of(step, own->scratch).data, .stream = stream};
  if (own->dnn)
    return attention_dnn_enqueue(program, own->dnn, &io, &call, err);
  if (own->products)
    return attention_products_backward(own->products, &io, &call, err);
  cuda_attention_grad_launch(&own->shape, &io, stream);
  return ERR_OK;
}

/* dy, query, key, value, y, log_sums, [mask] -> dquery, dkey, dvalue */
static bool prepare_grad(struct backend_program *program, const struct node *node) {
  bool reads_mask;
  struct step_attention *own = step_new(program, node, true, &reads_mask);
  if (!own)
    return false;
  struct cuda_step *step = cuda_step_new(program, node);
  step->enqueue = enqueue_grad;
  step->details = own;
  for (int i = 0; i < 5; i++)
    cuda_read(program, step, node->inputs[i], type_in(program, own),
              i == G_KEY ? key_layout(program, own, node->inputs[i]) : CUDA_DENSE);
  cuda_read(program, step, node->inputs[5], CUDA_F32, CUDA_DENSE);
  for (int i = 0; i < 3; i++)
    cuda_write(program, step, node->outputs[i], type_in(program, own),
               G_DQUERY + i == G_DKEY ? key_gradient_layout(program, own, node->outputs[i]) : CUDA_DENSE);
  cuda_scratch(program, step, (size_t)(own->shape.stack * own->shape.t) * sizeof(float));
  step_finish(program, step, reads_mask ? node->inputs[6] : -1);
  return true;
}

const struct cuda_kernel cuda_kernel_scaled_attention = {.op = "ScaledAttention",
                                                         .prepare = prepare_attention};
const struct cuda_kernel cuda_kernel_scaled_attention_grad = {.op = "ScaledAttentionGrad",
                                                              .prepare = prepare_grad};
