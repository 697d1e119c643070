/* Integer divisors, for the ops that divide. */
#ifndef WEIR_MODEL_OPS_SHARED_DIVISOR_H
#define WEIR_MODEL_OPS_SHARED_DIVISOR_H

#include "model/graph/op.h"

/* in[1], of an integer type, has no zero; else INVALID, naming the first element that is. */
int divisor_check(const struct op_call *call, struct err *err);

#endif
