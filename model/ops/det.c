/* Det (ONNX 11): determinants of square matrices, x f32[...,m,m] -> f32[...], by LU decomposition with
 * pivots. */
#include <math.h>
#include <stdlib.h>

#include "model/ops/shared/backward.h"
#include "model/ops/shared/infer.h"

static int det_infer(struct graph *graph, const struct node *node, struct err *err) {
  struct shape shape = node_input(graph, node, 0)->shape;
  char text[256];
  if (infer_check_f32(graph, node, err))
    return err->code;
  if (shape.rank < 2 || shape.dim[shape.rank - 1] != shape.dim[shape.rank - 2])
    return node_error(node, err, ERR_INVALID, "shape %s does not end in square matrices",
                      shape_text(&shape, text, sizeof text));
  shape.rank -= 2;
  return infer_f32(graph, node, 0, &shape, err);
}

static int det_backward(struct autodiff *ad, struct graph *graph, const struct node *node, struct err *err) {
  int inputs[] = {autodiff_grad(ad, node, 0), node->inputs[0]};
  (void)err;
  autodiff_add(ad, node, 0, backward_node(graph, "DetGrad", (struct value_list){inputs, 2}, ATTRS_NONE));
  return ERR_OK;
}

/* Room for n f64[m,m]; NULL with NO_MEMORY. */
static double *matrices_new(const struct node *node, int64_t m, size_t n, struct err *err) {
  double *matrices = calloc((size_t)(m * m), n * sizeof *matrices);
  if (!matrices)
    node_error(node, err, ERR_NO_MEMORY, "no memory for matrices of %lld rows", (long long)m);
  return matrices;
}

/* Swaps the rows of a f64[m,columns] so that column k's greatest element from row k on is in row k. Returns
   false if it is 0; *sign is turned for each swap. */
static bool matrix_pivot(double *a, int64_t m, int64_t columns, int64_t k, double *sign) {
  int64_t best = k;
  for (int64_t r = k + 1; r < m; r++)
    if (fabs(a[r * columns + k]) > fabs(a[best * columns + k]))
      best = r;
  if (best != k)
    *sign = -*sign;
  for (int64_t c = 0; c < columns && best != k; c++) {
    double kept = a[k * columns + c];
    a[k * columns + c] = a[best * columns + c];
    a[best * columns + c] = kept;
  }
  return a[k * columns + k] != 0.0;
}

/* The determinant of a f64[m,m], which is overwritten. */
static double matrix_determinant(double *a, int64_t m) {
  double det = 1.0;
  for (int64_t k = 0; k < m; k++) {
    if (!matrix_pivot(a, m, m, k, &det))
      return 0.0;
    det *= a[k * m + k];
    for (int64_t r = k + 1; r < m; r++) {
      double factor = a[r * m + k] / a[k * m + k];
      for (int64_t c = k + 1; c < m; c++)
        a[r * m + c] -= factor * a[k * m + c];
    }
  }
  return det;
}

static int det_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[0];
  int64_t m = x->shape.dim[x->shape.rank - 1], n = shape_elems(&call->out[0].shape);
  const float *from = x->data;
  float *out = call->out[0].data;
  double *a = matrices_new(call->node, m, 1, err);
  if (!a)
    return err->code;
  for (int64_t i = 0; i < n; i++, from += m * m) {
    for (int64_t k = 0; k < m * m; k++)
      a[k] = from[k];
    out[i] = (float)matrix_determinant(a, m);
  }
  free(a);
  return ERR_OK;
}

static const struct op_case det_cases[] = {
    {.inputs = "f32[3,3]=1,2,3,2,4,6,1,0,1"}, /* singular, with a gradient */
    {.inputs = "f32[4,4]=0"},
    {.inputs = "f32[2,2]=0,2,3,0"},
    {.inputs = "f32[s,m,m]", .draw = "m=1..4 s=1|3|2,2"},
    {.inputs = "f32[m,m]", .draw = "m=1..6"},
    {0},
};

static const struct op_def det_grad;
static const struct op_def *const det_gradients[] = {&det_grad, NULL};

const struct op_def op_Det = {
    .name = "Det",
    .domain = "",
    .min_inputs = 1,
    .max_inputs = 1,
    .min_outputs = 1,
    .max_outputs = 1,
    .min_opset = 11,
    .infer = det_infer,
    .backward = det_backward,
    .ref = det_ref,
    .cases = det_cases,
    .gradients = det_gradients,
};

static int det_grad_infer(struct graph *graph, const struct node *node, struct err *err) {
  return infer_f32(graph, node, 0, &node_input(graph, node, 1)->shape, err);
}

/* Cofactors of a f64[m,m] from the determinants of its minors; work f64[m-1,m-1]. */
static void cofactors_of_minors(const double *a, int64_t m, double *work, double *cofactor) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < m; j++) {
      int64_t at = 0;
      for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < m; c++)
          if (r != i && c != j)
            work[at++] = a[r * m + c];
      cofactor[i * m + j] = ((i + j) % 2 ? -1.0 : 1.0) * matrix_determinant(work, m - 1);
    }
}

/* The cofactors are det inverse^T, of [a | 1] by Gauss and Jordan's elimination; work f64[m,2m]. A singular
   matrix has no inverse, but its determinant has a gradient. */
static void matrix_cofactors(const double *a, int64_t m, double *work, double *cofactor) {
  int64_t columns = 2 * m;
  double det = 1.0;
  for (int64_t r = 0; r < m; r++)
    for (int64_t c = 0; c < m; c++) {
      work[r * columns + c] = a[r * m + c];
      work[r * columns + m + c] = r == c;
    }
  for (int64_t k = 0; k < m; k++) {
    double diagonal;
    if (!matrix_pivot(work, m, columns, k, &det)) {
      cofactors_of_minors(a, m, work, cofactor);
      return;
    }
    diagonal = work[k * columns + k];
    det *= diagonal;
    for (int64_t c = 0; c < columns; c++)
      work[k * columns + c] /= diagonal;
    for (int64_t r = 0; r < m; r++) {
      double factor = work[r * columns + k];
      for (int64_t c = 0; c < columns && r != k; c++)
        work[r * columns + c] -= factor * work[k * columns + c];
    }
  }
  for (int64_t r = 0; r < m; r++)
    for (int64_t c = 0; c < m; c++)
      cofactor[r * m + c] = det * work[c * columns + m + r];
}

/* dy f32[...], x f32[...,m,m] -> dx: dy times the cofactors of x. */
static int det_grad_ref(const struct op_call *call, struct err *err) {
  const struct tensor *x = &call->in[1];
  int64_t m = x->shape.dim[x->shape.rank - 1], n = shape_elems(&call->in[0].shape), elems = m * m;
  const float *dy = call->in[0].data, *from = x->data;
  float *dx = call->out[0].data;
  double *a = matrices_new(call->node, m, 4, err), *work, *cofactor;
  if (!a)
    return err->code;
  work = a + elems;
  cofactor = work + 2 * elems;
  for (int64_t i = 0; i < n; i++, from += elems, dx += elems) {
    for (int64_t k = 0; k < elems; k++)
      a[k] = from[k];
    matrix_cofactors(a, m, work, cofactor);
    for (int64_t k = 0; k < elems; k++)
      dx[k] = (float)(dy[i] * cofactor[k]);
  }
  free(a);
  return ERR_OK;
}

static const struct op_def det_grad = {
    .name = "DetGrad",
    .domain = "ai.weir",
    .min_inputs = 2,
    .max_inputs = 2,
    .min_outputs = 1,
    .max_outputs = 1,
    .infer = det_grad_infer,
    .ref = det_grad_ref,
};
