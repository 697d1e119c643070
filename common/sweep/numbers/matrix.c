/* Small dense matrices. */
#include "common/sweep/numbers/matrix.h"

#include <math.h>
#include <string.h>

#include "common/base/vector_variants.h"

enum { LANES = 8, JACOBI_SWEEPS_MAX = 50 };

static inline __attribute__((always_inline)) double dot(const double *a, const double *b, int n) {
  double lanes[LANES] = {0}, sum = 0;
  int i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++)
      lanes[lane] += a[i + lane] * b[i + lane];
  for (; i < n; i++)
    sum += a[i] * b[i];
  for (int lane = 0; lane < LANES; lane++)
    sum += lanes[lane];
  return sum;
}

static inline __attribute__((always_inline)) void add(double *restrict to, double scale,
                                                      const double *restrict from, int n) {
  for (int i = 0; i < n; i++)
    to[i] += scale * from[i];
}

double vector_dot(const double *a, const double *b, int n) {
  return dot(a, b, n);
}

VECTOR_VARIANTS bool matrix_cholesky(double *a, int n) {
  for (int i = 0; i < n; i++) {
    double *row = a + (long)i * n, left;
    for (int j = 0; j < i; j++)
      row[j] = (row[j] - dot(row, a + (long)j * n, j)) / a[(long)j * n + j];
    left = row[i] - dot(row, row, i);
    if (!(left > 0) || !isfinite(left))
      return false;
    row[i] = sqrt(left);
  }
  return true;
}

VECTOR_VARIANTS void matrix_solve_lower(const double *l, int n, double *b) {
  for (int i = 0; i < n; i++)
    b[i] = (b[i] - dot(l + (long)i * n, b, i)) / l[(long)i * n + i];
}

VECTOR_VARIANTS void matrix_solve_upper(const double *l, int n, double *b) {
  for (int i = n - 1; i >= 0; i--) {
    b[i] /= l[(long)i * n + i];
    add(b, -b[i], l + (long)i * n, i);
  }
}

/* Column j of the inverse needs only rows from j on, once L^-1 is there: (L L')^-1 = (L^-1)' L^-1. */
VECTOR_VARIANTS void matrix_inverse(const double *l, int n, double *out) {
  memset(out, 0, (size_t)n * (size_t)n * sizeof *out);
  for (int i = 0; i < n; i++) { /* row i of L^-1 from the rows before it */
    double *row = out + (long)i * n, scale = 1 / l[(long)i * n + i];
    for (int k = 0; k < i; k++)
      add(row, -l[(long)i * n + k] * scale, out + (long)k * n, k + 1);
    row[i] = scale;
  }
  for (int i = 0; i < n;
       i++) { /* row i of the product takes rows from i on, of which it is the last to be read */
    double *row = out + (long)i * n, own = row[i];
    for (int j = 0; j <= i; j++)
      row[j] *= own;
    for (int k = i + 1; k < n; k++)
      add(row, out[(long)k * n + i], out + (long)k * n, i + 1);
  }
}

/* One rotation that makes a[p][q] zero. */
static void rotate(double *a, int n, int p, int q, double *vectors) {
  double theta = (a[(long)q * n + q] - a[(long)p * n + p]) / (2 * a[(long)p * n + q]);
  double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
  double c = 1 / sqrt(t * t + 1), s = t * c;
  for (int k = 0; k < n; k++) {
    double x = a[(long)k * n + p], y = a[(long)k * n + q];
    a[(long)k * n + p] = c * x - s * y;
    a[(long)k * n + q] = s * x + c * y;
  }
  for (int k = 0; k < n; k++) {
    double x = a[(long)p * n + k], y = a[(long)q * n + k];
    a[(long)p * n + k] = c * x - s * y;
    a[(long)q * n + k] = s * x + c * y;
  }
  for (int k = 0; k < n; k++) {
    double x = vectors[(long)k * n + p], y = vectors[(long)k * n + q];
    vectors[(long)k * n + p] = c * x - s * y;
    vectors[(long)k * n + q] = s * x + c * y;
  }
}

void matrix_eigen(double *a, int n, double *values, double *vectors) {
  memset(vectors, 0, (size_t)n * (size_t)n * sizeof *vectors);
  for (int i = 0; i < n; i++)
    vectors[(long)i * n + i] = 1;
  for (int sweep = 0; sweep < JACOBI_SWEEPS_MAX; sweep++) {
    double outside = 0, diagonal = 0;
    for (int i = 0; i < n; i++) {
      diagonal += a[(long)i * n + i] * a[(long)i * n + i];
      for (int j = 0; j < i; j++)
        outside += a[(long)i * n + j] * a[(long)i * n + j];
    }
    if (!(outside > 1e-30 * diagonal))
      break;
    for (int p = 0; p < n; p++)
      for (int q = p + 1; q < n; q++)
        if (a[(long)p * n + q] != 0)
          rotate(a, n, p, q, vectors);
  }
  for (int i = 0; i < n; i++)
    values[i] = a[(long)i * n + i];
}
