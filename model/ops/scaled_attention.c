/* ScaledAttention: softmax(scale * query x key + mask) x value over stacks of matrices, as one node, and its
   gradient. query f32[..., t, d], key f32[..., d, s], value f32[..., s, e], mask f32 that broadcasts to
   [..., t, s] -> y f32[..., t, e], log_sums f32[..., t]. log_sums are the logarithms of the softmax's
   denominators, from which the gradient computes the weights again instead of keeping them. A row whose mask
   is -inf everywhere gives zeros. Source: Dao et al., FlashAttention, 2022. */
#include "model/ops/scaled_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/broadcast.h"
#include "model/ops/shared/infer.h"

int scaled_attention_init(struct scaled_attention *a, const struct graph *graph, const struct node *node,
                          bool is_grad, struct err *err) {
  const struct shape *q = &node_input(graph, node, is_grad)->shape;
  const struct shape *k = &node_input(graph, node, is_grad + 1)->shape;
  const struct shape *v = &node_input(graph, node, is_grad + 2)->shape;
  const struct value *m = node_input(graph, node, is_grad ? 6 : 3);
  struct shape scores = *q, common;
  int rank = q->rank;
  bool fits = rank >= 2 && k->rank == rank && v->rank == rank && q->dim[rank - 1] == k->dim[rank - 2] &&
              k->dim[rank - 1] == v->dim[rank - 2];
  *a = (struct scaled_attention){.stack = 1, .scale = node_attr_float(node, "scale", 1)};
  for (int d = 0; fits && d < rank - 2; d++) {
    fits = q->dim[d] == k->dim[d] && q->dim[d] == v->dim[d];
    a->stack *= q->dim[d];
  }
  if (!fits)
    return node_error(node, err, ERR_INVALID, "query, key and value do not fit");
  a->t = q->dim[rank - 2];
  a->d = q->dim[rank - 1];
  a->s = k->dim[rank - 1];
  a->e = v->dim[rank - 1];
  scores.dim[rank - 1] = a->s;
  a->scores = scores;
  if (m && (!broadcast_shapes(&m->shape, &scores, &common) || !shape_is_same(&common, &scores)))
    return node_error(node, err, ERR_INVALID, "the mask '%s' does not broadcast to the scores", m->name);
  if (m)
    a->mask = m->shape;
  return ERR_OK;
}

/* The offset in the mask of the matrix of scores at `index` of the stack. */
int64_t scaled_attention_mask_at(const struct scaled_attention *a, int64_t index) {
  int64_t offset = 0, stride = 1;
  int lead = a->scores.rank - a->mask.rank;
  if (a->mask.rank < 2)
    return 0;
  stride = a->mask.dim[a->mask.rank - 1] * a->mask.dim[a->mask.rank - 2];
  for (int d = a->scores.rank - 3; d >= 0; d--) {
    int64_t own = d >= lead ? a->mask.dim[d - lead] : 1;
    if (own > 1)
      offset += index % a->scores.dim[d] * stride;
    stride *= own;
    index /= a->scores.dim[d];
  }
  return offset;
}

void scaled_attention_mask_strides(const struct scaled_attention *a, int64_t *row, int64_t *column) {
  int64_t cols = a->mask.rank >= 1 ? a->mask.dim[a->mask.rank - 1] : 1;
  int64_t rows = a->mask.rank >= 2 ? a->mask.dim[a->mask.rank - 2] : 1;
  *column = cols > 1;
  *row = rows > 1 ? cols : 0;
}

static int attention_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape y = node_input(graph, node, 0)->shape, log_sums = y;
  struct scaled_attention a;
  if (infer_check_f32(graph, node, err) || scaled_attention_init(&a, graph, node, false, err))
    return err->code;
  y.dim[y.rank - 1] = a.e;
  log_sums.rank--;
  if (infer_f32(graph, node, 0, &y, err))
    return err->code;
  return infer_f32(graph, node, 1, &log_sums, err);
}

static int attention_backward(struct autodiff *ad, struct graph *graph, const struct node *node,
                              struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0),
                  node->inputs[0],
                  node->inputs[1],
                  node->inputs[2],
                  node->outputs[0],
                  -1,
                  node->n_inputs > 3 ? node->inputs[3] : -1};
  struct attr scale = attr_of_float("scale", node_attr_float(node, "scale", 1));
  const struct node *grad;
  if (autodiff_wants(ad, node, 3))
    return node_error(node, err, ERR_UNSUPPORTED, "the mask has no gradient");
  inputs[5] = backward_keep(graph, node, 1);
  grad = graph_add_node(graph, "ScaledAttentionGrad", (struct value_list){inputs, inputs[6] < 0 ? 6 : 7}, 3,
                        ATTR_LIST(scale));
  for (int i = 0; i < 3; i++)
    autodiff_add(ad, node, i, grad->outputs[i]);
  return ERR_OK;
}

/* A row of the mask, element j at j * step; at NULL: there is none. */
struct mask_row {
  const float *at;
  int64_t step;
};

static struct mask_row mask_row_of(const struct scaled_attention *a, const float *mask, int64_t row) {
  int64_t row_stride, step;
  scaled_attention_mask_strides(a, &row_stride, &step);
  return (struct mask_row){
      mask ? mask + scaled_attention_mask_at(a, row / a->t) + row % a->t * row_stride : NULL, step};
}

/* One row of scores: scale * q x k + mask. */
static void score_row(const struct scaled_attention *a, const float *q, const float *k, struct mask_row mask,
                      double *row) {
  for (int64_t j = 0; j < a->s; j++) {
    double sum = 0;
    for (int64_t c = 0; c < a->d; c++)
      sum += (double)q[c] * k[c * a->s + j];
    row[j] = sum * a->scale + (mask.at ? (double)mask.at[j * mask.step] : 0);
  }
}

static double log_sum_of(const double *row, int64_t n) {
  double greatest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < n; j++)
    greatest = fmax(greatest, row[j]);
  for (int64_t j = 0; j < n && greatest > -INFINITY; j++)
    sum += exp(row[j] - greatest);
  return greatest > -INFINITY ? greatest + log(sum) : -INFINITY;
}

static double weight_of(double score, double log_sum) {
  return log_sum > -INFINITY ? exp(score - log_sum) : 0;
}

static int attention_ref(const struct op_call *call, struct err *err) {
  const float *q = call->in[0].data, *mask = call->in[3].data;
  float *y = call->out[0].data, *log_sums = call->out[1].data;
  struct scaled_attention a;
  double *row;
  if (scaled_attention_init(&a, call->graph, call->node, false, err))
    return err->code;
  row = mem_new((size_t)a.s * sizeof *row);
  for (int64_t r = 0; r < a.stack * a.t; r++, q += a.d, y += a.e) {
    int64_t b = r / a.t;
    const float *v = (const float *)call->in[2].data + b * a.s * a.e;
    double log_sum;
    score_row(&a, q, (const float *)call->in[1].data + b * a.d * a.s, mask_row_of(&a, mask, r), row);
    log_sum = log_sum_of(row, a.s);
    for (int64_t c = 0; c < a.e; c++) {
      double sum = 0;
      for (int64_t j = 0; j < a.s; j++)
        sum += weight_of(row[j], log_sum) * v[j * a.e + c];
      y[c] = (float)sum;
    }
    if (log_sums)
      log_sums[r] = (float)log_sum;
  }
  free(row);
  return ERR_OK;
}

static double attention_multiply_adds(const struct graph *graph, const struct node *node) {
  struct scaled_attention a;
  struct err err = ERR_NONE;
  if (scaled_attention_init(&a, graph, node, false, &err))
    return 0;
  return (double)a.stack * (double)a.t * (double)a.s * (double)(a.d + a.e);
}

static const struct op_case attention_cases[] = {
    {.inputs = "f32[2,3,4] f32[2,4,5] f32[2,5,2]", .attrs = "scale=0.5f"},
    {.inputs = "f32[2,2,3,4] f32[2,2,4,3] f32[2,2,3,4] f32[3,3]==0,-inf,-inf,0,0,-inf,0,0,0"},
    {.inputs = "f32[1,2,2] f32[1,2,2] f32[1,2,2] f32[2,2]==-inf,-inf,0,0"},
    {.draw = "b=1..3 h=1..2 t=1..5 s=1..5 d=1..4 e=1..4",
     .inputs = "f32[b,h,t,d] f32[b,h,d,s] f32[b,h,s,e]",
     .attrs = "scale=0.7f"},
    {.draw = "b=1..3 h=1..2 t=1..5 s=1..5 d=1..4 m=1|0 e=1..4",
     .inputs = "f32[b,h,t,d] f32[b,h,d,s] f32[b,h,s,e] f32[b,1,1,s]==0.5",
     .attrs = "scale=0.7f"},
    {0},
};

static const struct op_def scaled_attention_grad;
static const struct op_def *const scaled_attention_gradients[] = {&scaled_attention_grad, NULL};

const struct op_def op_ScaledAttention = {
    .name = "ScaledAttention",
    .domain = "ai.weir",
    .min_inputs = 3,
    .max_inputs = 4,
    .min_outputs = 1,
    .max_outputs = 2,
    .infer = attention_infer,
    .backward = attention_backward,
    .ref = attention_ref,
    .multiply_adds = attention_multiply_adds,
    .cases = attention_cases,
    .gradients = scaled_attention_gradients,
};

static int grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct scaled_attention a;
  if (infer_check_f32(graph, node, err) || scaled_attention_init(&a, graph, node, true, err))
    return err->code;
  for (int o = 0; o < 3; o++) {
    struct shape shape = node_input(graph, node, 1 + o)->shape;
    if (infer_f32(graph, node, o, &shape, err))
      return err->code;
  }
  return ERR_OK;
}

/* What one row of queries adds. dweight = dy x value; dscore = weight * (dweight - dy . y) */
static void grad_row(const struct scaled_attention *a, const struct op_call *call, int64_t r,
                     const double *scores) {
  int64_t b = r / a->t;
  const float *dy = (const float *)call->in[0].data + r * a->e,
              *y = (const float *)call->in[4].data + r * a->e;
  const float *q = (const float *)call->in[1].data + r * a->d;
  const float *k = (const float *)call->in[2].data + b * a->d * a->s;
  const float *v = (const float *)call->in[3].data + b * a->s * a->e;
  float *dq = (float *)call->out[0].data + r * a->d, *dk = (float *)call->out[1].data + b * a->d * a->s;
  float *dv = (float *)call->out[2].data + b * a->s * a->e;
  double log_sum = ((const float *)call->in[5].data)[r], along = 0;
  for (int64_t c = 0; c < a->e; c++)
    along += (double)dy[c] * y[c];
  for (int64_t j = 0; j < a->s; j++) {
    double weight = weight_of(scores[j], log_sum), dscore = -along;
    for (int64_t c = 0; c < a->e; c++) {
      dscore += (double)dy[c] * v[j * a->e + c];
      dv[j * a->e + c] += (float)(weight * dy[c]);
    }
    dscore *= weight * a->scale;
    for (int64_t c = 0; c < a->d; c++) {
      dq[c] += (float)(dscore * k[c * a->s + j]);
      dk[c * a->s + j] += (float)(dscore * q[c]);
    }
  }
}

static int grad_ref(const struct op_call *call, struct err *err) {
  const float *mask = call->in[6].data;
  struct scaled_attention a;
  double *scores;
  if (scaled_attention_init(&a, call->graph, call->node, true, err))
    return err->code;
  scores = mem_new((size_t)a.s * sizeof *scores);
  for (int o = 0; o < 3; o++)
    memset(call->out[o].data, 0, (size_t)shape_elems(&call->out[o].shape) * sizeof(float));
  for (int64_t r = 0; r < a.stack * a.t; r++) {
    int64_t b = r / a.t;
    score_row(&a, (const float *)call->in[1].data + r * a.d, (const float *)call->in[2].data + b * a.d * a.s,
              mask_row_of(&a, mask, r), scores);
    grad_row(&a, call, r, scores);
  }
  free(scores);
  return ERR_OK;
}

/* dy, query, key, value, y, log_sums, mask -> dquery, dkey, dvalue */
static const struct op_def scaled_attention_grad = {
    .name = "ScaledAttentionGrad",
    .domain = "ai.weir",
    .min_inputs = 6,
    .max_inputs = 7,
    .min_outputs = 3,
    .max_outputs = 3,
    .infer = grad_infer,
    .ref = grad_ref,
};
