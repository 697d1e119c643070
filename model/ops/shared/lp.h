/* Norms of order p, for the pools that compute them. */
#ifndef WEIR_MODEL_OPS_SHARED_LP_H
#define WEIR_MODEL_OPS_SHARED_LP_H

#include <math.h>

#include "model/ops/shared/infer.h"

/* The order of a node's norm: 2 where the attribute p is absent. Errors: INVALID below 1. */
static inline int lp_order(const struct node *node, double *p, struct err *err) {
  int64_t order = node_attr_int(node, "p", 2);
  *p = (double)order;
  if (order >= 1)
    return ERR_OK;
  return node_error(node, err, ERR_INVALID, "p is %lld; a norm's order is at least 1", (long long)order);
}

/* What element x adds to the sum under the root. */
static inline double lp_power(double x, double p) {
  if (p == 2.0)
    return x * x;
  return p == 1.0 ? fabs(x) : pow(fabs(x), p);
}

static inline double lp_root(double sum, double p) {
  if (p == 2.0)
    return sqrt(sum);
  return p == 1.0 ? sum : pow(sum, 1.0 / p);
}

/* The derivative of a norm y with respect to its element x; 0 where the norm is. */
static inline double lp_slope(double x, double y, double p) {
  if (x == 0.0 || y == 0.0)
    return 0.0;
  if (p == 1.0)
    return x < 0.0 ? -1.0 : 1.0;
  return p == 2.0 ? x / y : copysign(pow(fabs(x) / y, p - 1.0), x);
}

#endif
