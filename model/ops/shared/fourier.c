/* A mixed-radix fast Fourier transform: n splits into transforms of its prime factors (Cooley and Tukey,
 * 1965). */
#include "model/ops/shared/fourier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fourier fourier_adjoint(const struct fourier *fourier) {
  struct fourier adjoint = *fourier;
  adjoint.direction = -fourier->direction;
  adjoint.in = fourier->out;
  adjoint.out = fourier->in;
  return adjoint;
}

int fourier_plan_init(struct fourier_plan *plan, const struct fourier *fourier, const struct node *node,
                      struct err *err) {
  size_t n = (size_t)fourier->length;
  *plan = (struct fourier_plan){.fourier = *fourier, .root = calloc(n, 4 * sizeof *plan->root)};
  if (!plan->root)
    return node_error(node, err, ERR_NO_MEMORY, "no memory for a transform of length %zu", n);
  plan->in = plan->root + n;
  plan->out = plan->in + n;
  plan->work = plan->out + n;
  for (size_t j = 0; j < n; j++) {
    double angle = fourier->direction * 2.0 * M_PI * (double)j / (double)n;
    plan->root[j][0] = cos(angle);
    plan->root[j][1] = sin(angle);
  }
  return ERR_OK;
}

void fourier_plan_fini(struct fourier_plan *plan) {
  free(plan->root);
}

static int64_t smallest_factor(int64_t n) {
  for (int64_t p = 2; p * p <= n; p++)
    if (n % p == 0)
      return p;
  return n;
}

/* Joins the transforms of length m = n / p of the p interleaved parts, which lie one after the other in out.
   stride: root of length n is every stride-th. */
static void spectra_join(struct fourier_plan *plan, double (*out)[2], int64_t p, int64_t m, int64_t stride) {
  double(*work)[2] = plan->work;
  for (int64_t k = 0; k < m; k++) {
    for (int64_t q = 0; q < p; q++)
      memcpy(work[q], out[q * m + k], sizeof *work);
    for (int64_t j = 0; j < p; j++) {
      double re = 0.0, im = 0.0;
      int64_t step = (j * m + k) * stride, at = 0; /* at: q * step modulo the length */
      for (int64_t q = 0; q < p; q++) {
        const double *root = plan->root[at];
        re += work[q][0] * root[0] - work[q][1] * root[1];
        im += work[q][0] * root[1] + work[q][1] * root[0];
        at += step;
        if (at >= plan->fourier.length)
          at -= plan->fourier.length;
      }
      out[j * m + k][0] = re;
      out[j * m + k][1] = im;
    }
  }
}

/* n elements of `in`, `stride` apart, to out. */
static void spectrum_transform(struct fourier_plan *plan, double (*in)[2], int64_t stride, double (*out)[2],
                               int64_t n) {
  int64_t p = smallest_factor(n), m = n / p;
  if (n == 1) {
    memcpy(out[0], in[0], sizeof *out);
    return;
  }
  for (int64_t q = 0; q < p; q++)
    spectrum_transform(plan, in + q * stride, stride * p, out + q * m, m);
  spectra_join(plan, out, p, m, stride);
}

/* How often element i counts. */
static double complex_times(const struct fourier *fourier, const struct fourier_end *end, int64_t i) {
  return end->is_half && i > 0 && 2 * i < fourier->length ? 2.0 : 1.0;
}

void fourier_transform(struct fourier_plan *plan) {
  const struct fourier *f = &plan->fourier;
  for (int64_t j = 0; j < f->length; j++)
    for (int part = 0; part < 2; part++) {
      bool is_given = j < f->in.used && part < f->in.parts;
      plan->in[j][part] = is_given ? plan->in[j][part] * complex_times(f, &f->in, j) : 0.0;
    }
  spectrum_transform(plan, plan->in, 1, plan->out, f->length);
  for (int64_t k = 0; k < f->out.used; k++)
    for (int part = 0; part < 2; part++)
      plan->out[k][part] *= f->scale * complex_times(f, &f->out, k);
}

void fourier_line(struct fourier_plan *plan, const float *x, int64_t x_stride, float *y, int64_t y_stride) {
  const struct fourier *f = &plan->fourier;
  for (int64_t j = 0; j < f->in.used; j++)
    for (int part = 0; part < f->in.parts; part++)
      plan->in[j][part] = x[j * x_stride + part];
  fourier_transform(plan);
  for (int64_t k = 0; k < f->out.count; k++)
    for (int part = 0; part < f->out.parts; part++)
      y[k * y_stride + part] = k < f->out.used ? (float)plan->out[k][part] : 0.0f;
}
