/* Small dense matrices, row by row in f64. Sums have one fixed order. */
#ifndef WEIR_COMMON_SWEEP_NUMBERS_MATRIX_H
#define WEIR_COMMON_SWEEP_NUMBERS_MATRIX_H

#include <stdbool.h>

double vector_dot(const double *a, const double *b, int n);

/* a f64[n,n], of which the lower triangle is read, becomes the lower triangular L of a = L L'; what is above
   the diagonal stays. False where a is not positive definite; then a has no meaning. */
bool matrix_cholesky(double *a, int n);
/* b f64[n] becomes the x of L x = b, or of L' x = b. */
void matrix_solve_lower(const double *l, int n, double *b);
void matrix_solve_upper(const double *l, int n, double *b);
/* out f64[n,n] becomes the lower triangle of (L L')^-1; what is above the diagonal has no meaning. */
void matrix_inverse(const double *l, int n, double *out);

/* Eigenvalues f64[n] and, as columns of vectors f64[n,n], eigenvectors of the symmetric a, whose contents are
   used up (Jacobi's cyclic method). */
void matrix_eigen(double *a, int n, double *values, double *vectors);

#endif
